"""Spectra of heads from their factors: B = qᵀκ, V = o·v, A = VBᵀ = o(vκᵀ)q, all from k×k matrices (THEORY section 11).

A and V have rank k at most, so zero is an eigenvalue of both, and it leads when all others have negative real parts.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.encoders.folding import FoldedLayer

SLACK = 100.0
"""Rounding of the stored weights, in units of their precision, that eigenvalues are told apart against."""
STORED = float(np.finfo(np.float32).eps)
WELL_CONDITIONED = 1e-3
"""Smallest over largest pivot from which on a Gram matrix is as good as an orthogonal decomposition."""
DEFECTIVE = 1e-2
"""An eigenvalue that rounding of the weights may move by this share of ‖A‖ is called defective."""


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
    """The gap over what rounding of the weights may have moved it by."""
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
    values, right = np.linalg.eig(inner @ seen)
    trace_square = (values**2).sum(1).real / np.where(frobenius > 0, frobenius, 1.0) ** 2
    found: list[_Leading] = []
    found_V: list[_Leading] = []
    values_V, right_V = np.linalg.eig(value @ output)
    value_norm = sizes_V[:, 0]
    for h in range(len(query)):
        found.append(_leading(values[h], right[h], R_output[h], inner[h] @ R_query[h].T, output[h], float(safe[h])))
        found_V.append(
            _leading(values_V[h], right_V[h], R_output[h], R_value[h].T, output[h], float(value_norm[h]) or 1.0)
        )
    rate = np.full(len(query), np.nan)
    for h, lead in enumerate(found):
        if lead.kind in ("points", "subspace") and lead.basis.shape[1]:
            pull = np.linalg.norm(R_key[h] @ (query[h] @ lead.basis), 2)
            rate[h] = lead.gap * norm[h] / (given.unit * pull) if pull > 0 else np.nan
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
        gap=np.array([lead.gap for lead in found]),
        resolution=np.array([lead.resolution for lead in found]),
        symmetric_share=(1 + trace_square) / 2,
        asymmetry=np.sqrt(np.maximum(1 - trace_square, 0) / 2),
        non_normality=np.sqrt(
            np.maximum(1 - (np.abs(values) ** 2).sum(1) / np.where(frobenius > 0, frobenius, 1.0) ** 2, 0)
        ),
        rate=rate,
        value_kind=tuple(lead.kind for lead in found_V),
        leading=tuple(lead.basis for lead in found),
        terminal=tuple(lead.basis for lead in found_V),
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


@dataclass(frozen=True, eq=False)
class _Leading:
    kind: str
    gap: float
    resolution: float
    basis: np.ndarray


def _leading(
    values: np.ndarray, right: np.ndarray, R_output: np.ndarray, rest: np.ndarray, output: np.ndarray, norm: float
) -> _Leading:
    """What leads in o·(rest), whose nonzero spectrum is that of the k×k product; lengths in units of its norm."""
    values = values / norm
    d, k = output.shape
    # Rounding η moves an eigenvalue by η times its condition number, but no pair by more than about √η.
    moved = _conditions(values, right, R_output, rest, norm) * STORED * SLACK
    error = np.minimum(moved, np.sqrt(STORED * SLACK))
    top = int(values.real.argmax())
    if values.real[top] <= error[top] and d > k:
        # Nothing is ahead of the kernel.
        return _Leading("kernel", np.nan, np.nan, np.zeros((d, 0)))
    inside = values.real >= values.real[top] - error - error[top]
    below = np.concatenate([values.real[~inside], [0.0] if d > k else []])
    following = float(below.max()) if len(below) else -np.inf
    gap = float(values.real[inside].min() - following)
    doubt = float(error[inside].max()) / SLACK
    basis = np.linalg.qr(output @ np.concatenate([right[:, inside].real, right[:, inside].imag], 1))[0]
    count = int(inside.sum())
    turning = np.abs(values.imag[inside]) > error[inside]
    if count > 1 and moved[inside].max() >= DEFECTIVE:
        kind = "defective"
    elif turning.any():
        kind = "rotation" if turning.all() and count == 2 else "mixed"
    else:
        kind = "points" if count == 1 else "subspace"
    return _Leading(kind, gap, gap / doubt if doubt > 0 else np.inf, basis[:, :count])


def _conditions(
    values: np.ndarray, right: np.ndarray, R_output: np.ndarray, rest: np.ndarray, norm: float
) -> np.ndarray:
    """Condition number of each nonzero eigenvalue: |left||right| over their product."""
    try:
        left = np.linalg.inv(right)
    except np.linalg.LinAlgError:
        return np.full(len(values), np.inf)
    lengths = np.linalg.norm(left @ rest, axis=1) * np.linalg.norm(R_output @ right, axis=0)
    return np.asarray(lengths / np.maximum(np.abs(values) * norm, 1e-300))


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
