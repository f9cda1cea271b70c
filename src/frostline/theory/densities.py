"""Densities on the sphere and their mean maps (THEORY eq. 1), without a token.

Tilting a von Mises–Fisher density e^{⟨c,y⟩} by e^{⟨p,y⟩} gives another one, with parameter p + c. So the mean map of a
mixture of them is a finite sum: exact in every dimension and at every temperature. For a density given as a function
the integral is taken in polar coordinates around the query, over the angles that carry weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import special

from frostline.arrays import Array
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.sample import as_concentration, as_dimension, as_direction, as_weights, nodes
from frostline.sphere import normalise, row_norms
from frostline.theory.von_mises_fisher import log_normaliser, log_scaled_normaliser, resultant

Values: TypeAlias = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, "n"]]
Gradients: TypeAlias = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, "n d"]]

RADII = 200
"""Quadrature of a density given as a function: angles to the query."""
TURNS = 512
"""Quadrature of a density given as a function: directions around the query."""
VISIBLE = 42.0
"""Angles whose weight is below e^−42 of the largest, 1e-18, are left out of the quadrature."""
CHECKS = 20_000
"""Nodes at which a density given as a function is checked to be positive and to integrate to one."""
GRADIENT_CHECKS = 16
"""Points at which its gradient is compared with differences, along every coordinate axis."""
DIFFERENCE = 1e-5
"""The step of these differences."""
GRADIENT_ERROR = 1e-4
"""The largest difference that is accepted, in units of the slope or of the density."""


@runtime_checkable
class Density(Protocol):
    """The interface that ``frostline.laplace`` needs of a density; ``Mixture`` and ``Smooth`` have it."""

    @property
    def dimension(self) -> int:
        """The number d of the sphere S^{d−1}."""
        ...

    def log_gradient(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∇_S log f at unit vectors y.

        Parameters
        ----------
        y
            Unit vectors (n, d).

        Returns
        -------
        ndarray
            Tangent vectors (n, d).
        """
        ...

    def mean_map(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∫ y e^{⟨p,y⟩}f(y)dy / ∫ e^{⟨p,y⟩}f(y)dy for each row p.

        Parameters
        ----------
        p
            The directions (n, d), each times its concentration.

        Returns
        -------
        ndarray
            The means (n, d).
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Result):
    """A mixture of von Mises–Fisher densities, Σ_k w_k·vMF(c_k) with c_k = concentration·mean.

    Attributes
    ----------
    parameters : ndarray
        The c_k, (K, d); zero is the uniform density.
    weights : ndarray
        The w_k > 0, (K,), with sum 1.
    """

    parameters: Float[np.ndarray, "K d"]
    weights: Float[np.ndarray, "K"]

    def describe(self) -> str:
        """The number of components and the dimension."""
        return f"{len(self.weights)} components, d = {self.dimension}"

    @property
    def dimension(self) -> int:
        """d of the sphere S^{d−1}."""
        return int(self.parameters.shape[1])

    def log_density(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
        """log f at unit vectors y, against the uniform probability measure.

        Parameters
        ----------
        y
            Unit vectors (n, d).

        Returns
        -------
        ndarray
            The logarithms, (n,).
        """
        return np.asarray(special.logsumexp(self._logs(y), axis=1))

    def _logs(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n K"]:
        size = np.linalg.norm(self.parameters, axis=1)
        return np.log(self.weights) - log_normaliser(size, self.dimension) + y @ self.parameters.T

    def log_gradient(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∇_S log f at unit vectors y: the tangent part of the posterior mean of the parameters.

        Parameters
        ----------
        y
            Unit vectors (n, d).

        Returns
        -------
        ndarray
            Tangent vectors (n, d).
        """
        posterior = special.softmax(self._logs(y), axis=1)
        pull = posterior @ self.parameters
        return pull - (pull * y).sum(1, keepdims=True) * y

    def mean_map(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∫ y e^{⟨p,y⟩}f(y)dy / ∫ e^{⟨p,y⟩}f(y)dy for each row p.

        Parameters
        ----------
        p
            The directions (n, d), each times its concentration.

        Returns
        -------
        ndarray
            The means (n, d).
        """
        d = self.dimension
        tilted = p[:, None, :] + self.parameters
        size = row_norms(tilted)
        base = log_normaliser(np.linalg.norm(self.parameters, axis=1), d)
        # |p| is common to all components: it drops out of their shares, however large it is.
        common = row_norms(p)[:, None]
        logs = log_scaled_normaliser(size, d) + (size - common)
        shares = special.softmax(np.log(self.weights) + logs - base, axis=1)
        # A(κ)/κ has the finite limit 1/d at κ = 0.
        factor = np.where(size > 0, resultant(size, d) / np.where(size > 0, size, 1.0), 1 / d)
        return np.einsum("nk,nkd->nd", shares * factor, tilted)


def uniform(d: int) -> Mixture:
    """The uniform density on S^{d−1}.

    Parameters
    ----------
    d : int
        Dimension, at least 2.

    Returns
    -------
    Mixture
        One component with parameter zero.

    Raises
    ------
    BadParameter
        ``d`` is not a whole number ≥ 2.

    Examples
    --------
    >>> uniform(3).mean_map(np.array([[0.0, 0.0, 1.0]])).round(6)
    array([[0.      , 0.      , 0.313035]])
    """
    return Mixture(np.zeros((1, as_dimension(d))), np.ones(1))


def vmf(mean: Array, concentration: float) -> Mixture:
    """The von Mises–Fisher density ∝ e^{concentration·⟨mean, y⟩}.

    Parameters
    ----------
    mean : Array
        The mean direction (d,), of any length but zero.
    concentration : float
        Finite and ≥ 0; 0 is the uniform density.

    Returns
    -------
    Mixture
        One component.

    Raises
    ------
    BadArray
        ``mean`` is not one non-zero vector.
    BadParameter
        ``concentration`` is negative or not finite.

    Examples
    --------
    >>> vmf([0, 0, 2], 5.0).parameters
    array([[0., 0., 5.]])
    """
    return Mixture(as_concentration(concentration) * as_direction(mean, "mean")[None], np.ones(1))


def mixture(components: Sequence[Mixture], weights: Array) -> Mixture:
    """A mixture of densities with given probabilities.

    Parameters
    ----------
    components : sequence of Mixture
        Densities made by ``uniform``, ``vmf`` or ``mixture``, of one dimension.
    weights : Array
        The probability of each; they sum to 1.

    Returns
    -------
    Mixture
        All components that have a positive weight.

    Raises
    ------
    BadWeights
        ``weights`` are not as many probabilities as there are components.
    BadParameter
        A component is given as a function.
    BadArray
        The components differ in dimension.

    Examples
    --------
    >>> mixture([uniform(3), vmf([0, 0, 1], 5.0)], [0.2, 0.8])
    Mixture(2 components, d = 3)
    """
    shares = as_weights(weights, len(components))
    if not all(isinstance(part, Mixture) for part in components):
        raise BadParameter("components are uniform, vmf or mixture; mix functions before from_function.")
    if len({part.dimension for part in components}) != 1:
        raise BadArray(f"the components have dimensions {[part.dimension for part in components]}; they must agree.")
    parameters = np.concatenate([part.parameters for part in components])
    masses = np.concatenate([w * part.weights for w, part in zip(shares, components, strict=True)])
    return Mixture(parameters[masses > 0], masses[masses > 0])


@dataclass(frozen=True, eq=False, repr=False)
class Smooth(Result):
    """A positive density given as a function, with its gradient.

    Attributes
    ----------
    dimension : int
        d of the sphere S^{d−1}.
    density, gradient : callable
        Take unit vectors (n, d) and return (n,) and (n, d).
    """

    dimension: int
    density: Values
    gradient: Gradients

    def describe(self) -> str:
        """The sort of density, and the dimension."""
        return f"a density given as a function, d = {self.dimension}"

    def facts(self) -> dict[str, Any]:
        """The dimension; functions are no plain values."""
        return {"dimension": self.dimension}

    def log_gradient(self, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∇_S log f at unit vectors y.

        Parameters
        ----------
        y
            Unit vectors (n, d).

        Returns
        -------
        ndarray
            Tangent vectors (n, d).
        """
        slope = _values(self.gradient, y, y.shape) / _positive(self.density, y)[:, None]
        return slope - (slope * y).sum(1, keepdims=True) * y

    def mean_map(self, p: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """∫ y e^{⟨p,y⟩}f(y)dy / ∫ e^{⟨p,y⟩}f(y)dy for each row p.

        Parameters
        ----------
        p
            The directions (n, d), each times its concentration.

        Returns
        -------
        ndarray
            The means (n, d).
        """
        return np.stack([self._mean_map_of(row) for row in p])

    def _mean_map_of(self, p: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """Quadrature in y = cos α·u + sin α·ω around u = p/|p|: Gauss–Legendre in α, nodes of a sphere for ω."""
        d, kappa = self.dimension, float(np.linalg.norm(p))
        u = p / kappa
        angle, share = _radii(kappa, d)
        around, turn = _around(u)
        y = np.cos(angle)[:, None, None] * u + np.sin(angle)[:, None, None] * around
        f = _positive(self.density, y.reshape(-1, d)).reshape(len(angle), len(around))
        weight = share[:, None] * turn * f
        return (weight[..., None] * y).sum((0, 1)) / weight.sum()


def from_function(density: Values, gradient: Gradients, dimension: int) -> Smooth:
    """A density f given as a function, with its gradient.

    f is taken with respect to the uniform probability measure, so that the uniform density is 1. For a density that
    varies over lengths of order one the mean map was measured to be accurate to 1e-10 in d ≤ 3 and 1e-6 in d = 4;
    above, the directions around a query are a quasi-random rule, with errors of 1 % of |m − y*|.

    Parameters
    ----------
    density : callable
        Takes unit vectors (n, d), returns (n,): positive everywhere, with integral 1.
    gradient : callable
        Takes unit vectors (n, d), returns (n, d): the gradient of any smooth extension; its tangent part is used.
    dimension : int
        d, at least 2.

    Returns
    -------
    Smooth
        The density.

    Raises
    ------
    BadParameter
        The density vanishes somewhere or does not integrate to 1, or the gradient is not its gradient.
    BadArray
        A function returns another shape, or NaN or infinite values.

    Examples
    --------
    >>> pole = np.array([0.0, 0.0, 1.0])
    >>> from_function(lambda y: 1 + 0.5 * y @ pole, lambda y: np.tile(0.5 * pole, (len(y), 1)), 3)
    Smooth(a density given as a function, d = 3)
    """
    as_dimension(dimension)
    if not all(map(callable, (density, gradient))):
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
    _check_gradient(density, gradient, y[:: len(y) // GRADIENT_CHECKS][:GRADIENT_CHECKS])
    return Smooth(dimension, density, gradient)


def _check_gradient(density: Values, gradient: Gradients, y: Float[np.ndarray, "n d"]) -> None:
    """Compare the gradient with central differences along the tangent part of every coordinate axis, at each y."""
    y, v = np.repeat(y, y.shape[1], axis=0), np.tile(np.eye(y.shape[1]), (len(y), 1))
    v = v - (v * y).sum(1, keepdims=True) * y
    ahead, behind = (_positive(density, normalise(y + step * v)) for step in (DIFFERENCE, -DIFFERENCE))
    slope, along = (ahead - behind) / (2 * DIFFERENCE), (_values(gradient, y, y.shape) * v).sum(1)
    error = np.abs(slope - along)
    size = np.maximum(np.abs(slope), _positive(density, y))
    if not (error <= GRADIENT_ERROR * size).all():
        worst = int(np.argmax(error / size))
        raise BadParameter(
            f"the gradient does not belong to the density: along one direction at {y[worst].round(3).tolist()} it says "
            f"{along[worst]:.6g}, differences say {slope[worst]:.6g}."
        )


def _positive(density: Values, y: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
    """The density at y, checked to be positive."""
    values = _values(density, y, (len(y),))
    if not (values > 0).all():
        worst = int(np.argmin(values))
        raise BadParameter(
            f"the density is {values[worst]:.3g} at {y[worst].round(3).tolist()}; the Laplace principle needs one "
            "that is positive everywhere."
        )
    return values


def _values(function: Callable, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The function at y, checked to be finite numbers of this shape."""
    try:
        raw = np.asarray(function(y))
        values = raw.astype(np.float64) if raw.dtype.kind in "fiub" else np.full(shape, np.nan)
    except (TypeError, ValueError) as error:
        raise BadArray(f"the function did not return an array of real numbers: {error}.") from None
    if values.shape != shape or not np.isfinite(values).all():
        raise BadArray(f"the function returned shape {values.shape} (needed {shape}), or NaN or infinite values.")
    return values


def _radii(kappa: float, d: int) -> tuple[Float[np.ndarray, "r"], Float[np.ndarray, "r"]]:
    """Angles α and weights of e^{κ(cos α − 1)} sin^{d−2}α dα, over the range where the weight is visible."""

    def log_weight(angle: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return -2 * kappa * np.sin(angle / 2) ** 2 + (d - 2) * np.log(np.sin(angle))

    # The scale of the weight: a grid in log α sees it however cold it is.
    grid = np.geomspace(1e-9, np.pi * (1 - 1e-12), 4000)
    logs = log_weight(grid)
    visible = grid[logs >= logs.max() - VISIBLE]
    low, high = float(visible[0]) if d > 2 else 0.0, float(visible[-1])
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
