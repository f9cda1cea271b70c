"""Dense engines on every device: every query against every source, exact up to rounding.

Logits are shifted by their maximum, so β = 1e6 does not overflow.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

BLOCK = 1 << 22
"""Logits held at once by ``blocks``."""
WIDEST = 600.0
"""The largest difference of log weights in compiled loops: the lightest source may be the only one that counts."""


def log_range(log_weights: Tensor) -> float:
    """The difference of the largest and the smallest log weight."""
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
    return block_sums(p, y, log_weights)[0]


def block_sums(
    p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], log_weights: Float[Tensor, "*#batch n"] | None
) -> tuple[Float[Tensor, "*batch q d"], Float[Tensor, "*batch q"]]:
    """The mean map, and log Σ_j w_j e^{⟨p,y_j⟩}; without weights w_j = 1/n."""
    rows = max(1, BLOCK // max(1, y.shape[:-1].numel()))
    parts, masses = [], []
    for queries in torch.split(p, rows, dim=-2):
        logits = queries @ y.mT
        if log_weights is not None:
            logits = logits + log_weights[..., None, :]
        masses.append(torch.logsumexp(logits, dim=-1))
        parts.append(torch.softmax(logits, dim=-1) @ y)
    mass = torch.cat(masses, dim=-1)
    return torch.cat(parts, dim=-2), mass if log_weights is not None else mass - math.log(y.shape[-2])
