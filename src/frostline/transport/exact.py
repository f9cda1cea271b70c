"""Exact transport between two small clouds: POT's network simplex on the full cost matrix."""

import numpy as np

from frostline.arrays import Array, as_float64, as_order
from frostline.errors import BadArray, BadParameter
from frostline.sample import as_weights
from frostline.sphere import as_tokens

METRICS = ("euclidean", "geodesic")
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
    left, right = (as_float64(as_tokens(cloud, name)[0]) for cloud, name in ((x, "x"), (y, "y")))
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise BadArray(f"x has shape {left.shape}, y {right.shape}; two clouds (n, d) and (m, d) are needed.")
    p = as_order(p)
    if metric not in METRICS:
        raise BadParameter(f"metric {metric!r} is unknown; there are: {', '.join(METRICS)}.")
    needed = 8 * len(left) * len(right)
    if needed > BUDGET:
        raise BadParameter(
            f"exact transport of {len(left)} against {len(right)} tokens needs {needed / 2**30:.3g} GiB for its costs "
            f"alone, more than {BUDGET / 2**30:g}; take fewer tokens, or a bound such as index_coupling."
        )
    # POT takes seconds to import: only those who ask for exact transport pay for it.
    import ot

    shares = [
        np.full(len(cloud), 1 / len(cloud)) if given is None else as_weights(given, len(cloud))
        for cloud, given in ((left, x_weights), (right, y_weights))
    ]
    cost = chords(left, right)
    if metric == "geodesic":
        cost = 2 * np.arcsin(np.minimum(1.0, cost / 2))
    # In units of the largest cost: for large p its power under- or overflows.
    unit = float(cost.max()) or 1.0
    powers = (cost / unit) ** p
    plan = ot.emd(*shares, powers, numItermax=10_000_000)
    # The plan's own cost, summed here: POT's value may come out as −1e-17 near zero.
    return unit * float((np.asarray(plan) * powers).sum() ** (1 / p))


def chords(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|x_i − y_j|, from differences: accurate near zero, where 2 − 2⟨x,y⟩ is not."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(x, y))
