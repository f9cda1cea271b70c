"""Which engine: by dimension, device and number of tokens, and for large clouds by what a tree would have to sum."""

import logging
import math
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.dynamics.mean_map import dense

LOG = logging.getLogger("frostline")
LARGE = {2: 4_000_000, 3: 45_000_000, 4: 120_000_000}
"""Pairs below which building a tree takes longer than summing everything, by dimension."""
WORTH = 0.85
"""What a tree may cost, as estimated, of what the dense loop costs: the estimate is a little low."""


@dataclass(frozen=True)
class Choice:
    """An engine and why it was taken."""

    engine: str
    reason: str


def auto(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """The mean map by the engine that should be fastest."""
    choice, found = _tried(p, y, log_weights, tolerance, evaluate=True)
    LOG.debug("mean map: %s, because %s", choice.engine, choice.reason)
    return dense.dense(p, y, log_weights, tolerance) if found is None else found


def choose(
    p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], log_weights: Tensor | None, tolerance: float
) -> Choice:
    """What ``auto`` takes."""
    return _tried(p, y, log_weights, tolerance, evaluate=False)[0]


def _tried(
    p: Tensor, y: Tensor, log_weights: Tensor | None, tolerance: float, *, evaluate: bool
) -> tuple[Choice, Tensor | None]:
    """The choice; and, where it is the tree, what it found: the plan that was made to choose is used."""
    q, n, d = p.shape[-2], y.shape[-2], y.shape[-1]
    if y.is_cuda:
        return _on_gpu(p, y, log_weights, tolerance, evaluate=evaluate)
    if not dense.worth_compiling(p, y):
        why = f"d = {d}" if d > 4 else f"{q:,} × {n:,} pairs are few"
        return Choice("dense", why), None
    if not dense.compilable(p, log_weights):
        return Choice("dense", "weights or logits are too far apart for compiled loops"), None
    if q * n < LARGE.get(d, math.inf):
        return Choice("dense", f"{q:,} × {n:,} pairs are fewer than a tree pays for"), None
    # numba takes a second to import: only those who need compiled loops pay for it.
    from frostline.dynamics.mean_map.tree import LEAST_TOLERANCE, plans

    if tolerance < LEAST_TOLERANCE:
        return Choice("dense", f"a tolerance of {tolerance:g} is below what a tree promises"), None
    made = list(plans(p, y, log_weights, tolerance))
    cost, pairs = np.mean([plan.cost() for plan in made], axis=0)
    if cost > WORTH * n:
        why = f"a tree would sum about {pairs:,.0f} of {n:,} sources per query and take {cost / n:.1f} of the time"
        return Choice("dense", why), None
    choice = Choice("tree", f"it sums about {pairs:,.0f} instead of {n:,} sources per query")
    if not evaluate:
        return choice, None
    return choice, torch.stack([torch.from_numpy(plan.mean_map()) for plan in made]).reshape(p.shape)


def _on_gpu(
    p: Tensor, y: Tensor, log_weights: Tensor | None, tolerance: float, *, evaluate: bool
) -> tuple[Choice, Tensor | None]:
    q, n, d = p.shape[-2], y.shape[-2], y.shape[-1]
    if q * n < dense.COMPILED:
        return Choice("dense", f"{q:,} × {n:,} pairs are few"), None
    if find_spec("triton") is None:
        return Choice("dense", "triton is not installed"), None
    from frostline.dynamics.mean_map.cuda import cuda, unable

    reason = unable(p, log_weights, tolerance)
    if reason is not None:
        return Choice("dense", reason), None
    choice = Choice("cuda", f"the tokens are on a GPU, d = {d}")
    return choice, cuda(p, y, log_weights, tolerance) if evaluate else None
