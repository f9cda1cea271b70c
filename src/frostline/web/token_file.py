"""Files with a bearer token: one line of printable ASCII."""

import codecs
from pathlib import Path

from frostline.errors import BadParameter

LARGEST = 4096
"""Largest number of bytes in a token file."""
MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte-order marks that editors put before a text."""


def read_token(path: Path) -> str:
    """The token in a file, without spaces and line breaks around it.

    Parameters
    ----------
    path
        A file with the token in its only line.

    Returns
    -------
    str
        The token; ``check_address`` says whether it is long enough.

    Raises
    ------
    BadParameter
        If the file cannot be read, is empty or too large, or holds anything but one line of printable ASCII.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from frostline.web.token_file import read_token
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "token"
    ...     _ = path.write_text("correct-horse-battery\\n")
    ...     read_token(path)
    'correct-horse-battery'
    """
    name = f"the token file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise BadParameter(f"{name} cannot be read: {error.strerror}.") from None
    if len(content) > LARGEST:
        raise BadParameter(f"{name} has more than {LARGEST} bytes; it has the token in one line and nothing else.")
    if content.startswith(MARKS):
        raise BadParameter(f"{name} begins with a byte-order mark; save it as plain ASCII.")
    token = content.strip()
    if not token:
        raise BadParameter(f"{name} is empty; write the token into it, in one line.")
    if b"\n" in token or b"\r" in token:
        raise BadParameter(f"{name} has several lines; it has the token in one line and nothing else.")
    if any(not 0x21 <= byte <= 0x7E for byte in token):
        raise BadParameter(f"{name} has bytes that no token has; a token is printable ASCII without spaces.")
    return token.decode("ascii")
