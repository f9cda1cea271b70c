"""The engines of the mean map by name, and the choice among them: (engine, reason).

The choice goes by dimension, device and number of pairs, and for large clouds by the estimated cost of a tree.
"""

import math
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.dynamics.mean_map.dense import WIDEST, block_sums, blocks, fused, log_range
from frostline.errors import BadParameter
from frostline.files.suggestions import is_name
from frostline.log import LOG

if TYPE_CHECKING:
    from frostline.dynamics.mean_map.tree import TreePlan

Engine: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, float], Tensor]
"""Queries p (…, q, d), sources y (…, n, d), log weights and tolerance to the mean map (…, q, d)."""

COMPILED = 1 << 19
"""Pairs from which a compiled loop, or a kernel, is used: numba alone takes a second to import."""
LOOP_DIMENSION = 4
"""The largest dimension of compiled loops on a CPU."""
LARGEST = 1e14
"""Entries of p up to which rounding of logits is below 1."""
LARGE = {2: 4_000_000, 3: 45_000_000, 4: 120_000_000}
"""Pairs below which building a tree takes longer than summing everything, by dimension."""
WORTH = 0.85
"""The largest cost of a tree, as estimated, in units of the dense loop's: the estimate is a little low."""


class Choice(NamedTuple):
    """The engine chosen, by name, and the reason in words."""

    engine: str
    reason: str


def select(
    p: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], log_weights: Tensor | None, tolerance: float
) -> Choice:
    """The engine that ``auto`` uses for this mean map, and why."""
    return _selected(p, y, log_weights, tolerance)[0]


