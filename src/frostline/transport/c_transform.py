"""A balanced tree over a cloud, and the c-transform it makes cheap: min_y c(x, y) − g(y) over all y, exactly.

A branch is left out when no point of it can beat the best one known: with a plane above its g, the least of c^p less
the plane over its box is a bound. For |x − y|² that is again the distance from a shifted x to the box, and the plane
takes g's slope, so that the bound errs by the square of the box's size. For other costs the plane lies flat.
"""

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import prange

from frostline.compiled import interruptible, njit

LEAF = 12
"""Points in a leaf of a tree, about."""
FITTED = 8
"""Dimensions up to which planes are fitted."""
STEEP = 4096
"""Points in a node up to which its plane is fitted: larger nodes are hardly ever left out by their slope."""
BLOCK = 512
"""Queries that one thread takes in a row."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Points in the order of the leaves of a perfect binary tree; node k has the children 2k + 1 and 2k + 2.

    order (n,)            index of the point at each place
    points (n, d)         the points in that order
    low, high (nodes, d)  the boxes of the nodes
    start, stop (nodes,)  the places of the points that each node contains
    """

    order: Int[np.ndarray, "n"]
    points: Float[np.ndarray, "n d"]
    low: Float[np.ndarray, "nodes d"]
    high: Float[np.ndarray, "nodes d"]
    start: Int[np.ndarray, "nodes"]
    stop: Int[np.ndarray, "nodes"]

    @property
    def levels(self) -> int:
        """The number of halvings between the root and the leaves."""
        return (len(self.start) + 1).bit_length() - 2

    @classmethod
    def of(cls, points: Float[np.ndarray, "n d"], *, leaf: int = LEAF) -> "Tree":
        """The tree of these points, with about ``leaf`` of them in each leaf."""
        levels = max(0, int(np.ceil(np.log2(max(1.0, len(points) / leaf)))))
        order, low, high, start, stop = _build(np.ascontiguousarray(points), levels)
        return cls(order, np.ascontiguousarray(points[order]), low, high, start, stop)

    def cells(self, level: int) -> tuple[Int[np.ndarray, "k"], Int[np.ndarray, "k"]]:
        """Start and stop of the nodes at this level: 2^level stretches of ``order``."""
        first = 2 ** min(level, self.levels) - 1
        return self.start[first : 2 * first + 1], self.stop[first : 2 * first + 1]

    def transform(
        self, x: Float[np.ndarray, "m d"], g: Float[np.ndarray, "n"], p: float, geodesic: bool
    ) -> tuple[Float[np.ndarray, "m"], Int[np.ndarray, "m"]]:
        """min over the points of c(x, y)^p − g(y), and which point attains it; ``g`` in the points' own order.

        Quick when neighbours in ``x`` are neighbours in space, as in the order of a tree.
        """
        potential = np.ascontiguousarray(g[self.order])
        sloped = p == 2 and not geodesic and x.shape[1] <= FITTED
        with interruptible():
            records = _records(self.points, potential, self.low, self.high, self.start, self.stop, sloped)
            values, places = _transform(
                np.ascontiguousarray(x),
                self.points,
                potential,
                records,
                self.start,
                self.stop,
                float(p),
                bool(geodesic),
            )
        return values, self.order[places]


def in_order(
    tree: Tree, queries: Tree, potential: Float[np.ndarray, "n"], p: float, geodesic: bool
) -> tuple[Float[np.ndarray, "m"], Int[np.ndarray, "m"]]:
    """The c-transform at the points of another tree, leaf by leaf; values and minimisers in the points' own order."""
    values, places = np.empty(len(queries.order)), np.empty(len(queries.order), dtype=np.int64)
    values[queries.order], places[queries.order] = tree.transform(queries.points, potential, p, geodesic)
    return values, places


@njit()
@no_type_check
def divided(keys, items, mass, half):
    """Reorder all three so that smaller keys come first up to where their mass reaches ``half``.

    Returns that place and the mass before it. Only what lies next to the cut is looked at again and again, so this
    takes a few passes where sorting takes log n.
    """
    first, last, before, state = 0, len(keys), 0.0, 12345
    while last - first > 1:
        state = (1103515245 * state + 12345) % 2147483648
        pivot = keys[first + state % (last - first)]
        low, at, high = first, first, last
        below, equal = 0.0, 0.0
        while at < high:
            key = keys[at]
            if key < pivot:
                below += mass[at]
                keys[low], keys[at] = keys[at], keys[low]
                items[low], items[at] = items[at], items[low]
                mass[low], mass[at] = mass[at], mass[low]
                low += 1
                at += 1
            elif key > pivot:
                high -= 1
                keys[high], keys[at] = keys[at], keys[high]
                items[high], items[at] = items[at], items[high]
                mass[high], mass[at] = mass[at], mass[high]
            else:
                equal += mass[at]
                at += 1
        if before + below > half:
            last = low
        elif before + below + equal > half:
            before += below
            while before + mass[low] <= half:
                before += mass[low]
                low += 1
            return low, before
        else:
            before += below + equal
            first = high
    if first < last and before + mass[first] <= half:
        before += mass[first]
        first += 1
    return first, before


