"""Side keeping: tokens followed by upper bounds of their angles to the limit, step by verified step (THEORY eq. 20).

Tokens are followed by their angle to E alone, (20). Tokens of the same angle may be anywhere on their ring, so every
step takes the worst of them; it is accepted when its guess bounds the right-hand side over all that happens meanwhile.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import special

from frostline.arrays import evenly_spread
from frostline.theory.gibbs import PAD
from frostline.theory.rings import Rings, Table

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


@runtime_checkable
class ErrorBounds(Protocol):
    """Bounds of |m − u| while time goes on: proven ones (``ShrinkingCaps``), or measured ones."""

    reason: str

    @property
    def closed(self) -> bool: ...

    def step(self, share: float) -> float: ...

    def advance(self, h: float) -> Table: ...


def first_angles(E: Float[np.ndarray, "d m"]) -> Float[np.ndarray, "n"]:
    """The angles at the start that are followed, up to π/2: equally many uniform tokens between them."""
    d, m = E.shape
    return np.arcsin(np.sqrt(special.betaincinv((d - m) / 2, m / 2, np.arange(1, TOKENS + 1) / TOKENS)))


class AngleBounds:
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


def follow(
    tokens: AngleBounds, growth: ErrorBounds, shares: Float[np.ndarray, "n"], *, until: float | None, p: float
) -> Course:
    """Integrate until the tube ends by itself or the time is reached; ``shares`` are masses within the first angles."""
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
            ended = "it has begun to rise, as from here on the error grows faster than tokens come in"
        elif len(rows) > MOST_STEPS:
            ended = f"{MOST_STEPS} steps are spent"
    kept = sorted({*evenly_spread(len(rows), KEPT), int(np.argmin([row[1] for row in rows]))})
    times, values, sides = np.array([rows[k] for k in kept]).T
    return Course(times, values, sides, ended)
