"""The zero-temperature path, exact in its clock: x(τ) = e^{τA}x₀/|e^{τA}x₀|, t(τ) = ∫|Bᵀx|dτ (THEORY eq. 6).

Tokens advance by powers of e^{hG}, G = A − μI, with steps h that are powers of two times 1/‖G‖, so a few matrices serve
all tokens. Each token has its own step: as long as |Bᵀx| is resolved by a Chebyshev interpolant the time t is its
integral; where it is not (near ker Bᵀ) the step halves.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.polynomial import chebyshev
from scipy import linalg

from frostline import cancellation
from frostline.errors import BadParameter
from frostline.sphere import unit_rows
from frostline.theory.spectrum import scale_of

EPSILON = float(np.finfo(np.float64).eps)
"""The relative rounding error of float64."""
CANCELLATION = 1e-2
"""A product E·x is trusted while |Ex| ≥ this·‖E‖: a step loses at most two digits."""
DEGREE = 16
"""Degree of the Chebyshev interpolant of |Bᵀx| over one step."""
FINEST = -46
"""The smallest step is 2^−46/‖G‖: what is still not resolved there is rounding."""
COARSEST = 40
"""The largest step is 2^40/‖G‖."""
BISECTIONS = 60
"""The largest number of tries to find the clock of a time; Newton's method takes about five."""
SETTLED = 1e-13
"""A share of a step that changes by no more than this is final."""
STEP_LIMIT = 100_000
"""Steps after which a path is given up."""
ROWS = 4_000_000
"""Numbers held at once in a block of tokens × nodes × d."""


