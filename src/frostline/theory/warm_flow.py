"""warm_limit: the end of the flow ẋ = P_x(a + Mx) that a warm cloud makes of (2), a = V(μ + βΣg), M = βVΣBᵀ.

Rest points solve (λ − M)x = a with |x| = 1 (THEORY eq. 22). For symmetric M they are critical points of ½xᵀMx + aᵀx on
the sphere, one for each root of the secular equation |(λ − M)⁻¹a| = 1; for others λ is a real eigenvalue of a matrix of
twice the size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import brentq

from frostline.arrays import as_float64
from frostline.attention import Attention, Heads, as_one_layer
from frostline.errors import BadParameter
from frostline.results import Result
from frostline.theory.limits import Limit, limit
from frostline.theory.tilting import freezing
from frostline.theory.token_cloud import Cloud

KINDS = {
    "point": "one point attracts",
    "points": "several points attract, each its own tokens",
    "subspace": "every point of a small sphere attracts",
    "rotation": "no point attracts: tokens keep moving",
    "limit": "the cloud has no mean, so the flow is that of zero temperature with VΣBᵀ in place of VBᵀ",
}
"""Every kind of warm limit and its meaning."""
NO_PUSH = 1e-12
"""|a| up to this, in units of ‖M‖, is zero: rounding of the mean of a symmetric cloud."""
SYMMETRIC = 1e-12
"""M counts as symmetric when it differs from its transpose by this, in units of ‖M‖."""
SAME = 1e-10
"""Eigenvalues of a symmetric M this close, in units of ‖M‖ + |a|, are one; a's part along them below it is none."""
REAL = 1e-6
"""Imaginary parts of roots up to this, in units of ‖M‖ + |a|: a double root is off by √ε."""
RESTS = 1e-9
"""Newton's method ends at rest points that move slower than this, in units of ‖M‖ + |a|."""
APART = 1e-6
"""Rest points closer than this are one."""
NEWTON = 50
"""Most steps of Newton's method."""


