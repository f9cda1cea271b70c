"""Rings of tokens at about the same angle to E: what (20) and (21) need of the matrices, bounded over each (THEORY 13).

A ring is divided into bins of |Bᵀx|, because both equations depend on it. Everything is rounded outwards.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from frostline.theory import gibbs
from frostline.theory.gibbs import PAD
from frostline.theory.sides import Sides

RINGS = 120
"""Rings of equal angle around E, in which the ingredients of (21) are bounded."""
BINS = 4
"""Bins of |Bᵀx|, in which they are bounded as well."""
CELLS = 2
"""Cells across a ring, in d = 2 and 3."""
AROUND = 600
"""Cells around a ring, in d = 3."""
SPILL = 0.05
"""The share of the von Mises–Fisher mass around y*(x) that may lie outside a cap."""

Table = Float[np.ndarray, "rings bins"]


@dataclass(frozen=True, eq=False)
class Rings:
    """Bounds over all tokens of a ring of angles and a bin of |Bᵀx|: the part of (20) and (21) that does not change."""

    sides: Sides
    d: int
    edges: Float[np.ndarray, "rings_plus_one"]
    low: Table
    """|Bᵀx| is at least this; infinite in a bin that the ring does not meet."""
    high: Table
    needed: Table
    """A cap of this angle holds 1 − SPILL of the von Mises–Fisher mass around y*(x); the whole sphere is π/2."""
    along: Float[np.ndarray, "rings"]
    """xᵀAx is at least this."""
    shape: Float[np.ndarray, "rings"]
    """A bound of −(d−1)xᵀAx/s."""
    exponent: Float[np.ndarray, "bins"]
    """Λ of the uniform density at the largest κ of the bin."""
    bins: tuple[Float[np.ndarray, "bins"], Float[np.ndarray, "bins"]]
    """The ends of the bins of |Bᵀx|."""
    fastest: float
    """μ − λ_min(sym A), rounded up: (20) from the other side."""
    V: Float[np.ndarray, "d d"]

    @classmethod
    def of(cls, sides: Sides, A: Float[np.ndarray, "d d"], V: Float[np.ndarray, "d d"]) -> "Rings":
        """The rings of one head."""
        d, beta = len(A), sides.beta
        edges = np.linspace(0.0, np.pi / 2, RINGS + 1)
        inner, outer = sides.speeds(edges[:-1], edges[1:])
        top = float(outer.max())
        bins = np.geomspace(max(float(inner.min()), 1e-3 * top), top * PAD, BINS + 1)
        bins[0] = min(bins[0], float(inner.min()))
        low, high = np.maximum(inner[:, None], bins[:-1]), np.minimum(outer[:, None], bins[1:])
        met = low <= high
        low, high = np.where(met, low, np.inf), np.where(met, high, np.inf)
        even = (A + A.T) / 2
        spectrum = np.linalg.eigvalsh(even)
        room = 1e-13 * d * float(np.abs(spectrum).max())
        cosines = np.cos(edges) ** 2
        mu, least = float(spectrum[-1]) + room, float(spectrum[0]) - room
        # It falls with the angle; the defect is what E lacks of reducing A.
        along = cosines[1:] * (mu - 2 * room) + (1 - cosines[1:]) * least - sides.defect
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = np.where(along > 0, -(d - 1) * along / outer, -(d - 1) * along / inner)
        kappa = beta * bins[1:]
        needed = _turned(sides, edges[1:])[:, None] + _blur(np.maximum(beta * bins[:-1], 1e-300), d)[None]
        return cls(
            sides=sides,
            d=d,
            edges=edges,
            low=low,
            high=high,
            needed=np.minimum(needed, np.pi / 2),
            along=along,
            V=V,
            shape=shape + 1e-12 * np.abs(shape),
            exponent=gibbs.uniform_exponent(kappa, d),
            bins=(bins[:-1], bins[1:]),
            fastest=PAD * (mu - least),
        )

    @cached_property
    def spread(self) -> Table:
        """A bound of 2w/s."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = PAD * 2 * _stretch(self.sides, self.V, self.edges, self.high, self.along) / self.low
        spread = np.where(np.isnan(spread), np.inf, spread)
        if self.d <= 3:
            spread = np.minimum(spread, _covered_spread(self.sides, self.V, self.edges, self.bins, self.low))
        return np.where(self.met, spread, 0.0)

    @property
    def met(self) -> Bool[np.ndarray, "rings bins"]:
        """Whether a ring has tokens in a bin."""
        return np.isfinite(self.low)

    def number(self, angle: Float[np.ndarray, "*n"]) -> np.ndarray:
        """The number of the ring that an angle is in; of an edge the inner one."""
        return np.clip(np.searchsorted(self.edges, angle) - 1, 0, len(self.edges) - 2)

    def errors(self, exponent: Table) -> Table:
        """C with |m − u| ≤ C/√s over the ring and bin, from a bound Λ of (19); it rises with the ring."""
        begin, _ = self.bins
        error = gibbs.largest_error(exponent, self.sides.beta * begin, self.kappa, self.d) / np.sqrt(self.sides.beta)
        return np.maximum.accumulate(np.where(self.met, PAD * error, 0.0), axis=0)

    def growth(self, exponent: Table, errors: Table) -> Float[np.ndarray, "rings"]:
        """A bound of div v over everything from E up to the ring, (21)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            energy = gibbs.largest_energy(exponent, self.d)
            wide = np.where(self.spread > 0, self.spread * energy, 0.0)
            push = (self.d - 1) * self.sides.value * np.minimum(errors / np.sqrt(self.low), 2.0)
            rate = np.where(self.met, wide + push, -np.inf).max(1) + self.shape
        return np.maximum.accumulate(np.where(np.isnan(rate), np.inf, rate + 1e-12 * np.abs(rate)))

    def inward(
        self, least: Float[np.ndarray, "caps"], most: Float[np.ndarray, "caps"], errors: Table
    ) -> Float[np.ndarray, "caps"]:
        """A bound of −θ' over all tokens with angles between ``least`` and ``most``."""
        low, _ = self.sides.speeds(least, most)
        number = self.number(most)
        slope = np.maximum(np.sin(2 * least), np.sin(2 * most)) / 2
        slope = np.where((least < np.pi / 4) & (most > np.pi / 4), 0.5, slope)
        with np.errstate(divide="ignore"):
            push = self.sides.value * np.minimum(np.max(errors[number] / np.sqrt(self._at_least(low)), axis=1), 2.0)
            rate = (self.fastest * slope + self.sides.defect) / low + push
        return PAD * np.minimum(rate, self.sides.value)

    def outward(
        self, least: Float[np.ndarray, "n"], most: Float[np.ndarray, "n"], errors: Table
    ) -> Float[np.ndarray, "n"]:
        """A bound of θ', (20), over all tokens with angles between ``least`` and ``most``."""
        low, high = (bound[:, None] for bound in self.sides.speeds(least, most))
        begin, end = self.bins
        high = np.minimum(high, end[-1])
        below, above = np.maximum(low, begin), np.minimum(high, end)
        met = below <= above
        below, above = np.where(met, below, np.inf), np.where(met, above, np.inf)
        value = self.sides.worst(least[:, None], most[:, None], errors[self.number(most)], below, above)
        return np.where(met, value, -np.inf).max(1)

    @property
    def kappa(self) -> Float[np.ndarray, "bins"]:
        """The largest κ of each bin."""
        return self.sides.beta * self.bins[1]

    def drift(self, most: Float[np.ndarray, "n"], errors: Table) -> Float[np.ndarray, "n"]:
        """A bound of the speed of x_E/|x_E| over all tokens with angles up to ``most``."""
        low, _ = self.sides.speeds(np.zeros_like(most), most)
        with np.errstate(divide="ignore"):
            error = np.minimum(np.max(errors[self.number(most)] / np.sqrt(self._at_least(low)), axis=1), 2.0)
            return PAD * (self.sides.value * error + self.sides.defect / low) / np.maximum(np.cos(most), 1e-300)

    def _at_least(self, low: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n bins"]:
        begin, end = self.bins
        return np.where(end < low[:, None], np.inf, np.maximum(begin, low[:, None]))


def _stretch(sides: Sides, V: np.ndarray, edges: np.ndarray, high: Table, along: Float[np.ndarray, "rings"]) -> Table:
    """A bound of w = λ⁺_max(sym BᵀP_xV) over each ring and bin.

    BᵀP_xV = BᵀV − (Bᵀx)(Vᵀx)ᵀ, and −sym abᵀ has the largest eigenvalue (|a||b| − ⟨a,b⟩)/2, where ⟨Bᵀx,Vᵀx⟩ = xᵀAx. Near
    a line E the projector differs from the one at E by at most sin θ.
    """
    B = sides.B
    room = 1e-13 * len(B) * float(np.linalg.norm(B, 2)) * sides.value

    def largest(matrix: np.ndarray) -> float:
        return float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]) + room

    finite = np.where(np.isfinite(high), high, 0.0)
    far = largest(B.T @ V) + np.maximum(finite * sides.value - along[:, None], 0.0) / 2
    if sides.basis.shape[1] > 1:
        return np.maximum(far, 0.0)
    e = sides.basis[:, 0]
    near = largest(B.T @ V - np.outer(B.T @ e, V.T @ e)) + float(np.linalg.norm(B, 2)) * sides.value * np.sin(edges[1:])
    return np.maximum(np.minimum(far, near[:, None]), 0.0)


