"""Token files with strange bytes: one sentence that does not show the token."""

import os

import pytest

from frostline.errors import BadParameter
from frostline.web.server import check_address
from frostline.web.token_file import LARGEST, read_token

TOKEN = b"correct-horse-battery"
STRANGE = {
    "is empty": (b"", b"\n \r\n"),
    "byte-order mark": (b"\xef\xbb\xbf" + TOKEN, TOKEN.decode().encode("utf-16")),
    "several lines": (TOKEN + b"\n" + TOKEN, TOKEN + b"\r" + TOKEN),
    "bytes that no token has": (b"\x80\xfe\xfa" * 8, TOKEN + b"\x00", b"a " + TOKEN, TOKEN + "ü".encode(), b"\x1b[2J"),
    f"more than {LARGEST} bytes": (b"a" * (LARGEST + 1),),
}


@pytest.mark.parametrize(("said", "content"), [(said, one) for said, several in STRANGE.items() for one in several])
def test_strange_bytes_are_one_sentence(tmp_path, said, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(BadParameter, match=said) as error:
        read_token(path)
    assert "horse" not in str(error.value) and "\n" not in str(error.value) and str(path) in str(error.value)


def test_what_is_no_file_is_one_sentence(tmp_path):
    for path, said in (
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "a\nb", "No such"),
    ):
        with pytest.raises(BadParameter, match=said) as error:
            read_token(path)
        assert "\n" not in str(error.value)


def test_a_token_is_read_from_a_file_or_a_pipe_without_the_line_break(tmp_path):
    for content in (TOKEN, TOKEN + b"\n", b" " + TOKEN + b"\r\n"):
        (tmp_path / "token").write_bytes(content)
        assert read_token(tmp_path / "token") == TOKEN.decode()
    reading, writing = os.pipe()
    os.write(writing, TOKEN + b"\n")
    os.close(writing)
    from pathlib import Path

    assert read_token(Path(f"/dev/fd/{reading}")) == TOKEN.decode()
    os.close(reading)


@pytest.mark.parametrize(
    "token", ["correct\x00horse-battery", "correct horse battery", "correct-horse-bättery", "short"]
)
def test_tokens_that_no_header_takes_are_refused(token):
    with pytest.raises(BadParameter, match="printable ASCII") as error:
        check_address("127.0.0.1", token)
    assert token not in str(error.value)
