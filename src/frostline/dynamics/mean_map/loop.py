"""The dense engine for d ≤ 4 on a CPU: every query against every source in a compiled loop."""

from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import prange
from torch import Tensor

from frostline.compiled import interruptible, njit
from frostline.dynamics.mean_map.pairs import add_four, add_three, largest_four, largest_three

VANISHED = 1e-280
"""Sums below this may consist of exponentials that were cut off at 1e-304; they are summed again with another shift."""


def loop(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """The mean map, exact up to rounding: about κ·1e-16 for logits of size κ."""
    return loop_sums(p, y, log_weights)[0]


def loop_sums(
    p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], log_weights: Float[Tensor, "*#batch n"] | None
) -> tuple[Float[Tensor, "*batch q d"], Float[Tensor, "*batch q"]]:
    """The mean map, and log Σ_j w_j e^{⟨p,y_j⟩}; without weights w_j = 1/n."""
    d, n = p.shape[-1], y.shape[-2]
    wide = max(3, d)
    queries = np.zeros((p.shape[:-2].numel(), p.shape[-2], wide))
    queries[..., :d] = p.reshape(len(queries), -1, d).numpy()
    sources = np.zeros((len(queries), wide, n))
    sources[:, :d] = y.reshape(len(queries), n, d).mT.numpy()
    weights = np.ones(n) if log_weights is None else np.exp((log_weights - log_weights.max()).numpy())
    out, logs = np.empty(queries.shape), np.empty(queries.shape[:-1])
    with interruptible():
        _all_pairs(queries, sources, weights, out, logs)
    largest = -np.log(n) if log_weights is None else float(log_weights.max())
    means = torch.from_numpy(np.ascontiguousarray(out[..., :d])).reshape(p.shape)
    return means, torch.from_numpy(logs + largest).reshape(p.shape[:-1])


@njit(parallel=True)
@no_type_check
def _all_pairs(p, y, w, out, logs):
    members, queries, wide = p.shape
    n = len(w)
    for i in prange(members * queries):
        member, row = i // queries, i % queries
        query, sources, sums = p[member, row], y[member], np.zeros(wide + 1)
        # ⟨p, y⟩ ≤ |p|, so nothing overflows; where everything vanishes, the largest logit has to be looked for.
        shift = np.sqrt((query**2).sum())
        if wide == 3:
            add_three(query, sources, w, n, shift, sums)
        else:
            add_four(query, sources, w, n, shift, sums)
        if not sums[0] > VANISHED:
            sums[:] = 0.0
            if wide == 3:
                shift = largest_three(query, sources, n)
                add_three(query, sources, w, n, shift, sums)
            else:
                shift = largest_four(query, sources, n)
                add_four(query, sources, w, n, shift, sums)
        logs[member, row] = shift + np.log(sums[0])
        for k in range(wide):
            out[member, row, k] = sums[1 + k] / sums[0]
