"""Sides that tokens keep: how fast a token's angle to the dominant eigenspace E may grow (THEORY eq. 19, 20).

θ is the angle between a token x and E, s = |Bᵀx|, κ = βs, u = y*(x) and Λ = −log ∫ e^{−κ|y−u|²/2} dρ(y). Then

    |m_β(x) − u|² ≤ 2Λ/κ                                                                              (19)
    θ' ≤ −(g/s) sin θ cos θ + ‖V‖|m_β(x) − u|                                                         (20)

where A = VBᵀ maps E and its complement into themselves and g = μ − λ_max(sym A on the complement). Both terms fall with
s, so a bound for all tokens at the angle θ needs the interval of s there. On |x| = 1, |x_E| = cos θ,

    s² ≥ cos²θ·λ_min(C_EE − C_EW(C_WW − ν)⁻¹C_WE) + ν sin²θ   for every ν < λ_min(C_WW),  C = BBᵀ, W = E^⊥

(minimise over x_W first, with ν as the multiplier of its length), and the best ν loses nothing when E is a line.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.attention import Heads, as_one_layer, is_plain
from frostline.errors import BadParameter, NoLimit
from frostline.theory.limits import limit
from frostline.theory.spectrum import scale_of

PAD = 1 + 1e-12
"""Relative room for the rounding of a few hundred operations."""
ROOM = 1e-14
"""Room for the rounding of eigenvalues and products of matrices, in units of their norms, per dimension."""
REDUCING = 1e-9
"""E reduces A when |AE − μE| and |AᵀE − μE| together are at most this, in units of ‖A‖; (20) is charged for it."""
MULTIPLIERS = 64
"""Multipliers ν tried on each side of the spectrum; every one gives a valid bound, more make it sharper."""

Angles = Float[np.ndarray, "*#n"]


@dataclass(frozen=True, eq=False)
class Sides:
    """The right-hand side of (20) for one head; every method is vectorised over tokens and rounds outwards.

    Attributes
    ----------
    basis : ndarray
        Orthonormal columns (d, m) spanning E.
    gap : float
        g, rounded down.
    value : float
        ‖V‖, rounded up.
    beta : float
        The inverse temperature of the head.
    defect : float
        How far A is from one that is reduced by exactly this E: an error of the drift, times 1/s.
    B : ndarray
        The logit matrix.

    Examples
    --------
    >>> from frostline import Attention
    >>> sides = Sides.of(Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=1e4))
    >>> low, high = sides.speeds(np.array([0.5]), np.array([0.5]))
    >>> np.round([low[0], high[0]], 4)  # √(cos² + .04 sin²), √(cos² + .25 sin²)
    array([0.8828, 0.9097])
    """

    basis: Float[np.ndarray, "d m"]
    gap: float
    value: float
    beta: float
    defect: float
    B: Float[np.ndarray, "d d"]
    _below: Float[np.ndarray, "k 2"]
    """Rows (a, b) with s² ≥ a cos²θ + b sin²θ at every token."""
    _above: Float[np.ndarray, "k 2"]
    """Rows (a, b) with s² ≤ a cos²θ + b sin²θ at every token."""

    @classmethod
    def of(cls, heads: Heads, verb: str = "tube") -> "Sides":
        """The bound for one head whose A = VBᵀ is reduced by its dominant eigenspace: symmetric or normal A.

        Raises
        ------
        NoLimit
            The limit is neither points nor a subspace, lies in ker Bᵀ, there is no gap, or E does not reduce A.
        BadParameter
            There are several layers, several heads or a key bias.
        """
        layer = as_one_layer(heads, verb)
        if not is_plain(layer):
            raise BadParameter(
                f"{verb} takes one head without key bias, not {len(layer)} head(s)"
                f"{'' if len(layer) > 1 else ' with a key bias'}: their drift has no closed spectrum (eq. 20); "
                "measure the distance in a run instead."
            )
        end = limit(heads)
        if end.kind not in ("points", "subspace") or end.dimension is None:
            raise NoLimit(f"{verb} needs a limit of kind points or subspace; this one is {end.kind}.")
        if end.in_kernel:
            raise NoLimit(f"{verb} needs |Bᵀx| > 0 at the limit; here the dominant eigenspace lies in ker Bᵀ.")
        B, V, A, _ = layer[0].matrices
        d, m = len(A), end.dimension
        scale = scale_of(A)
        A = A / scale
        size, even = float(np.linalg.norm(A, 2)), (A + A.T) / 2
        vectors = np.linalg.eigh(even)[1][:, ::-1]
        E, W = vectors[:, :m], vectors[:, m:]
        mu = float(np.trace(E.T @ even @ E)) / m
        off = sum(float(np.linalg.norm(matrix @ E - mu * E, 2)) for matrix in (A, A.T))
        if not off <= REDUCING * size:
            raise NoLimit(
                f"the dominant eigenspace does not reduce A = VBᵀ: |AE − μE| + |AᵀE − μE| is {off / size:.2g} ‖A‖. "
                "Eq. 20 needs a symmetric or normal A, because angles to E may grow for a while for any other."
            )
        if m == d:
            raise NoLimit(
                f"nothing lies below the leading eigenvalue of A: tokens are their own limits, and {verb} "
                "has no gap to close."
            )
        below = float(np.linalg.eigvalsh(W.T @ even @ W)[-1])
        gap = mu - below - 2 * d * ROOM * size
        if not gap > 0:
            raise NoLimit(
                f"the gap of A below μ = {mu * scale:.6g} is {gap * scale:.3g}; {verb} needs one above rounding."
            )
        unit = scale_of(B)
        lines = _lines(E, W, B / unit)
        return cls(
            basis=E,
            gap=gap * scale / PAD,
            value=PAD * float(np.linalg.norm(V, 2)),
            beta=layer[0].beta,
            defect=PAD * (off + 4 * d * ROOM * size) * scale,
            B=B,
            _below=lines[0] * unit**2,
            _above=lines[1] * unit**2,
        )

    def angles(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
        """θ of each token: its angle to E, between 0 and π/2."""
        inside = x @ self.basis
        return np.arctan2(np.linalg.norm(x - inside @ self.basis.T, axis=1), np.linalg.norm(inside, axis=1))

    def speeds(self, least: Angles, most: Angles) -> tuple[Angles, Angles]:
        """Bounds of s = |Bᵀx|, below and above, over all tokens x whose angle lies between ``least`` and ``most``."""
        cosines = np.stack([np.cos(least) ** 2, np.cos(most) ** 2])
        # Linear in cos²θ, so that an extreme over an interval of angles is at one of its ends.
        lower = (cosines[..., None] * self._below[:, 0] + (1 - cosines)[..., None] * self._below[:, 1]).min(0).max(-1)
        upper = (cosines[..., None] * self._above[:, 0] + (1 - cosines)[..., None] * self._above[:, 1]).max(0).min(-1)
        room = 8 * ROOM * float(self._above[:, 0].max())
        return np.sqrt(np.maximum(lower - room, 0.0)) / PAD, PAD * np.sqrt(upper + room)

    def rate(
        self, least: Angles, most: Angles, exponent: Angles, *, speeds: tuple[Angles, Angles] | None = None
    ) -> Angles:
        """A bound of θ' over all tokens with angles between ``least`` and ``most`` and Λ up to ``exponent``.

        ``speeds`` are bounds of |Bᵀx|, where the tokens are known better than by their angles; π/2 bounds every angle.
        """
        low, high = self.speeds(least, most) if speeds is None else speeds
        return self.worst(least, most, np.sqrt(2 * np.maximum(exponent, 0.0) / self.beta), low, high)

    def worst(self, least: Angles, most: Angles, error: Angles, low: Angles, high: Angles) -> Angles:
        """The same for tokens with ``low`` ≤ |Bᵀx| ≤ ``high`` and |m_β(x) − u| ≤ error/√|Bᵀx|."""
        least, most = np.clip(least, 0.0, np.pi / 2), np.clip(most, 0.0, np.pi / 2)
        # sin 2θ is concave: its least value over an interval is at an end.
        pull = self.gap * np.maximum(np.minimum(np.sin(2 * least), np.sin(2 * most)) / 2 - 1e-15, 0.0) / PAD
        push = PAD * self.value * error
        with np.errstate(divide="ignore", invalid="ignore"):
            # −pull·z² + push·z in z = s^{−1/2}: a concave parabola over an interval.
            z = np.clip(push / (2 * pull), 1 / np.sqrt(high), 1 / np.sqrt(low))
            z = np.where(np.isnan(z), 1 / np.sqrt(low), z)
            value = push * z - pull * z**2 + self.defect / low
            size = push * z + pull * z**2
        value = value + 1e-14 * size
        # Where |Bᵀx| may vanish, the velocity is no more than ‖V‖ all the same.
        return np.where(value <= self.value, value, self.value)

    def drift(self, most: Angles, exponent: Angles, *, speeds: tuple[Angles, Angles] | None = None) -> Angles:
        """A bound of the speed of x_E/|x_E| on E's unit sphere, for angles up to ``most`` and Λ up to ``exponent``.

        At zero temperature that point rests: it is the token's limit. For m = 1 it can only rest or jump.
        """
        low, _ = self.speeds(np.zeros_like(most), most) if speeds is None else speeds
        with np.errstate(divide="ignore"):
            push = self.value * np.minimum(np.sqrt(2 * np.maximum(exponent, 0.0) / (self.beta * low)), 2.0)
            return PAD * (push + self.defect / low) / np.maximum(np.cos(most), 1e-300)


def _lines(
    E: Float[np.ndarray, "d m"], W: Float[np.ndarray, "d l"], B: Float[np.ndarray, "d d"]
) -> tuple[Float[np.ndarray, "k 2"], Float[np.ndarray, "k 2"]]:
    """Rows (a, b): a cos²θ + b sin²θ bounds |Bᵀx|² from below, and from above."""
    left, right = B.T @ E, B.T @ W
    inner, mixed = left.T @ left, right.T @ left
    values, turned = np.linalg.eigh(right.T @ right)
    mixed = turned.T @ mixed
    size = float(np.linalg.norm(B, 2)) ** 2
    room = 8 * len(B) * ROOM * size
    below, above = [(0.0, 0.0)], [(size + room, size + room)]
    for step in size * np.geomspace(1e-6, 1e3, MULTIPLIERS):
        # C_WW is the matrix of these eigenpairs up to ``room``, so the inverse is taken that much closer to its pole.
        # An error δ of the mixed block: (M + δ)ᵀD(M + δ) ≤ (1 + t)MᵀDM + (1 + 1/t)δᵀDδ, here with t = 1e-7.
        down = mixed.T @ (mixed / (values - values[0] + step - room)[:, None]) * (1 + 1e-7)
        up = mixed.T @ (mixed / (values[-1] - values + step - room)[:, None]) * (1 + 1e-7)
        spent = room + 2e7 * room**2 / (step - room)
        below.append((float(np.linalg.eigvalsh(inner - down)[0]) - spent, float(values[0] - step)))
        above.append((float(np.linalg.eigvalsh(inner + up)[-1]) + spent, float(values[-1] + step)))
    return np.array(below), np.array(above)
