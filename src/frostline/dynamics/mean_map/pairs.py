"""The innermost loop: Σ w e^{⟨p,z⟩} and Σ w e^{⟨p,z⟩} z of one query over many sources, in float64 on the CPU.

The exponential is computed here: a power of two put together from bits, times a polynomial. A call to the library's
would keep the loop from being vectorised and make it ten times slower.
"""

from typing import Any, no_type_check

import numpy as np
from numba import types
from numba.extending import intrinsic

from frostline.compiled import njit

LEAST = -700.0
"""The smallest exponent: smaller ones count as this one, 1e-304."""
_ROUNDING = 1.5 * 2.0**52
"""A number to which this is added has its nearest integer in the lowest bits."""
_LOG2_E = 1.4426950408889634
"""log₂ e."""
_LN2 = 0.6931471805599453
"""log 2."""
_DEGREE = 9
"""Degree of the polynomial."""


def _polynomial() -> tuple[float, ...]:
    """Coefficients of e^r on |r| ≤ log 2/2, interpolated at Chebyshev nodes: right to 4e-14."""
    nodes = np.cos((2 * np.arange(_DEGREE + 1) + 1) * np.pi / (2 * _DEGREE + 2)) * _LN2 / 2
    return tuple(float(c) for c in np.polynomial.polynomial.polyfit(nodes, np.exp(nodes), _DEGREE))


_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9 = _polynomial()
FAST = {"reassoc", "contract", "nsz", "nnan", "ninf"}
"""Liberties of the compiler that vectorise the sums."""


@intrinsic
def _bits(_: Any, x: Any) -> Any:
    return types.int64(types.float64), lambda context, builder, signature, args: builder.bitcast(
        args[0], context.get_value_type(types.int64)
    )


@intrinsic
def _number(_: Any, x: Any) -> Any:
    return types.float64(types.int64), lambda context, builder, signature, args: builder.bitcast(
        args[0], context.get_value_type(types.float64)
    )


# Not reassociated: (t + rounding) − rounding must stay.
@njit(fastmath={"contract"})
@no_type_check
def exponential(t):
    """e^t for −700 ≤ t ≤ 700."""
    shifted = t * _LOG2_E + _ROUNDING
    r = t - (shifted - _ROUNDING) * _LN2
    q = _C9
    q = q * r + _C8
    q = q * r + _C7
    q = q * r + _C6
    q = q * r + _C5
    q = q * r + _C4
    q = q * r + _C3
    q = q * r + _C2
    q = q * r + _C1
    q = q * r + _C0
    return _number(_bits(q) + (_bits(shifted) << 52))


@njit(fastmath=FAST)
@no_type_check
def add_three(p, z, w, count, shift, sums):
    """Add (Σ w e, Σ w e z), e = e^{⟨p,z⟩ − shift}, over the first ``count`` sources to ``sums``; three components."""
    a, b, c = p[0], p[1], p[2]
    x, y, v = z[0], z[1], z[2]
    s, s0, s1, s2 = 0.0, 0.0, 0.0, 0.0
    for j in range(count):
        t = a * x[j] + b * y[j] + c * v[j] - shift
        t = LEAST if t < LEAST else t
        e = w[j] * exponential(t)
        s += e
        s0 += e * x[j]
        s1 += e * y[j]
        s2 += e * v[j]
    sums[0] += s
    sums[1] += s0
    sums[2] += s1
    sums[3] += s2


@njit(fastmath=FAST)
@no_type_check
def add_four(p, z, w, count, shift, sums):
    """``add_three`` with four components."""
    a, b, c, d = p[0], p[1], p[2], p[3]
    x, y, v, u = z[0], z[1], z[2], z[3]
    s, s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(count):
        t = a * x[j] + b * y[j] + c * v[j] + d * u[j] - shift
        t = LEAST if t < LEAST else t
        e = w[j] * exponential(t)
        s += e
        s0 += e * x[j]
        s1 += e * y[j]
        s2 += e * v[j]
        s3 += e * u[j]
    sums[0] += s
    sums[1] += s0
    sums[2] += s1
    sums[3] += s2
    sums[4] += s3


@njit(fastmath=FAST)
@no_type_check
def largest_three(p, z, count):
    """The largest ⟨p,z⟩ over the first ``count`` sources; three components."""
    a, b, c = p[0], p[1], p[2]
    x, y, v = z[0], z[1], z[2]
    best = -1.0e308
    for j in range(count):
        t = a * x[j] + b * y[j] + c * v[j]
        best = t if t > best else best
    return best


@njit(fastmath=FAST)
@no_type_check
def largest_four(p, z, count):
    """``largest_three`` with four components."""
    a, b, c, d = p[0], p[1], p[2], p[3]
    x, y, v, u = z[0], z[1], z[2], z[3]
    best = -1.0e308
    for j in range(count):
        t = a * x[j] + b * y[j] + c * v[j] + d * u[j]
        best = t if t > best else best
    return best
