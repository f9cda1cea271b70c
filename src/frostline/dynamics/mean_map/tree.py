"""The tree engine: for low dimensions, what does not matter is left out and what cannot be told apart is merged.

Queries that are close share a list of sources. It is found by going down the tree of boxes from the top: a box is left
out where its weight is too small to matter, replaced by proxies where they are right enough, and opened otherwise. Both
errors are bounded before they are made, and their sum stays below the tolerance (``_listed``); what is on the list is
summed in float64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import get_num_threads, njit, prange
from torch import Tensor

from frostline.compiled import interruptible
from frostline.dynamics.mean_map.bounds import Bounds, bounds
from frostline.dynamics.mean_map.boxes import HALF, LEVELS, Boxes, boxed
from frostline.dynamics.mean_map.pairs import LEAST, add_four, add_three, exponential
from frostline.dynamics.mean_map.proxies import Proxies, proxies
from frostline.errors import BadParameter

DIMENSIONS = (2, 3, 4)
LEAST_TOLERANCE = 1e-13
LARGEST = 500.0
"""Exponents that a group's queries may have."""
STACK = 4096
"""Boxes waiting to be looked at: at most 2^{d−1} − 1 for every level."""
_LOG2 = float(np.log(2.0))
CHUNK = 1024
"""Sources copied together: they stay in the cache while every query of a group goes through them."""


def orders(d: int, tolerance: float) -> tuple[int, ...]:
    """Nodes in each coordinate of a box, ascending: a large box with many nodes has fewer of them per area."""
    digits = -np.log10(tolerance)
    sizes = {2: (1.0, 2.0), 3: (0.6, 1.0, 1.5, 2.2, 3.0), 4: (0.5, 1.0)}[d]
    return tuple(sorted({int(6 + 5 * size + digits * (0.7 + 0.25 * size)) for size in sizes}))


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that is known of queries and sources before anything is summed."""

    asked: Boxes
    groups: "Groups"
    boxes: Boxes
    proxies: Proxies
    table: Bounds
    tolerance: float

    @classmethod
    def of(
        cls,
        p: Float[np.ndarray, "q d"],
        y: Float[np.ndarray, "n d"],
        log_weights: Float[np.ndarray, " n"] | None,
        tolerance: float,
    ) -> "Plan":
        q, d = p.shape
        weights = np.ones(len(y)) if log_weights is None else np.exp(log_weights - log_weights.max())
        if not (weights > 0).all():
            y, weights = y[weights > 0], weights[weights > 0]
        # Queries that overflow give no numbers, which is the caller's to refuse.
        with interruptible(), np.errstate(over="ignore", invalid="ignore"):
            boxes = boxed(np.ascontiguousarray(y), weights / weights.sum())
            size = np.sqrt((p * p).sum(1, keepdims=True))
            # Where p = 0 every direction is as good.
            directions = np.where(size > 0, p / np.where(size > 0, size, 1.0), 1 / np.sqrt(d))
            asked = boxed(directions, np.full(q, 1 / q), leaf=8)
            groups = _groups(np.ascontiguousarray(p[asked.order]), asked)
            used = orders(d, tolerance)
            table = bounds(used, d - 1, LEVELS[d - 1])
            return cls(asked, groups, boxes, proxies(boxes, used, float(size.min())), table, tolerance)

    def pairs(self) -> float:
        """Sources and proxies that a query has to sum, in the mean: from some groups."""
        some = np.unique(np.linspace(0, len(self.groups.start) - 1, 64).astype(int))
        with interruptible():
            counts = _counted(some, self.groups, self.boxes, self.proxies, self.table, self.tolerance)
        sizes = self.groups.stop[some] - self.groups.start[some]
        return float((sizes * counts).sum() / sizes.sum())

    def mean_map(self) -> Float[np.ndarray, "q d"]:
        found = np.empty(self.groups.p.shape)
        with interruptible():
            _evaluate(self.groups, self.boxes, self.proxies, self.table, self.tolerance, 8 * get_num_threads(), found)
        out = np.empty_like(found)
        out[self.asked.order] = found
        return out


def plans(
    p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], log_weights: Tensor | None, tolerance: float
) -> Iterator[Plan]:
    """One for every member of an ensemble."""
    d, n = p.shape[-1], y.shape[-2]
    logs = None if log_weights is None else log_weights.expand(*y.shape[:-1]).reshape(-1, n).numpy()
    members = zip(p.reshape(-1, p.shape[-2], d).numpy(), y.reshape(-1, n, d).numpy(), strict=True)
    for number, (queries, sources) in enumerate(members):
        yield Plan.of(queries, sources, None if logs is None else logs[number], tolerance)


def tree(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """Within ``tolerance`` of Σ_j w_j e^{⟨p,y_j⟩} y_j / Σ_j w_j e^{⟨p,y_j⟩} in every query."""
    refuse(p, tolerance)
    found = [plan.mean_map() for plan in plans(p, y, log_weights, tolerance)]
    return torch.from_numpy(np.stack(found)).reshape(p.shape)


def refuse(p: Float[Tensor, "*batch q d"], tolerance: float) -> None:
    """Say what the tree cannot do."""
    if p.shape[-1] not in DIMENSIONS:
        raise BadParameter(
            f"the tree engine works in 2, 3 and 4 dimensions, not {p.shape[-1]}: boxes would need more proxies "
            'than they have points. Use engine="dense".'
        )
    if p.is_cuda:
        raise BadParameter('the tree engine runs on the CPU; the tokens are on a GPU. Use engine="dense" there.')
    if tolerance < LEAST_TOLERANCE:
        raise BadParameter(
            f"the tree engine promises errors down to {LEAST_TOLERANCE:g}, not {tolerance:g}: float64 rounds there. "
            'Use engine="dense" for all the digits there are.'
        )


WIDE = 0.4
"""Boxes up to this many kernel widths are not opened to bound a sum from below."""
CLOSE, NEAR, FEW, MANY = 0.7, 2.0, 96, 512
"""Queries form a group when they are within 0.7 of the kernel's width, or few (96) and within 2; 512 at most."""


