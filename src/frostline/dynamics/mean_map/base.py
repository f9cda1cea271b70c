"""The mean map's interface: checks, the choice of an engine, and the velocity of the tokens."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, Kind, as_positive
from frostline.attention import Attention, Layer
from frostline.dynamics.mean_map import dense
from frostline.dynamics.mean_map import select as choosing
from frostline.dynamics.mean_map.select import Choice, auto
from frostline.errors import BadArray, BadParameter
from frostline.sample import as_weights
from frostline.sphere import as_tokens, project, unit

Engine = Callable[[Tensor, Tensor, Tensor | None, float], Tensor]
# Up to this dimension float32 tokens are raised to float64 inside the mean map. A float32 logit of size κ is off by
# about κ·6e-8, and where two far tokens tie even the difference form (THEORY eq. 4) inherits that (measured at β = 1e5:
# 1.5e-5 in d = 4, 6e-4 in d = 8); torch's fused kernel in float64 is right to 5e-8, costs 1.6 times its float32 self
# and an eighteenth of the difference form. Above, κ is rarely that large and float64 costs twice.
RAISED_DIMENSION = 8
EPSILON = sys.float_info.epsilon


def _tree(*given: Any) -> Tensor:
    # numba takes a second to import: only those who need compiled loops pay for it.
    from frostline.dynamics.mean_map.tree import tree

    return tree(*given)


def _cuda(*given: Any) -> Tensor:
    try:
        from frostline.dynamics.mean_map.cuda import cuda
    except ModuleNotFoundError as error:
        raise BadParameter(f'the cuda engine needs {error.name}, which is not installed; use engine="dense".') from None
    return cuda(*given)


ENGINES: dict[str, Engine] = {
    "auto": auto,
    "dense": dense.dense,
    "fused": dense.fused,
    "blocks": dense.blocks,
    "tree": _tree,
    "cuda": _cuda,
}
TOLERANCE = 1e-8
"""Of the mean map, where nothing else is asked for."""
LOOSEST = 0.1
"""Nobody is served by worse."""


def mean_map(
    head: Attention,
    x: Array,
    *,
    sources: Array | None = None,
    weights: Array | None = None,
    tolerance: float = TOLERANCE,
    engine: str = "auto",
) -> Array:
    """m_β[ρ](x) for every query x (THEORY eq. 1), ρ the (weighted) empirical measure of the sources.

    ``x`` (…, q, d); ``sources`` (…, n, d), by default the queries themselves; ``weights`` (n,), by default equal.
    ``tolerance`` is a promise: no query's |m − m_exact| is larger, rounding aside (about κ·ε for logits of size κ; ε is
    that of float64 up to d = 8, of the tokens' dtype above). ``engine`` "dense" sums every pair and has rounding only;
    "tree" (d ≤ 4, CPU) and "cuda" (d ≤ 8, GPU) sum what matters; "auto" takes the fastest (``choose`` says which).

    >>> head = Attention.from_matrices(torch.eye(2).tolist(), torch.eye(2).tolist(), beta=1e6)
    >>> mean_map(head, [[1.0, 0.0], [0.0, 1.0]])
    array([[1., 0.],
           [0., 1.]])
    """
    queries, known, logs, tolerance, kind = _checked(head, x, sources, weights, tolerance)
    found = evaluate(head.to(queries), queries, known, logs, pick(engine), tolerance)
    if not bool(torch.isfinite(found).all()):
        raise BadParameter(f"the logits overflow {queries.dtype} at beta = {head.beta:g}; scale B or beta down.")
    return kind.restore(found)


def choose(
    head: Attention,
    x: Array,
    *,
    sources: Array | None = None,
    weights: Array | None = None,
    tolerance: float = TOLERANCE,
) -> Choice:
    """The engine that "auto" takes for this mean map, and why."""
    queries, known, logs, tolerance, _ = _checked(head, x, sources, weights, tolerance)
    return choosing.choose(head.beta * head.to(queries).logit_direction(queries), *with_mass(known, logs), tolerance)


def _checked(
    head: Attention, x: Array, sources: Array | None, weights: Array | None, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None, float, Kind]:
    """Queries, sources and log weights in the precision they are worked with, tolerance, and the kind of array."""
    if not isinstance(head, Attention):
        raise BadParameter(f"mean_map takes one Attention, not {type(head).__name__}; call it head by head.")
    queries, kind = as_tokens(x, "x")
    known = queries if sources is None else as_tokens(sources, "sources")[0].to(queries.device)
    d = {"head": head.dimension, "x": queries.shape[-1], "sources": known.shape[-1]}
    if len(set(d.values())) > 1 or queries.shape[:-2] != known.shape[:-2]:
        raise BadArray(
            f"shapes do not fit: x {tuple(queries.shape)}, sources {tuple(known.shape)}, head d = {head.dimension}."
        )
    tolerance = min(as_positive(tolerance, "tolerance"), LOOSEST)
    if tolerance < EPSILON:
        raise BadParameter(f"tolerance is {tolerance:g}, below float64's precision of {EPSILON:g}; ask for 1e-12, say.")
    wide = torch.promote_types(queries.dtype, known.dtype)
    queries, known = raised(queries.to(wide)), raised(known.to(wide))
    return queries, known, log_weights(weights, known), tolerance, kind


def raised(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """The tokens in the precision the mean map works in; at low temperature it matters that they are of unit length."""
    return unit(x.double()) if x.shape[-1] <= RAISED_DIMENSION else x


def evaluate(
    head: Attention,
    x: Float[Tensor, "*batch q d"],
    y: Float[Tensor, "*batch n d"],
    logs: Tensor | None,
    engine: Engine,
    tolerance: float,
) -> Float[Tensor, "*batch q d"]:
    """The mean map on tensors of one precision, without checks."""
    try:
        return engine(head.beta * head.logit_direction(x), *with_mass(y, logs), tolerance)
    except torch.OutOfMemoryError:
        free, total = torch.cuda.mem_get_info(x.device)
        raise BadParameter(
            f"the GPU has not enough memory for a mean map of {x.shape[-2]:,} × {y.shape[-2]:,} tokens: "
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free. Use fewer tokens, or move them to the CPU."
        ) from None


def token_velocity(
    layer: Layer, x: Float[Tensor, "*batch n d"], logs: Tensor | None, engine: Engine, tolerance: float = TOLERANCE
) -> Float[Tensor, "*batch n d"]:
    """Σ_h P_x V_h m_h(x) (THEORY eq. 2) for heads of ``raised`` precision, without checks."""
    working = raised(x)
    push = torch.zeros_like(working)
    for head in layer:
        push = push + head.apply_value(evaluate(head, working, working, logs, engine, tolerance))
    return project(working, push).to(x.dtype)


def log_weights(weights: Array | None, y: Float[Tensor, "*batch n d"]) -> Tensor | None:
    """log w (−inf for weight zero), or None for equal weights."""
    if weights is None:
        return None
    return torch.from_numpy(as_weights(weights, y.shape[-2])).log().to(y)


def with_mass(y: Float[Tensor, "*batch n d"], logs: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The sources that have mass, and their log weights: engines take log weights for finite.

    A massless source adds nothing to eq. 1, but its logit may be the largest by far, and e^logit would overflow.
    """
    if logs is None:
        return y, None
    there = logs > -torch.inf
    return (y, logs) if bool(there.all()) else (y[..., there, :], logs[there])


def pick(engine: str) -> Engine:
    """The engine of that name."""
    if not isinstance(engine, str) or engine not in ENGINES:
        raise BadParameter(f"engine {engine!r} is unknown; there are: {', '.join(ENGINES)}.")
    return ENGINES[engine]
