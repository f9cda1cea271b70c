"""Groups of close queries, and their view of the sources: the nearest one, and bounds of weights for all queries."""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int

from frostline.compiled import njit

STACK = 4096
"""Room for boxes waiting to be examined: at most 2^{d−1} − 1 for every level."""
WIDE = 0.4
"""Boxes up to this many kernel widths are not opened to bound a sum from below."""
CLOSE = 0.7
"""Queries form a group when they are within this many kernel widths of its middle."""
NEAR = 2.0
"""Few queries form a group when they are within this many kernel widths of its middle."""
FEW = 96
"""The largest number of queries that counts as few."""
MANY = 512
"""The largest number of queries in a group."""


class Groups(NamedTuple):
    """Queries in an order in which every group is a stretch from ``start`` to ``stop``."""

    p: Float[np.ndarray, "q d"]
    start: Int[np.ndarray, " groups"]
    stop: Int[np.ndarray, " groups"]
    middle: Float[np.ndarray, "groups d"]
    radius: Float[np.ndarray, " groups"]


@njit()
@no_type_check
def grouped(p, boxes):
    """Groups of the rows of p, which come in the order of the boxes of their directions."""
    n, d = p.shape
    start, stop = np.empty(n, np.int64), np.empty(n, np.int64)
    middles, radii = np.empty((n, d)), np.empty(n)
    low, high, middle = np.empty(d), np.empty(d), np.empty(d)
    stack, count = [0], 0
    while stack:
        box = stack.pop()
        first, last = boxes.start[box], boxes.stop[box]
        low[:], high[:] = p[first], p[first]
        for i in range(first, last):
            for k in range(d):
                low[k] = min(low[k], p[i, k])
                high[k] = max(high[k], p[i, k])
        middle[:] = (low + high) / 2
        square = 0.0
        for i in range(first, last):
            far = 0.0
            for k in range(d):
                far += (p[i, k] - middle[k]) ** 2
            square = max(square, far)
        radius = np.sqrt(square)
        width = max(1.0, np.sqrt(np.sqrt((middle**2).sum())))
        if radius <= CLOSE * width or (last - first <= FEW and radius <= NEAR * width):
            parts = -(-(last - first) // MANY)
        elif boxes.children[box]:
            for number in range(boxes.children[box]):
                stack.append(boxes.child[box] + number)
            continue
        else:
            parts = last - first
        for part in range(parts):
            start[count] = first + part * (last - first) // parts
            stop[count] = first + (part + 1) * (last - first) // parts
            alone = stop[count] - start[count] == 1
            middles[count] = p[start[count]] if alone else middle
            radii[count] = 0.0 if alone else radius
            count += 1
    return Groups(p, start[:count], stop[:count], middles[:count], radii[:count])


class Group(NamedTuple):
    """A group's view of the sources: its middle p = κu, how far its queries are from there, the source y* nearest to u
    and its chord, and a lower bound of log Σ_j w_j e^{⟨p, y_j − y*⟩} for each of its queries."""

    kappa: float
    u: Float[np.ndarray, " d"]
    spread: float
    shift: float
    star: Float[np.ndarray, " d"]
    chord: float
    least: float


@njit()
@no_type_check
def apart(a, b):
    """The distance of two points."""
    square = 0.0
    for k in range(len(a)):
        square += (a[k] - b[k]) ** 2
    return np.sqrt(square)


@njit()
@no_type_check
def _nearest(u, boxes, stack):
    """The source nearest to a direction: its index and its chord."""
    best, nearest, top = 4.0, 0, 0
    stack[0] = 0
    while top >= 0:
        box = stack[top]
        top -= 1
        if box and max(0.0, apart(u, boxes.centre[box]) - boxes.radius[box]) >= best:
            continue
        if boxes.children[box]:
            near, chord = 0, 5.0
            for number in range(boxes.children[box]):
                distance = apart(u, boxes.centre[boxes.child[box] + number])
                if distance < chord:
                    near, chord = number, distance
            # The nearest is looked at first.
            for number in range(boxes.children[box]):
                if number != near:
                    top += 1
                    stack[top] = boxes.child[box] + number
            top += 1
            stack[top] = boxes.child[box] + near
        else:
            for j in range(boxes.start[box], boxes.stop[box]):
                square = 0.0
                for k in range(len(u)):
                    square += (u[k] - boxes.points[k, j]) ** 2
                if square < best * best:
                    best, nearest = np.sqrt(square), j
    return nearest, best


@njit()
@no_type_check
def largest(group, away, across):
    """Bound of log(e^{⟨p,y⟩}/Σ_j w_j e^{⟨p,y_j⟩}) for y at chords ≥ ``away`` from u and ≤ ``across`` from y*."""
    near = max(0.0, away)
    # Seen from the middle, ⟨p, y − y*⟩ = ⟨p_c, y − y*⟩ + ⟨p − p_c, y − y*⟩; or seen from each query, none of whose
    # directions is further from u than ``shift``.
    common = group.kappa * (group.chord**2 - near**2) / 2 + group.spread * across
    if group.spread < group.kappa:
        near = max(0.0, away - group.shift)
        most = (group.kappa + group.spread) * (group.chord + group.shift) ** 2
        common = min(common, (most - (group.kappa - group.spread) * near**2) / 2)
    return common - group.least


@njit()
@no_type_check
def seen_from(middle, spread, boxes, stack):
    """The Group of queries within ``spread`` of ``middle``."""
    kappa = np.sqrt((middle**2).sum())
    u = middle / kappa if kappa > 0 else np.full(len(middle), 1 / np.sqrt(len(middle)))
    nearest, chord = _nearest(u, boxes, stack)
    star = boxes.points[:, nearest].copy()
    shift = 2 * spread / (2 * kappa - spread) if spread < kappa else 2.0
    group = Group(kappa, u, spread, shift, star, chord, 0.0)
    # Boxes smaller than the kernel is wide, near its middle; the points of leaves that are larger.
    width, total, top = 1 / np.sqrt(kappa + 1), boxes.weights[nearest], 0
    stack[0] = 0
    while top >= 0:
        box = stack[top]
        top -= 1
        size, away, across = boxes.radius[box], apart(u, boxes.centre[box]), apart(star, boxes.centre[box])
        if box and largest(group, away - size, across + size) < -6.0:
            continue
        if box and size < WIDE * width:
            far = away + size
            total += boxes.mass[box] * np.exp(kappa / 2 * (chord**2 - far**2) - spread * (across + size))
        elif boxes.children[box]:
            for number in range(boxes.children[box]):
                top += 1
                stack[top] = boxes.child[box] + number
        else:
            for j in range(boxes.start[box], min(boxes.stop[box], boxes.start[box] + 256)):
                dot, square = 0.0, 0.0
                for k in range(len(u)):
                    z = boxes.points[k, j] - star[k]
                    dot += u[k] * z
                    square += z * z
                total += boxes.weights[j] * np.exp(kappa * dot - spread * np.sqrt(square))
    # y* itself may have been counted twice.
    least = np.log(max(boxes.weights[nearest], total - boxes.weights[nearest]))
    return Group(kappa, u, spread, shift, star, chord, least)
