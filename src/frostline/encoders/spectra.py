"""Spectra of heads from their factors: B = qᵀκ, V = o·v, A = VBᵀ = o(vκᵀ)q, all from k×k matrices (THEORY section 11).

A and V have rank k at most, so zero is an eigenvalue of both, and it leads when all others have negative real parts.
Which eigenvalues lead is decided by ``theory.spectrum``; here is the one place that applies its rule to heads.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.encoders.fold import FoldedLayer
from frostline.results import Result
from frostline.theory.spectrum import Dominant, dominant_of_product, leading

STORED = float(np.finfo(np.float32).eps)
"""Relative rounding of the stored weights: eigenvalues that it may have moved past each other count as equal."""
WELL_CONDITIONED = 1e-3
"""Smallest over largest pivot above which a Gram matrix is as good as an orthogonal decomposition."""
TINY = 1e-300
"""A divisor in place of zero."""


@dataclass(frozen=True, eq=False)
class Factors:
    """Heads side by side, as (h, k, d) and (h, d, k) arrays."""

    query: Float[np.ndarray, "h k d"]
    key: Float[np.ndarray, "h k d"]
    value: Float[np.ndarray, "h k d"]
    output: Float[np.ndarray, "h d k"]
    unit: float
    """The size of tokens, by which V is divided to act on unit vectors."""

    @classmethod
    def of(cls, layer: FoldedLayer) -> "Factors":
        """The heads of a folded layer."""
        output = layer.centred_output if layer.norm.present else layer.output
        return cls(layer.query, layer.key, layer.value, output, layer.unit)

    @classmethod
    def drawn(cls, heads: int, k: int, d: int, rng: np.random.Generator) -> "Factors":
        """Random heads of the same shape, of norm one in the mean: the control."""
        query, key, value = (rng.standard_normal((heads, k, d)) / np.sqrt(k * d) for _ in range(3))
        return cls(query, key, value, rng.standard_normal((heads, d, k)) / np.sqrt(k * d), 1.0)

    @property
    def inner(self) -> Float[np.ndarray, "h k k"]:
        """vκᵀ, so that A = o(vκᵀ)q."""
        return np.asarray(self.value @ self.key.transpose(0, 2, 1))

    def dominant(self, *, epsilon: float = STORED, resolve: bool = True) -> tuple[Dominant, ...]:
        """The dominant group of A = VBᵀ of each head; its ``ends`` are the leading basis, d rows and no column where
        nothing leads. ``epsilon``: relative rounding of the factors; ``resolve``: as in ``dominant_of_product``."""
        parts = zip(self.output, self.inner, self.query, strict=True)
        return tuple(dominant_of_product(o, core @ q, epsilon=epsilon, resolve=resolve) for o, core, q in parts)

    def dominant_of_values(self, *, epsilon: float = STORED) -> tuple[Dominant, ...]:
        """The same for V of each head, without its resolution."""
        parts = zip(self.output, self.value, strict=True)
        return tuple(dominant_of_product(o, v, epsilon=epsilon, resolve=False) for o, v in parts)

    def leading_of_sum(self, count: int) -> Float[np.ndarray, "d count"]:
        """Orthonormal columns: the dominant eigenspace of the sum of all A, then that of what remains."""
        # As many heads as fill d, so the sum is a d×d matrix of full rank.
        h, d, k = self.output.shape
        outer = self.output.transpose(1, 0, 2).reshape(d, h * k)
        return leading(outer @ (self.inner @ self.query).reshape(h * k, d), count, epsilon=STORED)


@dataclass(frozen=True, eq=False, repr=False)
class HeadSpectra(Result):
    """Spectra, ranks and rates of some heads, one entry per head."""

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
    """The smallest change of the weights that makes ``kind`` wrong, over their rounding."""
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

    def describe(self) -> str:
        """The heads by kind, and their temperatures."""
        kinds = ", ".join(f"{self.kind.count(kind)} {kind}" for kind in dict.fromkeys(self.kind))
        return f"{len(self.kind)} heads ({kinds}), β from {self.beta.min():.3g} to {self.beta.max():.3g}"


def spectra(factors: Factors) -> HeadSpectra:
    """All of ``HeadSpectra`` for these heads."""
    query, key, value, output = factors.query, factors.key, factors.value, factors.output
    R_query, R_key, R_value = (triangle(part.transpose(0, 2, 1)) for part in (query, key, value))
    R_output = triangle(output)
    sizes_B = np.linalg.svd(R_query @ R_key.transpose(0, 2, 1), compute_uv=False)
    sizes_V = np.linalg.svd(R_output @ R_value.transpose(0, 2, 1), compute_uv=False)
    inner = factors.inner
    core_A = R_output @ inner @ R_query.transpose(0, 2, 1)
    frobenius = np.linalg.norm(core_A, axis=(1, 2))
    squares = np.where(frobenius > 0, frobenius, 1.0) ** 2
    norm = np.linalg.norm(core_A, 2, axis=(1, 2))
    divisor = np.where(norm > 0, norm, 1.0)
    values, values_V = np.linalg.eigvals(inner @ (query @ output)), np.linalg.eigvals(value @ output)
    trace_square = (values**2).sum(1).real / squares
    leads, leads_V = factors.dominant(), factors.dominant_of_values()
    rate = np.full(len(query), np.nan)
    for h, lead in enumerate(leads):
        if lead.kind in ("points", "subspace"):
            pull = np.linalg.norm(R_key[h] @ (query[h] @ lead.ends), 2)
            rate[h] = lead.gap / (factors.unit * pull) if pull > 0 else np.nan
    return HeadSpectra(
        beta=sizes_B[:, 0],
        logit_rank=effective_rank(sizes_B),
        logit_stable_rank=_stable_rank(sizes_B),
        value_rank=effective_rank(sizes_V),
        value_stable_rank=_stable_rank(sizes_V),
        value_norm=sizes_V[:, 0] / factors.unit,
        eigenvalues=_sorted(values) / divisor[:, None],
        value_eigenvalues=_sorted(values_V) / factors.unit,
        kind=tuple(lead.kind for lead in leads),
        gap=np.array([lead.gap for lead in leads]) / divisor,
        resolution=np.array([lead.resolution for lead in leads]),
        symmetric_share=(1 + trace_square) / 2,
        asymmetry=np.sqrt(np.maximum(1 - trace_square, 0) / 2),
        non_normality=np.sqrt(np.maximum(1 - (np.abs(values) ** 2).sum(1) / squares, 0)),
        rate=rate,
        value_kind=tuple(lead.kind for lead in leads_V),
        leading=tuple(lead.ends for lead in leads),
        terminal=tuple(lead.ends for lead in leads_V),
    )


def triangle(matrix: Float[np.ndarray, "h d k"]) -> Float[np.ndarray, "h k k"]:
    """R with |matrix·z| = |R·z|, to eight digits or better.

    From the Gram matrix, which is ten times faster than an orthogonal decomposition but squares the condition number;
    where that would cost digits that matter, the decomposition is computed.
    """
    try:
        R = np.linalg.cholesky(matrix.transpose(0, 2, 1) @ matrix).transpose(0, 2, 1)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.qr(matrix, mode="r"))
    diagonal = np.diagonal(R, axis1=1, axis2=2)
    doubtful = ~(diagonal.min(1) > WELL_CONDITIONED * diagonal.max(1))
    R[doubtful] = np.linalg.qr(matrix[doubtful], mode="r")
    return np.asarray(R)


def effective_rank(sizes: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """exp of the entropy of the singular values' shares: k when all are equal, 1 when one is all, 0 for nothing."""
    share = sizes / np.maximum(sizes.sum(-1, keepdims=True), TINY)
    entropy = -(share * np.log(np.maximum(share, TINY))).sum(-1)
    return np.where(sizes.sum(-1) > 0, np.exp(entropy), 0.0)


def _stable_rank(sizes: Float[np.ndarray, "h k"]) -> Float[np.ndarray, " h"]:
    return np.asarray((sizes**2).sum(1) / np.maximum(sizes[:, 0] ** 2, TINY))


def _sorted(values: np.ndarray) -> np.ndarray:
    order = np.lexsort((-values.imag, -values.real), axis=1)
    return np.take_along_axis(values, order, 1).astype(np.complex128)
