"""The header of a ``.frost`` file: JSON that anybody may have written, checked before it is used or shown."""

from collections.abc import Callable, Mapping
from typing import Any

from frostline.monitoring.profile import LEVELS
from frostline.monitoring.surface import is_surface

VERSION = 4
"""Number of the format of ``.frost`` files that this version writes."""
LONGEST_NAME = 4096
"""Largest number of characters in the name of a model: it may be a path, and no path is longer."""
LONGEST_SHORT_NAME = 100
"""Largest number of characters in the name of a baseline, and of a kind of broken text."""
MOST_KINDS = 100
"""Largest number of kinds of broken text."""
LARGEST_SIZE = 100_000
"""Largest number of layers, and of dimensions, of a model."""
QUOTED = 60
"""Number of characters of an unexpected value that an error quotes."""


def check_header(about: Mapping[str, Any]) -> None:
    """Raise ValueError where a header is not one that ``Baseline.save`` writes; unknown keys are ignored."""
    for key, (is_valid, wanted) in KNOWN.items():
        if key not in about:
            if key not in OPTIONAL:
                raise ValueError(f"its header has no {key}")
        elif not is_valid(about[key]):
            raise ValueError(f"{key} is {brief(about[key])}, not {wanted}")
    if "surface" in about and not is_surface(about["surface"]):
        raise ValueError(f"surface is {brief(about['surface'])}, not lengths, shares and scripts of texts")
    for level in LEVELS:
        judge = about["judges"].get(level)
        if not isinstance(judge, dict) or not isinstance(judge.get("clouds"), list):
            raise ValueError(f"its header has no clouds of the {level} level")
        for part, fewest in (("kinds", 1), ("probes", 0)):
            kinds = judge.get(part)
            if (
                not isinstance(kinds, list)
                or not fewest <= len(kinds) <= MOST_KINDS
                or not all(map(is_short_name, kinds))
            ):
                raise ValueError(f"{part} of the {level} level are {brief(kinds)}, not a list of names")
    deep = about["judges"].get("deep", {"inside": []})
    inside = deep.get("inside") if isinstance(deep, dict) else None
    if not isinstance(inside, list) or not all(map(_is_count, inside)):
        raise ValueError(f"the deep level is {brief(deep)}, not numbers of layers")


def brief(thing: object) -> str:
    """The beginning of an unexpected value or of an error's message."""
    text = str(thing) if isinstance(thing, Exception) else repr(thing)
    return text if len(text) <= QUOTED else text[:QUOTED] + "…"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_size(value: Any) -> bool:
    return _is_count(value) and 0 < value <= LARGEST_SIZE


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def is_short_name(value: Any) -> bool:
    """Whether a value names a baseline or a kind of broken text."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_SHORT_NAME and value.isprintable()


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and is_short_name(value[0]) and all(map(_is_size, value[1:]))


KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (_is_name, f"a name of at most {LONGEST_NAME} characters"),
    "shape": (_is_shape, "a family, a number of layers and a dimension"),
    "model_sha256": (_is_hash, "64 hexadecimal digits"),
    "tokenizer_sha256": (_is_hash, "64 hexadecimal digits"),
    "files_sha256": (lambda value: value is None or _is_hash(value), "64 hexadecimal digits or null"),
    "texts": (_is_count, "a number of texts"),
    "name": (is_short_name, f"a printable name of 1 to {LONGEST_SHORT_NAME} characters"),
    "judges": (lambda value: isinstance(value, dict), "a table of levels"),
}
"""Every key that is read, with the check of its value and the words for a valid value."""
OPTIONAL = ("files_sha256", "name")
"""Keys that a header may lack: format 2 had no hash of the model's files, and a baseline need not be named."""
