"""bracket: two-sided bounds of W_p for clouds of any size, in memory O(n).

Below: dual potentials. Both clouds are summarised by the cells of a tree, the small problem is solved exactly, and its
potential is carried over to all points by c-transforms, which are exact: any g and its transform f are feasible, so
Σ a f + Σ b g ≤ W_p^p whatever came before. Above: a coupling. The c-transform also says where each x wants to go;
halving that picture and y along the same axes, and solving the small groups exactly, gives a coupling near the optimal
one. Finer cells, and groups formed anew, tighten both sides.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.transport.c_transform import LEAF, Tree, in_order
from frostline.transport.couplings import cost, halved, improved, solved
from frostline.transport.exact import transported
from frostline.transport.interval import Coupling
from frostline.transport.nearest import nearest, nearly_coincide
from frostline.transport.problem import TransportProblem

CELLS = (512, 2048, 4096)
"""Numbers of cells of the summaries, tried in turn; the costs of the last one take 128 MiB."""
POINTS_PER_CELL = 500
"""A summary with more points per cell is skipped: it leaves each query too many candidates."""
ROUNDS = 3
"""Regroupings after each coupling; after the last summary they go on while each one gains WORTHWHILE of the gap."""
WORTHWHILE = 0.03
"""Share of the gap between the bounds that a regrouping must gain for another one to follow."""
ROUNDING = 1e-12
"""Relative room for the rounding of sums and of costs."""


@dataclass(frozen=True, eq=False)
class Bracket:
    """Both bounds, a coupling that costs ``upper``, whether the tolerance was ``met``, and why the search ended."""

    lower: float
    upper: float
    coupling: Coupling
    met: bool
    why: str


def bracket(
    problem: TransportProblem, *, tolerance: float, seconds: float, start: Coupling | None = None, seed: int = 0
) -> Bracket:
    """Tighten both bounds until upper − lower ≤ tolerance·upper, the time is over, or neither improves."""
    return _Search(problem, tolerance, seconds, start, np.random.default_rng(seed)).run()


class _Search:
    """The best bounds and the best coupling so far."""

    def __init__(
        self,
        problem: TransportProblem,
        tolerance: float,
        seconds: float,
        start: Coupling | None,
        rng: np.random.Generator,
    ):
        self.problem, self.tolerance, self.rng = problem, tolerance, rng
        self.deadline = time.monotonic() + seconds
        self.lower, self.upper, self.coupling = _means_apart(problem), np.inf, start
        if start is not None:
            self.upper = cost(problem, start)

    def run(self) -> Bracket:
        """Search until the bounds are tight enough, the time is over, or neither improves."""
        trees = _tree(self.problem.x), _tree(self.problem.y)
        # The first summary of a small problem is the problem itself, and leaves nothing to be gained.
        large = max(len(self.problem.x), len(self.problem.y)) > CELLS[0]
        if large and nearly_coincide(self.problem):
            lower, coupling = nearest(self.problem, *trees)
            self.lower = max(self.lower, lower)
            self._above(coupling)
            if self._done():
                return self._result()
        return self._refine(trees)

    def _refine(self, trees: tuple[Tree, Tree]) -> Bracket:
        """Take finer and finer summaries, then regroup."""
        largest = max(len(self.problem.x), len(self.problem.y))
        fitting = [cells for cells in CELLS if cells >= largest / POINTS_PER_CELL] or [CELLS[-1]]
        for cells in fitting:
            self._round(trees, cells)
            if self._done() or cells >= largest:
                break
        else:
            while self._regroup() > WORTHWHILE and not self._done():
                pass
        return self._result()

    def _result(self) -> Bracket:
        """The bounds with room for rounding, and what ended the search."""
        assert self.coupling is not None
        # A bracket is a guarantee: rounding may not turn it around.
        lower = min(max(0.0, self.lower * (1 - ROUNDING) - ROUNDING * self.upper), self.upper)
        upper = self.upper * (1 + ROUNDING)
        return Bracket(lower, upper, self.coupling, *self._reason(lower, upper))

    def _round(self, trees: tuple[Tree, Tree], cells: int) -> None:
        """One summary: a better lower bound, a better coupling."""
        x_tree, y_tree = trees
        p, geodesic = self.problem.p, self.problem.geodesic
        coarse, u, whole = self._summary(trees, cells)
        if whole is not None:
            self._above(whole)
        g, _ = in_order(Tree.of(coarse), y_tree, u, p, geodesic)
        f, goal = in_order(y_tree, x_tree, g, p, geodesic)
        self._below(f, g, np.abs(g[goal]) @ self.problem.a)
        if whole is not None:
            return
        groups = halved(self.problem.y[goal], self.problem.a, self.problem.y, self.problem.b)
        self._above(solved(self.problem, groups))
        if not self._done():
            # Transforming back can only raise the lower bound.
            back, origin = in_order(x_tree, y_tree, f, p, geodesic)
            self._below(f, back, np.abs(f[origin]) @ self.problem.b)
        for _ in range(ROUNDS):
            if self._done():
                return
            self._regroup()

    def _regroup(self) -> float:
        """Improve the coupling; returns the share of the gap that was gained."""
        assert self.coupling is not None
        before = self.upper
        self._above(improved(self.problem, self.coupling, self.rng))
        return float((before - self.upper) / (before - self.lower)) if before > self.lower else 0.0

    def _summary(self, trees: tuple[Tree, Tree], cells: int) -> tuple[np.ndarray, np.ndarray, Coupling | None]:
        """Centres of x's cells and their potentials, from exact transport between the cells of both clouds.

        When every cell is a point, the optimal coupling as well: then the summary is the problem.
        """
        level = int(np.log2(cells))
        (x, a), (y, b) = (
            _cells(tree, masses, level) for tree, masses in zip(trees, (self.problem.a, self.problem.b), strict=True)
        )
        small = TransportProblem(x, y, a, b, self.problem.p, self.problem.metric, np.arange(len(x)), np.arange(len(y)))
        solution = transported(small.costs(), a / a.sum(), b / b.sum(), small.p, prove=False)
        whole = None
        if len(x) == len(self.problem.x) and len(y) == len(self.problem.y):
            rows, columns, mass = solution.coupling
            whole = Coupling(trees[0].order[rows], trees[1].order[columns], mass)
        return x, solution.potential * solution.unit**small.p, whole

    def _below(self, f: np.ndarray, g: np.ndarray, chosen: float) -> None:
        """Raise the lower bound to Σ a f + Σ b g, less what rounding may have added.

        One potential is the transform of the other, whose mean size where the minimum was found is ``chosen``.
        """
        a, b, p = self.problem.a, self.problem.b, self.problem.p
        size = float(a @ np.abs(f) + b @ np.abs(g) + 2 * chosen)
        total = math.fsum(a * f) + math.fsum(b * g) - 16 * (1 + p) * np.finfo(float).eps * size
        self.lower = max(self.lower, float(max(total, 0.0) ** (1 / p)))

    def _above(self, coupling: Coupling) -> None:
        """Lower the upper bound to the cost of this coupling, where that is less."""
        value = cost(self.problem, coupling)
        if value < self.upper:
            self.upper, self.coupling = value, coupling

    def _done(self) -> bool:
        return self.upper - self.lower <= self.tolerance * self.upper or self._late()

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _reason(self, lower: float, upper: float) -> tuple[bool, str]:
        if upper - lower <= self.tolerance * upper:
            return True, f"the tolerance {self.tolerance:g} was met"
        ended = "the time was over" if self._late() else "nothing more was gained"
        width = f"the width is {(upper - lower) / upper:.2g}"
        return False, f"{ended} before the tolerance {self.tolerance:g} was met: {width}"


def _tree(points: np.ndarray) -> Tree:
    """A tree deep enough for the finest summary."""
    return Tree.of(points, leaf=max(1, min(LEAF, len(points) // CELLS[-1])))


def _cells(tree: Tree, masses: np.ndarray, level: int) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k"]]:
    """Centre and mass of each cell; a tree that is less deep than ``level`` gives its leaves or single points."""
    if 2**level >= len(tree.points):
        return tree.points, masses[tree.order]
    start, stop = tree.cells(level)
    weights = masses[tree.order]
    sums = np.concatenate([np.zeros((1, tree.points.shape[1])), np.cumsum(weights[:, None] * tree.points, axis=0)])
    total = np.concatenate([[0.0], np.cumsum(weights)])
    mass = total[stop] - total[start]
    massive = mass > 0
    return (sums[stop] - sums[start])[massive] / mass[massive, None], mass[massive]


def _means_apart(problem: TransportProblem) -> float:
    """W_p ≥ W_1 ≥ |mean of x − mean of y|, and angles are longer than chords."""
    return float(np.linalg.norm(problem.a @ problem.x - problem.b @ problem.y))
