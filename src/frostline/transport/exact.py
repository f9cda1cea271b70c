"""Exact transport between two small clouds: POT's network simplex on the full cost matrix."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from frostline.arrays import Array
from frostline.errors import BadParameter
from frostline.transport.index_coupling import power_mean
from frostline.transport.interval import Coupling
from frostline.transport.plan_masses import balanced
from frostline.transport.problem import TransportProblem

BUDGET = 2**30
"""Bytes the cost matrix may take; the solver needs about four times as much beside it."""
SURE = 1e-6
"""The solver stops at about 1e-15 of the largest cost^p; a mean cost^p above this share of it has nine digits."""
PASSES = 100
"""Solutions of one problem at most, each with a smaller largest cost."""


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
    problem = TransportProblem.of(x, y, p, x_weights, y_weights, metric)
    return problem.scale * simplex(problem).upper


class Solution(NamedTuple):
    """An optimal coupling, the bounds it and its potentials prove, and the potential of x, in units of unit^p."""

    lower: float
    upper: float
    coupling: Coupling
    potential: Float[np.ndarray, "n"]
    unit: float


def simplex(problem: TransportProblem) -> Solution:
    """Exact transport of the whole problem; refused when its costs do not fit the budget."""
    needed = 8 * len(problem.x) * len(problem.y)
    if needed > BUDGET:
        raise BadParameter(
            f"exact transport of {len(problem.x)} against {len(problem.y)} points needs {needed / 2**30:.3g} GiB for "
            f"its costs alone, more than {BUDGET / 2**30:g}; take fewer points, or method='bracket'."
        )
    return transported(problem.costs(), problem.a, problem.b, problem.p)


def transported(
    costs: Float[np.ndarray, "n m"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "m"], p: float, prove: bool = True
) -> Solution:
    """Optimal transport for costs^p; a caller with a lower bound of its own spares the proof.

    The solver's tolerance is absolute: where the optimal moves are much shorter than the longest one possible (two
    collapsed clusters, large p) it sees only noise. Then costs above k times the longest move in use are cut down to
    that, where k^p is twice the number of pieces, and the problem is solved again: no optimal plan uses a pair that was
    cut, since a cycle of exchanges could not pay for it, and the digits are spent on the pairs that matter.
    """
    # The import of POT takes seconds; only exact transport needs it.
    import ot

    unit = float(costs.max()) or 1.0
    room = (2 * min(costs.shape)) ** (1 / p)
    best = np.inf, Coupling(np.array([]), np.array([]), np.array([]))
    for number in range(PASSES):
        powers = (costs / unit if number == 0 else np.minimum(costs / unit, 1.0)) ** p
        plan, log = ot.emd(a, b, powers, numItermax=10_000_000, log=True)
        plan, v = np.asarray(plan), np.asarray(log["v"])
        rows, columns = np.nonzero(plan)
        # The plan's own cost, summed here: POT's value may come out as −1e-17 near zero.
        coupling, excess = balanced(Coupling(rows, columns, plan[rows, columns]), a, b)
        moves = costs[coupling.rows, coupling.columns]
        upper = total_cost(moves, coupling.mass, excess, float(costs.max()), p)
        if upper <= best[0]:
            best = upper, coupling
        longest = float(moves.max())
        sure = log["warning"] is None and upper > 0 and (upper / unit) ** p >= SURE
        if sure or longest == 0 or not (room * longest / unit) ** p < 0.5:
            break
        unit = room * longest
    upper, coupling = best
    f = np.asarray(log["u"])
    lower = min(upper, unit * proved(powers, a, b, v, p)) if prove else 0.0
    return Solution(lower, upper, coupling, f, unit)


def total_cost(moves: np.ndarray, mass: np.ndarray, excess: float, largest: float, p: float) -> float:
    """(Σ mass·move^p)^{1/p}, where the mass that a plan cannot place makes the longest move."""
    return float(power_mean(np.append(moves, largest * (excess > 0)), np.append(mass, excess), p))


def proved(powers: np.ndarray, a: np.ndarray, b: np.ndarray, g: np.ndarray, p: float) -> float:
    """A lower bound of W_p: g and f = min_j c^p − g are feasible for every g."""
    # Any constant may be added to g; around 0 its sums have the most digits.
    g = g - b @ g
    f = (powers - g).min(1)
    total = math.fsum(a * f) + math.fsum(b * g)
    rounding = 4 * (1 + p) * np.finfo(float).eps * float(a @ np.abs(f) + b @ np.abs(g) + np.abs(g).max())
    return max(0.0, total - rounding) ** (1 / p)
