"""Clouds that nearly coincide: bounds from nearest points.

Every unit of mass travels at least to the nearest point of the other cloud: that bounds W_p from below for every p, in
both directions. Where the nearest points are one-to-one and masses agree, going there is a coupling too, and optimal.
"""

import numpy as np
from scipy.spatial.distance import cdist

from frostline.transport.c_transform import Tree, in_order
from frostline.transport.couplings import halved, solved
from frostline.transport.index_coupling import power_mean
from frostline.transport.interval import Coupling
from frostline.transport.plan_masses import SLIVER
from frostline.transport.problem import TransportProblem

SOME = 64
"""Points of each cloud whose two nearest points in the other one are looked up."""
CLOSE = 0.25
"""A point is close when its nearest point is at most this share of the distance of its second nearest."""
MOST = 0.9
"""Clouds nearly coincide when this share of the points of both is close."""


def nearly_coincide(problem: TransportProblem) -> bool:
    """Whether bounds from nearest points will be tight; judged on a sample, since all points would take too long."""
    rng = np.random.default_rng(0)
    return _close(problem.x, problem.y, rng) and _close(problem.y, problem.x, rng)


def _close(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> bool:
    if len(y) == 1:
        return False
    sample = x[rng.choice(len(x), min(len(x), SOME), replace=False)]
    first, second = np.partition(cdist(sample, y), 1, axis=1)[:, :2].T
    return bool((first <= CLOSE * second).mean() >= MOST)


def nearest(problem: TransportProblem, x_tree: Tree, y_tree: Tree) -> tuple[float, Coupling]:
    """A lower bound of W_p, and a coupling along nearest points as far as these are one-to-one."""
    geodesic, p = problem.geodesic, problem.p
    away, goal = in_order(y_tree, x_tree, np.zeros(len(problem.y)), 1.0, geodesic)
    back, _ = in_order(x_tree, y_tree, np.zeros(len(problem.x)), 1.0, geodesic)
    lower = max(float(power_mean(away, problem.a, p)), float(power_mean(back, problem.b, p)))
    return lower, _coupled(problem, away, goal)


def _coupled(problem: TransportProblem, away: np.ndarray, goal: np.ndarray) -> Coupling:
    """Of all points with the same goal the closest one goes there; the remaining mass is coupled group by group."""
    order = np.lexsort((away, goal))
    first = np.concatenate([[True], goal[order][1:] != goal[order][:-1]])
    rows = order[first]
    columns = goal[rows]
    mass = np.minimum(problem.a[rows], problem.b[columns])
    a, b = problem.a.copy(), problem.b.copy()
    a[rows] -= mass
    b[columns] -= mass
    x, y = np.flatnonzero(a > SLIVER * problem.a), np.flatnonzero(b > SLIVER * problem.b)
    if not (len(x) and len(y)):
        return Coupling(rows, columns, mass)
    # Both sums agree up to rounding; each cloud is halved by its own sum.
    rest = TransportProblem(problem.x[x], problem.y[y], a[x], b[y], problem.p, problem.metric, x, y)
    others = solved(rest, halved(rest.x, rest.a, rest.y, rest.b))
    pieces = (rows, x[others.rows]), (columns, y[others.columns]), (mass, others.mass)
    return Coupling(*(np.concatenate(part) for part in pieces))