class Groups(NamedTuple):
    """Queries in an order in which groups of close ones are stretches."""

    p: Float[np.ndarray, "q d"]
    start: Int[np.ndarray, " groups"]
    stop: Int[np.ndarray, " groups"]
    middle: Float[np.ndarray, "groups d"]
    radius: Float[np.ndarray, " groups"]


@njit(cache=True)
@no_type_check
def _groups(p, boxes):
    """Groups of the rows of p, which stand in the order of the boxes of their directions."""
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


@njit(cache=True)
@no_type_check
def _chord(a, b):
    square = 0.0
    for k in range(len(a)):
        square += (a[k] - b[k]) ** 2
    return np.sqrt(square)


@njit(cache=True)
@no_type_check
def _nearest(u, boxes, stack):
    """The source nearest to a direction: its place and its chord."""
    best, found, top = 4.0, 0, 0
    stack[0] = 0
    while top >= 0:
        box = stack[top]
        top -= 1
        if box and max(0.0, _chord(u, boxes.centre[box]) - boxes.radius[box]) >= best:
            continue
        if boxes.children[box]:
            near, chord = 0, 5.0
            for number in range(boxes.children[box]):
                own = _chord(u, boxes.centre[boxes.child[box] + number])
                if own < chord:
                    near, chord = number, own
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
                    best, found = np.sqrt(square), j
    return found, best


@njit(cache=True)
@no_type_check
def _largest(group, away, across):
    """Bound of e^{⟨p,y⟩}/Σ_j w_j e^{⟨p,y_j⟩}, in logarithms, for y at chords ≥ away from u and ≤ across from y*."""
    near = max(0.0, away)
    # Seen from the middle, ⟨p, y − y*⟩ = ⟨p_c, y − y*⟩ + ⟨p − p_c, y − y*⟩; or seen from each query, none of whose
    # directions is further from u than ``shift``.
    common = group.kappa * (group.chord**2 - near**2) / 2 + group.spread * across
    if group.spread < group.kappa:
        near = max(0.0, away - group.shift)
        most = (group.kappa + group.spread) * (group.chord + group.shift) ** 2
        common = min(common, (most - (group.kappa - group.spread) * near**2) / 2)
    return common - group.least


