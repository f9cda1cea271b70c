"""Shrinking caps: a lower bound of the density near E that holds while tokens near the equator ruin it (eq. 21).

Along a token's path λ = −log ρ (against the uniform density) changes by λ' = div v, and with s = |Bᵀx|

    div v ≤ −(d−1)xᵀAx/s + (d−1)‖V‖|m − u| + (2w/s)·E_πh,     w = λ⁺_max(sym BᵀP_xV)                    (21)

because div v = −(d−1)⟨x,Vm⟩ + β tr(cov_π BᵀP_xV), Vu = Ax/s and tr cov_π ≤ E_π|y−u|² = 2E_πh/κ. One bound for the whole
sphere is ruled by the worst place on it. But tokens near E look at places near E. So let caps {angle to E ≤ φ} shrink
as fast as the fastest token can come in, φ' = −max(−θ'): nothing enters them, and λ in a cap obeys (21) with the worst
place *in the cap*. A query whose y*(x) lies inside a cap with room to spare needs only that cap's λ.
"""

import numpy as np

from frostline.theory.rings import SPILL, Rings, Table

FIRST_CAPS = 48
"""Caps at the start."""
NEWBORN = 0.03
"""A new cap begins as the half-spheres when the outermost one has come this far in (radians)."""
USELESS = 1.0
"""A cap is given up where its λ exceeds this times β·max|Bᵀx|: errors of the mean map would be of order one."""


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
