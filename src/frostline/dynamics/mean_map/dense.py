"""Dense engines: every query against every source, exact up to rounding.

Logits are shifted by their maximum, so β = 1e6 does not overflow.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# Logits held at once by `blocks`.
BLOCK = 1 << 22
COMPILED = 1 << 19
"""Pairs from which a compiled loop is used."""
WIDEST = 600.0
"""How far logarithms of weights may be apart in compiled loops: the lightest source may be all that counts."""
LARGEST = 1e14
"""Entries of p up to which rounding of logits is below 1."""


def dense(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """Σ_j w_j e^{⟨p,y_j⟩} y_j / Σ_j w_j e^{⟨p,y_j⟩} by the fastest kernel that is exact here."""
    if worth_compiling(p, y) and compilable(p, log_weights):
        from frostline.dynamics.mean_map.loop import loop

        return loop(p, y, log_weights, tolerance)
    # On a GPU the fused kernels know no float64: torch would build the whole n×n matrix.
    engine = blocks if y.is_cuda and y.dtype == torch.float64 else fused
    return engine(p, y, log_weights, tolerance)


def worth_compiling(p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"]) -> bool:
    """Whether a compiled loop can do it, and there is enough to do: numba alone takes a second to import."""
    few_dimensions = not y.is_cuda and y.dtype == torch.float64 and y.shape[-1] <= 4
    return few_dimensions and p.shape[:-1].numel() * y.shape[-2] >= COMPILED


def compilable(p: Float[Tensor, "*batch q d"], log_weights: Tensor | None) -> bool:
    """Whether compiled loops are right here: they cut exponentials off at e^−700, and take ⟨p, y⟩ ≤ |p| for granted."""
    wide = log_weights is not None and log_range(log_weights) > WIDEST
    return not wide and float(p.abs().max()) < LARGEST


def log_range(log_weights: Tensor) -> float:
    """How far logarithms of weights are apart."""
    return float(log_weights.max() - log_weights.min())


def fused(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """torch's fused attention: nothing of size q×n is ever stored."""
    batch, (q, d), n = y.shape[:-2], p.shape[-2:], y.shape[-2]
    keys = y.reshape(-1, 1, n, d)
    queries = p.reshape(-1, 1, q, d)
    mask = None
    if log_weights is not None:
        mask = log_weights.expand(*batch, n).reshape(-1, 1, 1, n).expand(-1, 1, q, n)
    return scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, scale=1.0).reshape(*batch, q, d)


def blocks(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """Shifted dot products, a block of queries at a time."""
    rows = max(1, BLOCK // max(1, y.shape[:-1].numel()))
    parts = []
    for queries in torch.split(p, rows, dim=-2):
        logits = queries @ y.mT
        if log_weights is not None:
            logits = logits + log_weights[..., None, :]
        parts.append(torch.softmax(logits, dim=-1) @ y)
    return torch.cat(parts, dim=-2)
