"""One real layer at its own temperature and at zero temperature, on the same tokens (THEORY section 11).

Everything happens in the value coordinates of each head (k numbers per token): V_h m = output[h] · coordinates.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from frostline.encoders import heads
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.spectra import triangle

TINY = 1e-300
"""A divisor in place of a length of zero."""


def on_unit_sphere(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Directions; a token that is exactly zero has none and stays zero."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), TINY))


@dataclass(frozen=True, eq=False)
class Glass:
    """A folded layer, with the products of its factors that maps at zero temperature need."""

    layer: FoldedLayer

    @cached_property
    def key_core(self) -> Float[np.ndarray, "h k k"]:
        """R with key = RᵀU, U orthonormal rows: |keyᵀz| = |Rz|."""
        return triangle(self.layer.key.transpose(0, 2, 1))

    @cached_property
    def through(self) -> Float[np.ndarray, "h k k"]:
        """value·keyᵀ: from logit direction to value coordinates."""
        return self.layer.value @ self.layer.key.transpose(0, 2, 1)

    @cached_property
    def gram(self) -> Float[np.ndarray, "h k k"]:
        """outputᵀP₁output: inner products of updates in value coordinates."""
        output = self.layer.centred_output
        return output.transpose(0, 2, 1) @ output

    def full_support(
        self, queries: Float[np.ndarray, "h q k"]
    ) -> tuple[Float[np.ndarray, "h q"], Float[np.ndarray, "h q k"]]:
        """κ, and the mean at zero temperature on a sphere full of tokens."""
        kappa = np.linalg.norm(queries @ self.key_core.transpose(0, 2, 1), axis=-1)
        return kappa, queries @ self.through.transpose(0, 2, 1) / np.maximum(kappa, TINY)[..., None]

    def fidelity(self, one: Float[np.ndarray, "h n k"], other: Float[np.ndarray, "h n k"]) -> Float[np.ndarray, "h n"]:
        """Cosine between two updates of every head, per token."""
        weighed, other_weighed = one @ self.gram, other @ self.gram
        sizes = (weighed * one).sum(-1) * (other_weighed * other).sum(-1)
        return np.asarray((weighed * other).sum(-1) / np.sqrt(np.maximum(sizes, TINY)))

    def squares(self, coordinates: Float[np.ndarray, "s h q k"]) -> Float[np.ndarray, " s"]:
        """Σ over tokens of |Σ_h V_h m_h|² without its mean, for several means, in single precision: six digits."""
        s, h, q, k = coordinates.shape
        flat = coordinates.transpose(0, 2, 1, 3).reshape(s * q, h * k).astype(np.float32)
        updates = (flat @ self._single).reshape(s, -1)
        return np.asarray(np.einsum("sn,sn->s", updates, updates), dtype=np.float64)

    @cached_property
    def _single(self) -> Float[np.ndarray, "hk d"]:
        stacked = self.layer.stacked_output
        return np.asarray(stacked - stacked.mean(-1, keepdims=True), dtype=np.float32)

    def update(self, coordinates: Float[np.ndarray, "... h n k"]) -> Float[np.ndarray, "... n d"]:
        """Σ_h V_h m_h + c_h and the output bias, without their mean: what attention adds, in residual units."""
        added = heads.update(self.layer, coordinates)
        return np.asarray(added - added.mean(-1, keepdims=True))

    def cold(self, u: Float[np.ndarray, "n d"], size: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
        """Tokens of this size after the attention half at zero temperature, on the sphere (eq. 15)."""
        seen = self.full_support(heads.queries(self.layer, self.layer.norm.entering(u, size)))[1]
        return self.after(u, size, seen)

    def after(
        self, u: Float[np.ndarray, "n d"], size: Float[np.ndarray, " n"], seen: Float[np.ndarray, "h n k"]
    ) -> Float[np.ndarray, "n d"]:
        """Tokens of this size after the attention half, if these are the means they see, on the sphere (eq. 15)."""
        return on_unit_sphere(self.layer.norm.past(u, size) + self.update(seen))

    def cold_limit(
        self, u: Float[np.ndarray, "n d"], size: Float[np.ndarray, " n"], *, most: int = 50, still: float = 1e-4
    ) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]:
        """Where tokens go when this attention half is applied for ever at zero temperature, and their last step.

        They keep their size, which changes the way but not the end. A last step above ``still`` says that the token
        had not settled after ``most`` applications.
        """
        ends, moved, going = u.copy(), np.full(len(u), np.inf), np.arange(len(u))
        for _ in range(most):
            following = self.cold(ends[going], size[going])
            moved[going] = np.linalg.norm(following - ends[going], axis=-1)
            ends[going] = following
            going = going[moved[going] > still]
            if not len(going):
                break
        return ends, moved
