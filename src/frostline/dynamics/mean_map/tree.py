"""The tree engine for d ≤ 4: sources that do not matter are left out, sources that look alike are merged.

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

from frostline.arrays import evenly_spread
from frostline.compiled import interruptible, njit
from frostline.dynamics.mean_map.boxes import LEVELS, Boxes, Sorted, build_boxes, sort_into_boxes
from frostline.dynamics.mean_map.dense import WIDEST, log_range
from frostline.dynamics.mean_map.groups import MANY, STACK, Groups, group_queries, view_from
from frostline.dynamics.mean_map.lists import count_items, list_items
from frostline.dynamics.mean_map.pairs import add_four, add_three
from frostline.dynamics.mean_map.proxies import build_proxies, sketch_proxies
from frostline.dynamics.mean_map.proxy_errors import Bounds, bound_errors
from frostline.errors import BadParameter

DIMENSIONS = (2, 3, 4)
"""Dimensions in which the engine works."""
LEAST_TOLERANCE = 1e-13
"""The smallest tolerance that can be met: float64 rounds there."""
LARGEST = 500.0
"""The largest exponent of the queries of a group; where it may be larger they are summed one by one."""
PAIR = 1.2
"""Cost of a pair, in pairs of the dense loop; so are the following costs."""
BOX = 150.0
"""Cost of examining a box."""
GROUP = 6000.0
"""Cost of a group of queries."""
PROXY = 200.0
"""Cost of making a proxy."""
MOMENT = 0.6
"""Cost of a moment of a point."""
SOME = 32
"""Queries, and groups of them, from which the cost is estimated."""
CHUNK = 1024
"""Sources copied together: they stay in the cache while every query of a group sums them."""


def choose_orders(d: int, tolerance: float) -> tuple[int, ...]:
    """Nodes in each coordinate of a box, ascending: a large box with many nodes has fewer of them per area."""
    digits = -np.log10(tolerance)
    sizes = {2: (1.0, 2.0), 3: (0.6, 1.0, 1.5, 2.2, 3.0), 4: (0.5, 1.0)}[d]
    return tuple(sorted({int(6 + 5 * size + digits * (0.7 + 0.25 * size)) for size in sizes}))


@dataclass(frozen=True, eq=False)
class TreePlan:
    """Queries in groups, sources in boxes, and bounds of errors: everything that is prepared before summing."""

    queries: Sorted
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
    ) -> "TreePlan":
        """The plan for queries p, sources y and their log weights."""
        d = p.shape[1]
        weights = np.ones(len(y)) if log_weights is None else np.exp(log_weights - log_weights.max())
        # Queries that overflow give NaN, which the caller refuses.
        with interruptible(), np.errstate(over="ignore", invalid="ignore"):
            boxes = build_boxes(np.ascontiguousarray(y), weights / weights.sum())
            size = np.sqrt((p * p).sum(1, keepdims=True))
            # Where p = 0 every direction is as good.
            directions = np.where(size > 0, p / np.where(size > 0, size, 1.0), 1 / np.sqrt(d))
            queries = sort_into_boxes(directions, leaf=8)
            groups = group_queries(np.ascontiguousarray(p[queries.order]), queries)
            used = choose_orders(d, tolerance)
            table = bound_errors(used, d - 1, LEVELS[d - 1])
            return cls(queries, groups, boxes, used, float(size.min()), table, tolerance)

    def cost(self) -> tuple[float, float]:
        """Estimates, from some queries: the cost of a query in pairs of the dense loop, and the items it will sum."""
        q, groups, by_start = len(self.groups.p), len(self.groups.start), np.argsort(self.groups.start)
        queries = evenly_spread(q, SOME)
        # Pairs are those of queries, lists those of groups: some of each are looked at.
        groups_of_queries = by_start[np.searchsorted(self.groups.start[by_start], queries, side="right") - 1]
        some = np.append(groups_of_queries, evenly_spread(groups, SOME))
        few = sketch_proxies(self.boxes, self.orders, self.kappa)
        with interruptible():
            counts, seen = count_items(some, self.groups, self.boxes, few, self.table, self.tolerance)
        pairs = counts[: len(queries)].mean()
        listing = (BOX * seen[len(queries) :].mean() + GROUP) * groups / q
        d, n = self.boxes.points.shape
        moments = n * self.orders[-1] ** (d - 1) if len(few.size) else 0
        building = (PROXY * few.start[-1] + MOMENT * moments) / q
        return float(PAIR * pairs + listing + building), float(pairs)

    def mean_map(self) -> Float[np.ndarray, "q d"]:
        """The mean map of every query, in the order in which queries came."""
        return self.sums()[0]

    def sums(self) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
        """The mean map and log Σ_j w_j e^{⟨p,y_j⟩}, Σ_j w_j = 1, of every query, in the order in which queries came."""
        means, logs = np.empty(self.groups.p.shape), np.empty(len(self.groups.p))
        with interruptible():
            made = build_proxies(self.boxes, self.orders, self.kappa)
            _evaluate(self.groups, self.boxes, made, self.table, self.tolerance, 8 * get_num_threads(), means, logs)
        out, masses = np.empty_like(means), np.empty_like(logs)
        out[self.queries.order], masses[self.queries.order] = means, logs
        return out, masses


def make_plans(
    p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], log_weights: Tensor | None, tolerance: float
) -> Iterator[TreePlan]:
    """A plan for every member of an ensemble."""
    d, n = p.shape[-1], y.shape[-2]
    logs = None if log_weights is None else log_weights.expand(*y.shape[:-1]).reshape(-1, n).numpy()
    members = zip(p.reshape(-1, p.shape[-2], d).numpy(), y.reshape(-1, n, d).numpy(), strict=True)
    for number, (queries, sources) in enumerate(members):
        yield TreePlan.of(queries, sources, None if logs is None else logs[number], tolerance)


def tree(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """Within ``tolerance`` of Σ_j w_j e^{⟨p,y_j⟩} y_j / Σ_j w_j e^{⟨p,y_j⟩} in every query."""
    refuse_unsupported(p, log_weights, tolerance)
    means = [plan.mean_map() for plan in make_plans(p, y, log_weights, tolerance)]
    return torch.from_numpy(np.stack(means)).reshape(p.shape)


def refuse_unsupported(p: Float[Tensor, "*batch q d"], log_weights: Tensor | None, tolerance: float) -> None:
    """Refuse dimensions, devices, weights and tolerances for which the engine does not work."""
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
def _sum_items(p, group, boxes, proxies, items, count, z, w, sums, out, logs):
    """The mean map of some queries over the listed leaves and blocks of proxies."""
    d, filled = p.shape[1], 0
    query = np.zeros(len(z))
    sums[: len(p)] = 0.0
    for item in range(count):
        number = items[item]
        points, weights = (proxies.points, proxies.weights) if number < 0 else (boxes.points, boxes.weights)
        low = proxies.start[-1 - number] if number < 0 else boxes.start[number]
        high = proxies.start[-number] if number < 0 else boxes.stop[number]
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
        logs[row] = np.log(sums[row, 0])
        for k in range(d):
            logs[row] += p[row, k] * group.star[k]


@njit(parallel=True)
@no_type_check
def _evaluate(groups, boxes, proxies, table, tolerance, parts, out, logs):
    d = groups.p.shape[1]
    for part in prange(parts):
        stack = np.empty(STACK, np.int64)
        items = np.empty(len(boxes.start) + len(proxies.size), np.int64)
        z, w, sums = np.zeros((max(3, d), CHUNK)), np.empty(CHUNK), np.empty((MANY, max(3, d) + 1))
        # Neighbouring groups cost alike: every part has some from everywhere.
        for number in range(part, len(groups.start), parts):
            first, last = groups.start[number], groups.stop[number]
            together = True
            while first < last:
                middle = groups.middle[number] if together else groups.p[first]
                group = view_from(middle, groups.radius[number] if together else 0.0, boxes, stack)
                count, widest, _ = list_items(group, boxes, proxies, table, tolerance, stack, items)
                if group.spread * widest > LARGEST:
                    # Exponentials might overflow: one query after the other instead.
                    together = False
                    continue
                end = last if together else first + 1
                queries, means, masses = groups.p[first:end], out[first:end], logs[first:end]
                _sum_items(queries, group, boxes, proxies, items, count, z, w, sums, means, masses)
                first = end
