"""Projected Gaussians: the law of x = z/|z| for a Gaussian z, and its moments by one-dimensional quadrature.

1/|z|^k is an integral of e^{−u|z|²} over u, and under e^{−u|z|²} a Gaussian stays one: in the axes of its covariance
with the variances λ/(1 + 2uλ) and the mean ν/(1 + 2uλ). So every moment of x is one integral, in d = 3 or 384 alike.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from frostline.errors import BadParameter

STEP = 0.35
"""Step of the quadrature in log u: the trapezoidal rule is good to 1e-9 of |x|² with it."""
LOG_U = np.arange(-46.0, 24.0, STEP)
"""Values of log u, for Gaussians with E|z|² = 1."""
FITTED = 1e-8
"""Moments of a fitted projected Gaussian are those asked for, to this."""
FITS = 2000
"""Most steps of the fit."""


@dataclass(frozen=True, eq=False)
class ProjectedGaussian:
    """The law of z/|z| for z with mean ν and covariance S. Only their proportions matter."""

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, "d d"]

    @cached_property
    def _axes(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"], float]:
        """Eigenvalues of S (none below zero), axes, and √E|z|²."""
        values, axes = np.linalg.eigh((self.spread + self.spread.T) / 2)
        values = np.maximum(values, 0.0)
        return values, axes, float(np.sqrt(values.sum() + self.centre @ self.centre))

    @cached_property
    def _under(self) -> tuple[Float[np.ndarray, "u d"], Float[np.ndarray, "u d"], Float[np.ndarray, " u"]]:
        """For each u, in the axes: mean, variances, and the expectation of e^{−u|z|²}; z in units of √E|z|²."""
        values, axes, size = self._axes
        u = np.exp(LOG_U)[:, None]
        values, centre = values / size**2, axes.T @ self.centre / size
        narrow = 1 / (1 + 2 * u * values)
        mass = np.exp(0.5 * np.log(narrow).sum(1) - (u * narrow * centre**2).sum(1))
        return narrow * centre, narrow * values, mass

    def _weights(self, power: int) -> Float[np.ndarray, " u"]:
        """Quadrature of 1/|z|^power = ∫ u^{power/2} e^{−u|z|²} d log u / Γ(power/2)."""
        gamma = {1: np.sqrt(np.pi), 2: 1.0, 3: np.sqrt(np.pi) / 2}[power]
        return STEP * np.exp(LOG_U * power / 2) / gamma * self._under[2]

    @cached_property
    def mean(self) -> Float[np.ndarray, " d"]:
        """μ = E x."""
        return np.asarray(self._axes[1] @ (self._weights(1) @ self._under[0]))

    @cached_property
    def second(self) -> Float[np.ndarray, "d d"]:
        """E xxᵀ."""
        means, variances, _ = self._under
        weights = self._weights(2)
        inside = np.diag(weights @ variances) + (means * weights[:, None]).T @ means
        return np.asarray(self._axes[1] @ inside @ self._axes[1].T / np.trace(inside))

    @cached_property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Σ = cov x."""
        return self.second - np.outer(self.mean, self.mean)

    @cached_property
    def length(self) -> float:
        """E|z|."""
        means, variances, _ = self._under
        return float(self._weights(1) @ (variances + means**2).sum(1)) * self._axes[2]

    def third(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The third cumulant κ₃(p,p,·) of x, row by row."""
        means, variances, _ = self._under
        weights = self._weights(3)
        inside = p @ self._axes[1]
        along = inside @ means.T
        moment = ((along**2 + inside**2 @ variances.T) * weights) @ means
        moment += 2 * inside * ((along * weights) @ variances)
        mean, second = p @ self.mean, p @ self.second
        pure = (second * p).sum(1)
        lower = (2 * mean**2 - pure)[:, None] * self.mean - 2 * mean[:, None] * second
        return np.asarray(moment @ self._axes[1].T + lower)

    def points(self, normal: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """z = ν + S^{1/2}ξ for standard normal ξ."""
        values, axes, _ = self._axes
        return self.centre + normal @ (axes * np.sqrt(values)).T


def projected_gaussian(mean: Float[np.ndarray, " d"], covariance: Float[np.ndarray, "d d"]) -> ProjectedGaussian:
    """The projected Gaussian with these moments of x, by fixed-point iteration.

    Raises
    ------
    BadParameter
        The iteration does not find it.
    """
    law, off = ProjectedGaussian(mean, covariance), np.inf
    for _ in range(FITS):
        step, stretch = mean - law.mean, covariance - law.covariance
        off = max(float(np.abs(step).max()), float(np.abs(stretch).max()))
        if off <= FITTED:
            return law
        values, axes = np.linalg.eigh(law.spread + stretch)
        centre, spread = law.centre + step, (axes * np.maximum(values, 0.0)) @ axes.T
        size = centre @ centre + np.trace(spread)
        law = ProjectedGaussian(centre / np.sqrt(size), spread / size)
    raise BadParameter(
        f"no Gaussian put on the sphere was found with these moments: the nearest is off by {off:.2g}; are they those "
        "of unit vectors?"
    )
