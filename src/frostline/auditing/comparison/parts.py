"""A part of a model's folder beside its layers, compared: its verdict and every difference in words."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline.auditing.comparison.rounding import Verdict
from frostline.encoders.load import CONFIG_LIMIT
from frostline.errors import BadModel
from frostline.printable import printable

SHOWN = 5
"""Differences of a part that a sentence names."""
LONGEST = 100
"""Characters of a name or a value from a file that are shown."""
NOT_SET = "not set"


@dataclass(frozen=True)
class Part:
    """Task head, labels, tokenizer, …: ``differences`` is empty where nothing changed."""

    name: str
    verdict: Verdict
    differences: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, differences: "list[str]") -> "Part":
        """Changed where there are differences."""
        return cls(name, "changed" if differences else "unchanged", tuple(differences))

    @property
    def evidence(self) -> str:
        return some(self.differences) if self.differences else "equal"


def some(words: "tuple[str, ...] | list[str]", joined: str = "; ") -> str:
    """The first of them, and how many more there are."""
    more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    return joined.join([*words[:SHOWN], *more])


def shown(value: Any) -> str:
    """A name or a value from a file as it can be shown: short, and without characters that steer a terminal."""
    text = value if isinstance(value, str) else str(value)
    return printable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def differences(one: Any, other: Any, name: str = "") -> Iterator[str]:
    """Every leaf of two trees of tables that differs, with its path."""
    tables = [isinstance(each, Mapping) for each in (one, other)]
    if all(tables) or (any(tables) and NOT_SET in (one, other)):
        one, other = ({} if each == NOT_SET else each for each in (one, other))
        for key in sorted(one.keys() | other.keys(), key=str):
            yield from differences(one.get(key, NOT_SET), other.get(key, NOT_SET), f"{name}.{shown(key)}".lstrip("."))
    elif one != other:
        yield f"{name}: {shown(one)} and {shown(other)}"


def read_json(path: Path) -> Any:
    """A small JSON file of a model's folder."""
    try:
        if path.stat().st_size > CONFIG_LIMIT:
            raise BadModel(f"{path} has {path.stat().st_size} bytes, more than any config ({CONFIG_LIMIT}).")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadModel(f"{path} is not JSON ({shown(error)}).") from None
