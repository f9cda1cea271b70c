"""Normaliser and mean length of von Mises–Fisher densities, at every concentration κ ≥ 0 and in every d ≥ 2.

They are made of Bessel functions I_ν, which under- and overflow: a series, Hankel's expansion, Debye's or the library's
function is used where it has all its digits.
"""

import numpy as np
from jaxtyping import Float
from scipy import special

FAR = 1e6
"""The κ from which Hankel's expansion is used, where 10ν² is not larger."""
LARGE_ORDER = 50
"""The ν from which Debye's expansion is used."""


def resultant(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """I_{d/2}(κ)/I_{d/2−1}(κ), the length of the mean of a von Mises–Fisher density.

    >>> resultant(np.array([1.0]), 3).round(6)  # coth κ − 1/κ
    array([0.313035])
    """
    kappa = np.asarray(kappa, dtype=np.float64)
    small = kappa < d
    # Gauss's continued fraction, from far out: quick where κ is small against d, which is where Bessel underflows.
    tail, low = np.zeros_like(kappa), np.where(small, kappa, 0.0)
    for k in range(400, -1, -1):
        tail = low / (d + 2 * k + low * tail)
    high = np.where(small, d, kappa)
    return np.where(small, tail, np.exp(_log_bessel(d / 2, high) - _log_bessel(d / 2 - 1, high)))


def log_normaliser(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """log Z(κ), Z = Γ(d/2)(2/κ)^{d/2−1}I_{d/2−1}(κ) the mean of e^{κ⟨u,y⟩} over the sphere (THEORY section 8)."""
    return log_scaled_normaliser(kappa, d) + kappa


def log_scaled_normaliser(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """log Z(κ) − κ, with digits where κ is so large that log Z itself has none to spare."""
    kappa = np.asarray(kappa, dtype=np.float64)
    order = d / 2 - 1
    small = kappa < min(max(1.0, d / 2), np.sqrt(1200 * d))
    high = np.where(small, max(1.0, d / 2), kappa)
    large = special.gammaln(d / 2) + order * np.log(2 / high) + _log_bessel(order, high)
    low = np.where(small, kappa, 0.0)
    return np.where(small, _log_series(low, d) - low, large)


def _log_bessel(order: float, kappa: Float[np.ndarray, "*k"]) -> Float[np.ndarray, "*k"]:
    """log(e^{−κ}I_ν(κ)) for κ not small: Hankel's expansion far out, Debye's for large ν, the library in between."""
    far = kappa > max(FAR, 10 * order**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = _debye(order, kappa) if order >= LARGE_ORDER else np.log(special.ive(order, np.where(far, 1.0, kappa)))
    return np.where(far, _hankel(order, np.where(far, kappa, FAR + 10 * order**2)), near)


def _hankel(order: float, kappa: Float[np.ndarray, "*k"]) -> Float[np.ndarray, "*k"]:
    """−½ log 2πκ + log Σ_k (−1)^k a_k/κ^k; every term is below a twentieth of the one before."""
    term, total = np.ones_like(kappa), np.zeros_like(kappa)
    for k in range(1, 15):
        term = -term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * kappa)
        total = total + term
    return np.log1p(total) - 0.5 * np.log(2 * np.pi * kappa)


def _debye(order: float, kappa: Float[np.ndarray, "*k"]) -> Float[np.ndarray, "*k"]:
    """The uniform expansion in 1/ν, to ν⁻⁵: good to 1e-13 from ν = 50 on, whatever κ (DLMF 10.41.3)."""
    z = kappa / order
    root = np.hypot(1.0, z)
    t = 1 / root
    corrections = sum(np.polyval(row[::-1], t) / order**k for k, row in enumerate(_DEBYE, start=1))
    # ν√(1+z²) − κ without cancellation.
    exponent = order**2 / (order * root + kappa) + order * np.log(z / (1 + root))
    return exponent - 0.5 * np.log(2 * np.pi * order * root) + np.log1p(corrections)


def _debye_polynomials(count: int) -> list[np.ndarray]:
    """U_k(t), k = 1 … count, by their recurrence from U_{k−1}, its derivative and an integral."""
    polynomials, last = [], np.polynomial.Polynomial([1.0])
    t = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(count):
        last = 0.5 * t**2 * (1 - t**2) * last.deriv() + ((1 - 5 * t**2) * last).integ() / 8
        polynomials.append(last.coef)
    return polynomials


_DEBYE = _debye_polynomials(8)
"""The coefficients of U_1 … U_8."""


def _log_series(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """log Σ_k (κ²/4)^k/(k!(d/2)_k), where Bessel functions underflow; all terms are positive, so no digit is lost."""
    term, total = np.ones_like(kappa), np.zeros_like(kappa)
    for k in range(2000):
        term = term * (kappa**2 / 4) / ((k + 1) * (d / 2 + k))
        total = total + term
        if (term <= 1e-17 * total).all():
            break
    return np.log1p(total)
