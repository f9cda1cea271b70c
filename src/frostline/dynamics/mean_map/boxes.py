"""A tree of boxes on the sphere, for points in 2 to 4 dimensions.

The sphere is cut into the 2d faces of a cube; a face has coordinates θ = arctan(y'/y_k) in [−π/4, π/4]^{d−1} and is
halved in every coordinate again and again. A path along one coordinate is a part of a great circle, which is what makes
the error of interpolation on a box easy to bound (``bounds``); equal steps in θ are almost equal angles.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import prange

from frostline.compiled import njit

LEAF = 96
"""The largest number of points of a box that is not cut further."""
HALF = np.pi / 4
"""Half width of a face in θ, in radians."""
LEVELS = {1: 36, 2: 28, 3: 20}
"""Halvings, by the number of coordinates: they fit into a key of 64 bits, and boxes stay wider than rounding of θ."""


class Boxes(NamedTuple):
    """Points in the order of a tree of boxes; the children of a box come one after the other, after their parent.

    order (n,)       the index of the point at each place
    points (d, n), angles (d − 1, n), weights (n,)    in that order; angles are θ on the point's face
    start, stop      the stretch of points of every box
    child, children  the first child and how many there are (none: a leaf)
    level            its half width in θ is π/4·2^{−level}
    face, middle     face of the cube and θ of the middle
    centre, radius   the middle as a point of the sphere, and the largest chord from there within the box
    mass             sum of weights
    excess           log max(1, 1/(16 mass)): light boxes may lose more of themselves
    """

    order: Int[np.ndarray, " n"]
    points: Float[np.ndarray, "d n"]
    angles: Float[np.ndarray, "e n"]
    weights: Float[np.ndarray, " n"]
    start: Int[np.ndarray, " boxes"]
    stop: Int[np.ndarray, " boxes"]
    child: Int[np.ndarray, " boxes"]
    children: Int[np.ndarray, " boxes"]
    level: Int[np.ndarray, " boxes"]
    face: Int[np.ndarray, " boxes"]
    middle: Float[np.ndarray, "boxes e"]
    centre: Float[np.ndarray, "boxes d"]
    radius: Float[np.ndarray, " boxes"]
    mass: Float[np.ndarray, " boxes"]
    excess: Float[np.ndarray, " boxes"]


class Sorted(NamedTuple):
    """The order of the points and the stretches of the boxes alone, as in ``Boxes``."""

    order: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " boxes"]
    stop: Int[np.ndarray, " boxes"]
    child: Int[np.ndarray, " boxes"]
    children: Int[np.ndarray, " boxes"]


def in_boxes(points: Float[np.ndarray, "n d"], leaf: int) -> Sorted:
    """Unit vectors in the order of a tree; boxes of more than ``leaf`` points are cut."""
    e = points.shape[1] - 1
    keys, _ = _keys(points, LEVELS[e])
    order = np.argsort(keys)
    return Sorted(order, *_cut(keys[order], e, LEVELS[e], leaf)[:4])


def boxed(points: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"], leaf: int = LEAF) -> Boxes:
    """The tree of unit vectors in d = 2, 3 or 4 dimensions; boxes of more than ``leaf`` points are cut."""
    e = points.shape[1] - 1
    keys, angles = _keys(points, LEVELS[e])
    order = np.argsort(keys)
    keys, shares = keys[order], weights[order]
    start, stop, child, children, level = _cut(keys, e, LEVELS[e], leaf)
    mass = _masses(shares, start, stop, child, children)
    face, middle, centre, radius = _places(keys[start], level, e + 1, LEVELS[e])
    return Boxes(
        order=order,
        points=_turned(points, order),
        angles=_turned(angles, order),
        weights=shares,
        start=start,
        stop=stop,
        child=child,
        children=children,
        level=level,
        face=face,
        middle=middle,
        centre=centre,
        radius=radius,
        mass=mass,
        excess=np.log(np.maximum(1.0, 1 / (16 * mass))),
    )


@njit(parallel=True)
@no_type_check
def _turned(rows, order):
    """rows[order].T in its own memory."""
    n, d = rows.shape
    out = np.empty((d, n))
    for i in prange(n):
        for k in range(d):
            out[k, i] = rows[order[i], k]
    return out


@njit(parallel=True)
@no_type_check
def _keys(points, levels):
    """Face and interleaved digits of θ: sorted, boxes are stretches. And θ."""
    n, d = points.shape
    keys, angles = np.empty(n, np.uint64), np.empty((n, d - 1))
    for i in prange(n):
        major = 0
        for k in range(1, d):
            if abs(points[i, k]) > abs(points[i, major]):
                major = k
        key = np.uint64(2 * major + (points[i, major] < 0))
        digits = np.empty(3, np.uint64)
        at = 0
        for k in range(d):
            if k != major:
                angles[i, at] = np.arctan(points[i, k] / points[i, major])
                share = 0.5 + angles[i, at] * (2 / np.pi)
                digits[at] = np.uint64(min(max(share, 0.0) * 2.0**levels, 2.0**levels - 1.0))
                at += 1
        for bit in range(levels - 1, -1, -1):
            for k in range(d - 1):
                key = (key << np.uint64(1)) | ((digits[k] >> np.uint64(bit)) & np.uint64(1))
        keys[i] = key
    return keys, angles


@njit()
@no_type_check
def _cut(keys, e, levels, leaf):
    """Boxes from sorted keys, parents first. A box is as small as its points allow."""
    n = len(keys)
    room = 2 * n + 8 * (e + 1)
    start, stop = np.empty(room, np.int64), np.empty(room, np.int64)
    child, children = np.zeros(room, np.int64), np.zeros(room, np.int64)
    level = np.empty(room, np.int64)
    # The root is no box: it is the list of faces, kept as box 0 with level −1.
    start[0], stop[0], level[0], count = 0, n, -1, 1
    at = 0
    while at < count:
        deeper = level[at] + 1
        if at == 0 or (stop[at] - start[at] > leaf and level[at] < levels):
            child[at] = count
            first = start[at]
            shift = np.uint64(e * (levels - deeper))
            while first < stop[at]:
                prefix = keys[first] >> shift
                low, high = first + 1, stop[at]
                while low < high:
                    half = (low + high) // 2
                    if keys[half] >> shift == prefix:
                        low = half + 1
                    else:
                        high = half
                start[count], stop[count] = first, low
                # As small as its points allow: the digits that the first and the last share.
                fits = deeper
                while fits < levels and keys[first] >> np.uint64(e * (levels - fits - 1)) == keys[low - 1] >> np.uint64(
                    e * (levels - fits - 1)
                ):
                    fits += 1
                level[count] = fits
                first = low
                count += 1
            children[at] = count - child[at]
        at += 1
    return start[:count], stop[:count], child[:count], children[:count], level[:count]


@njit()
@no_type_check
def _masses(weights, start, stop, child, children):
    """Sums of weights, children first. Differences of one running sum would lose the lightest boxes to rounding."""
    mass = np.zeros(len(start))
    for box in range(len(start) - 1, -1, -1):
        if children[box]:
            for number in range(children[box]):
                mass[box] += mass[child[box] + number]
        else:
            for j in range(start[box], stop[box]):
                mass[box] += weights[j]
    return mass


@njit(parallel=True)
@no_type_check
def _places(keys, level, d, levels):
    """Faces, middles, centres and radii of boxes, decoded from the key of any point in them."""
    count, e = len(level), d - 1
    face = np.zeros(count, np.int64)
    middle = np.zeros((count, e))
    centre = np.zeros((count, d))
    radius = np.full(count, 2.0)
    for box in prange(1, count):
        corner, other = np.empty(e), np.empty(d)
        face[box] = np.int64(keys[box] >> np.uint64(e * levels))
        half = HALF * 2.0 ** -level[box]
        for k in range(e):
            digit = 0
            for bit in range(level[box]):
                place = np.uint64(e * (levels - 1 - bit) + (e - 1 - k))
                digit = 2 * digit + np.int64((keys[box] >> place) & np.uint64(1))
            middle[box, k] = -HALF + half * (2 * digit + 1)
        lift(face[box], middle[box], centre[box])
        far = 0.0
        for which in range(1 << e):
            for k in range(e):
                corner[k] = middle[box, k] + (half if (which >> k) & 1 else -half)
            lift(face[box], corner, other)
            square = 0.0
            for k in range(d):
                square += (other[k] - centre[box, k]) ** 2
            far = max(far, square)
        radius[box] = np.sqrt(far)
    return face, middle, centre, radius


@njit()
@no_type_check
def lift(face, theta, out):
    """The point of the sphere with coordinates θ on a face."""
    major, size, at = face // 2, 1.0, 0
    for k in range(len(theta)):
        size += np.tan(theta[k]) ** 2
    scale = (-1.0 if face % 2 else 1.0) / np.sqrt(size)
    for k in range(len(theta) + 1):
        if k == major:
            out[k] = scale
        else:
            out[k] = scale * np.tan(theta[at])
            at += 1
