"""The mean map's interface: checks, the choice of an engine, and the velocity of the tokens."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, as_positive
from frostline.attention import Attention, Layer
from frostline.dynamics.mean_map import dense
from frostline.errors import BadArray, BadParameter
from frostline.sample import as_weights
from frostline.sphere import as_tokens, project

Engine = Callable[[Tensor, Tensor, Tensor | None], Tensor]
# Up to this dimension float32 tokens are raised to float64 inside the mean map. A float32 logit of size κ is off by
# about κ·6e-8, and where two far tokens tie even the difference form (THEORY eq. 4) inherits that (measured at β = 1e5:
# 1.5e-5 in d = 4, 6e-4 in d = 8); torch's fused kernel in float64 is right to 5e-8, costs 1.6 times its float32 self
# and an eighteenth of the difference form. Above, κ is rarely that large and float64 costs twice.
RAISED_DIMENSION = 8

ENGINES: dict[str, Engine] = {"dense": dense.dense, "fused": dense.fused, "blocks": dense.blocks}


def mean_map(
    head: Attention,
    x: Array,
    *,
    sources: Array | None = None,
    weights: Array | None = None,
    tolerance: float = 1e-8,
    engine: str = "auto",
) -> Array:
    """m_β[ρ](x) for every query x (THEORY eq. 1), ρ the (weighted) empirical measure of the sources.

    ``x`` (…, q, d); ``sources`` (…, n, d), by default the queries themselves; ``weights`` (n,), by default equal.
    Every engine so far is dense, so ``tolerance`` asks for nothing: the error is rounding, about κ·ε for logits of size
    κ (ε that of float64 up to d = 8, of the tokens' dtype above).

    >>> head = Attention.from_matrices(torch.eye(2).tolist(), torch.eye(2).tolist(), beta=1e6)
    >>> mean_map(head, [[1.0, 0.0], [0.0, 1.0]])
    array([[1., 0.],
           [0., 1.]])
    """
    if not isinstance(head, Attention):
        raise BadParameter(f"mean_map takes one Attention, not {type(head).__name__}; call it head by head.")
    queries, kind = as_tokens(x, "x")
    known = queries if sources is None else as_tokens(sources, "sources")[0].to(queries)
    d = {"head": head.dimension, "x": queries.shape[-1], "sources": known.shape[-1]}
    if len(set(d.values())) > 1 or queries.shape[:-2] != known.shape[:-2]:
        raise BadArray(
            f"shapes do not fit: x {tuple(queries.shape)}, sources {tuple(known.shape)}, head d = {head.dimension}."
        )
    as_positive(tolerance, "tolerance")
    queries, known = raised(queries), raised(known)
    found = evaluate(head.to(queries), queries, known, log_weights(weights, known), pick(engine))
    if not bool(torch.isfinite(found).all()):
        raise BadParameter(f"the logits overflow {queries.dtype} at beta = {head.beta:g}; scale B or beta down.")
    return kind.restore(found)


def raised(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """The tokens in the precision the mean map works in."""
    return x.double() if x.shape[-1] <= RAISED_DIMENSION else x


def evaluate(
    head: Attention, x: Float[Tensor, "*batch q d"], y: Float[Tensor, "*batch n d"], logs: Tensor | None, engine: Engine
) -> Float[Tensor, "*batch q d"]:
    """The mean map on tensors of one precision, without checks."""
    return engine(head.beta * head.logit_direction(x), y, logs)


def token_velocity(
    layer: Layer, x: Float[Tensor, "*batch n d"], logs: Tensor | None, engine: Engine
) -> Float[Tensor, "*batch n d"]:
    """Σ_h P_x V_h m_h(x) (THEORY eq. 2) for heads of ``raised`` precision, without checks."""
    working = raised(x)
    push = torch.zeros_like(working)
    for head in layer:
        push = push + head.apply_value(evaluate(head, working, working, logs, engine))
    return project(working, push).to(x.dtype)


def log_weights(weights: Array | None, y: Float[Tensor, "*batch n d"]) -> Tensor | None:
    """log w (−inf for weight zero), or None for equal weights."""
    if weights is None:
        return None
    return torch.from_numpy(as_weights(weights, y.shape[-2])).log().to(y)


def pick(engine: str) -> Engine:
    """The engine of that name; "auto" is dense until there is another."""
    if engine == "auto":
        return ENGINES["dense"]
    if not isinstance(engine, str) or engine not in ENGINES:
        raise BadParameter(f"engine {engine!r} is unknown; there are: auto, {', '.join(ENGINES)}.")
    return ENGINES[engine]
