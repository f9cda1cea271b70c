"""Shrinking caps: a lower bound of the density near E that holds while tokens near the equator ruin it (eq. 21).

Along a token's path λ = −log ρ (against the uniform density) changes by λ' = div v, and with s = |Bᵀx|

    div v ≤ −(d−1)xᵀAx/s + (d−1)‖V‖|m − u| + (2w/s)·E_πh,     w = λ⁺_max(sym BᵀP_xV)                    (21)

because div v = −(d−1)⟨x,Vm⟩ + β tr(cov_π BᵀP_xV), Vu = Ax/s and tr cov_π ≤ E_π|y−u|² = 2E_πh/κ. One bound for the whole
sphere is ruled by the worst place on it. But tokens near E look at places near E. So let caps {angle to E ≤ φ} shrink
as fast as the fastest token can come in, φ' = −max(−θ'): nothing enters them, and λ in a cap obeys (21) with the worst
place *in the cap*. A query whose y*(x) lies inside a cap with room to spare needs only that cap's λ.
"""

from dataclasses import dataclass

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
FIRST_CAPS = 48
"""Caps at the start."""
NEWBORN = 0.03
"""A new cap begins as the half-spheres when the outermost one has come this far in (radians)."""
USELESS = 1.0
"""A cap is given up where its λ exceeds this times β·max|Bᵀx|: errors of the mean map would be of order one."""

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
    spread: Table
    """A bound of 2w/s."""
    shape: Float[np.ndarray, "rings"]
    """A bound of −(d−1)xᵀAx/s."""
    exponent: Float[np.ndarray, "bins"]
    """Λ of the uniform density at the largest κ of the bin."""
    bins: tuple[Float[np.ndarray, "bins"], Float[np.ndarray, "bins"]]
    """The ends of the bins of |Bᵀx|."""
    fastest: float
    """μ − λ_min(sym A), rounded up: (20) from the other side."""

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
        along = cosines[1:] * (mu - 2 * room) + (1 - cosines[1:]) * least  # falls with the angle
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = np.where(along > 0, -(d - 1) * along / outer, -(d - 1) * along / inner)
            spread = PAD * 2 * _stretch(sides, A, V, edges, high, along) / low
        spread = np.where(np.isnan(spread), np.inf, spread)
        if d <= 3:
            spread = np.minimum(spread, _covered_spread(sides, V, edges, bins, low))
        kappa = beta * bins[1:]
        needed = _turned(sides, edges[1:])[:, None] + _blur(np.maximum(beta * bins[:-1], 1e-300), d)[None]
        return cls(
            sides=sides,
            d=d,
            edges=edges,
            low=low,
            high=high,
            needed=np.minimum(needed, np.pi / 2),
            spread=np.where(met, spread, 0.0),
            shape=shape + 1e-12 * np.abs(shape),
            exponent=gibbs.uniform_exponent(kappa, d),
            bins=(bins[:-1], bins[1:]),
            fastest=PAD * (mu - least),
        )

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


def _stretch(
    sides: Sides, A: np.ndarray, V: np.ndarray, edges: np.ndarray, high: Table, along: Float[np.ndarray, "rings"]
) -> Table:
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
    sides: Sides, V: np.ndarray, edges: np.ndarray, bins: Float[np.ndarray, "ends"], low: Table
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
    for k in range(len(bins) - 1):
        inside = np.maximum(least, np.maximum(low[number, k], 0.0)[:, None])
        met = (most >= bins[k]) & (least <= bins[k + 1])
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


class ShrinkingCaps:
    """λ in shrinking caps, advanced by verified steps: ``angles`` (caps,) and ``logs`` (caps,), the sphere first."""

    reason = "growth closed it: no lower bound of the density is left that bounds the error of the mean map"

    def __init__(self, rings: Rings, log_ratio: float):
        self.rings = rings
        first = np.arccos(np.geomspace(1e-2, 0.97, FIRST_CAPS))
        self.angles = np.concatenate([[np.pi / 2], first])
        self.logs = np.full(len(self.angles), max(log_ratio, 0.0))
        self.limit = USELESS * float(rings.kappa[-1])
        self._guess()

    def exponents(self, angles: np.ndarray, logs: np.ndarray) -> Table:
        """Λ of (19) over each ring and bin, from the best cap that holds what its tokens look at."""
        order = np.argsort(angles)
        least = np.minimum.accumulate(logs[order][::-1])[::-1]
        place = np.searchsorted(angles[order], self.rings.needed)
        return least[place] + self.rings.exponent - np.log1p(-SPILL)

    def _guess(self) -> None:
        self.growth, self.speed, self.errors = self._rates(self.angles, self.angles, self.logs)

    def _rates(self, most: np.ndarray, least: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, Table]:
        """Rates of all caps while they shrink from ``most`` to ``least`` and their λ is at most ``logs``."""
        exponent = self.exponents(least, logs)
        errors = self.rings.errors(exponent)
        growth = self.rings.growth(exponent, errors)[self.rings.number(most)]
        speed = self.rings.inward(least, most, errors)
        speed[0] = 0.0
        return growth, speed, errors

    def step(self, share: float) -> float:
        """The step at which no λ that is still of use grows by more than this share."""
        finite = np.isfinite(self.logs)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = share * (self.logs[finite] + 2) / np.maximum(self.growth[finite], 1e-300)
        return float(steps.min()) if finite.any() else np.inf

    @property
    def closed(self) -> bool:
        """No cap has a bound any more."""
        return not np.isfinite(self.logs).any()

    def advance(self, h: float) -> Table:
        """Go on by h and return ``errors`` that hold throughout; caps whose guess cannot be verified are given up."""
        while True:
            logs = self.logs + np.where(np.isfinite(self.logs), 1.3 * h * np.maximum(self.growth, 0.0) + 1e-12, 0.0)
            logs = np.where(logs <= self.limit, logs, np.inf)
            least = np.maximum(self.angles - 1.3 * h * self.speed - 1e-12, 0.0)
            least[0] = np.pi / 2
            growth, speed, errors = self._rates(self.angles, least, logs)
            with np.errstate(invalid="ignore"):
                after = self.logs + h * growth
                good = (after <= logs) & (self.angles - h * speed >= least) | np.isinf(logs)
            if good.all():
                break
            self.logs = np.where(good, self.logs, np.inf)
            self.growth, self.speed, _ = growth, speed, errors
        self.logs = np.where(np.isinf(logs), np.inf, after + 1e-15 * np.abs(after))
        self.angles = self.angles - h * speed - 1e-15 * (speed > 0)
        kept = np.isfinite(self.logs) & (self.angles > 0.01)
        kept[0] = True
        self.angles, self.logs, growth, speed = self.angles[kept], self.logs[kept], growth[kept], speed[kept]
        outermost = float(self.angles[1:].max()) if len(self.angles) > 1 else 0.0
        if np.isfinite(self.logs[0]) and outermost < np.pi / 2 - NEWBORN:
            self.angles, self.logs = np.append(self.angles, np.pi / 2), np.append(self.logs, self.logs[0])
            growth, speed = np.append(growth, growth[0]), np.append(speed, self.rings.sides.value / 2)
        self.growth, self.speed, self.errors = growth, speed, errors
        return errors
