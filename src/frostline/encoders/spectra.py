"""Spectra of heads from their factors: B = qᵀκ, V = o·v, A = VBᵀ = o(vκᵀ)q, all from k×k matrices (THEORY section 11).

A and V have rank k at most, so zero is an eigenvalue of both, and it leads when all others have negative real parts.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.encoders.fold import FoldedLayer
from frostline.theory.spectrum import dominant_of_product

STORED = float(np.finfo(np.float32).eps)
"""Precision of the stored weights, which eigenvalues are told apart against."""
WELL_CONDITIONED = 1e-3
"""Smallest over largest pivot from which on a Gram matrix is as good as an orthogonal decomposition."""


@dataclass(frozen=True, eq=False)
class Factors:
    """Heads side by side, as (h, k, d) and (h, d, k) arrays."""

    query: Float[np.ndarray, "h k d"]
    key: Float[np.ndarray, "h k d"]
    value: Float[np.ndarray, "h k d"]
    output: Float[np.ndarray, "h d k"]
    unit: float
    """What V is divided by to act on unit vectors."""

    @classmethod
    def of(cls, layer: FoldedLayer) -> "Factors":
        output = layer.output - layer.output.mean(1, keepdims=True) if layer.norm.present else layer.output
        return cls(layer.query, layer.key, layer.value, output, layer.unit)

    @classmethod
    def drawn(cls, heads: int, k: int, d: int, rng: np.random.Generator) -> "Factors":
        """Random heads of the same shape, of norm one in the mean: the control."""
        query, key, value = (rng.standard_normal((heads, k, d)) / np.sqrt(k * d) for _ in range(3))
        return cls(query, key, value, rng.standard_normal((heads, d, k)) / np.sqrt(k * d), 1.0)


@dataclass(frozen=True, eq=False)
class HeadSpectra:
    """What the weights of some heads say, one entry per head."""

    beta: Float[np.ndarray, " h"]
    logit_rank: Float[np.ndarray, " h"]
    logit_stable_rank: Float[np.ndarray, " h"]
    value_rank: Float[np.ndarray, " h"]
    value_stable_rank: Float[np.ndarray, " h"]
    value_norm: Float[np.ndarray, " h"]
    eigenvalues: Complex[np.ndarray, "h k"]
    """Of A/‖A‖, largest real part first; d − k zeros are left out."""
    value_eigenvalues: Complex[np.ndarray, "h k"]
    """Of V on the unit sphere."""
    kind: tuple[str, ...]
    gap: Float[np.ndarray, " h"]
    """Of A/‖A‖, between the leading real part and the next, zero included; NaN where nothing leads."""
    resolution: Float[np.ndarray, " h"]
    """How many times larger than rounding of the weights a change has to be that makes ``kind`` wrong."""
    symmetric_share: Float[np.ndarray, " h"]
    asymmetry: Float[np.ndarray, " h"]
    non_normality: Float[np.ndarray, " h"]
    rate: Float[np.ndarray, " h"]
    """Per layer, at zero temperature, near the limit; NaN where there is none."""
    value_kind: tuple[str, ...]
    leading: tuple[np.ndarray, ...]
    """Orthonormal columns: the leading directions of A."""
    terminal: tuple[np.ndarray, ...]
    """Orthonormal columns: the leading directions of V."""


def spectra(given: Factors) -> HeadSpectra:
    """All of ``HeadSpectra`` for these heads."""
    query, key, value, output = given.query, given.key, given.value, given.output
    R_query, R_key, R_value = (triangle(part.transpose(0, 2, 1)) for part in (query, key, value))
    R_output = triangle(output)
    sizes_B = np.linalg.svd(R_query @ R_key.transpose(0, 2, 1), compute_uv=False)
    sizes_V = np.linalg.svd(R_output @ R_value.transpose(0, 2, 1), compute_uv=False)
    inner, seen = value @ key.transpose(0, 2, 1), query @ output
    core_A = R_output @ inner @ R_query.transpose(0, 2, 1)
    frobenius = np.linalg.norm(core_A, axis=(1, 2))
    norm = np.linalg.norm(core_A, 2, axis=(1, 2))
    safe = np.where(norm > 0, norm, 1.0)
    values, values_V = np.linalg.eigvals(inner @ seen), np.linalg.eigvals(value @ output)
    trace_square = (values**2).sum(1).real / np.where(frobenius > 0, frobenius, 1.0) ** 2
    value_norm = sizes_V[:, 0]
    found = [dominant_of_product(o, core @ q, epsilon=STORED) for o, core, q in zip(output, inner, query, strict=True)]
    found_V = [dominant_of_product(o, v, epsilon=STORED, resolve=False) for o, v in zip(output, value, strict=True)]
    rate = np.full(len(query), np.nan)
    for h, lead in enumerate(found):
        if lead.kind in ("points", "subspace"):
            pull = np.linalg.norm(R_key[h] @ (query[h] @ lead.ends), 2)
            rate[h] = lead.gap / (given.unit * pull) if pull > 0 else np.nan
    return HeadSpectra(
        beta=sizes_B[:, 0],
        logit_rank=effective_rank(sizes_B),
        logit_stable_rank=_stable_rank(sizes_B),
        value_rank=effective_rank(sizes_V),
        value_stable_rank=_stable_rank(sizes_V),
        value_norm=value_norm / given.unit,
        eigenvalues=_sorted(values) / safe[:, None],
        value_eigenvalues=_sorted(values_V) / given.unit,
        kind=tuple(lead.kind for lead in found),
        gap=np.array([lead.gap for lead in found]) / safe,
        resolution=np.array([lead.resolution for lead in found]),
        symmetric_share=(1 + trace_square) / 2,
        asymmetry=np.sqrt(np.maximum(1 - trace_square, 0) / 2),
        non_normality=np.sqrt(
            np.maximum(1 - (np.abs(values) ** 2).sum(1) / np.where(frobenius > 0, frobenius, 1.0) ** 2, 0)
        ),
        rate=rate,
        value_kind=tuple(lead.kind for lead in found_V),
        leading=tuple(lead.ends for lead in found),
        terminal=tuple(lead.ends for lead in found_V),
    )


def triangle(matrix: Float[np.ndarray, "h d k"]) -> Float[np.ndarray, "h k k"]:
    """R with |matrix·z| = |R·z|, to eight digits or better.

    From the Gram matrix, which is ten times faster than an orthogonal decomposition but squares the condition number;
    where that could cost digits that matter, the decomposition itself.
    """
    try:
        found = np.linalg.cholesky(matrix.transpose(0, 2, 1) @ matrix).transpose(0, 2, 1)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.qr(matrix, mode="r"))
    diagonal = np.diagonal(found, axis1=1, axis2=2)
    doubtful = ~(diagonal.min(1) > WELL_CONDITIONED * diagonal.max(1))
    found[doubtful] = np.linalg.qr(matrix[doubtful], mode="r")
    return np.asarray(found)


def effective_rank(sizes: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """exp of the entropy of the singular values' shares: k when all are equal, 1 when one is all, 0 for nothing."""
    share = sizes / np.maximum(sizes.sum(-1, keepdims=True), 1e-300)
    entropy = -(share * np.log(np.maximum(share, 1e-300))).sum(-1)
    return np.where(sizes.sum(-1) > 0, np.exp(entropy), 0.0)


def _stable_rank(sizes: Float[np.ndarray, "h k"]) -> Float[np.ndarray, " h"]:
    return np.asarray((sizes**2).sum(1) / np.maximum(sizes[:, 0] ** 2, 1e-300))


def _sorted(values: np.ndarray) -> np.ndarray:
    order = np.lexsort((-values.imag, -values.real), axis=1)
    return np.take_along_axis(values, order, 1).astype(np.complex128)
