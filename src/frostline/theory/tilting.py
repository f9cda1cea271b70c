"""Tilted clouds: what e^{⟨p,y⟩} makes of the mean and the mass of tokens known by their moments (THEORY eq. 16–17′).

Seen from one query, the logits of a cloud of N tokens have the mean s̄ and the standard deviation σ, and a covariance c
with the values. The cloud then counts as one token: its mean is μ + f·c, its log-mass log N + s̄ + φ. The three laws
differ in f and φ only, that is in where the Gaussian of the logits ends.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.interpolate import PchipInterpolator
from scipy.special import erfcx, log_ndtr

LARGEST_LOG = 300.0
"""Exponents beyond which e^{−e^x} is 0, and up to which e^{2x} is finite."""
LOG_ROOT_TAU = 0.5 * float(np.log(2 * np.pi))
"""log √(2π)."""
STEP = 0.4
"""Step of the quadratures of the participation of a finite cloud, in units of their functions' widths."""
KNOTS = np.linspace(0.0, 1.0, 33)[:-1] ** 2
"""Values of σ/(σ + σ_N) at which the participation of a finite cloud is tabulated; between them it is interpolated."""
WIDEST = 9.0
"""Standard deviations of a Gaussian that quadratures cover."""


@dataclass(frozen=True, eq=False)
class Tilt:
    """Tilt of a cloud, as one law has it; an entry per query.

    ``share`` is f, the part of the covariance c that the mean moves by; ``mass`` is φ, what the tilt adds to the
    log-mass; ``participation`` is Y, the sum of the squared weights of the cloud's tokens among themselves.
    """

    share: Float[np.ndarray, "..."]
    mass: Float[np.ndarray, "..."]
    participation: Float[np.ndarray, "..."]


def freezing(count: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
    """σ_N = √(2 ln N), beyond which N Gaussian logits are ruled by the few largest."""
    return np.asarray(np.sqrt(2 * np.log(np.maximum(count, 1.0))))


def gaussian(sigma: Float[np.ndarray, "..."], count: Float[np.ndarray, "..."] | float) -> Tilt:
    """The law of a cloud without end: f = 1, φ = σ²/2 (eq. 16)."""
    return Tilt(np.ones_like(sigma), sigma**2 / 2, _at_most_one(sigma**2 - np.log(np.maximum(count, 1.0))))


def frozen(sigma: Float[np.ndarray, "..."], count: Float[np.ndarray, "..."] | float) -> Tilt:
    """The law of N independent logits, none of which is far beyond σ_N (eq. 17: the random energy model).

    Its participation is the mean over clouds of N tokens (``finite_participation``): the law for N → ∞ is off by a
    factor of three to six near σ_N, for N = 100 to 10⁶.
    """
    edge = np.broadcast_to(freezing(count), np.shape(sigma))
    cold = sigma > edge
    safe = np.where(cold, sigma, 1.0)
    share = np.where(cold, edge / safe, 1.0)
    mass = np.where(cold, sigma * edge - edge**2 / 2, sigma**2 / 2)
    return Tilt(share, mass, mean_participation(sigma, count))


def cut(
    sigma: Float[np.ndarray, "..."], best: Float[np.ndarray, "..."], count: Float[np.ndarray, "..."] | float
) -> Tilt:
    """The law of a Gaussian cut at ``best``, the largest logit in standard deviations above the mean (eq. 17′)."""
    # h(z−σ) = φ_G/Φ, the pull of the cut; scaled, so that its digits survive where both underflow.
    pull = np.sqrt(2 / np.pi) / erfcx((sigma - best) / np.sqrt(2))
    share = 1 - np.divide(pull, sigma, out=np.zeros_like(pull), where=sigma > 0)
    once, twice = _cut_mass(sigma, best), _cut_mass(2 * sigma, best)
    # Σw² = Σe^{2s}/(Σe^{s})², both sums by the same law.
    return Tilt(share, once, _at_most_one(twice - 2 * once - np.log(np.maximum(count, 1.0))))


def mean_participation(
    sigma: Float[np.ndarray, "..."], count: Float[np.ndarray, "..."] | float
) -> Float[np.ndarray, "..."]:
    """``finite_participation`` of many clouds, interpolated in a table for each count."""
    sigma, count = np.broadcast_arrays(sigma, np.asarray(count, dtype=np.float64))
    values = np.ones(sigma.shape)
    for size in np.unique(count):
        here = (count == size) & (size > 1)
        edge = float(freezing(float(size)))
        values[here] = np.exp(_participation_table(float(size))(sigma[here] / (sigma[here] + edge)))
    return values


@lru_cache(maxsize=4096)
def _participation_table(count: float) -> PchipInterpolator:
    edge = float(freezing(count))
    sizes = [finite_participation(edge * place / (1 - place), count) for place in KNOTS[1:]]
    # Equal weights at σ = 0, one token alone at σ = ∞.
    return PchipInterpolator([*KNOTS, 1.0], np.log([1 / count, *sizes, 1.0]))


def finite_participation(sigma: float, count: float) -> float:
    """Mean of Σw² over N independent Gaussian logits: N∫ t E[e^{2σg − t e^{σg}}] (E e^{−t e^{σg}})^{N−1} dt."""
    edge = float(freezing(count))
    # u = −log t: from where every token has been met to where none has; trapezoids, as both ends vanish smoothly.
    turn = np.log(count) + sigma**2 / 2 if sigma < edge else sigma * edge
    places = np.arange(-(WIDEST * sigma + 4), turn + 3 * sigma + 20, STEP)
    energies = np.arange(-WIDEST, WIDEST, STEP / max(sigma, 1.0))
    density = np.exp(-(energies**2) / 2 - LOG_ROOT_TAU) * (energies[1] - energies[0])
    integral = 0.0
    for place in places:
        raised = np.exp(np.minimum(sigma * energies - place, LARGEST_LOG))
        alone = float(density @ (raised**2 * np.exp(-raised)))
        met = min(float(density @ -np.expm1(-raised)), 1.0)
        integral += STEP * count * alone * (1 - met) ** (count - 1)
    return integral


def _cut_mass(sigma: Float[np.ndarray, "..."], best: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """φ = σ²/2 + log Φ(z−σ) − log Φ(z), also where the two large terms cancel."""
    cold = sigma > best
    warm = sigma**2 / 2 + log_ndtr(np.where(cold, 0.0, best - sigma))
    ended = best * sigma - best**2 / 2 + np.log(erfcx(np.where(cold, sigma - best, 0.0) / np.sqrt(2)) / 2)
    return np.asarray(np.where(cold, ended, warm) - log_ndtr(best))


def _at_most_one(logarithm: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.asarray(np.exp(np.minimum(logarithm, 0.0)))
