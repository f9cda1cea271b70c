"""Proxies of a box: few weighted points, at Chebyshev nodes, that give the same sums of smooth functions as its points.

Σ_j w_j f(θ_j) ≈ Σ_l q_l f(node_l) with q_l = Σ_j w_j ℓ_l(θ_j), ℓ_l Lagrange's polynomials of the nodes: exact for
polynomials of degree below k in every coordinate. Charges q of large boxes come from those of the boxes within.
"""

from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import prange

from frostline.compiled import njit
from frostline.dynamics.mean_map.boxes import HALF, Boxes, lift

EDGE = {1: 24, 2: 5, 3: 5}
"""Nodes along an axis that are kept or left out together, by the number of coordinates."""
WIDEST = 5.0
"""The largest half width of a box with proxies, in kernel widths: above it no order is large enough."""


class Proxies(NamedTuple):
    """Weighted points of the sphere that stand for boxes, in several orders; those of one box come in blocks.

    first (orders, boxes)   the box's first block; −1 where there would be more proxies than points
    blocks (orders,)        the number of blocks of a box
    start (blocks,)         where the block's points begin; the last entry is their number
    centre, radius          of the blocks
    size (blocks,)          log 2Σ|q|
    points (d, P), weights (P,)
    """

    first: Int[np.ndarray, "orders boxes"]
    blocks: Int[np.ndarray, " orders"]
    start: Int[np.ndarray, " blocks"]
    centre: Float[np.ndarray, "blocks d"]
    radius: Float[np.ndarray, " blocks"]
    size: Float[np.ndarray, " blocks"]
    points: Float[np.ndarray, "d P"]
    weights: Float[np.ndarray, " P"]