def _covered_spread(
    sides: Sides, V: np.ndarray, edges: np.ndarray, bins: tuple[np.ndarray, np.ndarray], low: Table
) -> Table:
    """A bound of 2w/s over each ring and bin, from cells that cover the sphere in d = 2 and 3.

    A cell holds what lies within the angle r of its centre, where |Bᵀx| and w differ by at most ‖B‖r and ‖B‖‖V‖r.
    """
    d, e = len(sides.B), sides.basis[:, 0]
    if sides.basis.shape[1] > 1:
        # The cells are laid out around a line: the one that E leaves out, at the angle π/2 − θ.
        e = np.linalg.svd(sides.basis, full_matrices=True)[0][:, -1]
    frame = np.linalg.svd(e[None])[2][1:]
    step = edges[1] / CELLS
    angle = (np.arange(CELLS * (len(edges) - 1)) + 0.5) * step
    turns = 2 if d == 2 else AROUND
    turn = 2 * np.pi * np.arange(turns) / turns
    around = np.stack([np.cos(turn), np.sin(turn)], 1)[:, : d - 1] @ frame
    x = np.cos(angle)[:, None, None] * e + np.sin(angle)[:, None, None] * around
    reach = PAD * (step / 2 + (d - 2) * np.pi / turns * np.sin(angle + step / 2))[:, None]
    key, value = x @ sides.B, x @ V
    s, size = np.linalg.norm(key, axis=-1), float(np.linalg.norm(sides.B, 2))
    form = sides.B.T @ V - key[..., :, None] * value[..., None, :]
    w = np.maximum(np.linalg.eigvalsh((form + form.mT) / 2)[..., -1], 0.0) + PAD * size * sides.value * (reach + 1e-13)
    number = np.arange(len(angle)) // CELLS
    number = number if sides.basis.shape[1] == 1 else len(edges) - 2 - number
    least, most = s - size * (reach + 1e-13), s + size * (reach + 1e-13)
    table = np.zeros(low.shape)
    for k, (begin, end) in enumerate(zip(*bins, strict=True)):
        inside = np.maximum(least, np.maximum(low[number, k], 0.0)[:, None])
        met = (most >= begin) & (least <= end)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = np.where(met, PAD * 2 * w / inside, 0.0).max(1)
        np.maximum.at(table[:, k], number, np.where(np.isnan(worst), np.inf, worst))
    return table


