"""Sides: each token's angle to the dominant eigenspace E, bounded without comparing paths (THEORY eq. 20).

Let E and its complement be spanned by orthonormal bases, in which A has the blocks A₁₁, A₁₂, A₂₁, A₂₂. A token is
x = cos θ·e + sin θ·v with unit e ∈ E, v ⊥ E; w = −sin θ·e + cos θ·v points away from E, and s = |Bᵀx|. Of the flow (5)

    ⟨w, F⟩ = −(sin θ cos θ (eᵀA₁₁e − vᵀA₂₂v) − cos²θ vᵀA₂₁e + sin²θ eᵀA₁₂v)/s

so that with g = λ_min(sym A₁₁) − λ_max(sym A₂₂) and the defect δ = |ẋ − F(x)| of the path that the tokens take

    θ' ≤ −(g/s) sin θ cos θ + (‖A₁₂‖ sin²θ + ‖A₂₁‖)/s + δ                                   (20), for this run

For symmetric and for normal A both off-diagonal blocks vanish and g is the gap. (19) bounds the δ of a node, which is
|P_xV(m − u)|, by ‖V‖√(2Λ/κ); here δ is measured. As long as θ < π/2 the token keeps its side, and e turns no faster than
δ/cos θ + (‖A₁₂‖ tan θ + ‖A₁₁ − μI‖)/s: φ bounds its angle to the limit of the token. For m = 1 there is nowhere to turn.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.analysis.arcs import PIECES, Arc, sizes
from frostline.theory.expansion import PAD, Derivative
from frostline.theory.limits import Limit

ROUNDING = 1e-14
"""Room for the rounding of the blocks of A, relative to its norm."""
START = 4e-15
"""Room for the rounding of the angles at the start."""


@dataclass(frozen=True)
class Contraction:
    """The constants of (20) for A and E.

    basis (m, d)   orthonormal rows that span E
    gap            g
    inward         ‖A₁₂‖, zero for normal A
    outward        ‖A₂₁‖, zero as E is invariant; rounding
    uneven         ‖A₁₁ − μI‖, zero as A acts on E as a number; rounding
    """

    basis: Float[np.ndarray, "m d"]
    gap: float
    inward: float
    outward: float
    uneven: float

    @classmethod
    def of(cls, derivative: Derivative, target: Limit) -> "Contraction | str":
        """The constants, or the reason why (20) does not apply."""
        if target.kind not in ("points", "subspace") or target.basis is None:
            return f"the limit is of the kind {target.kind}"
        if target.in_kernel:
            return "the dominant eigenspace lies in ker Bᵀ"
        E, A = np.asarray(target.basis, dtype=np.float64), derivative.A
        if len(E) == len(A):
            return "every direction is dominant, and tokens stay where they are"
        rest = np.linalg.svd(E)[2][len(E) :]
        room = ROUNDING * float(np.linalg.norm(A, 2))
        inner, outer = E @ A @ E.T, rest @ A @ rest.T
        gap = float(np.linalg.eigvalsh((inner + inner.T) / 2)[0] - np.linalg.eigvalsh((outer + outer.T) / 2)[-1])
        if not gap > 4 * room:
            return (
                f"A is too far from normal: the least growth inside E exceeds the largest outside by {gap:.3g}, "
                "and (20) needs more than nothing"
            )
        even = inner - np.trace(inner) / len(E) * np.eye(len(E))
        blocks = (E @ A @ rest.T, rest @ A @ E.T, even)
        inward, outward, uneven = (float(np.linalg.norm(block, 2)) + room for block in blocks)
        return cls(E, gap - 4 * room, inward, outward, uneven)


class Sides:
    """Angles of the tokens to E, and of their part in E to their limits.

    theta (n,)   a bound of the angle to E; π once the token's side is unknown
    phi (n,)     a bound of the angle from the part in E to the token's limit
    """

    def __init__(self, law: Contraction, start: Float[np.ndarray, "n d"], goal: Float[np.ndarray, "n d"]):
        self.law = law
        inside = start @ law.basis.T
        theta = np.arctan2(sizes(start - inside @ law.basis), sizes(inside)) + START
        along = inside / sizes(inside)[:, None]
        chord = sizes(along - goal @ law.basis.T)
        self.phi = 2 * np.arcsin(np.minimum(1.0, chord / 2)) + START
        if len(law.basis) == 1:
            # A limit on the other side is none that (20) can lead to.
            theta, self.phi = np.where(chord < 1, theta, np.pi), np.zeros(len(start))
        self.theta = np.where(theta < np.pi / 2, theta, np.pi)

    def advance(
        self,
        arc: Arc,
        least: Float[np.ndarray, "n"],
        most: Float[np.ndarray, "n"],
        defects: Float[np.ndarray, "pieces n"],
    ) -> None:
        """Follow the tokens through one arc, on which |Bᵀx| lies between ``least`` and ``most``."""
        law, piece = self.law, arc.h / PIECES
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            pushed = defects.sum(0)
            # Without contraction: no angle of the step is larger.
            highest = self.theta + pushed + arc.h * (law.inward + law.outward) / least
            leak = piece * (law.inward * np.sin(highest) ** 2 + law.outward) / least
            speed = law.gap / most
            # y' = −k sin y cos y leads to tan y = e^{−kh} tan y₀; the distance to y grows by −k cos 2θ at most.
            rate = -speed * np.cos(2 * np.minimum(highest, np.pi / 2))
            left = arc.h * (1 - np.arange(PIECES) / PIECES)[:, None]
            grown = np.exp(rate * np.where(rate > 0, left, left - piece))
            free = np.arctan(np.exp(-speed * arc.h) * np.tan(np.minimum(self.theta, np.pi / 2)))
            theta = PAD * (free + (grown * (defects + leak)).sum(0))
            kept = (highest < np.pi / 2) & (theta < np.pi / 2)
            if len(law.basis) > 1:
                turned = pushed / np.cos(highest) + arc.h * (law.inward * np.tan(highest) + law.uneven) / least
                self.phi = np.where(kept, np.minimum(PAD * (self.phi + turned), np.pi), np.pi)
        self.theta = np.where(kept, theta, np.pi)

    @property
    def chords(self) -> Float[np.ndarray, "n"]:
        """A bound of each token's distance to its limit: |x − goal|² = 2(1 − cos θ cos φ); 2 without a side."""
        tilt, turn = np.sin(self.theta / 2) ** 2, np.sin(self.phi / 2) ** 2
        # Where cos φ < 0 the worst token is one in E.
        square = turn + tilt * np.maximum(np.cos(self.phi), 0.0)
        return np.where(self.theta < np.pi / 2, PAD * 2 * np.sqrt(np.minimum(square, 1.0)), 2.0)
