"""How wrong it is to take a box's proxies for its points, bounded.

Along one coordinate θ of a face the points y run through a great circle, so that for a query p, |p| = κ, the logit is
⟨p, y⟩ = κ' cos(φ − φ₀) with κ' ≤ κ and tan φ = tan θ/√C, where C − 1 is the sum of the other tan²θ. In the complex
plane its real part is at most that of the real point at Re φ plus κ(cosh Im φ − 1). On the ellipse with foci at the
ends of a box of half width h and half axes h(ρ ± 1/ρ)/2,

    |dφ/dθ| = √C/|(C + 1)/2 + (C − 1)/2·cos 2θ| ≤ L,

with L = 1 where |Re θ| ≤ π/4 and a little more beyond; so Im φ and the distance of Re φ from the box are at most L
times the half axes. Chebyshev interpolation with k nodes of a function bounded there by M is right to
4M ρ^{1−k}/(ρ − 1); in e coordinates that comes 1 + Λ + … + Λ^{e−1} times, Λ ≤ 1 + (2/π) log k (Lebesgue's constant).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from frostline.dynamics.mean_map.boxes import HALF

RATIOS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 24.0, 40.0, 80.0, 200.0)
"""Values of ρ that are tried: small boxes take the large ones."""


class Bounds(NamedTuple):
    """For boxes of every level and every ρ; the error of the mean map, in units of the box's share of it, is at most
    exp(error + κ·growth) times the largest weight e^{⟨p,y⟩} within ``reach`` of the box. The best ρ is
    about ``best``/(h√κ)."""

    error: Float[np.ndarray, "orders levels ratios"]
    ratios: Float[np.ndarray, " ratios"]
    best: Float[np.ndarray, " orders"]
    growth: Float[np.ndarray, "levels ratios"]
    reach: Float[np.ndarray, "levels ratios"]


def bounds(orders: Sequence[int], e: int, levels: int) -> Bounds:
    """For so many nodes in each of ``e`` coordinates."""
    rho = np.array(RATIOS)
    half = HALF * 2.0 ** -np.arange(levels + 1)[:, None]
    long, short = half * (rho + 1 / rho) / 2, half * (rho - 1 / rho) / 2
    # Beyond the face's edge cos 2θ may be negative: −sin(2·how far), times cosh(2 Im θ).
    over = np.where(long < HALF, np.sin(2 * np.minimum(long, HALF)) * np.cosh(2 * np.minimum(short, 1.0)), np.inf)
    fits = over < 0.9
    slope = _slope(np.where(fits, over, 0.0), e)
    phi = np.where(fits, slope * short, 0.0)
    # The mean is a quotient: an error of its numerator, |y| ≤ √cosh(2 Im φ), and one of its denominator.
    quotient = np.log((1 + np.sqrt(np.cosh(2 * phi))) * 4 / (rho - 1))
    error = [quotient + np.log(_lebesgue(order, e)) - (order - 1) * np.log(rho) for order in orders]
    best = 2 * np.sqrt(np.array(orders, float))
    return Bounds(np.where(fits, np.stack(error), np.inf), rho, best, np.cosh(phi) - 1, slope * long)


def _lebesgue(order: int, e: int) -> float:
    return sum((1 + 2 / np.pi * np.log(order)) ** i for i in range(e))


def _slope(over: Float[np.ndarray, "levels ratios"], e: int) -> Float[np.ndarray, "levels ratios"]:
    """L: the largest √C/((C + 1)/2 − (C − 1)/2·over) for 1 ≤ C ≤ e, the tangents of the other coordinates being ≤ 1."""
    C = np.linspace(1, e, 65)[:, None, None]
    largest = (np.sqrt(C) / ((C + 1) / 2 - (C - 1) / 2 * over)).max(0)
    # Between the values tried it is at most this much larger.
    return largest * (1 + (e - 1) / 64)
