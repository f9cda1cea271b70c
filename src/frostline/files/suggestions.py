"""Suggestions for misspelt names."""

from collections.abc import Collection
from difflib import get_close_matches


def is_name(value: object, known: Collection[str]) -> bool:
    """Whether a value that a caller passed, of whatever type, is one of the names."""
    return isinstance(value, str) and value in known


def suggestion(name: str, known: Collection[str]) -> str:
    """«did you mean …?», or the names that there are."""
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}."
