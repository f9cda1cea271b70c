"""Angles of tokens to the dominant eigenspace E, bounded without comparing paths (THEORY eq. 20).

The path that the tokens of a run take has the defect δ = |ẋ − F(x)|, and F draws every token to E, so that as in (20)

    θ' ≤ −(g/s) sin θ cos θ + δ ,    s = |Bᵀx|

with the defect of this very path in place of ‖V‖√(2Λ/κ), by (19) a bound of |P_xV(m − u)|. While θ < π/2 the token
keeps its side: e = x_E/|x_E| turns no faster than δ/cos θ, as F leaves it where it is, and φ bounds the angle from e to
the limit of the token. For m = 1 there is nowhere to turn.
"""

import numpy as np
from jaxtyping import Float

from frostline.analysis.arcs import PIECES, Arc, lengths
from frostline.theory.expansion import PAD
from frostline.theory.sides import Sides

START = 4e-15
"""Room for the rounding of the angles at the start."""


class SideAngles:
    """Bounds per token, in units in which A and B are of order one: ``scale`` is that of A.

    theta (n,)   the angle to E; π once the token's side is unknown
    phi (n,)     the angle from the token's part in E to its limit
    """

    def __init__(self, sides: Sides, scale: float, start: Float[np.ndarray, "n d"], goal: Float[np.ndarray, "n d"]):
        self.gap, self.leak, self.turns = sides.gap / scale, sides.defect / scale, sides.basis.shape[1] > 1
        inside = start @ sides.basis
        with np.errstate(divide="ignore", invalid="ignore"):
            chord = lengths(inside / lengths(inside)[:, None] - goal @ sides.basis)
        theta = sides.angles(start) + START
        self.phi = 2 * np.arcsin(np.minimum(1.0, chord / 2)) + START
        if not self.turns:
            # A limit on the other side is none that (20) can lead to.
            theta, self.phi = np.where(chord < 1, theta, np.pi), np.zeros(len(start))
        self.theta = np.where(theta < np.pi / 2, theta, np.pi)
        # The basis and the limits come from two eigensolvers.
        self.off = float(lengths(goal - (goal @ sides.basis) @ sides.basis.T).max()) + START

    def advance(
        self,
        arc: Arc,
        least: Float[np.ndarray, "n"],
        most: Float[np.ndarray, "n"],
        defects: Float[np.ndarray, "pieces n"],
    ) -> None:
        """Follow the tokens through one arc, on which |Bᵀx| lies between ``least`` and ``most``."""
        piece = arc.h / PIECES
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # E reduces A up to rounding, which is charged here.
            pushed = defects + piece * self.leak / least
            # Without contraction: no angle of the step is larger.
            highest = self.theta + pushed.sum(0)
            speed = self.gap / most
            # y' = −k sin y cos y leads to tan y = e^{−kh} tan y₀; what pushes θ beyond y grows by −k cos 2θ at most.
            rate = -speed * np.cos(2 * np.minimum(highest, np.pi / 2))
            left = arc.h * (1 - np.arange(PIECES) / PIECES)[:, None]
            grown = np.exp(rate * np.where(rate > 0, left, left - piece))
            free = np.arctan(np.exp(-speed * arc.h) * np.tan(np.minimum(self.theta, np.pi / 2)))
            theta = PAD * (free + (grown * pushed).sum(0))
            kept = (highest < np.pi / 2) & (theta < np.pi / 2)
            if self.turns:
                phi = PAD * (self.phi + pushed.sum(0) / np.cos(np.minimum(highest, np.pi / 2)))
                self.phi = np.where(kept, np.minimum(phi, np.pi), np.pi)
        self.theta = np.where(kept, theta, np.pi)

    @property
    def chords(self) -> Float[np.ndarray, "n"]:
        """A bound of each token's distance to its limit: |x − limit|² = 2(1 − cos θ cos φ); 2 without a side."""
        tilt, turn = np.sin(self.theta / 2) ** 2, np.sin(self.phi / 2) ** 2
        # Where cos φ < 0 the worst token is one in E.
        square = turn + tilt * np.maximum(np.cos(self.phi), 0.0)
        return np.where(self.theta < np.pi / 2, PAD * 2 * np.sqrt(np.minimum(square, 1.0)) + self.off, 2.0)
