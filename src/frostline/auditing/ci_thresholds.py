"""Thresholds on the numbers of an audit, from a TOML file, for use in CI."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path

from frostline.errors import BadParameter
from frostline.files.toml_tables import read_toml


def read_thresholds(path: Path, names: Collection[str]) -> dict[str, dict[str, float]]:
    """A table per number, each with ``min``, ``max`` or both; the numbers must be of these names."""
    thresholds = read_toml(path, holding="the thresholds", error=BadParameter)
    for name, limits in thresholds.items():
        is_table = isinstance(limits, dict) and limits and set(limits) <= {"min", "max"}
        if not is_table or not all(
            isinstance(x, int | float) and not isinstance(x, bool) and x == x for x in limits.values()
        ):
            raise BadParameter(f"{path}: [{name}] needs min = NUMBER or max = NUMBER, and nothing else.")
        if name not in names:
            raise BadParameter(f"{path}: this audit has no number {name!r}; it has: {', '.join(names)}.")
    return thresholds


def broken(thresholds: Mapping[str, Mapping[str, float]], metrics: Mapping[str, float]) -> list[str]:
    """A sentence for every threshold that is not met; one on a number that this audit did not compute fails."""
    sentences = []
    for name, limits in thresholds.items():
        value = metrics.get(name, math.nan)
        if "min" in limits and not value >= limits["min"]:
            sentences.append(f"{name} is {value:.4g}, below {limits['min']:g}")
        if "max" in limits and not value <= limits["max"]:
            sentences.append(f"{name} is {value:.4g}, above {limits['max']:g}")
    return sentences
