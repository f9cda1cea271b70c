"""Expansion of the zero-temperature flow (5): proven bounds on its derivative ∇F (THEORY section 7).

For unit tangent vectors v at x, with s = |Bᵀx|, G = P_xAx and q = P_xBBᵀx,

    ∇_vF = (P_xAv − (xᵀAx)v)/s − G⟨q,v⟩/s³

so the expansion rate is λ_max(sym ∇F) ≤ (max_{v⊥x} vᵀSv − xᵀSx)/s + (|G||q| − ⟨G,q⟩)/2s³, S = sym A. Over a geodesic
ball every ingredient changes by no more than the ball's radius allows; the bounds below say by how much.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from frostline.sphere import tangent_projectors
from frostline.theory.expansion_supremum import Supremum, expansion_supremum
from frostline.theory.spectrum import scale_of

PAD = 1 + 1e-12
"""Relative room for the rounding of a few dozen operations."""


@dataclass(frozen=True, eq=False)
class Derivative:
    """Bounds on ∇F for one plain head: over the whole sphere, and over balls around tokens."""

    A: Float[np.ndarray, "d d"]
    B: Float[np.ndarray, "d d"]

    @classmethod
    def scaled(cls, A: Float[np.ndarray, "d d"], B: Float[np.ndarray, "d d"]) -> tuple["Derivative", float]:
        """The same flow with A and B of order one, and the unit of its rates: F = unit·F′.

        The bounds hold products of four entries of B, which under- or overflow long before the flow does.
        """
        a, b = scale_of(A), scale_of(B)
        return cls(A / a, B / b), a / b

    @cached_property
    def symmetric(self) -> Float[np.ndarray, "d d"]:
        """S = sym A = (A + Aᵀ)/2."""
        return (self.A + self.A.T) / 2

    @cached_property
    def spectrum(self) -> Float[np.ndarray, "d"]:
        """Eigenvalues of sym A, ascending."""
        return np.linalg.eigvalsh(self.symmetric)

    @cached_property
    def spread(self) -> float:
        """λ_max − λ_min of sym A."""
        return float(self.spectrum[-1] - self.spectrum[0])

    @cached_property
    def centre(self) -> float:
        """(λ_max + λ_min)/2 of sym A."""
        return float(self.spectrum[-1] + self.spectrum[0]) / 2

    @cached_property
    def push(self) -> float:
        """‖A − centre·I‖ ≥ |P_xAx|; for symmetric A it is half the spread, the best bound of this form."""
        return float(np.linalg.norm(self.A - self.centre * np.eye(len(self.A)), 2))

    @cached_property
    def sigma(self) -> tuple[float, float]:
        """σ_max and σ_min of B."""
        values = np.linalg.svd(self.B, compute_uv=False)
        return float(values[0]), float(values[-1])

    @property
    def largest(self) -> float:
        """ℓ: a bound of λ_max(sym ∇F) over the whole sphere; infinite when B is rank-deficient.

        Right to 1 % for d ≤ 4 in most cases (``supremum`` says how it was found), ``closed`` for larger d.
        """
        return self.supremum.value

    @cached_property
    def supremum(self) -> Supremum:
        """ℓ between two bounds, and the method that found the upper one."""
        return expansion_supremum(self, self.closed)

    @cached_property
    def closed(self) -> float:
        """The bound of λ_max(sym ∇F) over the whole sphere by a formula; infinite when B is rank-deficient."""
        high, low = self.sigma
        if not low > 1e-13 * high:
            return np.inf
        k = high / low
        return PAD * (self.spread + self.push * (k - 1 / k) / 2) / low

    def at(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d d"]:
        """∇F itself at each token, as a matrix that acts on tangent vectors (and is zero on x)."""
        s = np.linalg.norm(x @ self.B, axis=1)[:, None, None]
        P = tangent_projectors(x)
        Ax, Cx = x @ self.A.T, (x @ self.B) @ self.B.T
        middle = self.A - (x * Ax).sum(1)[:, None, None] * np.eye(x.shape[1])
        return P @ (middle / s - Ax[:, :, None] * Cx[:, None, :] / s**3) @ P

    def rate(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
        """λ_max(sym ∇F) at each token: the fastest of all tangent directions."""
        slopes = self.at(x)
        even = (slopes + slopes.mT) / 2
        # x itself has eigenvalue 0 and is no tangent direction: put it below all others.
        size = np.linalg.norm(even, axis=(1, 2))
        return np.linalg.eigvalsh(even - 2 * size[:, None, None] * x[:, :, None] * x[:, None, :])[:, -1]

    def around(self, x: Float[np.ndarray, "n d"]) -> "Around":
        """Bounds of ∇F in balls around each token."""
        Ax, Cx = x @ self.A.T, (x @ self.B) @ self.B.T
        along = np.einsum("ni,ni->n", x, Ax)
        G, q = Ax - along[:, None] * x, Cx - np.einsum("ni,ni->n", x, Cx)[:, None] * x
        across = self._across(x, along)
        size_G, size_q = np.linalg.norm(G, axis=1), np.linalg.norm(q, axis=1)
        return Around(self, along, across, np.linalg.norm(x @ self.B, axis=1), size_G, size_q, (G * q).sum(1))

    def _across(self, x: Float[np.ndarray, "n d"], along: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """The largest value of vᵀSv over unit v ⊥ x; ``along`` is xᵀSx."""
        S, d = self.symmetric, x.shape[1]
        if d == 2:
            return np.trace(S) - along
        if d == 3:
            # A frame of the tangent plane, and the larger eigenvalue of S there: both without cancellation.
            sign = np.where(x[:, 2] < 0, -1.0, 1.0)
            a = -1 / (sign + x[:, 2])
            b = x[:, 0] * x[:, 1] * a
            u = np.stack([1 + sign * x[:, 0] ** 2 * a, sign * b, -sign * x[:, 0]], axis=1)
            v = np.stack([b, sign + x[:, 1] ** 2 * a, -x[:, 1]], axis=1)
            Su, Sv = u @ S, v @ S
            first, second, mixed = (np.einsum("ni,ni->n", *pair) for pair in ((u, Su), (v, Sv), (v, Su)))
            return (first + second) / 2 + np.hypot((first - second) / 2, mixed)
        # Push x itself below the spectrum, then take the largest eigenvalue.
        P = tangent_projectors(x)
        return np.linalg.eigvalsh(P @ (S - self.spectrum[0] * np.eye(d)) @ P)[:, -1] + self.spectrum[0]


@dataclass(frozen=True, eq=False)
class Around:
    """Bounds over geodesic balls around tokens; everything (n,), one radius per token."""

    of: Derivative
    along: Float[np.ndarray, "n"]
    """xᵀAx"""
    across: Float[np.ndarray, "n"]
    """max vᵀSv over unit tangent vectors v"""
    s: Float[np.ndarray, "n"]
    """|Bᵀx|"""
    G: Float[np.ndarray, "n"]
    q: Float[np.ndarray, "n"]
    product: Float[np.ndarray, "n"]
    """⟨G, q⟩"""

    def rows(self, index: Int[np.ndarray, "m"]) -> "Around":
        """The same for some of the tokens."""
        if len(index) == len(self.s):
            return self
        parts = (self.along, self.across, self.s, self.G, self.q, self.product)
        return Around(self.of, *(part[index] for part in parts))

    def scales(self, radius: Float[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of |Bᵀy| over the ball: a vector moves by ‖B‖·chord, its square by (σ_max² − σ_min²)·sin."""
        high, low = self.of.sigma
        sine = np.sin(np.minimum(radius, np.pi / 2))
        chord = 2 * np.sin(np.minimum(radius, np.pi) / 2)
        change = (high**2 - low**2) * sine
        least = np.maximum(np.sqrt(np.maximum(self.s**2 - change, 0.0)), self.s - high * chord)
        most = np.minimum(np.sqrt(self.s**2 + change), self.s + high * chord)
        # Room for the rounding of s itself, which matters where |Bᵀx| nearly vanishes.
        floor = 1e-14 * high
        return np.maximum(np.maximum(least - floor, low / PAD), 0.0), np.minimum(most + floor, high * PAD)

    def _vectors(self, radius: Float[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """|G| and |q| over the ball, and by how much each may differ from its value at the centre.

        ∇G = P(A − yᵀAy)P is no larger than ‖A − c‖ + |c − yᵀSy| ≤ push + spread/2; q is the same with BBᵀ for A.
        """
        high, low = self.of.sigma
        G_change = (self.of.push + self.of.spread / 2) * radius
        q_change = (high**2 - low**2) * radius
        G = np.minimum(self.G + G_change, self.of.push)
        q = np.minimum(self.q + q_change, (high**2 - low**2) / 2)
        return G, q, np.minimum(G_change, self.G + G), np.minimum(q_change, self.q + q)

    def largest_vectors(self, radius: Float[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of |G| and |q| over the ball."""
        return self._vectors(radius)[:2]

    def expansion(self, radius: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """A bound of λ_max(sym ∇F) over the geodesic ball of this radius around each token."""
        least, most = self.scales(radius)
        # vᵀSv and yᵀSy change by no more than spread·sin(angle) when v and y turn by that angle.
        change = self.of.spread * np.sin(np.minimum(radius, np.pi / 2))
        up = np.minimum(self.across + change, self.of.spectrum[-1])
        down = np.maximum(self.along - change, self.of.spectrum[0])
        # Both come from numbers of the size of the spectrum, and may cancel to nothing but their rounding.
        stretch = up - down + 1e-14 * np.abs(self.of.spectrum).max()
        G, q, dG, dq = self._vectors(radius)
        grown = (self.G * self.q - self.product) / 2 + self.G * dq + dG * self.q + dG * dq
        bend = np.minimum(grown, G * q)
        with np.errstate(divide="ignore", invalid="ignore"):
            first = np.where(stretch > 0, stretch / least, stretch / most)
            rate = first + np.where(bend > 0, bend / least**3, 0.0)
        rate = np.where(np.isnan(rate), np.inf, rate)
        return np.minimum(rate + 1e-12 * np.abs(rate), self.of.closed)

    def steepness(self, radius: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """A bound of the operator norm of ∇F over the ball: a Lipschitz constant of F there."""
        least, _ = self.scales(radius)
        change = self.of.spread * np.sin(np.minimum(radius, np.pi / 2))
        off = np.minimum(np.abs(self.along - self.of.centre) + change, self.of.spread / 2)
        G, q, _, _ = self._vectors(radius)
        with np.errstate(divide="ignore", invalid="ignore"):
            norm = (self.of.push + off) / least + np.where(G * q > 0, G * q / least**3, 0.0)
        return PAD * np.where(np.isnan(norm), np.inf, norm)
