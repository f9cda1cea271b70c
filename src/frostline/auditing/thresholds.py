"""Limits that an audit must keep, from a TOML file, for use in CI."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path

from frostline.errors import BadParameter
from frostline.files.toml_tables import read_toml


def read_thresholds(path: Path, names: Collection[str]) -> dict[str, dict[str, float]]:
    """A table per number, each with ``min``, ``max`` or both; the numbers must be of these names."""
    found = read_toml(path, holding="the thresholds", error=BadParameter)
    for name, limits in found.items():
        fine = isinstance(limits, dict) and limits and set(limits) <= {"min", "max"}
        if not fine or not all(
            isinstance(x, int | float) and not isinstance(x, bool) and x == x for x in limits.values()
        ):
            raise BadParameter(f"{path}: [{name}] needs min = NUMBER or max = NUMBER, and nothing else.")
        if name not in names:
            raise BadParameter(f"{path}: this audit has no number {name!r}; it has: {', '.join(names)}.")
    return found


def broken(thresholds: Mapping[str, Mapping[str, float]], metrics: Mapping[str, float]) -> list[str]:
    """A sentence for every limit that is not kept; a number that is not known keeps none."""
    found = []
    for name, limits in thresholds.items():
        value = metrics.get(name, math.nan)
        if "min" in limits and not value >= limits["min"]:
            found.append(f"{name} is {value:.4g}, below {limits['min']:g}")
        if "max" in limits and not value <= limits["max"]:
            found.append(f"{name} is {value:.4g}, above {limits['max']:g}")
    return found