@dataclass(frozen=True, eq=False)
class Propagator:
    """Powers of e^{hG} with G = A − μI, h = 2^level·unit, computed when first needed and kept."""

    A: Float[np.ndarray, "d d"]
    _powers: dict[int, tuple[Float[np.ndarray, "d d"], float]] = field(default_factory=dict)
    _nodes: dict[int, Float[np.ndarray, "nodes d d"]] = field(default_factory=dict)

    @cached_property
    def generator(self) -> Float[np.ndarray, "d d"]:
        """A − μI: the path is the same (THEORY section 3), the exponential no longer overflows."""
        return self.A - np.linalg.eigvals(self.A).real.max() * np.eye(len(self.A))

    @cached_property
    def unit(self) -> float:
        """The step of level 0: ‖unit·G‖ = 1."""
        return 1 / (float(np.linalg.norm(self.generator, 2)) or 1.0)

    def power(self, level: int) -> tuple[Float[np.ndarray, "d d"], float]:
        """e^{hG} at this level, and its norm."""
        if level not in self._powers:
            half = self.power(level - 1)[0] if level > 0 else None
            matrix = half @ half if half is not None else linalg.expm(self.generator * (self.unit * 2.0**level))
            self._powers[level] = matrix, float(np.linalg.norm(matrix, 2))
        return self._powers[level]

    def nodes(self, level: int) -> Float[np.ndarray, "nodes d d"]:
        """e^{chG} at the Chebyshev nodes c of [0, 1] for this level."""
        if level not in self._nodes:
            self._nodes[level] = linalg.expm(NODES[:, None, None] * (self.unit * 2.0**level) * self.generator)
        return self._nodes[level]

    def advance(self, x: Float[np.ndarray, "n d"], clock: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n d"]:
        """Each token by its own clock ≥ 0, on the sphere."""
        whole = np.floor(clock / self.unit)
        x = self._taylor(x, clock - whole * self.unit)
        level, count = 0, whole
        while (count > 0).any():
            odd = count % 2 == 1
            x = x.copy()
            x[odd] = self._apply(x[odd], level)
            level, count = level + 1, np.floor(count / 2)
        return x

    def _apply(self, x: Float[np.ndarray, "n d"], level: int) -> Float[np.ndarray, "n d"]:
        cancellation.poll()
        matrix, size = self.power(level)
        z = x @ matrix.T
        lost = np.linalg.norm(z, axis=1) < CANCELLATION * size
        if level > 0 and lost.any():
            z[lost] = self._apply(self._apply(x[lost], level - 1), level - 1)
        return unit_rows(z)

    def _taylor(self, x: Float[np.ndarray, "n d"], clock: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n d"]:
        """e^{sG}x for ‖sG‖ ≤ 1: 18 terms leave less than 1e-16."""
        total, term = x, x
        for k in range(1, 19):
            term = (term @ self.generator.T) * (clock / k)[:, None]
            total = total + term
        return unit_rows(total)


NODES = (1 - np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)) / 2
"""Chebyshev nodes of [0, 1]."""
_TO_COEFFICIENTS = np.linalg.inv(chebyshev.chebvander(2 * NODES - 1, DEGREE)).T
"""Matrix that turns values at the nodes into Chebyshev coefficients."""


@dataclass(frozen=True, eq=False)
class ClockedPath:
    """Tokens at common times t, with the clock each has reached and the time at which its path ends."""

    tokens: Float[np.ndarray, "k n d"]
    clocks: Float[np.ndarray, "k n"]
    ended: Float[np.ndarray, "n"]


def at_clocks(
    A: Float[np.ndarray, "d d"], x0: Float[np.ndarray, "n d"], clocks: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "k n d"]:
    """All tokens at common clocks τ, which need not be sorted."""
    propagator = Propagator(A)
    return np.stack([propagator.advance(x0, np.full(len(x0), float(clock))) for clock in clocks])


def at_times(
    A: Float[np.ndarray, "d d"],
    B: Float[np.ndarray, "d d"],
    x0: Float[np.ndarray, "n d"],
    times: Float[np.ndarray, "k"],
    *,
    tolerance: float,
) -> ClockedPath:
    """All tokens at common times t (ascending, ≥ 0); NaN where a token's path has already ended, its clock at ∞."""
    # In units of ‖A‖ and ‖B‖, to powers of two (exact): with A = aA′ and B = bB′, τ = τ′/a and t = t′·b/a.
    a, b = scale_of(A), scale_of(B)
    path = _ClockWalk(Propagator(A / a), B / b, x0, times * (a / b), tolerance).run()
    return ClockedPath(path.tokens, path.clocks / a, path.ended * (b / a))


class _ClockWalk:
    """The state of all tokens: position, clock, time, step, and the next requested time of each."""

    def __init__(
        self,
        propagator: Propagator,
        B: Float[np.ndarray, "d d"],
        x0: Float[np.ndarray, "n d"],
        times: Float[np.ndarray, "k"],
        tolerance: float,
    ):
        n, d = x0.shape
        self.propagator, self.B, self.times, self.tolerance = propagator, B, times, tolerance
        self.scale = float(np.linalg.norm(B, 2))
        # A product E·x is off by ε‖E‖/|Ex| relative to itself; a tenth of the tolerance may be lost to that in a step.
        self.cancellation = min(CANCELLATION, 10 * EPSILON / tolerance)
        self.x, self.tau, self.t = x0.copy(), np.zeros(n), np.zeros(n)
        self.level = np.zeros(n, dtype=np.int64)
        # How far off each token may be by rounding: ε‖E‖/|Ex| of the step that brought it where it is.
        self.noise = np.full(n, EPSILON)
        self.due = np.zeros(n, dtype=np.int64)
        self.path = ClockedPath(
            np.full((len(times), n, d), np.nan), np.full((len(times), n), np.nan), np.full(n, np.inf)
        )
        self._record(np.arange(n), np.zeros(n), np.zeros(n), np.broadcast_to([[1.0] + [0.0] * DEGREE], (n, DEGREE + 1)))

    def run(self) -> ClockedPath:
        for _ in range(STEP_LIMIT):
            walking = np.flatnonzero((self.due < len(self.times)) & np.isinf(self.path.ended))
            if not len(walking):
                return self.path
            for level in np.unique(self.level[walking]):
                group = walking[self.level[walking] == level]
                rows = max(1, ROWS // (self.x.shape[1] * (DEGREE + 1)))
                for start in range(0, len(group), rows):
                    self._step(group[start : start + rows], int(level))
        raise BadParameter(
            f"the zero-temperature path took more than {STEP_LIMIT} steps: {len(walking)} tokens have reached "
            f"t = {self.t[walking].min():.4g} of {self.times[-1]:.4g}; ask for a shorter time."
        )

    def _step(self, tokens: Int[np.ndarray, "m"], level: int) -> None:
        x, h = self.x[tokens], self.propagator.unit * 2.0**level
        z = np.einsum("cij,mj->mci", self.propagator.nodes(level), x, optimize=True)
        size = np.linalg.norm(z, axis=2)
        key = z @ self.B / size[:, :, None]
        speed = np.linalg.norm(key, axis=2)
        coefficients = speed @ _TO_COEFFICIENTS
        mean = speed.mean(axis=1)

        rounding = 8 * EPSILON * self.scale
        tail = np.abs(coefficients[:, -2:]).sum(axis=1)
        resolved = tail <= self.tolerance * mean + rounding
        # No path crosses ker Bᵀ: Bᵀe^{τA}x = e^{τBᵀV}Bᵀx never vanishes. A near miss turns the direction of Bᵀx
        # smoothly, which a finer step shows; what still flips at the finest step is rounding, inside the kernel.
        turned = ((key[:, 1:] * key[:, :-1]).sum(axis=2) <= 0).any(axis=1)
        norm = self.propagator.power(level)[1]
        trusted = size[:, -1] >= self.cancellation * norm
        # A path that nears ker Bᵀ for ever comes no nearer than rounding lets it.
        inside = speed[:, 0] <= 8 * self.scale * self.noise[tokens]
        finest = level <= FINEST
        over = inside | (turned & finest)
        self.path.ended[tokens[over]] = self.t[tokens[over]]

        good = ((resolved & trusted & ~turned) | finest) & ~over
        self.level[tokens[~good & ~over]] -= 1
        moved, coefficients = tokens[good], coefficients[good]
        duration = self._record(moved, self.t[moved], np.full(len(moved), h), coefficients)
        self.x[moved] = z[good, -1] / size[good, -1:]
        self.noise[moved] = EPSILON * np.maximum(1.0, norm / size[good, -1])
        self.t[moved] += duration
        self.tau[moved] += h
        smooth = tail[good] <= 1e-3 * self.tolerance * mean[good] + rounding
        self.level[moved[smooth & (self.level[moved] < COARSEST)]] += 1

    def _record(
        self,
        tokens: Int[np.ndarray, "m"],
        start: Float[np.ndarray, "m"],
        h: Float[np.ndarray, "m"],
        coefficients: Float[np.ndarray, "m degree"],
    ) -> Float[np.ndarray, "m"]:
        """Store the tokens at every requested time within this step; return the time t that the step takes."""
        # t(s) − t(0) for s ∈ [0, 1] of the step, as a Chebyshev series in 2s − 1.
        primitive = chebyshev.chebint(coefficients.T, lbnd=-1) * (h / 2)
        duration = np.asarray(chebyshev.chebval(1.0, primitive))
        while True:
            owing = self.due[tokens] < len(self.times)
            wanted = np.where(owing, self.times[np.minimum(self.due[tokens], len(self.times) - 1)], np.inf)
            here = wanted <= start + duration
            if not here.any():
                return duration
            which, rows = tokens[here], self.due[tokens[here]]
            clock = _share(primitive[:, here], h[here] * coefficients.T[:, here], (wanted - start)[here]) * h[here]
            clock[wanted[here] == start[here]] = 0.0
            self.path.tokens[rows, which] = self.propagator.advance(self.x[which], clock)
            self.path.clocks[rows, which] = self.tau[which] + clock
            self.due[which] += 1


def _share(
    series: Float[np.ndarray, "degree m"], slope: Float[np.ndarray, "degrees m"], wanted: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m"]:
    """The s in [0, 1] at which each rising Chebyshev series in 2s − 1 has the wanted value; ``slope`` is its slope.

    Newton's method; a step that leaves the bracket is a bisection instead.
    """
    low, high = np.zeros(len(wanted)), np.ones(len(wanted))
    share = np.clip(wanted / np.maximum(chebyshev.chebval(1.0, series), np.finfo(float).tiny), 0.0, 1.0)
    for _ in range(BISECTIONS):
        excess = chebyshev.chebval(2 * share - 1, series, tensor=False) - wanted
        low, high = np.where(excess < 0, share, low), np.where(excess < 0, high, share)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = share - excess / chebyshev.chebval(2 * share - 1, slope, tensor=False)
        moved = np.where((moved >= low) & (moved <= high), moved, (low + high) / 2)
        still, share = np.abs(moved - share).max(), moved
        if still <= SETTLED:
            break
    return share
