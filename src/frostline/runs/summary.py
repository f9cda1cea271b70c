"""The summary of a run: how it ended, its limit, phases and distances, as plain facts."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from frostline.analysis.distance import DistanceRecorder, Target, distance_curve
from frostline.analysis.phases import FEWEST_TIMES, Phases, phases_of_curve
from frostline.arrays import as_float64
from frostline.dynamics.simulation import Trajectory
from frostline.sphere import unit_rows

SECONDS_PER_TIME = 10.0
"""A bracket of the distance at a kept time is not tightened for longer than this."""


def _phases(curve: DistanceRecorder) -> Phases | None:
    return phases_of_curve(*np.array(curve.points).T) if len(curve.points) >= FEWEST_TIMES else None


def _summary(
    run: Trajectory,
    target: Target,
    curve: list[tuple[float, float]],
    seen: Phases | None,
    bounds: dict[str, Any] | None,
) -> dict[str, Any]:
    found, measure = target.limit, target.measure
    last = unit_rows(as_float64(run.tokens[-1])) if len(run.times) else None
    values = [w for _, w in curve]
    exact = measure is not None and measure.method == "two atoms"
    best = int(np.argmin(values)) if values else 0
    return {
        "status": run.status,
        "message": run.message,
        "until": run.until,
        "steps": run.steps,
        "evaluations": run.evaluations,
        "tokens": int(run.tokens.shape[-2]),
        "dimension": int(run.tokens.shape[-1]),
        "times": run.times,
        "limit": None if found is None else found.facts(),
        "tokens_without_limit": None if measure is None else int((~measure.defined).sum()),
        "regime": run.regime.facts() | {"meaning": run.regime.describe()},
        "phases": None if seen is None else seen.facts(),
        "off_cluster": None if measure is None or last is None else int(measure.off_cluster(last).sum()),
        "mass_imbalance": None if measure is None or last is None else _number(measure.imbalance(last)),
        "distance_at_times": bounds,
        "distance": {
            "what": f"W2 to the limit of the same tokens, {'exact' if exact else 'index coupling (an upper bound)'}",
            "exact": exact,
            "none_because": target.why_none or None,
            "first": values[0] if values else None,
            "last": values[-1] if values else None,
            "smallest": values[best] if values else None,
            "smallest_at": curve[best][0] if values else None,
        },
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _bounds(run: Trajectory, measured: Callable[[int, int], None] | None, seconds: float | None) -> dict[str, Any]:
    """W₂ at the kept times, with guaranteed bounds; ``seconds`` for each time."""
    found = distance_curve(run, seconds=seconds, progress=measured)
    return {
        "times": found.times,
        "value": found.values,
        "lower": found.lower,
        "upper": found.upper,
        "method": list(found.methods),
    }