@njit(cache=True)
@no_type_check
def _seen_from(middle, spread, boxes, stack):
    """The Group of queries within ``spread`` of ``middle``."""
    kappa = np.sqrt((middle**2).sum())
    u = middle / kappa if kappa > 0 else np.full(len(middle), 1 / np.sqrt(len(middle)))
    found, chord = _nearest(u, boxes, stack)
    star = boxes.points[:, found].copy()
    shift = 2 * spread / (2 * kappa - spread) if spread < kappa else 2.0
    group = Group(kappa, u, spread, shift, star, chord, 0.0)
    # Boxes smaller than the kernel is wide, near its middle; the points of leaves that are larger.
    width, total, top = 1 / np.sqrt(kappa + 1), boxes.weights[found], 0
    stack[0] = 0
    while top >= 0:
        box = stack[top]
        top -= 1
        size, away, across = boxes.radius[box], _chord(u, boxes.centre[box]), _chord(star, boxes.centre[box])
        if box and _largest(group, away - size, across + size) < -6.0:
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
    least = np.log(max(boxes.weights[found], total - boxes.weights[found]))
    return Group(kappa, u, spread, shift, star, chord, least)


@njit(cache=True)
@no_type_check
def _order(group, box, away, across, allowed, boxes, proxies, table):
    """The smallest order of proxies that may stand for a box, and the bound of their error; −1 if there is none."""
    level, found, lost = boxes.level[box], -1, 0.0
    most = len(proxies.first) - 1
    while most >= 0 and proxies.first[most, box] < 0:
        most -= 1
    for turn in range(most + 1):
        # The largest first: where it will not do, none will.
        order = most - turn
        wrong = np.inf
        best = table.best[order] * 2.0**level / HALF / np.sqrt(group.kappa + group.spread + 1)
        r = 0
        while r < len(table.ratios) - 2 and table.ratios[r + 1] < best:
            r += 1
        for at in range(max(0, r - 1), r + 2):
            wide = boxes.radius[box] + table.reach[level, at]
            wrong = min(
                wrong,
                table.error[order, level, at]
                + (group.kappa + group.spread) * table.growth[level, at]
                + _largest(group, away - wide, across + wide),
            )
        if wrong > allowed:
            break
        found, lost = order, boxes.mass[box] * exponential(max(wrong, LEAST))
    return found, lost


@njit(cache=True)
@no_type_check
def _listed(group, boxes, proxies, table, budget, share, stack, found):
    """What a group of queries has to sum: leaves (their number) and blocks of proxies (−1 − their number) in ``found``.

    Returns how many, the bound of what is lost, and the largest chord from y*. Each box that is left out or replaced
    may lose ``share`` of the budget times its mass, or times 1/16 if that is more.
    """
    top, count, lost, widest = 0, 0, 0.0, 0.0
    stack[0] = 0
    rest = np.log(budget * share)
    while top >= 0:
        box = stack[top]
        top -= 1
        if box:
            away, across = _chord(group.u, boxes.centre[box]), _chord(group.star, boxes.centre[box])
            size = boxes.radius[box]
            # Per unit of mass, in logarithms.
            allowed = rest + boxes.excess[box]
            # The mean is a quotient: what is missing is missing above and below.
            gone = _LOG2 + _largest(group, away - size, across + size)
            if gone <= allowed:
                lost += boxes.mass[box] * exponential(max(gone, LEAST))
                continue
            order, wrong = _order(group, box, away, across, allowed, boxes, proxies, table)
            if order >= 0:
                lost += wrong
                begin = proxies.first[order, box]
                allowed += np.log(boxes.mass[box] / proxies.blocks[order])
                for block in range(begin, begin + proxies.blocks[order]):
                    away = _chord(group.u, proxies.centre[block]) - proxies.radius[block]
                    across = _chord(group.star, proxies.centre[block]) + proxies.radius[block]
                    gone = proxies.size[block] + _largest(group, away, across)
                    if gone <= allowed:
                        lost += exponential(max(gone, LEAST))
                    else:
                        found[count] = -1 - block
                        count += 1
                        widest = max(widest, across)
                continue
            if not boxes.children[box]:
                found[count] = box
                count += 1
                widest = max(widest, across + size)
                continue
        for number in range(boxes.children[box]):
            top += 1
            stack[top] = boxes.child[box] + number
    return count, lost, widest


