"""Couplings of two large clouds: made by halving both along the same axes, then improved group by group, exactly.

A coupling is three arrays: which x, which y, how much mass. Memory is O(n); every step keeps both marginals.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int

from frostline.compiled import njit
from frostline.transport.c_transform import Tree, divided
from frostline.transport.index_coupling import power_mean
from frostline.transport.interval import Coupling
from frostline.transport.problem import TransportProblem

GROUP = 96
"""Pieces in a group that is solved exactly, which takes the network simplex about a millisecond."""


class MassGroups(NamedTuple):
    """Pieces of x and of y with equal mass, group by group: stretches of ``x`` and ``y`` between the edges."""

    x: Int[np.ndarray, "k"]
    x_mass: Float[np.ndarray, "k"]
    x_edges: Int[np.ndarray, "g"]
    y: Int[np.ndarray, "l"]
    y_mass: Float[np.ndarray, "l"]
    y_edges: Int[np.ndarray, "g"]


def halved(
    places: Float[np.ndarray, "n d"], a: Float[np.ndarray, "n"], y: Float[np.ndarray, "m d"], b: Float[np.ndarray, "m"]
) -> MassGroups:
    """Cut both clouds at their median masses, along the axis where y is widest, again and again.

    ``places`` are where the points of x are expected to go: then both clouds are nearly the same, and so are their
    cuts. A point on a cut is split.
    """
    levels = max(0, int(np.ceil(np.log2(max(1.0, max(len(places), len(y)) / GROUP)))))
    return MassGroups(*_halve(np.ascontiguousarray(places), a, np.ascontiguousarray(y), b, levels))


@njit()
@no_type_check
def _cut(index, mass, start, stop, keys, half, out_index, out_mass, place):
    """Write the pieces of one stretch, cut at ``half`` along the keys, from ``place`` on; returns (middle, end)."""
    cut, filled = divided(keys, index[start:stop], mass[start:stop], half)
    middle = -1
    for k in range(start, stop):
        i, m = index[k], mass[k]
        if k - start == cut:
            first = half - filled
            if first > 0:
                out_index[place], out_mass[place] = i, first
                place += 1
            middle = place
            m -= first
        if m > 0:
            out_index[place], out_mass[place] = i, m
            place += 1
    if middle < 0:
        middle = place
    return middle, place


@njit()
@no_type_check
def _halve(x, a, y, b, levels):
    d = x.shape[1]
    ix, mx, iy, my = np.arange(len(x)), a.copy(), np.arange(len(y)), b.copy()
    ex, ey = np.array([0, len(x)]), np.array([0, len(y)])
    for _ in range(levels):
        groups = len(ex) - 1
        jx, nx = np.empty(len(ix) + groups, np.int64), np.empty(len(ix) + groups)
        jy, ny = np.empty(len(iy) + groups, np.int64), np.empty(len(iy) + groups)
        fx, fy = np.zeros(2 * groups + 1, np.int64), np.zeros(2 * groups + 1, np.int64)
        px, py = 0, 0
        for group in range(groups):
            axis, widest = 0, -1.0
            for k in range(d):
                low, high = np.inf, -np.inf
                for j in range(ey[group], ey[group + 1]):
                    low, high = min(low, y[iy[j], k]), max(high, y[iy[j], k])
                if high - low > widest:
                    axis, widest = k, high - low
            keys_x = np.array([x[ix[i], axis] for i in range(ex[group], ex[group + 1])])
            keys_y = np.array([y[iy[j], axis] for j in range(ey[group], ey[group + 1])])
            half = 0.5 * mx[ex[group] : ex[group + 1]].sum()
            fx[2 * group + 1], px = _cut(ix, mx, ex[group], ex[group + 1], keys_x, half, jx, nx, px)
            half = 0.5 * my[ey[group] : ey[group + 1]].sum()
            fy[2 * group + 1], py = _cut(iy, my, ey[group], ey[group + 1], keys_y, half, jy, ny, py)
            fx[2 * group + 2], fy[2 * group + 2] = px, py
        ix, mx, ex, iy, my, ey = jx[:px], nx[:px], fx, jy[:py], ny[:py], fy
    return ix, mx, ex, iy, my, ey


def solved(problem: TransportProblem, groups: MassGroups) -> Coupling:
    """The optimal coupling among those that move no mass from one group to another."""
    parts = [
        _group(problem, groups.x[s:t], groups.x_mass[s:t], groups.y[u:v], groups.y_mass[u:v])
        for s, t, u, v in zip(groups.x_edges, groups.x_edges[1:], groups.y_edges, groups.y_edges[1:], strict=False)
        if t > s and v > u
    ]
    return Coupling(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def improved(problem: TransportProblem, coupling: Coupling, rng: np.random.Generator) -> Coupling:
    """Regroup the pieces by their destinations in rotated coordinates and solve each group again; never worse."""
    d = problem.x.shape[1]
    turned = problem.y[coupling.columns] @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    tree = Tree.of(turned, leaf=GROUP)
    parts = []
    for start, stop in zip(*tree.cells(tree.levels), strict=True):
        pieces = tree.order[start:stop]
        if len(pieces):
            mass = coupling.mass[pieces]
            rows, row = np.unique(coupling.rows[pieces], return_inverse=True)
            columns, column = np.unique(coupling.columns[pieces], return_inverse=True)
            a, b = np.bincount(row, weights=mass), np.bincount(column, weights=mass)
            parts.append(_group(problem, rows, a, columns, b))
    return Coupling(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@njit()
@no_type_check
def dealt(place, mass, owner, masses):
    """Distribute the pieces at each merged point over the points it was merged from, up to their ``masses``.

    Returns for each new piece the point, the piece it comes from, and its mass.
    """
    pieces, points = np.argsort(place, kind="mergesort"), np.argsort(owner, kind="mergesort")
    most = len(pieces) + len(points)
    point, origin, part = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
    count, j = 0, 0
    room = 0.0
    for number in range(len(pieces)):
        piece = pieces[number]
        left = mass[piece]
        if number == 0 or place[piece] != place[pieces[number - 1]]:
            while owner[points[j]] != place[piece]:
                j += 1
            room = masses[points[j]]
        while True:
            last = j + 1 == len(points) or owner[points[j + 1]] != place[piece]
            moved = left if last else min(left, room)
            if moved > 0:
                point[count], origin[count], part[count] = points[j], piece, moved
                count += 1
            left -= moved
            room -= moved
            if last or left <= 0:
                break
            j += 1
            room = masses[points[j]]
    return point[:count], origin[:count], part[:count]


def cost(problem: TransportProblem, coupling: Coupling) -> float:
    """(Σ mass·c^p)^{1/p}."""
    moves = problem.distances(problem.x[coupling.rows], problem.y[coupling.columns])
    return float(power_mean(moves, coupling.mass / coupling.mass.sum(), problem.p))


def _group(problem: TransportProblem, rows: np.ndarray, a: np.ndarray, columns: np.ndarray, b: np.ndarray) -> Coupling:
    """Exact transport of a few pieces; their masses agree up to rounding, and x's are kept to the last bit."""
    if len(rows) == 1 or len(columns) == 1:
        share = np.outer(a, b) / b.sum()
    else:
        import ot

        costs = problem.costs(rows, columns)
        powers = (costs / (costs.max() or 1.0)) ** problem.p
        share = np.asarray(ot.emd(a / a.sum(), b / b.sum(), powers, numItermax=1_000_000)) * a.sum()
    row, column = np.nonzero(share)
    return Coupling(rows[row], columns[column], share[row, column])
