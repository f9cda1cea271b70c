"""Densities on the sphere whose mean map is known in closed form: von Mises–Fisher and mixtures of them.

Tilting a von Mises–Fisher density e^{⟨c,y⟩} by e^{⟨p,y⟩} gives another one, with parameter p + c. So the mean map
(THEORY eq. 1) of a mixture is a finite sum: exact in every dimension and at every temperature, without a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from frostline.arrays import Array, as_float64, as_number, as_tensor
from frostline.errors import BadArray, BadParameter
from frostline.sample import as_weights
from frostline.sphere import normalise


@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_k w_k·vMF(c_k), c_k = concentration·mean: the parameters (K, d) and the weights (K,). Zero is uniform."""

    parameters: Float[np.ndarray, "K d"]
    weights: Float[np.ndarray, "K"]

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
        size = np.linalg.norm(tilted, axis=2)
        base = log_normaliser(np.linalg.norm(self.parameters, axis=1), d)
        shares = special.softmax(np.log(self.weights) + log_normaliser(size, d) - base, axis=1)
        # A(κ)/κ has the finite limit 1/d at κ = 0.
        factor = np.where(size > 0, resultant(size, d) / np.where(size > 0, size, 1.0), 1 / d)
        return np.einsum("nk,nkd->nd", shares * factor, tilted)


def uniform(d: int) -> Mixture:
    """The uniform density on S^{d−1}."""
    if d < 2:
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
    if len({part.dimension for part in components}) != 1:
        raise BadArray(f"the components have dimensions {[part.dimension for part in components]}; they must agree.")
    parameters = np.concatenate([part.parameters for part in components])
    return Mixture(parameters, np.concatenate([w * part.weights for w, part in zip(shares, components, strict=True)]))


def resultant(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """I_{d/2}(κ)/I_{d/2−1}(κ), the mean length of a von Mises–Fisher vector, without over- or underflow."""
    kappa = np.asarray(kappa, dtype=np.float64)
    low, high = special.ive(d / 2 - 1, kappa), special.ive(d / 2, kappa)
    safe = (low > 1e-200) & (high > 1e-200)
    ratio = np.divide(high, low, out=np.zeros_like(kappa), where=safe)
    # Gauss's continued fraction, from far out: quick where κ is small against d, which is where Bessel underflows.
    tail = np.zeros_like(kappa)
    for k in range(400, -1, -1):
        tail = kappa / (d + 2 * k + kappa * tail)
    return np.where(safe, ratio, tail)


def log_normaliser(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """log Z(κ), Z = Γ(d/2)(2/κ)^{d/2−1}I_{d/2−1}(κ) the mean of e^{κ⟨u,y⟩} over the sphere (THEORY section 8)."""
    kappa = np.asarray(kappa, dtype=np.float64)
    order = d / 2 - 1
    small = (kappa < max(1.0, d / 2)) & (kappa**2 < 1200 * d)
    with np.errstate(divide="ignore", invalid="ignore"):
        large = special.gammaln(d / 2) + order * np.log(2 / kappa) + np.log(special.ive(order, kappa)) + kappa
    return np.where(small, _log_series(np.where(small, kappa, 0.0), d), large)


def _log_series(kappa: Float[np.ndarray, "*k"], d: int) -> Float[np.ndarray, "*k"]:
    """log Σ_k (κ²/4)^k/(k!(d/2)_k), where Bessel functions underflow; all terms are positive, so no digit is lost."""
    term, total = np.ones_like(kappa), np.zeros_like(kappa)
    for k in range(2000):
        term = term * (kappa**2 / 4) / ((k + 1) * (d / 2 + k))
        total = total + term
        if (term <= 1e-17 * total).all():
            break
    return np.log1p(total)
