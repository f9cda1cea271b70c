"""TOML files: whatever is wrong with one is a sentence that names it."""

import tomllib

import pytest
import tomli_w

from frostline.errors import BadParameter, BadSpec
from frostline.files.toml_tables import read_toml, without_nulls


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read the limits '.*file.toml': No such file"),
        (b"\xff", "it is not UTF-8 text"),
        (b"a = = 1", "is not TOML: "),
        (b"a = " + b"[" * 3000 + b"]" * 3000, "nested too deeply to be the limits"),
    ],
)
@pytest.mark.parametrize("error", [BadSpec, BadParameter])
def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path, content, words, error):
    path = tmp_path / "file.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=words):
        read_toml(path, holding="the limits", error=error)


def test_what_is_written_without_nulls_is_read_again(tmp_path):
    table = {"a": None, "b": [{"c": None, "d": 1}], "e": "text"}
    (tmp_path / "file.toml").write_text(tomli_w.dumps(without_nulls(table)))
    assert read_toml(tmp_path / "file.toml") == tomllib.loads('b = [{d = 1}]\ne = "text"')