def proxies(boxes: Boxes, orders: Sequence[int], kappa: float = 0.0) -> Proxies:
    """For every box and every order k (ascending): k^{d−1} proxies if that is less than the box has points.

    Boxes much wider than the kernel of the smallest ``kappa`` that will be asked for are left out.
    """
    e, most = len(boxes.points) - 1, orders[-1]
    owners = _owners(boxes, orders, kappa)
    which = owners[0]
    slot = np.full(len(boxes.start), -1)
    slot[which] = np.arange(len(which))
    nodes, turn = _chebyshev(most)
    # Three axes whatever e is, the first ones of length 1 where there are fewer coordinates.
    moments = np.zeros((len(which), *(most if axis >= 3 - e else 1 for axis in range(3))))
    _from_points(which, slot, boxes, moments)
    _upwards(which[::-1].copy(), slot, boxes, nodes, turn, moments)
    edges = [min(EDGE[e], order) for order in orders]
    blocks = [(-(-order // edge)) ** e for order, edge in zip(orders, edges, strict=True)]
    owned = np.array([len(owner) for owner in owners])
    # Where each order's blocks and points begin, and how many there are in all.
    block = np.append(0, np.cumsum(owned * blocks))
    at = np.append(0, np.cumsum(owned * np.array(orders) ** e))
    made = Proxies(
        first=np.full((len(orders), len(slot)), -1),
        blocks=np.array(blocks),
        start=np.zeros(block[-1] + 1, np.int64),
        centre=np.zeros((block[-1], e + 1)),
        radius=np.zeros(block[-1]),
        size=np.empty(block[-1]),
        points=np.empty((e + 1, at[-1])),
        weights=np.empty(at[-1]),
    )
    for row, order in enumerate(orders):
        made.first[row, owners[row]] = block[row] + blocks[row] * np.arange(owned[row])
        # The arrays one by one: numba takes a loop that only writes into a tuple's for one without effect.
        block_numbers = (edges[row], blocks[row], block[row], at[row])
        _spread(owners[row], slot, boxes, moments, *_chebyshev(order), *block_numbers, *made[2:])
    np.cumsum(made.start, out=made.start)  # sizes until now
    return made


def _owners(boxes: Boxes, orders: Sequence[int], kappa: float) -> list[Int[np.ndarray, " owners"]]:
    """The boxes that have proxies of each order."""
    counts = boxes.stop - boxes.start
    counts[(HALF * 2.0**-boxes.level) ** 2 * kappa > WIDEST**2] = 0
    counts[0] = 0
    return [np.flatnonzero(counts > order ** (len(boxes.points) - 1)) for order in orders]


def sketched(boxes: Boxes, orders: Sequence[int], kappa: float = 0.0) -> Proxies:
    """``proxies`` without the points, and every box in one block: enough to count the items to be summed."""
    e, owners = len(boxes.points) - 1, _owners(boxes, orders, kappa)
    first, before = np.full((len(orders), len(boxes.start)), -1), 0
    for row, owner in enumerate(owners):
        first[row, owner] = before + np.arange(len(owner))
        before += len(owner)
    owned = np.concatenate(owners)
    sizes = np.repeat(np.array(orders) ** e, [len(owner) for owner in owners])
    return Proxies(
        first=first,
        blocks=np.ones(len(orders), np.int64),
        start=np.append(0, np.cumsum(sizes)),
        centre=boxes.centre[owned],
        radius=boxes.radius[owned],
        size=np.log(2 * boxes.mass[owned]),
        points=np.empty((e + 1, 0)),
        weights=np.empty(0),
    )


def _chebyshev(order: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k k"]]:
    """Nodes on [−1, 1], and the matrix that turns moments Σ w T_a into charges."""
    angles = (2 * np.arange(order) + 1) * np.pi / (2 * order)
    turn = np.cos(np.outer(angles, np.arange(order))) * 2 / order
    turn[:, 0] /= 2
    return np.cos(angles), turn


@njit()
@no_type_check
def _polynomials(s, out):
    """T_0 … T_{k−1} at s; k = 1: T_0 alone."""
    out[0] = 1.0
    if len(out) > 1:
        out[1] = s
    for a in range(2, len(out)):
        out[a] = 2.0 * s * out[a - 1] - out[a - 2]


@njit(parallel=True)
@no_type_check
def _from_points(which, slot, boxes, moments):
    """Moments Σ w T_a(s_1) T_b(s_2) … of the points that lie in no smaller box with proxies."""
    weights, children, child = boxes.weights, boxes.children, boxes.child
    e = len(boxes.angles)
    for at in prange(len(which)):
        box = which[at]
        sums = moments[at]
        n0, n1, n2 = sums.shape
        axes = np.empty((3, max(n0, n1, n2)))
        axes[:, 0] = 1.0
        half = HALF * 2.0 ** -boxes.level[box]
        for turn in range(max(1, children[box])):
            part = child[box] + turn if children[box] else box
            if children[box] and slot[part] >= 0:
                continue
            for j in range(boxes.start[part], boxes.stop[part]):
                for k in range(e):
                    # Rounding may put a point a little outside, where polynomials are large.
                    s = min(max((boxes.angles[k, j] - boxes.middle[box, k]) / half, -1.0), 1.0)
                    _polynomials(s, axes[3 - e + k, :n2])
                for a in range(n0):
                    for b in range(n1):
                        factor = weights[j] * axes[0, a] * axes[1, b]
                        for c in range(n2):
                            sums[a, b, c] += factor * axes[2, c]


@njit()
@no_type_check
def _applied(axis, matrix, moments):
    """Σ_i matrix[a, i] moments[…, i, …] along one axis, as far as the matrix goes."""
    n0, n1, n2 = moments.shape
    rows, columns = matrix.shape
    if axis == 0:
        out = np.zeros((rows, n1, n2))
        for x in range(columns):
            for a in range(rows):
                out[a] += matrix[a, x] * moments[x]
    elif axis == 1:
        out = np.zeros((n0, rows, n2))
        for x in range(n0):
            for y in range(columns):
                for a in range(rows):
                    for z in range(n2):
                        out[x, a, z] += matrix[a, y] * moments[x, y, z]
    else:
        out = np.zeros((n0, n1, rows))
        for x in range(n0):
            for y in range(n1):
                for z in range(columns):
                    for a in range(rows):
                        out[x, y, a] += matrix[a, z] * moments[x, y, z]
    return out


@njit()
@no_type_check
def _moved(offset, scale, nodes, turn):
    """The matrix that turns moments on an interval at offset ± scale of a larger one into those on the larger one."""
    matrix, row = np.empty((len(nodes), len(nodes))), np.empty(len(nodes))
    for i in range(len(nodes)):
        _polynomials(offset + scale * nodes[i], row)
        matrix[:, i] = row
    return matrix @ turn


@njit()
@no_type_check
def _upwards(backwards, slot, boxes, nodes, turn, moments):
    """Add to the moments of parents those of their children's proxies; small boxes come first."""
    middle, level, children, child = boxes.middle, boxes.level, boxes.children, boxes.child
    e = middle.shape[1]
    # Most children are half as wide as their parent, to its left or to its right.
    halves = (_moved(-0.5, 0.5, nodes, turn), _moved(0.5, 0.5, nodes, turn))
    for box in backwards:
        for number in range(children[box]):
            part = child[box] + number
            if slot[part] < 0:
                continue
            moved = moments[slot[part]]
            for xi in range(e):
                offset = (middle[part, xi] - middle[box, xi]) / HALF * 2.0 ** level[box]
                if level[part] == level[box] + 1:
                    matrix = halves[0] if offset < 0 else halves[1]
                else:
                    matrix = _moved(offset, 2.0 ** (level[box] - level[part]), nodes, turn)
                moved = _applied(3 - e + xi, matrix, moved)
            moments[slot[box]] += moved


@njit(parallel=True)
@no_type_check
def _spread(which, slot, boxes, moments, nodes, turn, edge, blocks, first, begins,
            start, centre, radius, size, points, weights):  # fmt: skip
    """Charges from moments, and the proxies as points, block after block, into arrays of ``Proxies``."""
    middle, level = boxes.middle, boxes.level
    e, k = middle.shape[1], len(nodes)
    d, each = e + 1, k**e
    rows = -(-k // edge)
    for number in prange(len(which)):
        box = which[number]
        xi, point = np.empty(e), np.empty(d)
        charges = moments[slot[box]]
        for c in range(e):
            charges = _applied(3 - e + c, turn, charges)
        flat = charges.ravel()
        at = begins + number * each
        for part in range(blocks):
            block = first + number * blocks + part
            begin, total = at, 0.0
            for inside in range(edge**e):
                index, code, rest, there = 0, part, inside, True
                for c in range(e):
                    node = (code % rows) * edge + rest % edge
                    code //= rows
                    rest //= edge
                    there = there and node < k
                    index = index * k + node
                    if node < k:
                        xi[c] = middle[box, c] + HALF * 2.0 ** -level[box] * nodes[node]
                if there:
                    lift(boxes.face[box], xi, point)
                    points[:, at] = point
                    weights[at] = flat[index]
                    total += abs(flat[index])
                    centre[block] += point
                    at += 1
            start[block + 1] = at - begin
            centre[block] /= max(1, at - begin)
            size[block] = np.log(2 * max(total, 1e-300))
            for j in range(begin, at):
                far = 0.0
                for c in range(d):
                    far += (points[c, j] - centre[block, c]) ** 2
                radius[block] = max(radius[block], np.sqrt(far))
