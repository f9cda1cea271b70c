"""The header of a ``.frost`` file: JSON that anybody may have written, checked before it is used or shown."""

from collections.abc import Callable, Mapping
from typing import Any

from frostline.monitoring.baseline import LEVELS

LONGEST_NAME = 4096
"""Characters in the name of a model, at most: it may be a path, and no path is longer."""
LONGEST_KIND, MOST_KINDS = 100, 100
"""Characters in the name of a kind of broken text, and such kinds, at most."""
LARGEST = 100_000
"""Layers, and dimensions of a model, at most."""
SHOWN = 60
"""Characters of something strange that an error quotes."""


def check_header(about: Mapping[str, Any]) -> None:
    """Raise ValueError where it is not what ``Baseline.save`` writes. Other keys may be there; nothing reads them."""
    for key, (fine, wanted) in KNOWN.items():
        if key not in about:
            # Format 2 had no hash of the model's files.
            if key != "files_sha256":
                raise ValueError(f"its header has no {key}")
        elif not fine(about[key]):
            raise ValueError(f"{key} is {brief(about[key])}, not {wanted}")
    for level in LEVELS:
        told = about["judges"].get(level)
        if not isinstance(told, dict) or not isinstance(told.get("clouds"), list):
            raise ValueError(f"its header has no clouds of the {level} level")
        for part, fewest in (("kinds", 1), ("probes", 0)):
            kinds = told.get(part)
            if not isinstance(kinds, list) or not fewest <= len(kinds) <= MOST_KINDS or not all(map(_is_kind, kinds)):
                raise ValueError(f"{part} of the {level} level are {brief(kinds)}, not a list of names")


def brief(thing: object) -> str:
    """The beginning of something strange."""
    said = str(thing) if isinstance(thing, Exception) else repr(thing)
    return said if len(said) <= SHOWN else said[:SHOWN] + "…"


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63


def _is_size(given: Any) -> bool:
    return _is_count(given) and 0 < given <= LARGEST


def _is_name(given: Any) -> bool:
    return isinstance(given, str) and len(given) <= LONGEST_NAME


def _is_kind(given: Any) -> bool:
    return isinstance(given, str) and 0 < len(given) <= LONGEST_KIND and given.isprintable()


def _is_hash(given: Any) -> bool:
    return isinstance(given, str) and len(given) == 64 and set(given) <= set("0123456789abcdef")


def _is_shape(given: Any) -> bool:
    return isinstance(given, list) and len(given) == 3 and _is_kind(given[0]) and all(map(_is_size, given[1:]))


KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (_is_name, f"a name of at most {LONGEST_NAME} characters"),
    "shape": (_is_shape, "a family, a number of layers and a dimension"),
    "model_sha256": (_is_hash, "64 hexadecimal digits"),
    "tokenizer_sha256": (_is_hash, "64 hexadecimal digits"),
    "files_sha256": (lambda given: given is None or _is_hash(given), "64 hexadecimal digits or null"),
    "texts": (_is_count, "a number of texts"),
    "judges": (lambda given: isinstance(given, dict), "a table of levels"),
}
"""Keys that are read: whether a value is fine, and what it is when it is."""
