"""Exact transport between two small clouds: POT's network simplex on the full cost matrix."""

import numpy as np

from frostline.arrays import Array
from frostline.errors import BadParameter
from frostline.transport.distance import Coupling
from frostline.transport.problem import Problem

BUDGET = 2**30
"""Bytes the cost matrix may take; the solver needs about four times as much beside it."""


def exact(
    x: Array,
    y: Array,
    *,
    p: float = 2.0,
    x_weights: Array | None = None,
    y_weights: Array | None = None,
    metric: str = "euclidean",
) -> float:
    """W_p between the clouds x (n, d) and y (m, d), weighted or not, with the chord or the geodesic as cost.

    >>> round(exact([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]), 12)
    0.0
    """
    return simplex(Problem.of(x, y, p, x_weights, y_weights, metric))[0]


def simplex(problem: Problem) -> tuple[float, Coupling]:
    """The distance and an optimal coupling."""
    needed = 8 * len(problem.x) * len(problem.y)
    if needed > BUDGET:
        raise BadParameter(
            f"exact transport of {len(problem.x)} against {len(problem.y)} points needs {needed / 2**30:.3g} GiB for "
            f"its costs alone, more than {BUDGET / 2**30:g}; take fewer points, or method='bracket'."
        )
    # POT takes seconds to import: only those who ask for exact transport pay for it.
    import ot

    powers, unit = problem.powers()
    plan = np.asarray(ot.emd(problem.a, problem.b, powers, numItermax=10_000_000))
    rows, columns = np.nonzero(plan)
    mass = plan[rows, columns]
    # The plan's own cost, summed here: POT's value may come out as −1e-17 near zero.
    return unit * float((mass * powers[rows, columns]).sum() ** (1 / problem.p)), Coupling(rows, columns, mass)