@njit(cache=True)
@no_type_check
def _sum(p, group, boxes, proxies, found, count, z, w, sums, out):
    """The mean map of some queries over what is listed."""
    d, filled = p.shape[1], 0
    query = np.zeros(len(z))
    sums[: len(p)] = 0.0
    for item in range(count):
        one = found[item]
        points, weights = (proxies.points, proxies.weights) if one < 0 else (boxes.points, boxes.weights)
        low = proxies.start[-1 - one] if one < 0 else boxes.start[one]
        high = proxies.start[-one] if one < 0 else boxes.stop[one]
        while low < high or (item == count - 1 and filled):
            take = min(high - low, CHUNK - filled)
            for k in range(d):
                for j in range(take):
                    z[k, filled + j] = points[k, low + j] - group.star[k]
            w[filled : filled + take] = weights[low : low + take]
            filled += take
            low += take
            if filled == CHUNK or (item == count - 1 and low == high):
                for row in range(len(p)):
                    query[:d] = p[row]
                    if d < 4:
                        add_three(query, z, w, filled, 0.0, sums[row])
                    else:
                        add_four(query, z, w, filled, 0.0, sums[row])
                filled = 0
    for row in range(len(p)):
        out[row] = group.star + sums[row, 1 : d + 1] / sums[row, 0]


@njit(cache=True)
@no_type_check
def _within(group, boxes, proxies, table, tolerance, stack, found):
    """``_listed`` with what is lost below the tolerance: how many items, and the largest chord from y*."""
    share, lost, count, widest = 0.5, 2 * tolerance, 0, 0.0
    while lost > tolerance:
        count, lost, widest = _listed(group, boxes, proxies, table, tolerance, share, stack, found)
        share /= 8
    return count, widest


@njit(cache=True)
@no_type_check
def _counted(some, groups, boxes, proxies, table, tolerance):
    """How many sources and proxies some groups have to sum."""
    stack, found = np.empty(STACK, np.int64), np.empty(len(boxes.start) + len(proxies.size), np.int64)
    counts = np.zeros(len(some), np.int64)
    for at in range(len(some)):
        group = _seen_from(groups.middle[some[at]], groups.radius[some[at]], boxes, stack)
        count, _ = _within(group, boxes, proxies, table, tolerance, stack, found)
        for item in range(count):
            one = found[item]
            if one < 0:
                counts[at] += proxies.start[-one] - proxies.start[-1 - one]
            else:
                counts[at] += boxes.stop[one] - boxes.start[one]
    return counts


@njit(cache=True, parallel=True)
@no_type_check
def _evaluate(groups, boxes, proxies, table, tolerance, parts, out):
    d = groups.p.shape[1]
    for part in prange(parts):
        stack = np.empty(STACK, np.int64)
        found = np.empty(len(boxes.start) + len(proxies.size), np.int64)
        z, w, sums = np.zeros((max(3, d), CHUNK)), np.empty(CHUNK), np.empty((MANY, max(3, d) + 1))
        # Neighbouring groups cost alike: every part has some from everywhere.
        for number in range(part, len(groups.start), parts):
            first, last = groups.start[number], groups.stop[number]
            together = True
            while first < last:
                middle = groups.middle[number] if together else groups.p[first]
                group = _seen_from(middle, groups.radius[number] if together else 0.0, boxes, stack)
                count, widest = _within(group, boxes, proxies, table, tolerance, stack, found)
                if group.spread * widest > LARGEST:
                    # Exponentials might overflow: one query after the other instead.
                    together = False
                    continue
                end = last if together else first + 1
                _sum(groups.p[first:end], group, boxes, proxies, found, count, z, w, sums, out[first:end])
                first = end
