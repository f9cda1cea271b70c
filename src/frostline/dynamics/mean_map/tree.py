"""The tree engine: for low dimensions, what does not matter is left out and what cannot be told apart is merged.

Queries that are close (``groups``) share a list of sources and of proxies (``lists``), which is summed in float64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import get_num_threads, prange
from torch import Tensor

from frostline.compiled import interruptible, njit
from frostline.dynamics.mean_map.boxes import LEVELS, Boxes, Sorted, boxed, in_boxes
from frostline.dynamics.mean_map.dense import WIDEST, log_range
from frostline.dynamics.mean_map.groups import MANY, STACK, Groups, grouped, seen_from
from frostline.dynamics.mean_map.lists import counted, within
from frostline.dynamics.mean_map.pairs import add_four, add_three
from frostline.dynamics.mean_map.proxies import proxies, sketched
from frostline.dynamics.mean_map.proxy_errors import Bounds, bounds
from frostline.errors import BadParameter

DIMENSIONS = (2, 3, 4)
LEAST_TOLERANCE = 1e-13
LARGEST = 500.0
"""Exponents that a group's queries may have."""
PAIR, BOX, GROUP, PROXY, MOMENT = 1.2, 150.0, 6000.0, 200.0, 0.6
"""What a pair, a box that is looked at, a group, a proxy and a moment of a point cost, in pairs of the dense loop."""
SOME = 32
"""Queries, and groups of them, that the cost is estimated from."""
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

    asked: Sorted
    groups: Groups
    boxes: Boxes
    orders: tuple[int, ...]
    kappa: float
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
        d = p.shape[1]
        weights = np.ones(len(y)) if log_weights is None else np.exp(log_weights - log_weights.max())
        # Queries that overflow give no numbers, which is the caller's to refuse.
        with interruptible(), np.errstate(over="ignore", invalid="ignore"):
            boxes = boxed(np.ascontiguousarray(y), weights / weights.sum())
            size = np.sqrt((p * p).sum(1, keepdims=True))
            # Where p = 0 every direction is as good.
            directions = np.where(size > 0, p / np.where(size > 0, size, 1.0), 1 / np.sqrt(d))
            asked = in_boxes(directions, leaf=8)
            groups = grouped(np.ascontiguousarray(p[asked.order]), asked)
            used = orders(d, tolerance)
            table = bounds(used, d - 1, LEVELS[d - 1])
            return cls(asked, groups, boxes, used, float(size.min()), table, tolerance)

    def cost(self) -> tuple[float, float]:
        """What a query will cost, in pairs of the dense loop, and how many sources and proxies it will sum; in the mean
        of some."""
        q, groups, by_start = len(self.groups.p), len(self.groups.start), np.argsort(self.groups.start)
        places = np.linspace(0, q - 1, SOME).astype(int)
        # Pairs are those of queries, lists those of groups: some of each are looked at.
        own = by_start[np.searchsorted(self.groups.start[by_start], places, side="right") - 1]
        some = np.append(own, np.linspace(0, groups - 1, SOME).astype(int))
        few = sketched(self.boxes, self.orders, self.kappa)
        with interruptible():
            counts, seen = counted(some, self.groups, self.boxes, few, self.table, self.tolerance)
        pairs, listing = counts[:SOME].mean(), (BOX * seen[SOME:].mean() + GROUP) * groups / q
        d, n = self.boxes.points.shape
        moments = n * self.orders[-1] ** (d - 1) if len(few.size) else 0
        building = (PROXY * few.start[-1] + MOMENT * moments) / q
        return float(PAIR * pairs + listing + building), float(pairs)

    def mean_map(self) -> Float[np.ndarray, "q d"]:
        found = np.empty(self.groups.p.shape)
        with interruptible():
            made = proxies(self.boxes, self.orders, self.kappa)
            _evaluate(self.groups, self.boxes, made, self.table, self.tolerance, 8 * get_num_threads(), found)
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
    refuse(p, log_weights, tolerance)
    found = [plan.mean_map() for plan in plans(p, y, log_weights, tolerance)]
    return torch.from_numpy(np.stack(found)).reshape(p.shape)


def refuse(p: Float[Tensor, "*batch q d"], log_weights: Tensor | None, tolerance: float) -> None:
    """Say what the tree cannot do."""
    if p.shape[-1] not in DIMENSIONS:
        raise BadParameter(
            f"the tree engine works in 2, 3 and 4 dimensions, not {p.shape[-1]}: boxes would need more proxies "
            'than they have points. Use engine="dense".'
        )
    if p.is_cuda:
        raise BadParameter('the tree engine runs on the CPU; the tokens are on a GPU. Use engine="dense" there.')
    if log_weights is not None and log_range(log_weights) > WIDEST:
        raise BadParameter(
            f"the smallest weight is e^-{log_range(log_weights):.0f} of the largest, too little for the tree engine; "
            'use engine="dense", or leave such sources out.'
        )
    if tolerance < LEAST_TOLERANCE:
        raise BadParameter(
            f"the tree engine promises errors down to {LEAST_TOLERANCE:g}, not {tolerance:g}: float64 rounds there. "
            'Use engine="dense" for all the digits there are.'
        )


@njit()
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


@njit(parallel=True)
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
                group = seen_from(middle, groups.radius[number] if together else 0.0, boxes, stack)
                count, widest, _ = within(group, boxes, proxies, table, tolerance, stack, found)
                if group.spread * widest > LARGEST:
                    # Exponentials might overflow: one query after the other instead.
                    together = False
                    continue
                end = last if together else first + 1
                _sum(groups.p[first:end], group, boxes, proxies, found, count, z, w, sums, out[first:end])
                first = end