@njit(parallel=True)
@no_type_check
def _build(points, levels):
    n, d = points.shape
    nodes = 2 ** (levels + 1) - 1
    order = np.arange(n)
    start, stop = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    low, high = np.empty((nodes, d)), np.empty((nodes, d))
    stop[0] = n
    for level in range(levels + 1):
        for node in prange(2**level - 1, 2 ** (level + 1) - 1):
            a, b = start[node], stop[node]
            for k in range(d):
                low[node, k], high[node, k] = np.inf, -np.inf
            for i in range(a, b):
                for k in range(d):
                    value = points[order[i], k]
                    low[node, k] = min(low[node, k], value)
                    high[node, k] = max(high[node, k], value)
            if level < levels:
                axis, widest = 0, -1.0
                for k in range(d):
                    if high[node, k] - low[node, k] > widest:
                        axis, widest = k, high[node, k] - low[node, k]
                keys = np.empty(b - a)
                for i in range(b - a):
                    keys[i] = points[order[a + i], axis]
                middle = (a + b) // 2
                divided(keys, order[a:b], np.ones(b - a), middle - a)
                start[2 * node + 1], stop[2 * node + 1] = a, middle
                start[2 * node + 2], stop[2 * node + 2] = middle, b
    return order, low, high, start, stop


@njit(parallel=True)
@no_type_check
def _records(points, g, low, high, start, stop, sloped):
    """The data a query reads of each node, side by side: box, centre, half the slope of a plane above g, its height.

    g(y) ≤ height − |half|² + 2 half·(y − centre) on the node. Any slope is right, the least-squares one is tight.
    """
    d = points.shape[1]
    nodes = len(start)
    records = np.zeros((nodes, 4 * d + 1))
    for node in prange(nodes):
        a, b = start[node], stop[node]
        record = records[node]
        box, centre, half = record[: 2 * d], record[2 * d : 3 * d], record[3 * d : 4 * d]
        box[:d], box[d:] = low[node], high[node]
        if sloped and 1 < b - a <= STEEP:
            _fit(points[a:b], g[a:b], centre, half)
        top = -np.inf
        for i in range(a, b):
            value = g[i]
            for k in range(d):
                value -= 2 * half[k] * (points[i, k] - centre[k])
            top = max(top, value)
        for k in range(d):
            top += half[k] * half[k]
        record[4 * d] = top
    return records


@njit()
@no_type_check
def _fit(points, g, centre, half):
    """Mean of the points, and half the slope of g over them by least squares (flatter where they leave it open)."""
    n, d = points.shape
    mean = 0.0
    for i in range(n):
        mean += g[i] / n
        for k in range(d):
            centre[k] += points[i, k] / n
    moments, mixed = np.zeros((d, d)), np.zeros(d)
    trace = 0.0
    for i in range(n):
        for k in range(d):
            away = points[i, k] - centre[k]
            mixed[k] += away * (g[i] - mean)
            trace += away * away
            for j in range(d):
                moments[k, j] += away * (points[i, j] - centre[j])
    if trace > 0:
        for k in range(d):
            moments[k, k] += 1e-6 * trace
        half[:] = np.linalg.solve(moments, mixed) / 2


@njit(inline="always")
@no_type_check
def _least(x, record, p, geodesic):
    """A lower bound of c(x, y)^p − g(y) over this node."""
    d = len(x)
    square, shift = 0.0, 0.0
    for k in range(d):
        half = record[3 * d + k]
        away = x[k] + half
        away = max(record[k] - away, 0.0, away - record[d + k])
        square += away * away
        shift += half * (x[k] - record[2 * d + k])
    if geodesic:
        # Near antipodes the angle depends on the chord's last digits; a shorter chord keeps the bound valid.
        chord = np.sqrt(square) * (1 - (d + 8) * 2.3e-16)
        angle = 2 * np.arcsin(min(1.0, chord / 2))
        return (angle * angle if p == 2 else angle**p) - record[4 * d]
    return _power(square, p) - 2 * shift - record[4 * d]


@njit(inline="always")
@no_type_check
def _power(square, p):
    """c^p from c²."""
    return square if p == 2 else np.sqrt(square) if p == 1 else square ** (p / 2)


@njit(inline="always")
@no_type_check
def _cost(x, y, p, geodesic):
    """c(x, y)^p. Beyond a right angle the chord loses digits, and x + y has them."""
    square, opposite = 0.0, 0.0
    for k in range(len(x)):
        square += (x[k] - y[k]) ** 2
    if not geodesic:
        return _power(square, p)
    if square < 2:
        angle = 2 * np.arcsin(np.sqrt(square) / 2)
    else:
        for k in range(len(x)):
            opposite += (x[k] + y[k]) ** 2
        angle = 2 * np.arctan2(np.sqrt(square), np.sqrt(opposite))
    return angle * angle if p == 2 else angle**p


@njit(parallel=True)
@no_type_check
def _transform(x, y, g, records, start, stop, p, geodesic):
    m, nodes = len(x), len(start)
    values, places = np.empty(m), np.empty(m, np.int64)
    blocks = (m + BLOCK - 1) // BLOCK
    for block in prange(blocks):
        stack, bounds = np.empty(128, np.int64), np.empty(128)
        place = 0
        for i in range(block * BLOCK, min(m, (block + 1) * BLOCK)):
            # The answer of the previous query is a good first guess, with which most branches are left out at once.
            best = _cost(x[i], y[place], p, geodesic) - g[place]
            stack[0], bounds[0], height = 0, -np.inf, 1
            while height > 0:
                height -= 1
                node = stack[height]
                if bounds[height] >= best:
                    continue
                if 2 * node + 2 >= nodes:
                    for j in range(start[node], stop[node]):
                        value = _cost(x[i], y[j], p, geodesic) - g[j]
                        if value < best:
                            best, place = value, j
                    continue
                left, right = 2 * node + 1, 2 * node + 2
                near, far = _least(x[i], records[left], p, geodesic), _least(x[i], records[right], p, geodesic)
                if near > far:
                    left, right, near, far = right, left, far, near
                # The nearer branch is put on top, and looked at first.
                if far < best:
                    stack[height], bounds[height] = right, far
                    height += 1
                if near < best:
                    stack[height], bounds[height] = left, near
                    height += 1
            values[i], places[i] = best, place
    return values, places
