"""Angles of tokens to their own zero-temperature paths, bounded step by step (THEORY section 7).

A token's angle θ to its path obeys θ' ≤ ℓθ + δ, with ℓ a bound of the flow's expansion over the ball of radius θ: the
radius is guessed, the guess verified, then used.
"""

import numpy as np
from jaxtyping import Float

from frostline.analysis.arcs import PIECES, Arc
from frostline.theory.expansion import PAD, Around

ATTEMPTS = 8
"""Tries to find a radius that holds for a step; a token for which none is found counts as lost."""


SETTLED = 0.95
"""A verified radius that the next try would shrink by less than this factor is kept."""


class PathAngles:
    """θ (n,): a bound of each token's angle to its own zero-temperature path; π when it is unknown."""

    def __init__(self, count: int):
        self.theta = np.zeros(count)

    def advance(self, arc: Arc, around: Around, defects: Float[np.ndarray, "pieces n"]) -> None:
        """Follow the tokens through one arc; ``around`` holds the bounds of ∇F about its middle."""
        total = defects.sum(0)
        start = PAD * (self.theta + total)
        radius, rate, verified = 1.5 * start + 1e-15, np.zeros(len(total)), np.zeros(len(total), dtype=bool)
        open_tokens = np.flatnonzero(self.theta < np.pi)
        for _ in range(ATTEMPTS):
            some = open_tokens
            guess = radius[some]
            rate[some] = around.rows(some).expansion(np.minimum(arc.reach[some] + guess, np.pi))
            with np.errstate(over="ignore"):
                highest = start[some] * np.exp(np.maximum(rate[some], 0.0) * arc.h)
            # A verified radius implies a smaller one that holds as well.
            verified[some] |= highest < guess
            radius[some] = np.where(verified[some], np.minimum(guess, highest), 1.5 * highest)
            open_tokens = some[~(verified[some] & (highest >= SETTLED * guess))]
            if not len(open_tokens):
                break
        with np.errstate(over="ignore", invalid="ignore"):
            # A defect in one piece grows over the rest of the step, at most the whole piece included.
            left = arc.h * (1 - np.arange(PIECES) / PIECES)[:, None]
            carried = (np.exp(rate * np.where(rate > 0, left, left - arc.h / PIECES)) * defects).sum(0)
            theta = PAD * (self.theta * np.exp(rate * arc.h) + carried)
        known = verified & (self.theta < np.pi) & (theta < np.pi)
        self.theta = np.where(known, theta, np.pi)