def auto(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """The mean map by the engine that should be fastest."""
    choice, evaluate = _selected(p, y, log_weights, tolerance)
    LOG.debug("mean map: %s, because %s", choice.engine, choice.reason)
    return evaluate()


def dense(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """Σ_j w_j e^{⟨p,y_j⟩} y_j / Σ_j w_j e^{⟨p,y_j⟩} over every pair, by the fastest kernel that is exact here."""
    if _no_loop(p, y, log_weights) is None:
        from frostline.dynamics.mean_map.loop import loop

        return loop(p, y, log_weights, tolerance)
    # On a GPU the fused kernels know no float64: torch would build the whole n×n matrix.
    kernel = blocks if y.is_cuda and y.dtype == torch.float64 else fused
    return kernel(p, y, log_weights, tolerance)


def _tree(*arguments: Any) -> Tensor:
    # numba takes a second to import: only calls that need compiled loops import it.
    from frostline.dynamics.mean_map.tree import tree

    return tree(*arguments)


def _cuda(*arguments: Any) -> Tensor:
    try:
        from frostline.dynamics.mean_map.cuda import cuda
    except ModuleNotFoundError as error:
        raise BadParameter(f'the cuda engine needs {error.name}, which is not installed; use engine="dense".') from None
    return cuda(*arguments)


ENGINES: dict[str, Engine] = {
    "auto": auto,
    "dense": dense,
    "fused": fused,
    "blocks": blocks,
    "tree": _tree,
    "cuda": _cuda,
}
"""Every engine by its name."""


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    if not is_name(name, ENGINES):
        raise BadParameter(f"engine {name!r} is unknown; there are: {', '.join(ENGINES)}.")
    return ENGINES[name]


def _selected(
    p: Tensor, y: Tensor, log_weights: Tensor | None, tolerance: float
) -> tuple[Choice, Callable[[], Tensor]]:
    """The choice, and the evaluation by that engine; a tree that was planned for the choice is used again."""
    if y.is_cuda:
        reason = _no_kernel(p, y, log_weights, tolerance)
        if reason is not None:
            return Choice("dense", reason), partial(dense, p, y, log_weights, tolerance)
        reason = f"the tokens are on a GPU, d = {y.shape[-1]}"
        return Choice("cuda", reason), partial(_cuda, p, y, log_weights, tolerance)
    choice, plans = _planned(p, y, log_weights, tolerance)
    if plans is None:
        return choice, partial(dense, p, y, log_weights, tolerance)
    return choice, lambda: torch.from_numpy(np.stack([plan.mean_map() for plan in plans])).reshape(p.shape)


def mean_and_mass(
    p: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    log_weights: Float[Tensor, "*#batch n"] | None,
    tolerance: float,
    engine: str = "auto",
) -> tuple[Float[Tensor, "*batch q d"], Float[Tensor, "*batch q"]]:
    """The mean map and log Σ_j w_j e^{⟨p,y_j⟩}, Σ_j w_j = 1, from the same sums; "auto", "dense" or "tree"."""
    plans = None
    if engine == "tree":
        from frostline.dynamics.mean_map.tree import make_plans, refuse_unsupported

        refuse_unsupported(p, log_weights, tolerance)
        plans = list(make_plans(p, y, log_weights, tolerance))
    elif engine == "auto" and not y.is_cuda:
        plans = _planned(p, y, log_weights, tolerance)[1]
    if plans is not None:
        means, masses = (
            torch.from_numpy(np.stack(part)) for part in zip(*(plan.sums() for plan in plans), strict=True)
        )
        return means.reshape(p.shape), masses.reshape(p.shape[:-1])
    if _no_loop(p, y, log_weights) is None:
        from frostline.dynamics.mean_map.loop import loop_sums

        return loop_sums(p, y, log_weights)
    return block_sums(p, y, log_weights)


def _planned(
    p: Tensor, y: Tensor, log_weights: Tensor | None, tolerance: float
) -> tuple[Choice, "list[TreePlan] | None"]:
    """The choice on a CPU: trees, planned for every member of an ensemble, or None for the dense engine."""
    q, n, d = p.shape[-2], y.shape[-2], y.shape[-1]
    reason = _no_loop(p, y, log_weights)
    if reason is None and q * n < LARGE.get(d, math.inf):
        reason = f"{q:,} × {n:,} pairs are fewer than a tree pays for"
    if reason is not None:
        return Choice("dense", reason), None
    from frostline.dynamics.mean_map.tree import LEAST_TOLERANCE, make_plans

    if tolerance < LEAST_TOLERANCE:
        return Choice("dense", f"a tolerance of {tolerance:g} is below what a tree promises"), None
    members = list(make_plans(p, y, log_weights, tolerance))
    cost, pairs = np.mean([plan.cost() for plan in members], axis=0)
    if cost > WORTH * n:
        reason = f"a tree would sum about {pairs:,.0f} of {n:,} sources per query and take {cost / n:.1f} of the time"
        return Choice("dense", reason), None
    return Choice("tree", f"it sums about {pairs:,.0f} instead of {n:,} sources per query"), members


def _no_loop(p: Tensor, y: Tensor, log_weights: Tensor | None) -> str | None:
    """The reason why a compiled loop on the CPU cannot be used, or does not pay; None where it does."""
    q, n, d = p.shape[-2], y.shape[-2], y.shape[-1]
    if d > LOOP_DIMENSION:
        return f"d = {d}"
    if y.is_cuda or y.dtype != torch.float64 or p.shape[:-1].numel() * n < COMPILED:
        return f"{q:,} × {n:,} pairs are few"
    # Compiled loops cut exponentials off at e^−700, and take ⟨p, y⟩ ≤ |p| for granted.
    wide = log_weights is not None and log_range(log_weights) > WIDEST
    if wide or not float(p.abs().max()) < LARGEST:
        return "weights or logits are too far apart for compiled loops"
    return None


def _no_kernel(p: Tensor, y: Tensor, log_weights: Tensor | None, tolerance: float) -> str | None:
    """The reason why the GPU kernel cannot be used, or does not pay; None where it does."""
    q, n = p.shape[-2], y.shape[-2]
    if q * n < COMPILED:
        return f"{q:,} × {n:,} pairs are few"
    if find_spec("triton") is None:
        return "triton is not installed"
    from frostline.dynamics.mean_map.cuda import unable

    return unable(p, log_weights, tolerance)