def _turned(sides: Sides, angle: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """The largest angle between y*(x) and E over all tokens x at most at this angle to E."""
    E = sides.basis
    W = np.linalg.svd(E, full_matrices=True)[0][:, E.shape[1] :]
    down, across = sides.B.T @ E, sides.B.T @ W
    size = [float(np.linalg.norm(block, 2)) for block in (W.T @ down, W.T @ across, E.T @ across)]
    room = 1e-13 * len(E) * float(np.linalg.norm(sides.B, 2))
    kept = float(np.linalg.svd(E.T @ down, compute_uv=False)[-1]) - room
    outside = np.cos(angle) * (size[0] + room) + np.sin(angle) * (size[1] + room)
    inside = np.cos(angle) * kept - np.sin(angle) * (size[2] + room)
    return np.where(inside > 0, np.arctan2(outside, np.maximum(inside, 0.0)), np.pi / 2)


def _blur(kappa: Float[np.ndarray, "n"], d: int) -> Float[np.ndarray, "n"]:
    """The angle beyond which at most the share SPILL of a von Mises–Fisher density lies, for κ and everything above.

    t = 1 − cos has the density t^{(d−3)/2}e^{−κt} times (2−t)^{(d−3)/2}: a falling factor from d = 3 on, so that the
    tail is below that of Γ((d−1)/2). In d = 2 the factor lies between 1/√2 and 1 up to t = 1; little mass is beyond.
    """
    share = SPILL if d >= 3 else SPILL / (2 * np.sqrt(2))
    with np.errstate(divide="ignore"):
        t = PAD * special.gammainccinv((d - 1) / 2, share) / kappa
    angle = 2 * np.arcsin(np.sqrt(np.minimum(t / 2, 1.0)))
    if d == 2:
        beyond = np.sqrt(2) * np.exp(-kappa) * np.sqrt(np.pi * kappa) / 2
        # The share is relative to a mass of at least P(½, 2κ).
        angle = np.where(
            (beyond <= SPILL / 4) & (special.gammainc(0.5, 2 * kappa) >= 0.999) & (t < 1), angle, np.pi / 2
        )
    return np.minimum(angle, np.pi / 2)
