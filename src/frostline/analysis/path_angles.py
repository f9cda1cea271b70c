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


SETTLED = 0.98
"""A verified radius that the next try would shrink by less than this factor is kept."""


class PathAngles:
    """θ (n,): a bound of each token's angle to its own zero-temperature path; π when it is unknown."""

    def __init__(self, count: int):
        self.theta = np.zeros(count)

    def advance(self, arc: Arc, around: Around, defects: Float[np.ndarray, "pieces n"]) -> None:
        """Follow the tokens through one arc; ``around`` holds the bounds of ∇F about its middle."""
        total = defects.sum(0)
        radius, verified = 1.5 * (self.theta + total) + 1e-15, np.zeros(len(total), dtype=bool)
        for _ in range(ATTEMPTS):
            # A verified radius implies a smaller one that holds as well.
            rate = around.expansion(np.minimum(arc.reach + radius, np.pi))
            with np.errstate(over="ignore"):
                highest = PAD * (self.theta + total) * np.exp(np.maximum(rate, 0.0) * arc.h)
            verified |= highest < radius
            settled = verified & (highest >= SETTLED * radius)
            radius = np.where(verified, np.minimum(radius, highest), 1.5 * highest)
            if (settled | (self.theta >= np.pi)).all():
                break
        rate = around.expansion(np.minimum(arc.reach + radius, np.pi))
        with np.errstate(over="ignore", invalid="ignore"):
            # A defect in one piece grows over the rest of the step, at most the whole piece included.
            left = arc.h * (1 - np.arange(PIECES) / PIECES)[:, None]
            carried = (np.exp(rate * np.where(rate > 0, left, left - arc.h / PIECES)) * defects).sum(0)
            theta = PAD * (self.theta * np.exp(rate * arc.h) + carried)
        known = verified & (self.theta < np.pi) & (theta < np.pi)
        self.theta = np.where(known, theta, np.pi)
