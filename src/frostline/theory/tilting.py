"""Tilted clouds: what e^{⟨p,y⟩} makes of the mean and the mass of tokens known by their moments (THEORY eq. 16–17′).

Seen from one query, the logits of a cloud of N tokens have the mean s̄ and the standard deviation σ, and a covariance c
with the values. The cloud then counts as one token: its mean is μ + f·c, its log-mass log N + s̄ + φ. The laws differ in
f and φ only, that is in where the Gaussian of the logits ends.
"""

from dataclasses import dataclass, replace
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
LOWEST_PLACE = -100.0
"""Cut Gaussians whose cut lies this many deviations below their mean are exponential to four digits."""
BISECTIONS = 60
"""Halvings of an interval of some hundred, down to rounding."""
WIDEST = 9.0
"""Standard deviations of a Gaussian that quadratures cover."""


@dataclass(frozen=True, eq=False)
class Tilt:
    """Tilt of a cloud, as one law has it; an entry per query.

    ``share`` is f, the part of the covariance c that the mean moves by; ``mass`` is φ, what the tilt adds to the
    log-mass; ``participation`` is Y, the sum of the squared weights of the cloud's tokens among themselves; ``skew`` is
    the skewness κ₃/σ³ of the logits that the law itself assumes.
    """

    share: Float[np.ndarray, "..."]
    mass: Float[np.ndarray, "..."]
    participation: Float[np.ndarray, "..."]
    skew: Float[np.ndarray, "..."] | float = 0.0


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
    """The law of a Gaussian cut at ``best``, the largest logit in standard deviations above the mean (eq. 17′).

    Mean and deviation are those of the Gaussian before the cut: of a population, or of all tokens with the best.
    """
    return _ended(sigma, best, np.ones_like(best), best, count)


def matched(
    sigma: Float[np.ndarray, "..."], best: Float[np.ndarray, "..."], count: Float[np.ndarray, "..."] | float
) -> Tilt:
    """The law of a cut Gaussian that has the mean and deviation of the tokens below the cut themselves (eq. 17″).

    ``sigma`` and ``best`` are of the tokens without the best. As σ → 0 it is exact to second order, whatever the cloud;
    ``cut`` is not. A best logit less than one deviation above the mean is that of no cut Gaussian: the deviation is
    then taken to be smaller.
    """
    height = np.maximum(best, _height(np.asarray(LOWEST_PLACE)))
    place = _place(height)
    smaller = best / height
    tilt = _ended(smaller * sigma, height, 1 / np.sqrt(_variance(place)), place, count)
    return replace(tilt, share=smaller**2 * tilt.share)


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


def _ended(
    sigma: Float[np.ndarray, "..."],
    best: Float[np.ndarray, "..."],
    width: Float[np.ndarray, "..."],
    place: Float[np.ndarray, "..."],
    count: Float[np.ndarray, "..."] | float,
) -> Tilt:
    """A Gaussian of the deviation width·σ, cut ``place`` of its deviations above its mean and z·σ above the cloud's."""
    # The tilted Gaussian's mean distance to the cut, in deviations: h(α−s) − (s−α), scaled against underflow.
    beyond = width * sigma - place
    distance = _pull(-beyond) - beyond
    share = np.divide(best - width * distance, sigma, out=np.ones_like(distance), where=sigma > 0)
    once = best * sigma + _mass_below(width * sigma, place)
    twice = 2 * best * sigma + _mass_below(2 * width * sigma, place)
    pull = _pull(place)
    skew = -pull * (2 * pull**2 + 3 * place * pull + place**2 - 1) * width**3
    # Σw² = Σe^{2s}/(Σe^{s})², both sums by the same law.
    return Tilt(share, once, _at_most_one(twice - 2 * once - np.log(np.maximum(count, 1.0))), skew)


def _pull(place: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """h = φ_G/Φ at α: how far the mean of a Gaussian cut at α lies below that of the whole."""
    return np.asarray(np.sqrt(2 / np.pi) / erfcx(-place / np.sqrt(2)))


def _variance(place: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The variance of a standard Gaussian cut at α: 1 − αh − h²."""
    return np.asarray(1 - place * _pull(place) - _pull(place) ** 2)


def _height(place: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The height of the cut over the mean of what is below it, in its deviations: from 1 (α → −∞) up to α."""
    return np.asarray((place + _pull(place)) / np.sqrt(_variance(place)))


def _place(height: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The inverse of ``_height``, which increases, by bisection."""
    low, high = np.full(np.shape(height), LOWEST_PLACE), np.maximum(height, 0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        less = _height(middle) < height
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray((low + high) / 2)


def _mass_below(sigma: Float[np.ndarray, "..."], place: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """log E[e^{σ(g−α)} | g < α] = σ²/2 − σα + log Φ(α−σ) − log Φ(α), also where the large terms cancel."""
    cold = sigma > place
    warm = sigma**2 / 2 - sigma * place + log_ndtr(np.where(cold, 0.0, place - sigma))
    ended = np.log(erfcx(np.where(cold, sigma - place, 0.0) / np.sqrt(2)) / 2) - place**2 / 2
    return np.asarray(np.where(cold, ended, warm) - log_ndtr(place))


def _at_most_one(logarithm: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.asarray(np.exp(np.minimum(logarithm, 0.0)))
