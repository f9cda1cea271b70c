"""Tubes around the limit: W_p(ρ_t^β, Π♯ρ₀) bounded without comparing trajectories (THEORY section 13).

Tokens are followed by their angle to E alone, (20). Tokens of the same angle may be anywhere on their ring, so every step
takes the worst of them; a step is accepted when its guess bounds the right-hand side over all that happens meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from frostline.arrays import evenly_spread
from frostline.results import Result
from frostline.theory.gibbs import PAD
from frostline.theory.shrinking_caps import Rings, ShrinkingCaps, Table
from frostline.theory.sides import Sides

TOKENS = 400
"""Angles at the start that are followed; the tokens between two of them are charged the larger one."""
SHARE = 0.025
"""Steps let λ grow by this share, and tokens move by this angle (radians)."""
MOST_STEPS = 6000
"""A tube ends after this many steps."""
RISEN = 1.05
"""Without a final time a tube ends where it has risen to this times its smallest value."""
KEPT = 200
"""Times that a tube keeps."""
COLDEST = 1e15
"""The largest β at which it is tried whether a tube would open."""


@runtime_checkable
class Growth(Protocol):
    """Bounds of |m − u| while time goes on: proven ones (``ShrinkingCaps``), or measured ones."""

    reason: str

    @property
    def closed(self) -> bool: ...

    def step(self, share: float) -> float: ...

    def advance(self, h: float) -> Table: ...


@dataclass(frozen=True, eq=False, repr=False)
class Tube(Result):
    """W_p(ρ_t^β, Π♯ρ₀) is at most ``values`` at ``times``, for the mean field that starts as ``start`` says.

    Attributes
    ----------
    times, values : ndarray
        The bound, (k,).
    sides : ndarray
        The critical angle (k,), in radians: tokens that started nearer to E than this are still on their side then.
    p : float
        Order of the Wasserstein distance.
    beta : float
        The inverse temperature.
    growth : str
        "proven": nothing but the matrices and the start is used; "measured": Λ of (19) was taken from a run.
    start : str
        The starting density, in words.
    initial : float
        The bound at t = 0: a tube is of use where it is below.
    ended : str
        Why it ends where it ends, in words.
    refinement : str
        How the measured run was refined; empty for a proven tube.

    Examples
    --------
    >>> tube = Tube(np.array([0.0, 1.0]), np.array([1.0, 0.7]), np.array([1.5, 1.4]), 2.0, 1e4, "proven", "uniform", 1.0,
    ...             "the time asked for is reached", "")
    >>> tube.best()
    (0.7, 1.0)
    """

    times: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    sides: Float[np.ndarray, "k"]
    p: float
    beta: float
    growth: str
    start: str
    initial: float
    ended: str
    refinement: str

    def best(self) -> tuple[float, float]:
        """The smallest value, and its time."""
        place = int(np.argmin(self.values))
        return float(self.values[place]), float(self.times[place])

    @property
    def empty(self) -> bool:
        """The tube never falls below its value at t = 0, so that it says nothing."""
        return not (self.best()[0] < self.initial)

    def describe(self) -> str:
        """The smallest value and its time, what it rests on, and why the tube ends, in words."""
        value, time = self.best()
        rests = (
            "proven, from the matrices and a lower bound of the start alone"
            if self.growth == "proven"
            else f"with Λ measured in a run ({self.refinement})"
        )
        if self.empty:
            return f"The tube never opens at β = {self.beta:g} ({rests}): {self.ended}."
        return (
            f"At β = {self.beta:g} and t = {time:.3g} the mean field that starts as {self.start} is within W{self.p:g} ≤ "
            f"{value:.3g} of its limit; at the start the bound is {self.initial:.3g} ({rests}). It ends at t = "
            f"{self.times[-1]:.3g}: {self.ended}."
        )

    def headline(self) -> str:
        """The smallest value, its time, what it rests on, and the last time."""
        value, time = self.best()
        return f"W{self.p:g} ≤ {value:.4g} at t={time:.4g}, {self.growth}, beta={self.beta:g}, until t={self.times[-1]:.4g}"


def proven_growth(sides: Sides, A: np.ndarray, V: np.ndarray, log_ratio: float) -> tuple[Rings, ShrinkingCaps]:
    """The ingredients of (20) and (21) for one head and a start with −log(density) ≤ ``log_ratio``."""
    rings = Rings.of(sides, A, V)
    return rings, ShrinkingCaps(rings, log_ratio)


def first_angles(d: int, m: int) -> Float[np.ndarray, "n"]:
    """The angles at the start that are followed, up to π/2: equally many uniform tokens between them."""
    from scipy import special

    return np.arcsin(np.sqrt(special.betaincinv((d - m) / 2, m / 2, np.arange(1, TOKENS + 1) / TOKENS)))


class Tokens:
    """Upper bounds of the angles of tokens to their limit, advanced by verified steps."""

    def __init__(self, rings: Rings, angles: Float[np.ndarray, "n"], even: bool):
        self.rings, self.first = rings, angles
        self.line = rings.sides.basis.shape[1] == 1
        self.even = even and self.line
        self.angles, self.drift = angles.copy(), np.zeros(len(angles))
        self.rate = np.zeros(len(angles))
        self.lost = angles >= np.pi / 2

    @property
    def critical(self) -> float:
        """The largest angle at the start below which every token has kept its side."""
        kept = ~np.logical_or.accumulate(self.lost)
        return float(self.first[kept][-1]) if kept.any() else 0.0

    def costs(self, p: float) -> Float[np.ndarray, "n"]:
        """(distance to the limit)^p, bounded; for an even start of two atoms, to the nearer one."""
        far = np.minimum(self.angles + self.drift, np.pi)
        return (2 * np.sin(far / 2)) ** p

    def advance(self, h: float, errors: Table) -> None:
        """Go on by h, during which |m − u| ≤ errors/√|Bᵀx|."""
        top = self.rings.sides.value
        # A guess of the rate spans the path of the barrier θ + rate·τ; no token is faster than ‖V‖.
        guess = self.rate
        for spread in (0.2, 1.0):
            margin = spread * np.abs(guess) + 1e-3 * top
            low = self.angles + h * np.minimum(guess - margin, 0.0)
            high = self.angles + h * np.maximum(guess + margin, 0.0)
            rate = self._rates(np.maximum(low, 0.0), np.minimum(high, self._end), errors)
            path = self.angles + h * rate
            if ((path <= high + 1e-15) & (path >= low - 1e-15)).all():
                break
            guess = rate
        inside = (path <= high + 1e-15) & (path >= low - 1e-15)
        rate = np.where(inside, rate, top)
        after = np.minimum(self.angles + h * rate + 1e-15, self._end)
        most = np.maximum(self.angles, after)
        if not self.line:
            speed = self.rings.drift(np.minimum(most, np.pi / 2), errors)
            self.drift = self.drift + h * speed * PAD
        # Tokens that start farther out end farther out: the bounds keep that order.
        self.angles, self.rate = np.maximum.accumulate(np.maximum(after, 0.0)), rate
        self.lost |= most >= np.pi / 2

    @property
    def _end(self) -> float:
        return np.pi / 2 if self.even or not self.line else np.pi

    def _rates(self, low: np.ndarray, high: np.ndarray, errors: Table) -> np.ndarray:
        """Bounds of the rate between these angles; beyond π/2 a token is drawn to the other end of the line."""
        half = np.pi / 2
        near = self.rings.outward(np.minimum(low, half), np.minimum(high, half), errors)
        if not (high > half).any():
            return near
        far = self.rings.inward(np.minimum(np.pi - high, half), np.minimum(np.pi - low, half), errors)
        return np.where(low >= half, far, np.where(high > half, np.maximum(near, far), near))


@dataclass(frozen=True)
class Course:
    """The numbers of a tube over time, and why it ended."""

    times: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    sides: Float[np.ndarray, "k"]
    ended: str


def follow(tokens: Tokens, growth: Growth, shares: Float[np.ndarray, "n"], *, until: float | None, p: float) -> Course:
    """Integrate a tube until it ends by itself or the time is reached; ``shares`` are masses within the first angles."""
    masses = np.diff(np.concatenate([[0.0], shares]))

    def value() -> float:
        return min(2.0, PAD * float(masses @ tokens.costs(p)) ** (1 / p))

    longest = SHARE / tokens.rings.sides.value
    time, rows, ended = 0.0, [(0.0, value(), tokens.critical)], ""
    while not ended:
        h = min(growth.step(SHARE), longest, np.inf if until is None else until - time)
        # The rate of the outermost caps may be huge: they are given up rather than followed.
        h = max(h, longest / 100)
        if until is not None and time + h >= until:
            h, ended = until - time, "the time asked for is reached"
        errors = growth.advance(h)
        if growth.closed:
            ended = growth.reason
            break
        tokens.advance(h, errors)
        time += h
        rows.append((time, value(), tokens.critical))
        least = min(row[1] for row in rows)
        if not tokens.critical > 0:
            ended = "no token is known to be on its side any more: growth of the error closed it"
        elif until is None and rows[-1][1] > RISEN * least + 1e-3:
            ended = "it has begun to rise: from here on the error grows faster than tokens come in"
        elif len(rows) > MOST_STEPS:
            ended = f"{MOST_STEPS} steps are spent"
    kept = sorted({*evenly_spread(len(rows), KEPT), int(np.argmin([row[1] for row in rows]))})
    times, values, sides = np.array([rows[k] for k in kept]).T
    return Course(times, values, sides, ended)
