"""Text of others (names in files, messages of libraries) on its way to a terminal or a log."""

from unicodedata import category

LINE = 200
"""Characters of the ``repr`` of a result, at most."""


def printable(text: str) -> str:
    """The same text on one line, with every character that is not shown as itself written as an escape.

    Those are control characters, which a terminal obeys, and marks that turn or hide what is written.
    """
    if text.isprintable():
        return text
    return "".join(one if _is_shown(one) else " " if one in "\t\n\r\f\v" else _escape(one) for one in text)


def printable_json(text: str) -> str:
    """JSON that holds the same, with those characters as \\u escapes; its own line breaks stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if _is_shown(one) or one == "\n" else _json_escape(one) for one in text)


def one_line(result: object, said: str) -> str:
    """The ``repr`` of a result: its class, and the beginning of what it says."""
    name = type(result).__name__
    words = printable("; ".join(line.strip() for line in said.splitlines()))
    room = LINE - len(f"{name}()")
    return f"{name}({words if len(words) <= room else words[: room - 1] + '…'})"


def _is_shown(one: str) -> bool:
    return one.isprintable() or category(one) == "Zs"


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode()


def _json_escape(one: str) -> str:
    pairs = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pairs[k : k + 2].hex()}" for k in range(0, len(pairs), 2))
