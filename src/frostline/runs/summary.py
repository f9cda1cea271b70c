"""The summary of a run as plain facts: its end, its limit, its phases, and its distances to the limit."""

from typing import Any

from frostline.analysis.distance import DistanceRecorder, distance_curve, number_or_none
from frostline.analysis.phases import Phases
from frostline.arrays import as_float64
from frostline.dynamics.simulation import Trajectory
from frostline.progress import ProgressFunction
from frostline.sphere import unit_rows


def summarise(
    run: Trajectory, recorder: DistanceRecorder, phases: Phases | None, bounds: dict[str, Any] | None
) -> dict[str, Any]:
    """The contents of summary.json."""
    target = recorder.target
    measure = target.measure if len(run.times) else None
    off_cluster = imbalance = None
    if measure is not None:
        last = unit_rows(as_float64(run.tokens[-1]))
        off_cluster, imbalance = int(measure.off_cluster(last).sum()), number_or_none(measure.imbalance(last))
    return {
        "status": run.status.value,
        "message": run.message,
        "until": run.until,
        "steps": run.steps,
        "evaluations": run.evaluations,
        "tokens": int(run.tokens.shape[-2]),
        "dimension": int(run.tokens.shape[-1]),
        "times": run.times,
        "limit": None if target.limit is None else target.limit.facts(),
        "tokens_without_limit": target.left_out,
        "regime": run.regime.facts() | {"meaning": run.regime.describe()},
        "phases": None if phases is None else phases.facts(),
        "off_cluster": off_cluster,
        "mass_imbalance": imbalance,
        "distance_at_times": bounds,
        "distance": recorder.facts(),
    }


def bounds_at_kept_times(
    run: Trajectory,
    recorder: DistanceRecorder,
    progress: ProgressFunction | None = None,
    seconds: float | None = None,
) -> dict[str, Any] | None:
    """W₂ at the kept times with guaranteed bounds, in ``seconds`` for each time; None where no distance is measured."""
    if recorder.target.measure is None or not len(run.times):
        return None
    return distance_curve(run, seconds=seconds, progress=progress).facts()
