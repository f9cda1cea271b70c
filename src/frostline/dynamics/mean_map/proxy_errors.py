"""Bounds of the error made by summing a box's proxies in place of its points.

Along one coordinate θ of a face the points y run through a great circle, so that for a query p, |p| = κ, the logit is
⟨p, y⟩ = κ' cos(φ − φ₀) with κ' ≤ κ and tan φ = tan θ/√C, where C − 1 is the sum of the other tan²θ. In the complex
plane its real part is at most that of the real point at Re φ plus κ(cosh Im φ − 1). On the ellipse with foci at the
ends of a box of half width h and half axes h(ρ ± 1/ρ)/2,

    |dφ/dθ| = √C/|(C + 1)/2 + (C − 1)/2·cos 2θ| ≤ L,

with L = 1 where |Re θ| ≤ π/4 and a little more beyond: by the maximum principle it is enough to look at the ellipse
itself. At x + iy on it, Im φ is at most L|y|, and Re φ differs from φ(x) by at most K y²/2, K a bound of |d²φ/dθ²|.
Where the ellipse is high it is not far from the middle of the box: arcs of it are looked at one by one. Chebyshev
interpolation with k nodes of a function bounded there by M is right to 4M ρ^{1−k}/(ρ − 1); in e coordinates that comes
1 + Λ + … + Λ^{e−1} times, Λ ≤ 1 + (2/π) log k (Lebesgue's constant).
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from frostline.dynamics.mean_map.boxes import HALF

RATIOS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 24.0, 40.0, 80.0, 200.0)
"""Values of ρ that are tried: large ones are best for small boxes."""
ARCS = (1.0, 0.95, 0.85, 0.7, 0.5, 0.25, 0.0)
"""Arcs of the ellipse: |x − middle| lies between neighbouring shares of its long half axis."""


class Bounds(NamedTuple):
    """For boxes of every level, every ρ and every arc; the error of the mean map, in units of the box's share of it, is
    at most exp(error + κ·growth) times the largest weight e^{⟨p,y⟩} within ``reach`` of the box's centre, on the worst
    arc. The best ρ is about ``best``/(h√κ)."""

    error: Float[np.ndarray, "orders levels ratios"]
    ratios: Float[np.ndarray, " ratios"]
    best: Float[np.ndarray, " orders"]
    growth: Float[np.ndarray, "levels ratios arcs"]
    reach: Float[np.ndarray, "levels ratios arcs"]


@cache
def bounds(orders: tuple[int, ...], e: int, levels: int) -> Bounds:
    """The bounds for these numbers of nodes in each of ``e`` coordinates."""
    rho = np.array(RATIOS)
    half = HALF * 2.0 ** -np.arange(levels + 1)[:, None]
    long, short = half * (rho + 1 / rho) / 2, half * (rho - 1 / rho) / 2
    over = _over(half, long, short)
    # The denominator stays away from 0 for C ≤ 3.
    fits = over < 1.5
    slope, bend = _derivatives(np.where(fits, over, 0.0), short, e)
    phi = np.where(fits, slope * short, 0.0)
    # The mean is a quotient: an error of its numerator, |y| ≤ √cosh(2 Im φ), and one of its denominator.
    quotient = np.log((1 + np.sqrt(np.cosh(2 * phi))) * 4 / (rho - 1))
    error = [quotient + np.log(_lebesgue(order, e)) - (order - 1) * np.log(rho) for order in orders]
    best = 2 * np.sqrt(np.array(orders, float))
    far, near = np.array(ARCS[:-1]), np.array(ARCS[1:])
    high = np.sqrt(1 - near**2)
    # The other coordinates are anywhere within the box: one after the other, each at a speed of at most 1.
    reach = (e - 1) * half[..., None] + (slope * long)[..., None] * far + (bend * short**2)[..., None] * high**2 / 2
    return Bounds(
        np.where(fits, np.stack(error), np.inf),
        rho,
        best,
        np.cosh(phi[..., None] * high) - 1,
        np.where(fits[..., None], reach, 4.0),
    )


def _lebesgue(order: int, e: int) -> float:
    return sum((1 + 2 / np.pi * np.log(order)) ** i for i in range(e))


def _over(
    half: Float[np.ndarray, "levels 1"],
    long: Float[np.ndarray, "levels ratios"],
    short: Float[np.ndarray, "levels ratios"],
) -> Float[np.ndarray, "levels ratios"]:
    """The largest −Re cos 2θ on the ellipse of a box at the edge, 0 at least; inf if the ellipse is too large."""
    # Up to Re θ = π/2 the box at the edge is the worst.
    small = long <= HALF + half
    long, short = np.where(small, long, 0.0), np.where(small, short, 0.0)
    steps = 2000
    largest = np.zeros(long.shape)
    for t in np.linspace(0, np.pi, steps + 1):
        largest = np.maximum(largest, -np.cos(2 * (HALF - half + long * np.cos(t))) * np.cosh(2 * short * np.sin(t)))
    # Between the values tried it is at most this much larger.
    return np.where(small, largest + np.pi / steps * (long + short) * np.cosh(2 * short), np.inf)


def _derivatives(
    over: Float[np.ndarray, "levels ratios"], short: Float[np.ndarray, "levels ratios"], e: int
) -> tuple[Float[np.ndarray, "levels ratios"], Float[np.ndarray, "levels ratios"]]:
    """L, the largest √C/D with D = (C + 1)/2 − (C − 1)/2·over, and K, the largest √C(C − 1) cosh(2 Im θ)/D²; for
    1 ≤ C ≤ e, since the tangents of the other coordinates are at most 1."""
    C = np.linspace(1, e, 65)[:, None, None]
    D = (C + 1) / 2 - (C - 1) / 2 * over
    # Between the values tried they are at most this much larger.
    more = 1 + (e - 1) / 64
    return (np.sqrt(C) / D).max(0) * more, (np.sqrt(C) * (C - 1) / D**2).max(0) * more**3 * np.cosh(
        2 * np.minimum(short, 9.0)
    )
