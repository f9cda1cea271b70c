"""The Laplace principle (THEORY section 6): how far the mean map is from its zero-temperature value y*."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.arrays import Array, as_float64
from frostline.attention import Attention
from frostline.errors import BadArray, BadParameter
from frostline.sphere import as_tokens
from frostline.theory.densities import Mixture


@dataclass(frozen=True, eq=False)
class Laplace:
    """The mean map of a density at finite temperature beside its approximations, for each query.

    kappa (n,)         κ = β|Bᵀx + g|
    exact (n, d)       m_β[ρ](x)
    zeroth, first      y*, and the first-order value of THEORY eq. 10
    zeroth_error, first_error (n,)   their distances to the exact value
    """

    kappa: Float[np.ndarray, "n"]
    exact: Float[np.ndarray, "n d"]
    zeroth: Float[np.ndarray, "n d"]
    first: Float[np.ndarray, "n d"]

    @property
    def zeroth_error(self) -> Float[np.ndarray, "n"]:
        return np.linalg.norm(self.exact - self.zeroth, axis=1)

    @property
    def first_error(self) -> Float[np.ndarray, "n"]:
        return np.linalg.norm(self.exact - self.first, axis=1)


def laplace(head: Attention, x: Array, density: Mixture) -> Laplace:
    """m_β[ρ](x) for a density with a closed form, and its expansion around y*(x) to zeroth and first order.

    >>> from frostline.theory.densities import uniform
    >>> head = Attention.from_matrices(np.eye(3), np.eye(3), beta=1000.0)
    >>> bool(laplace(head, [[1.0, 0.0, 0.0]], uniform(3)).first_error < 1e-9)
    True
    """
    tokens, _ = as_tokens(x, "x")
    queries = as_float64(tokens).reshape(-1, tokens.shape[-1])
    if not head.dimension == density.dimension == queries.shape[1]:
        raise BadArray(
            f"the head has dimension {head.dimension}, the density {density.dimension}, x {queries.shape[1]}; "
            "they must agree."
        )
    B, _, _, bias = head.matrices
    p = head.beta * (queries @ B + (0.0 if bias is None else bias))
    kappa = np.linalg.norm(p, axis=1)
    if not (kappa > 0).all():
        raise BadParameter(f"Bᵀx + g vanishes for {int((kappa == 0).sum())} queries: they have no y*; leave them out.")
    zeroth = p / kappa[:, None]
    shrink = 1 - (head.dimension - 1) / (2 * kappa)
    first = shrink[:, None] * zeroth + density.log_gradient(zeroth) / kappa[:, None]
    return Laplace(kappa, density.mean_map(p), zeroth, first)
