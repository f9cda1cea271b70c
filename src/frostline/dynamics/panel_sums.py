"""The sums of (1) over panels of sources on the circle: panels that cannot matter are left out."""

from typing import no_type_check

import numpy as np
from jaxtyping import Float

from frostline.compiled import interruptible, njit
from frostline.dynamics.label_panels import NODES
from frostline.dynamics.mean_map.pairs import FAST, exponential

LEFT_OUT = 45.0
"""Panels whose whole share is below e^{−45} of the largest one's are left out: less than rounding, however many."""
WIDE = 3.0
"""An arc (rad) above which a panel counts as if every query pointed into it."""


def panel_sums(
    p: Float[np.ndarray, "q 2"],
    y: Float[np.ndarray, "n 2"],
    angles: Float[np.ndarray, "n"],
    weights: Float[np.ndarray, "n"],
    *,
    mirrored: bool = False,
) -> tuple[Float[np.ndarray, "q 2"], Float[np.ndarray, "q"]]:
    """The mean map (THEORY eq. 1) of queries p = βBᵀx, and Λ = −log ∫ e^{−κ|y−u|²/2}dρ (THEORY section 13), κ = |p|.

    Sources come in panels of NODES neighbours with increasing angles. ``mirrored`` adds the image of every source under
    x₁ → −x₁, with the same weight; p₁ ≥ 0 and y₁ ≥ 0 then, and the first component of the mean keeps its relative
    precision as p₁ → 0.
    """
    means, exponents = np.empty((len(p), 2)), np.empty(len(p))
    with np.errstate(divide="ignore"):
        masses = np.log(weights.reshape(-1, NODES).sum(1))
    columns = (np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1]))
    with interruptible():
        _sums(np.ascontiguousarray(p), *columns, angles, weights, masses, mirrored, means, exponents)
    return means, exponents


@njit(fastmath=FAST)
@no_type_check
def _add(a, b, y1, y2, w, first, last, shift, sums):
    s, s1, s2 = 0.0, 0.0, 0.0
    for j in range(first, last):
        t = a * y1[j] + b * y2[j] - shift
        t = -700.0 if t < -700.0 else t
        e = w[j] * exponential(t)
        s += e
        s1 += e * y1[j]
        s2 += e * y2[j]
    sums[0] += s
    sums[1] += s1
    sums[2] += s2


@njit(fastmath=FAST)
@no_type_check
def _add_mirrored(a, b, y1, y2, w, first, last, shift, sums):
    s, s1, s2 = 0.0, 0.0, 0.0
    for j in range(first, last):
        t = a * y1[j] + b * y2[j] - shift
        t = -700.0 if t < -700.0 else t
        e = w[j] * exponential(t)
        q = 2.0 * a * y1[j]
        q = 40.0 if q > 40.0 else q
        image = exponential(-q)
        # 1 − e^{−q}, by its series where the difference would lose digits.
        series = q * (1 - q / 2 * (1 - q / 3 * (1 - q / 4 * (1 - q / 5 * (1 - q / 6 * (1 - q / 7 * (1 - q / 8)))))))
        odd = (1.0 - image) if q > 0.1 else series
        s += e * (1.0 + image)
        s1 += e * y1[j] * odd
        s2 += e * y2[j] * (1.0 + image)
    sums[0] += s
    sums[1] += s1
    sums[2] += s2


@njit()
@no_type_check
def _sums(p, y1, y2, angles, w, masses, mirrored, means, exponents):
    panels = len(masses)
    most, sums = np.empty(panels), np.zeros(3)
    for i in range(len(p)):
        a, b = p[i, 0], p[i, 1]
        kappa = np.sqrt(a * a + b * b)
        best = -np.inf
        for k in range(panels):
            first, last = NODES * k, NODES * k + NODES - 1
            low, high = a * y1[first] + b * y2[first], a * y1[last] + b * y2[last]
            # The query points into the panel, or away from it, where the cross products change sign.
            inside = (a * y2[first] - b * y1[first]) * (a * y2[last] - b * y1[last]) <= 0.0
            wide = angles[last] - angles[first] > WIDE
            top = kappa if wide or (inside and max(low, high) > 0.0) else max(low, high)
            least = -kappa if wide or inside else min(low, high)
            most[k] = top + masses[k]
            best = max(best, least + masses[k])
        likely = np.argmax(most)
        for j in range(NODES * likely, NODES * likely + NODES):
            if w[j] > 0.0:
                best = max(best, a * y1[j] + b * y2[j] + np.log(w[j]))
        sums[:] = 0.0
        k = 0
        while k < panels:
            if most[k] > best - LEFT_OUT:
                end = k
                while end < panels and most[end] > best - LEFT_OUT:
                    end += 1
                if mirrored:
                    _add_mirrored(a, b, y1, y2, w, NODES * k, NODES * end, best, sums)
                else:
                    _add(a, b, y1, y2, w, NODES * k, NODES * end, best, sums)
                k = end
            else:
                k += 1
        means[i, 0], means[i, 1] = sums[1] / sums[0], sums[2] / sums[0]
        exponents[i] = kappa - best - np.log(sums[0])
