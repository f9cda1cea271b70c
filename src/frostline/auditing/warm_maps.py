"""The map that a warm head applies to the tokens of a text: VΣBᵀ, which takes the place of VBᵀ (THEORY section 12)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.auditing.population import Population
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.spectra import STORED, Factors
from frostline.results import Result
from frostline.theory.spectrum import dominant_of_product


@dataclass(frozen=True, eq=False, repr=False)
class WarmMaps(Result):
    """The maps M_h = V_hΣB_hᵀ of all heads, Σ the covariance of inner tokens within the texts of the reference.

    Attributes
    ----------
    kind
        What leads: points, subspace, rotation, mixed, defective, kernel (nothing).
    leading
        The eigenvalue with the largest real part; per unit of the tokens that go past attention.
    directions
        Orthonormal columns that span what leads, (d, r) for every head of every layer; r = 0 where nothing does.
    variance
        The share of tr Σ that is along these directions.
    growth
        tr(MΣ)/tr Σ, per unit: what the map does to the width √tr Σ of the cloud, as a share of it; above 0 the head
        spreads the cloud, below 0 it gathers it.
    """

    kind: tuple[tuple[str, ...], ...]
    leading: Complex[np.ndarray, "layers heads"]
    directions: tuple[tuple[Float[np.ndarray, "d _"], ...], ...]
    variance: Float[np.ndarray, "layers heads"]
    growth: Float[np.ndarray, "layers heads"]

    def describe(self) -> str:
        """How many heads spread the cloud, and the strongest of either kind."""
        spreading, least, most = int((self.growth > 0).sum()), self.growth.min(), self.growth.max()
        return (
            f"{spreading} of {self.growth.size} heads spread the cloud, the others gather it: growth from {least:.2g} "
            f"to {most:.2g} per layer"
        )


def warm_maps(layers: Sequence[FoldedLayer], population: Population) -> WarmMaps:
    """The maps, as small matrices: no d×d matrix is formed for a head."""
    kinds, leading, directions, variance = [], [], [], []
    for layer, covariance in zip(layers, population.covariance, strict=True):
        factors = Factors.of(layer)
        inner = factors.value @ covariance @ factors.key.transpose(0, 2, 1)
        total = float(np.trace(covariance)) or np.inf
        leads = [
            dominant_of_product(output, core @ query, epsilon=STORED, resolve=False)
            for output, core, query in zip(factors.output, inner, factors.query, strict=True)
        ]
        kinds.append(tuple(lead.kind for lead in leads))
        values = [max(lead.eigenvalues, key=lambda value: (value.real, value.imag), default=0) for lead in leads]
        leading.append(np.array(values, dtype=np.complex128) / factors.unit)
        directions.append(tuple(lead.ends for lead in leads))
        variance.append([float((lead.ends * (covariance @ lead.ends)).sum()) / total for lead in leads])
    growth = growth_of(layers, population)
    return WarmMaps(tuple(kinds), np.stack(leading), tuple(directions), np.array(variance), growth)


def growth_of(layers: Sequence[FoldedLayer], population: Population) -> Float[np.ndarray, "layers heads"]:
    """tr(MΣ)/tr Σ of every head, per unit, without the spectra."""
    growth = []
    for layer, covariance in zip(layers, population.covariance, strict=True):
        factors = Factors.of(layer)
        inner = factors.value @ covariance @ factors.key.transpose(0, 2, 1)
        turned = factors.query @ covariance @ factors.output
        total = float(np.trace(covariance)) or np.inf
        growth.append(np.einsum("hij,hji->h", inner, turned) / total / factors.unit)
    return np.stack(growth)


def alignment(warm: Float[np.ndarray, "d _"], cold: Float[np.ndarray, "d _"]) -> float:
    """The cosine of the smallest angle between two spaces, given by orthonormal columns; NaN where one is empty."""
    if not warm.size or not cold.size:
        return float("nan")
    return float(np.linalg.norm(warm.T @ cold, 2))
