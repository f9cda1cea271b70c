"""The mean map of a density that is known from below: how far it can be from y*(x), and how wide it can be (eq. 19).

Let π be the weights of (1) at x, u = y*(x), κ = β|Bᵀx|, h(y) = κ|y−u|²/2, so that π ∝ e^{−h}ρ, and
Λ = −log ∫ e^{−h} dρ. Then

    |m_β(x) − u|² ≤ E_π|y−u|² = 2E_πh/κ ≤ 2Λ/κ                                                     (19)

Where Λ comes from a multiple of the uniform density that ρ lies above, more is known:

    E_πh ≤ R + W(e^{Λ−1−R}),     |m_β(x) − u| ≤ √(2H/κ)·(1 − 1/(2H)) + a,     H = ½ + W(e^{Λ−1/2}/2)        (19′)

with a = 1 − A_d(κ) and R = κa of the von Mises–Fisher density, and W the function of Lambert. Both are of the form
(N + ∫f dν)/(Z + ∫e^{−h} dν), largest when the rest ν of ρ is one atom; they are reached up to the last digit of N.
"""

import numpy as np
from jaxtyping import Float

from frostline.theory.von_mises_fisher import log_scaled_normaliser

Numbers = Float[np.ndarray, "*#n"]

NEWTON = 8
"""Steps of Newton's method for W; from the second on every iterate is an upper bound."""
PAD = 1 + 1e-12
"""Relative room for the rounding of a few dozen operations."""
BESSEL = 1e-11
"""Room for the rounding of log Z (measured: 1e-13)."""


def lambert_of_exp(y: Numbers) -> Numbers:
    """W(e^y), rounded up: the w with w + log w = y, where e^y would overflow.

    >>> lambert_of_exp(np.array([1.0])).round(9)
    array([1.])
    """
    y = np.asarray(y, dtype=np.float64)
    v = np.where(y > 1, np.log(np.maximum(y, 1.0)), y)
    # e^v + v − y is convex and rises: Newton's iterates come down to its root from above.
    with np.errstate(invalid="ignore"):
        for _ in range(NEWTON):
            size = np.exp(v)
            v = v - (size + v - y) / (size + 1)
        value = PAD * np.exp(v + 1e-15 * np.abs(v))
    return np.where(np.isnan(value), np.inf, np.where(np.isposinf(y), np.inf, value))


def uniform_exponent(kappa: Numbers, d: int) -> Numbers:
    """log(1/Z̃(κ)), Z̃ = e^{−κ}Z: the Λ of the uniform density, rounded up; it rises with κ."""
    return np.maximum(-log_scaled_normaliser(kappa, d), 0.0) * PAD + BESSEL


def mean_energy(d: int) -> float:
    """A bound of R = κ(1 − A_d(κ)), E_πh for the uniform density, for every κ.

    The law of t = 1 − ⟨u,y⟩ is that of Γ((d−1)/2) at the rate κ times (2−t)^{(d−3)/2}, which falls from d = 3 on and so
    lowers the mean (d−1)/2κ. In d = 2 the largest value is 0.6105, at κ = 1.7.
    """
    return (d - 1) / 2 if d >= 3 else 0.611


def largest_energy(exponent: Numbers, d: int) -> Numbers:
    """A bound of E_πh, (19′), for every ρ whose Λ comes from a multiple of the uniform density."""
    mean = mean_energy(d)
    return np.minimum(PAD * (mean + lambert_of_exp(exponent - 1 - mean)), exponent)


def largest_error(exponent: Numbers, low: Numbers, high: Numbers, d: int) -> Numbers:
    """E with |m_β(x) − y*(x)| ≤ E/√κ, (19′), for ``low`` ≤ κ ≤ ``high`` and every ρ with Λ up to this; rises with Λ."""
    with np.errstate(invalid="ignore", divide="ignore"):
        height = 0.5 + lambert_of_exp(exponent - 0.5 - np.log(2.0))
        atom = np.sqrt(2 * height) * (1 - 0.5 / height)
        # a√κ, by a ≤ 1 and a ≤ R/κ.
        uniform = np.sqrt(high) * np.minimum(1.0, mean_energy(d) / low)
        sharp = np.where(np.isnan(atom), np.inf, atom) + uniform
    return PAD * np.minimum(np.minimum(sharp, np.sqrt(2 * exponent)), 2 * np.sqrt(high))