class Push(NamedTuple):
    """The flow ẋ = P_x(a + Mx)."""

    a: Float[np.ndarray, " d"]
    M: Float[np.ndarray, "d d"]

    @property
    def scale(self) -> float:
        """‖M‖ + |a|: no token moves faster."""
        return float(np.linalg.norm(self.M, 2) + np.linalg.norm(self.a))

    def velocity(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """ẋ, row by row."""
        push = self.a + x @ self.M.T
        return push - (x * push).sum(1, keepdims=True) * x


@dataclass(frozen=True, eq=False, repr=False)
class WarmLimit(Result):
    """Where tokens go in a warm cloud whose moments stay as they are.

    Attributes
    ----------
    kind : str
        point | points | subspace | rotation | limit; ``describe()`` says its meaning.
    points : ndarray
        All rest points, (r, d), attractors first; of a small sphere of them its poles.
    values : ndarray
        λ at each, (r,): the rate at which the push holds a token there.
    rates : ndarray
        The rate at which tokens approach each, (r,): the slowest direction; negative where one leads away.
    stable : ndarray
        Whether each attracts, (r,). Points of a small sphere attract from outside of it (rate 0 along it).
    rate : float or None
        The least rate of the attractors; None where none attracts.
    sigma : ndarray
        The standard deviation of the cloud's logits at each, (r,): above ``freezing`` the cloud is not warm there.
    freezing : float
        σ_N of the cloud.
    end : Limit or None
        Without a mean: the limit of a head with VΣBᵀ in place of VBᵀ.

    Examples
    --------
    >>> head = Attention.from_matrices(np.eye(2), np.eye(2), beta=2.0)
    >>> cloud = Cloud(100, mean=[0.0, 0.2], covariance=np.diag([0.6, 0.3]))
    >>> warm_limit(head, cloud)
    WarmLimit(kind='points', 2 of 4 rest points attract, rate=0.533333)
    """

    kind: str
    points: Float[np.ndarray, "r d"]
    values: Float[np.ndarray, " r"]
    rates: Float[np.ndarray, " r"]
    stable: Bool[np.ndarray, " r"]
    rate: float | None
    sigma: Float[np.ndarray, " r"]
    freezing: float
    end: Limit | None

    def describe(self) -> str:
        """The kind, how many points attract, how fast, and whether the cloud is warm there."""
        words = f"{KINDS[self.kind][0].upper()}{KINDS[self.kind][1:]}."
        if self.end is not None:
            return f"{words} {self.end.describe()}"
        words += f" {int(self.stable.sum())} of {len(self.points)} rest points attract"
        words += "." if self.rate is None else f", the slowest at the rate {self.rate:.4g}."
        if self.stable.any() and not float(self.sigma[self.stable].max()) <= self.freezing:
            words += (
                f" But there σ is up to {self.sigma[self.stable].max():.3g}, above σ_N = {self.freezing:.3g}: tokens "
                "that arrive see a frozen cloud, not this flow."
            )
        return words

    def headline(self) -> str:
        """Kind, attractors and rate."""
        rate = "" if self.rate is None else f", rate={self.rate:.6g}"
        return f"kind={self.kind!r}, {int(self.stable.sum())} of {len(self.points)} rest points attract{rate}"


def warm_limit(head: Heads, cloud: Cloud) -> WarmLimit:
    """Where tokens go in a warm cloud whose mean and covariance stay as they are (THEORY eq. 22).

    Parameters
    ----------
    head : Attention or list
        One head.
    cloud : Cloud
        The tokens that are attended to, by their moments; without atoms.

    Returns
    -------
    WarmLimit
        All rest points, which of them attract, and how fast.

    Raises
    ------
    BadParameter
        There are several heads, or the cloud has atoms.
    BadArray
        Head and cloud differ in dimension.

    Examples
    --------
    >>> head = Attention.from_matrices(np.eye(2), np.eye(2), beta=2.0)
    >>> warm_limit(head, Cloud(100, mean=[0.0, 0.9], covariance=0.05 * np.eye(2))).points[0] + 0.0
    array([0., 1.])
    """
    push = warm_push(head, cloud, "warm_limit")
    one = as_one_layer(head, "warm_limit")[0]
    edge = float(freezing(float(cloud.count)))
    if not np.linalg.norm(push.a) > NO_PUSH * push.scale:
        return _without_mean(one, cloud, push, edge)
    symmetric = np.abs(push.M - push.M.T).max() <= SYMMETRIC * push.scale
    points = _secular(push) if symmetric else _by_eigenvalues(push)
    values = np.einsum("nd,nd->n", points, push.a + points @ push.M.T)
    rates = np.array([_rate(push, x, value) for x, value in zip(points, values, strict=True)])
    # Along a small sphere of rest points nothing moves.
    still = np.abs(rates) <= REAL * push.scale
    sphere = bool(still.any()) and len(points) > 2
    highest = values.max(initial=-np.inf)
    stable = (rates > 0) & ~still | still & sphere & (values >= highest - REAL * push.scale)
    order = np.lexsort((-values, ~stable))
    kind = "rotation" if not stable.any() else "point" if stable.sum() == 1 else "points"
    return WarmLimit(
        kind="subspace" if (stable & still).any() else kind,
        points=points[order],
        values=values[order],
        rates=rates[order],
        stable=stable[order],
        rate=float(rates[stable].min()) if stable.any() else None,
        sigma=np.sqrt(cloud.logits(one, points).variance)[order],
        freezing=edge,
        end=None,
    )


def warm_push(head: Heads, cloud: Cloud, verb: str) -> Push:
    """a and M of one head and a cloud without atoms; others are refused."""
    layer = as_one_layer(head, verb)
    if len(layer) > 1:
        raise BadParameter(f"{verb} takes one head, this layer has {len(layer)}; call it head by head.")
    if not isinstance(cloud, Cloud):
        raise BadParameter(f"cloud is {type(cloud).__name__}; make one with Cloud.of(tokens) or Cloud(count, …).")
    if len(cloud.atoms):
        raise BadParameter(f"the cloud has {len(cloud.atoms)} atoms; {verb} is about a cloud that leads, without them.")
    V = layer[0].matrices.V
    spread, shift = cloud.tilted_by(layer[0])
    return Push(V @ (cloud.mean + layer[0].beta * shift), layer[0].beta * V @ spread)


def _without_mean(head: Attention, cloud: Cloud, push: Push, edge: float) -> WarmLimit:
    """The limit of VΣBᵀ, whose dominant vectors are the rest points that attract."""
    _, V, _, _ = head.matrices
    spread, _ = cloud.tilted_by(head)
    end = limit(Attention.from_matrices(spread.T, V, head.beta))
    attracts = end.kind in ("points", "subspace")
    basis = as_float64(end.basis) if attracts else np.zeros((0, head.dimension))
    points = np.concatenate([basis, -basis])
    count = len(points)
    gap = None if end.gap is None else head.beta * end.gap
    return WarmLimit(
        kind="limit",
        points=points,
        values=np.full(count, head.beta * float(np.real(end.leading or 0.0))),
        rates=np.full(count, np.nan if gap is None else gap),
        stable=np.full(count, True),
        rate=gap if attracts else None,
        sigma=np.sqrt(cloud.logits(head, points).variance) if count else np.zeros(0),
        freezing=edge,
        end=end,
    )


def _rate(push: Push, x: Float[np.ndarray, " d"], value: float) -> float:
    """The slowest rate of approach: λ − the largest real part of M on the tangent space."""
    frame = np.linalg.svd(x[None])[2][1:]
    return float(value - np.linalg.eigvals(frame @ push.M @ frame.T).real.max())


def _secular(push: Push) -> Float[np.ndarray, "r d"]:
    """All rest points for symmetric M: roots of Σ aᵢ²/(λ − λᵢ)² = 1 beside and between the poles, and the hard case."""
    values, axes = np.linalg.eigh((push.M + push.M.T) / 2)
    along = axes.T @ push.a
    tiny = SAME * push.scale
    group = np.cumsum(np.diff(values, prepend=values[0]) > tiny)
    poles = np.array([values[group == g].mean() for g in range(group[-1] + 1)])
    sizes = np.array([np.linalg.norm(along[group == g]) for g in range(group[-1] + 1)])
    pushed = sizes > tiny
    points = [axes @ (along / (root - poles[group])) for root in _roots(poles[pushed], sizes[pushed])]
    for g in np.flatnonzero(~pushed):
        # λ may be this eigenvalue: the rest of x is decided, and its part in the eigenspace has the length left over.
        gaps = np.where(group == g, 1.0, poles[g] - poles[group])
        base = axes @ np.where(group == g, 0.0, along / gaps)
        left = 1 - base @ base
        if left >= 0:
            points += [base + sign * np.sqrt(left) * e for e in axes[:, group == g].T for sign in (1.0, -1.0)]
    return _distinct(np.array(points))


def _roots(poles: Float[np.ndarray, " g"], sizes: Float[np.ndarray, " g"]) -> list[float]:
    """The roots of φ(λ) = Σ sᵢ²/(λ − λᵢ)² = 1: φ is convex between its poles, with none, one or two roots there."""

    def length(value: float) -> float:
        return float(np.linalg.norm(sizes / (value - poles)) - 1)

    def slope(value: float) -> float:
        return float((sizes**2 / (value - poles) ** 3).sum())

    total = float(np.linalg.norm(sizes))
    # At a pole's own distance sᵢ the length is at least one, at the distance of them all at most.
    roots = [_between(length, poles[-1] + sizes[-1], poles[-1] + total)]
    roots.append(_between(length, poles[0] - total, poles[0] - sizes[0]))
    for (low, high), (left, right) in zip(pairwise(poles), pairwise(sizes), strict=True):
        start, stop = low + left, high - right
        if not (start < stop and slope(start) > 0 > slope(stop)):
            continue
        lowest = float(brentq(slope, start, stop, xtol=1e-15))
        if length(lowest) <= 0:
            roots += [_between(length, start, lowest), _between(length, lowest, stop)]
    return roots


def _between(length: Callable[[float], float], low: float, high: float) -> float:
    """The root of a function of opposite signs at the ends; an end where rounding has taken the sign away."""
    if length(low) * length(high) > 0:
        return low if abs(length(low)) < abs(length(high)) else high
    return float(brentq(length, low, high, xtol=1e-15))


def _by_eigenvalues(push: Push) -> Float[np.ndarray, "r d"]:
    """All rest points for any M: with w = (λ − Mᵀ)⁻¹x, (λ − M)x = a(aᵀw) and aᵀw = |x|² = 1, so that λ is an eigenvalue
    of [[M, aaᵀ], [I, Mᵀ]]; polished by Newton's method. Where aᵀw = 0, λ is one of M, the hard case."""
    d, (a, M) = len(push.a), push
    scale = push.scale
    pair = np.block([[M / scale, np.outer(a, a) / scale**2], [np.eye(d), M.T / scale]])
    values, vectors = np.linalg.eig(pair)
    starts = []
    for value, vector in zip(values, vectors.T, strict=True):
        if abs(value.imag) <= REAL:
            x = vector[:d].real
            norm = np.linalg.norm(x)
            starts += [(sign * x / norm, scale * value.real) for sign in (1.0, -1.0) if norm > 0]
    eigenvalues, axes = np.linalg.eig(M)
    for value, axis in zip(eigenvalues, axes.T, strict=True):
        if abs(value.imag) <= REAL * scale:
            base = np.linalg.lstsq(value.real * np.eye(d) - M, a, rcond=SAME)[0]
            left = 1 - base @ base
            e = axis.real / np.linalg.norm(axis.real)
            starts += [(base + sign * np.sqrt(left) * e, value.real) for sign in (1.0, -1.0) if left >= 0]
    points = [x for x in (_newton(push, x, value) for x, value in starts) if x is not None]
    return _distinct(np.array(points).reshape(-1, d))


def _newton(push: Push, x: Float[np.ndarray, " d"], value: float) -> Float[np.ndarray, " d"] | None:
    """The rest point near x: (λ − M)x = a and xᵀx = 1 in x and λ; None where it leads nowhere."""
    d = len(x)
    for _ in range(NEWTON):
        residual = np.append(value * x - push.M @ x - push.a, (x @ x - 1) / 2)
        if not np.linalg.norm(residual) > RESTS * min(push.scale, 1.0) * 1e-3:
            break
        jacobian = np.block([[value * np.eye(d) - push.M, x[:, None]], [x[None], np.zeros((1, 1))]])
        step = np.linalg.lstsq(jacobian, residual, rcond=None)[0]
        x, value = x - step[:d], value - float(step[d])
    size = float(np.linalg.norm(x))
    if not 0.5 < size < 2:
        return None
    x = x / size
    rests = np.linalg.norm(push.velocity(x[None])) <= RESTS * push.scale
    return x if rests else None


def _distinct(points: Float[np.ndarray, "r d"]) -> Float[np.ndarray, "s d"]:
    """Each point once."""
    kept: list[np.ndarray] = []
    for x in points:
        if all(np.linalg.norm(x - y) > APART for y in kept):
            kept.append(x)
    return np.array(kept).reshape(-1, points.shape[1])
