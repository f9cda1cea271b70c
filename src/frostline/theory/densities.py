"""Densities on the sphere and their mean maps (THEORY eq. 1), without a token.

Tilting a von Mises–Fisher density e^{⟨c,y⟩} by e^{⟨p,y⟩} gives another one, with parameter p + c. So the mean map of a
mixture of them is a finite sum: exact in every dimension and at every temperature. For a function given by the user the
integral is taken in polar coordinates around the query, where the weight is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import special

from frostline.arrays import Array, as_count, as_float64, as_number, as_tensor
from frostline.errors import BadArray, BadParameter
from frostline.printable import one_line
from frostline.sample import as_weights, nodes
from frostline.sphere import normalise, row_norms

Values: TypeAlias = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, "n"]]
Gradients: TypeAlias = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, "n d"]]


@runtime_checkable
class Density(Protocol):
    """What ``laplace`` asks of a density."""

    @property
    def dimension(self) -> int: ...

    def log_gradient(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]: ...

    def mean_map(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]: ...


@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_k w_k·vMF(c_k), c_k = concentration·mean: the parameters (K, d) and the weights (K,). Zero is uniform."""

    parameters: Float[np.ndarray, "K d"]
    weights: Float[np.ndarray, "K"]

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.weights)} components, d = {self.dimension}")

    @property
    def dimension(self) -> int:
        return int(self.parameters.shape[1])

    def log_gradient(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∇_S log f at unit vectors y: the tangent part of the mean parameter, weighted by the posterior."""
        d = self.dimension
        logs = np.log(self.weights) - log_normaliser(np.linalg.norm(self.parameters, axis=1), d) + y @ self.parameters.T
        posterior = special.softmax(logs, axis=1)
        pull = posterior @ self.parameters
        return pull - (pull * y).sum(1, keepdims=True) * y

    def mean_map(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∫ y e^{⟨p,y⟩}f(y)dy / ∫ e^{⟨p,y⟩}f(y)dy for each p."""
        d = self.dimension
        tilted = p[:, None, :] + self.parameters
        size = row_norms(tilted)
        base = log_normaliser(np.linalg.norm(self.parameters, axis=1), d)
        # |p + c| in place of |p|: what all components have in common, however large, drops out.
        common = row_norms(p)[:, None]
        logs = log_scaled_normaliser(size, d) + (size - common)
        shares = special.softmax(np.log(self.weights) + logs - base, axis=1)
        # A(κ)/κ has the finite limit 1/d at κ = 0.
        factor = np.where(size > 0, resultant(size, d) / np.where(size > 0, size, 1.0), 1 / d)
        return np.einsum("nk,nkd->nd", shares * factor, tilted)


def uniform(d: int) -> Mixture:
    """The uniform density on S^{d−1}."""
    if as_count(d, "dimension") < 2:
        raise BadParameter(f"dimension is {d}; the sphere S^(d-1) needs d ≥ 2.")
    return Mixture(np.zeros((1, d)), np.ones(1))


def vmf(mean: Array, concentration: float) -> Mixture:
    """The von Mises–Fisher density ∝ e^{concentration·⟨mean, y⟩}."""
    if not (0 <= as_number(concentration, "concentration") < np.inf):
        raise BadParameter(f"concentration is {concentration}; it must be finite and ≥ 0 (0 is uniform).")
    direction = as_float64(as_tensor(normalise(mean), "mean")[0])
    if direction.ndim != 1:
        raise BadArray(f"mean has shape {direction.shape}; one vector (d,) is needed.")
    return Mixture(concentration * direction[None], np.ones(1))


def mixture(components: Sequence[Mixture], weights: Array) -> Mixture:
    """Components with the given probabilities."""
    shares = as_weights(weights, len(components))
    if not all(isinstance(part, Mixture) for part in components):
        raise BadParameter("components are uniform, vmf or mixture; mix functions before from_function.")
    if len({part.dimension for part in components}) != 1:
        raise BadArray(f"the components have dimensions {[part.dimension for part in components]}; they must agree.")
    parameters = np.concatenate([part.parameters for part in components])
    masses = np.concatenate([w * part.weights for w, part in zip(shares, components, strict=True)])
    return Mixture(parameters[masses > 0], masses[masses > 0])


RADII, TURNS, CHECKS = 200, 512, 20_000
"""Quadrature: radii and directions around a query; nodes for the checks of a user's density."""


@dataclass(frozen=True, eq=False)
class Smooth:
    """A positive density given as a function, with its gradient."""

    dimension: int
    density: Values
    gradient: Gradients

    def __repr__(self) -> str:
        return one_line(self, f"a density given as a function, d = {self.dimension}")

    def log_gradient(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        slope = _values(self.gradient, y, y.shape) / _positive(self.density, y)[:, None]
        return slope - (slope * y).sum(1, keepdims=True) * y

    def mean_map(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        return np.stack([self._one(row) for row in p])

    def _one(self, p: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """∫ in y = cos α·u + sin α·ω around u = p/|p|: Gauss–Legendre in α over where the weight is, a rule for ω."""
        d, kappa = self.dimension, float(np.linalg.norm(p))
        u = p / kappa
        angle, share = _radii(kappa, d)
        around, turn = _around(u)
        y = np.cos(angle)[:, None, None] * u + np.sin(angle)[:, None, None] * around
        f = _positive(self.density, y.reshape(-1, d)).reshape(len(angle), len(around))
        weight = share[:, None] * turn * f
        return (weight[..., None] * y).sum((0, 1)) / weight.sum()


def from_function(density: Values, gradient: Gradients, dimension: int) -> Smooth:
    """A density f given by a function of unit vectors (n, d) → (n,), with its gradient (n, d) → (n, d).

    f is taken with respect to the uniform probability measure (the uniform density is 1), must be positive and
    integrate to one. The gradient may be that of any smooth extension: only its tangent part is used. All three are
    checked. For a density that varies over lengths of order one the mean map was found accurate to 1e-10 in d ≤ 3 and
    1e-6 in d = 4; above, the directions around a query are a quasi-random rule, with errors of 1 % of |m − y*|.
    """
    if as_count(dimension, "dimension") < 2:
        raise BadParameter(f"dimension is {dimension}; the sphere S^(d-1) needs d ≥ 2.")
    if not callable(density) or not callable(gradient):
        raise BadParameter("density and gradient are functions: tokens (n, d) to (n,) and to (n, d).")
    y, w = nodes(CHECKS, dimension)
    total = float(w @ _positive(density, y))
    # In d ≤ 3 the rule is spectrally accurate; above it is quasi-random.
    allowed = 1e-6 if dimension <= 3 else 0.05
    if not abs(total - 1) <= allowed:
        raise BadParameter(
            f"the density integrates to {total:.6g} over the sphere with the uniform probability measure, not to 1; "
            "divide it by that."
        )
    _check_gradient(density, gradient, y[:: len(y) // 16][:16])
    return Smooth(dimension, density, gradient)


def _check_gradient(density: Values, gradient: Gradients, y: Float[np.ndarray, "n d"]) -> None:
    """Against central differences along every coordinate axis, as far as it is tangent, at each of a few points."""
    y, v = np.repeat(y, y.shape[1], axis=0), np.tile(np.eye(y.shape[1]), (len(y), 1))
    v = v - (v * y).sum(1, keepdims=True) * y
    h = 1e-5
    ahead, behind = (_positive(density, normalise(y + s * v)) for s in (h, -h))
    slope, given = (ahead - behind) / (2 * h), (_values(gradient, y, y.shape) * v).sum(1)
    off = np.abs(slope - given)
    size = np.maximum(np.abs(slope), _positive(density, y))
    if not (off <= 1e-4 * size).all():
        worst = int(np.argmax(off / size))
        raise BadParameter(
            f"the gradient does not belong to the density: along one direction at {y[worst].round(3).tolist()} it says "
            f"{given[worst]:.6g}, differences say {slope[worst]:.6g}."
        )


def _positive(density: Values, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
    values = _values(density, y, (len(y),))
    if not (values > 0).all():
        worst = int(np.argmin(values))
        raise BadParameter(
            f"the density is {values[worst]:.3g} at {y[worst].round(3).tolist()}; the Laplace principle needs one "
            "that is positive everywhere."
        )
    return values


def _values(function: Callable, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        raw = np.asarray(function(y))
        found = raw.astype(np.float64) if raw.dtype.kind in "fiub" else np.full(shape, np.nan)
    except (TypeError, ValueError) as error:
        raise BadArray(f"the function did not return an array of real numbers: {error}.") from None
    if found.shape != shape or not np.isfinite(found).all():
        raise BadArray(f"the function returned shape {found.shape} (needed {shape}), or NaN or infinite values.")
    return found


def _radii(kappa: float, d: int) -> tuple[Float[np.ndarray, "r"], Float[np.ndarray, "r"]]:
    """Angles α and weights of e^{κ(cos α − 1)} sin^{d−2}α dα, over the range where it is above 1e-18 of its peak."""

    def log_weight(angle: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return -2 * kappa * np.sin(angle / 2) ** 2 + (d - 2) * np.log(np.sin(angle))

    # The scale of the weight: a grid in log α sees it however cold it is.
    grid = np.geomspace(1e-9, np.pi * (1 - 1e-12), 4000)
    logs = log_weight(grid)
    high = float(grid[np.flatnonzero(logs >= logs.max() - 42)[-1]])
    low = float(grid[np.flatnonzero(logs >= logs.max() - 42)[0]]) if d > 2 else 0.0
    at, weights = np.polynomial.legendre.leggauss(RADII)
    angle = low + (high - low) * (at + 1) / 2
    return angle, weights * np.exp(log_weight(angle) - logs.max())


def _around(u: Float[np.ndarray, "d"]) -> tuple[Float[np.ndarray, "t d"], Float[np.ndarray, "t"]]:
    """Unit vectors ω ⊥ u with weights: both signs in d = 2, else nodes of the sphere one dimension lower."""
    frame = np.linalg.svd(u[None])[2][1:]
    if len(u) == 2:
        return np.concatenate([frame, -frame]), np.full(2, 0.5)
    low, weights = nodes(TURNS, len(u) - 1)
    return low @ frame, weights


def resultant(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """I_{d/2}(κ)/I_{d/2−1}(κ), the mean length of a von Mises–Fisher vector, without over- or underflow."""
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
    """log Z(κ) − κ: what is left of log Z when it is cold, without its largest part."""
    kappa = np.asarray(kappa, dtype=np.float64)
    order = d / 2 - 1
    small = kappa < min(max(1.0, d / 2), np.sqrt(1200 * d))
    high = np.where(small, max(1.0, d / 2), kappa)
    large = special.gammaln(d / 2) + order * np.log(2 / high) + _log_bessel(order, high)
    low = np.where(small, kappa, 0.0)
    return np.where(small, _log_series(low, d) - low, large)


def _log_bessel(order: float, kappa: Float[np.ndarray, "*k"]) -> Float[np.ndarray, "*k"]:
    """log(e^{−κ}I_ν(κ)) for κ not small: Hankel's expansion far out, Debye's for large ν, the library in between."""
    far = kappa > max(1e6, 10 * order**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = _debye(order, kappa) if order >= 50 else np.log(special.ive(order, np.where(far, 1.0, kappa)))
    return np.where(far, _hankel(order, np.where(far, kappa, 1e6 + 10 * order**2)), near)


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
    """U_k(t), k = 1 … count, by their recurrence: U' from the last one, and an integral."""
    found, last = [], np.polynomial.Polynomial([1.0])
    t = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(count):
        last = 0.5 * t**2 * (1 - t**2) * last.deriv() + ((1 - 5 * t**2) * last).integ() / 8
        found.append(last.coef)
    return found


_DEBYE = _debye_polynomials(8)


def _log_series(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """log Σ_k (κ²/4)^k/(k!(d/2)_k), where Bessel functions underflow; all terms are positive, so no digit is lost."""
    term, total = np.ones_like(kappa), np.zeros_like(kappa)
    for k in range(2000):
        term = term * (kappa**2 / 4) / ((k + 1) * (d / 2 + k))
        total = total + term
        if (term <= 1e-17 * total).all():
            break
    return np.log1p(total)
