"""Parts of a model's folder beside its layers, compared: a verdict and every difference in words."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline.auditing.comparison.rounding import Verdict
from frostline.encoders.load import CONFIG_LIMIT
from frostline.errors import BadModel
from frostline.printable import printable
from frostline.results import Result

SHOWN = 5
"""Differences of a part that a sentence names."""
LONGEST = 100
"""Characters of a name or a value from a file that are shown."""
NOT_SET = "not set"
"""The value of a setting that a file does not have."""


@dataclass(frozen=True, repr=False)
class Part(Result):
    """A part of two models beside their layers, compared.

    Attributes
    ----------
    name
        Task head, labels, tokenizer, pooling and modules, or image settings.
    verdict
        "unchanged", "rounding" or "changed".
    differences
        Every difference in words; empty where nothing changed.

    Examples
    --------
    >>> Part.of("labels", ["id2label.0: cold and warm"])
    Part(labels: changed (id2label.0: cold and warm))
    """

    name: str
    verdict: Verdict
    differences: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, differences: "list[str]") -> "Part":
        """Changed where there are differences."""
        return cls(name, "changed" if differences else "unchanged", tuple(differences))

    @property
    def evidence(self) -> str:
        """The first differences."""
        return some(self.differences) if self.differences else "equal"

    def describe(self) -> str:
        """The verdict with its evidence."""
        return f"{self.name}: {self.verdict} ({self.evidence})"


def some(words: "tuple[str, ...] | list[str]", joined: str = "; ") -> str:
    """The first of them, and how many more there are."""
    more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    return joined.join([*words[:SHOWN], *more])


def shown(value: Any) -> str:
    """A name or a value from a file as it can be shown: short, and without characters that steer a terminal."""
    text = value if isinstance(value, str) else str(value)
    return printable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def differences(base: Any, tuned: Any, name: str = "") -> Iterator[str]:
    """Every leaf of two trees of tables that differs, with its path."""
    are_tables = [isinstance(each, Mapping) for each in (base, tuned)]
    if all(are_tables) or (any(are_tables) and NOT_SET in (base, tuned)):
        base, tuned = ({} if each == NOT_SET else each for each in (base, tuned))
        for key in sorted(base.keys() | tuned.keys(), key=str):
            yield from differences(base.get(key, NOT_SET), tuned.get(key, NOT_SET), f"{name}.{shown(key)}".lstrip("."))
    elif base != tuned:
        yield f"{name}: {shown(base)} and {shown(tuned)}"


def read_json(path: Path) -> Any:
    """A small JSON file of a model's folder."""
    try:
        if path.stat().st_size > CONFIG_LIMIT:
            raise BadModel(f"{path} has {path.stat().st_size} bytes, more than any config ({CONFIG_LIMIT}).")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadModel(f"{path} is not JSON ({shown(error)}).") from None
