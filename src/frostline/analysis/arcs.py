"""Arcs through the tokens of a run, from node to node, and bounds of their defect |ẋ − F(x)| (THEORY section 7).

Between the nodes of a run any path through its tokens will do. An arc is a cubic Hermite curve, normalised. Its bounds
come from Bernstein's convex hulls, so they hold at every time of the step and not at some times alone.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.sphere import unit_rows
from frostline.theory.expansion import PAD, Derivative

PIECES = 8
"""Pieces into which each step is cut to bound its defect; the evaluation of F costs no mean map."""
ROUNDING = 1e-13
"""Relative rounding of the velocity of an arc and of the field."""
CONE = 0.1
"""The least height of an arc's control points along its middle; a flatter arc has no bounds."""


def lengths(vectors: Float[np.ndarray, "*batch d"]) -> Float[np.ndarray, "*batch"]:
    """|v| along the last axis, which is short: einsum takes a third of the time of a norm."""
    return np.sqrt(np.einsum("...i,...i->...", vectors, vectors))


@dataclass(frozen=True, eq=False)
class Arc:
    """x = z/|z| for the cubic z with the given ends and slopes."""

    h: float
    points: Float[np.ndarray, "4 n d"]
    middle: Float[np.ndarray, "n d"]
    reach: Float[np.ndarray, "n"]
    """The arc stays within this angle of its middle."""
    speed: Float[np.ndarray, "n"]
    """|ẋ| is at most this."""
    acceleration: Float[np.ndarray, "n"]
    """The covariant acceleration |P_x ẍ| is at most this."""

    @classmethod
    def between(
        cls,
        h: float,
        start: Float[np.ndarray, "n d"],
        slope: Float[np.ndarray, "n d"],
        end: Float[np.ndarray, "n d"],
        end_slope: Float[np.ndarray, "n d"],
    ) -> "Arc":
        """The arc of duration h between tokens that move with these velocities, and its bounds."""
        points = np.stack([start, start + h / 3 * slope, end - h / 3 * end_slope, end])
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = unit_rows(start + end)
            height = np.einsum("kni,ni->kn", points, middle)
            least, size = height.min(0), lengths(points)
            # The points lie in a cone around the middle, and a cone narrower than a half-space is convex.
            across = lengths(points - height[..., None] * middle)
            reach = PAD * np.arctan2(across, height).max(0)
            steps = np.diff(points, axis=0)
            velocity = 3 / h * lengths(steps).max(0)
            bend = 6 / h**2 * lengths(np.diff(steps, axis=0)).max(0)
            # P_xẍ = P_x z̈/|z| − 2ẋ⟨x,ż⟩/|z|; ⟨z,ż⟩ is rounding at both ends and changes by |ż|² + ⟨z,z̈⟩ between.
            ends = [np.abs(np.einsum("ni,ni->n", x, f)) for x, f in ((start, slope), (end, end_slope))]
            drift = h / 2 * (velocity**2 + size.max(0) * bend) + np.maximum(*ends) + 1e-12 * velocity + 4e-16 / h
            acceleration = bend / least + 2 * velocity * drift / least**3
        inside = (least > CONE) & np.isfinite(acceleration)
        far = np.where(inside, 0.0, np.inf)
        middle = np.where(inside[:, None], middle, start)
        return cls(
            h,
            points,
            middle,
            np.where(inside, reach, np.pi),
            velocity / np.maximum(least, CONE) + far,
            acceleration + far,
        )

    def at(self, fractions: Float[np.ndarray, "k"]) -> tuple[Float[np.ndarray, "k n d"], Float[np.ndarray, "k n d"]]:
        """Positions and velocities at these fractions of the step."""
        s = np.asarray(fractions)
        basis = np.stack([(1 - s) ** 3, 3 * s * (1 - s) ** 2, 3 * s**2 * (1 - s), s**3], axis=1)
        slopes = np.stack([(1 - s) ** 2, 2 * s * (1 - s), s**2], axis=1)
        z = np.tensordot(basis, self.points, axes=1)
        w = np.tensordot(slopes, 3 / self.h * np.diff(self.points, axis=0), axes=1)
        size = lengths(z)[..., None]
        x = z / size
        return x, (w - np.einsum("kni,kni->kn", x, w)[..., None] * x) / size

    @classmethod
    def straight(cls, h: float, start: Float[np.ndarray, "n d"], end: Float[np.ndarray, "n d"]) -> "Arc":
        """The arc of an Euler step, along the great circle through both tokens: x = z/|z| with z on a line."""
        with np.errstate(divide="ignore", invalid="ignore"):
            cosine = np.einsum("ni,ni->n", start, end)[:, None]
            return cls.between(h, start, (end / cosine - start) / h, end, cosine / h * (cosine * end - start))

    def defects(
        self, derivative: Derivative, steepness: Float[np.ndarray, "n"]
    ) -> tuple[Float[np.ndarray, "pieces n"], float]:
        """∫|ẋ − F(x)| over each piece of the step, bounded: its values at both ends, and its rise between.

        And a bound of |ẋ − F(x)| over the step and all tokens.
        """
        A, B = derivative.A, derivative.B
        x, speed = self.at(np.arange(PIECES + 1) / PIECES)
        push = x @ A.T
        push -= np.einsum("kni,kni->kn", x, push)[..., None] * x
        key = lengths(x @ B)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Rounding of the arc's velocity (a difference over h) and of the field, whose denominator may be small.
            field = np.linalg.norm(A, 2) / key
            steep = lengths(push) / key * (derivative.sigma[0] / key)
            defect = lengths(speed - push / key[..., None])
            defect += ROUNDING * (self.speed + field + steep) + 4e-16 / self.h
            rise = self.acceleration + self.speed * steepness
            piece = self.h / PIECES
            totals = PAD * (piece * (defect[1:] + defect[:-1]) / 2 + rise * piece**2 / 4)
            highest = np.maximum(defect[1:], defect[:-1]) + rise * piece / 2
            worst = float(np.where(np.isfinite(highest), highest, np.inf).max())
        return np.where(np.isfinite(totals), totals, np.inf), worst
