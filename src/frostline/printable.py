"""Untrusted text (names in files, messages of libraries), made safe for a terminal or a log."""

from unicodedata import category

LINE = 200
"""The largest number of characters in the ``repr`` of a result."""


def printable(text: str) -> str:
    """The text on one line; characters that are not shown as themselves become escapes.

    Those are control characters, which a terminal obeys, and marks that reverse or hide the text around them.

    >>> printable("layer\\x1b[2J 3")
    'layer\\\\x1b[2J 3'
    """
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) else " " if char in "\t\n\r\f\v" else _escape(char) for char in text)


def printable_json(text: str) -> str:
    """The JSON text with the characters that ``printable`` escapes as \\u escapes; its line breaks stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if _is_shown(char) or char == "\n" else _json_escape(char) for char in text)


def one_line(result: object, headline: str) -> str:
    """The ``repr`` of a result: its class and the beginning of its headline."""
    name = type(result).__name__
    words = printable("; ".join(line.strip() for line in headline.splitlines()))
    room = LINE - len(f"{name}()")
    return f"{name}({words if len(words) <= room else words[: room - 1] + '…'})"


def _is_shown(char: str) -> bool:
    return char.isprintable() or category(char) == "Zs"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _json_escape(char: str) -> str:
    pairs = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pairs[k : k + 2].hex()}" for k in range(0, len(pairs), 2))
