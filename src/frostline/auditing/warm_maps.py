"""The map that a warm head applies to the tokens of a text: VΣBᵀ, which takes the place of VBᵀ (THEORY section 12)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.auditing.population import Population
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.spectra import STORED, Factors
from frostline.theory.spectrum import dominant_of_product


@dataclass(frozen=True, eq=False)
class WarmMaps:
    """The maps M_h = V_hΣB_hᵀ of all heads, Σ the covariance of inner tokens within the texts of the reference.

    kind     what leads: points, subspace, rotation, mixed, defective, kernel (nothing)
    leading  the eigenvalue with the largest real part; per unit of the tokens that go past attention
    growth   tr(MΣ)/tr Σ, per unit: above 0 the head spreads the cloud, below 0 it gathers it
    """

    kind: tuple[tuple[str, ...], ...]
    leading: Complex[np.ndarray, "layers heads"]
    growth: Float[np.ndarray, "layers heads"]


def warm_maps(layers: Sequence[FoldedLayer], population: Population) -> WarmMaps:
    """The maps, as small matrices: no d×d matrix is formed for a head."""
    kinds, leading, growth = [], [], []
    for layer, covariance in zip(layers, population.covariance, strict=True):
        factors = Factors.of(layer)
        inner = factors.value @ covariance @ factors.key.transpose(0, 2, 1)
        turned = factors.query @ covariance @ factors.output
        total = float(np.trace(covariance)) or np.inf
        growth.append(np.einsum("hij,hji->h", inner, turned) / total / factors.unit)
        leads = [
            dominant_of_product(output, core @ query, epsilon=STORED, resolve=False)
            for output, core, query in zip(factors.output, inner, factors.query, strict=True)
        ]
        kinds.append(tuple(lead.kind for lead in leads))
        values = [max(lead.eigenvalues, key=lambda value: (value.real, value.imag), default=0) for lead in leads]
        leading.append(np.array(values, dtype=np.complex128) / factors.unit)
    return WarmMaps(tuple(kinds), np.stack(leading), np.stack(growth))
