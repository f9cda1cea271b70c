"""mean_map: the mean map of one head, its arguments checked; and the velocity of the tokens of a layer."""

import sys

import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, Kind, as_positive
from frostline.attention import Attention, Layer
from frostline.dynamics.mean_map.select import Choice, Engine, engine_named, mean_and_mass, select
from frostline.errors import BadArray, BadParameter
from frostline.sample import as_weights
from frostline.sphere import as_tokens, project, unit

RAISED_DIMENSION = 8
"""The largest dimension in which float32 tokens are raised to float64 inside the mean map.

A float32 logit of size κ is off by about κ·6e-8, and where two far tokens tie even the difference form (THEORY eq. 4)
inherits that (measured at β = 1e5: 1.5e-5 in d = 4, 6e-4 in d = 8); torch's fused kernel in float64 is right to 5e-8,
costs 1.6 times its float32 self and an eighteenth of the difference form. Above, κ is rarely that large and float64
costs twice.
"""
EPSILON = sys.float_info.epsilon
"""The relative rounding error of float64: no tolerance below it can be met."""
TOLERANCE = 1e-8
"""The largest error |m − m_exact| of a query, by default."""
LOOSEST = 0.1
"""The loosest tolerance that engines are given: looser ones save no time."""


def mean_map(
    head: Attention,
    x: Array,
    *,
    sources: Array | None = None,
    weights: Array | None = None,
    tolerance: float = TOLERANCE,
    engine: str = "auto",
) -> Array:
    """m_β[ρ](x) = Σ_j w_j e^{β⟨Bᵀx, y_j⟩} y_j / Σ_j w_j e^{β⟨Bᵀx, y_j⟩} for every query x (THEORY eq. 1).

    Parameters
    ----------
    head : Attention
        One head.
    x : Array
        Queries (…, q, d) on the sphere.
    sources : Array, optional
        The y_j, (…, n, d); the queries themselves by default.
    weights : Array, optional
        The w_j, (n,), ≥ 0 with sum 1; equal by default.
    tolerance : float
        The largest error |m − m_exact| of a query; absolute, as means are no longer than 1. Rounding comes on top:
        about κ·ε for logits of size κ, with ε that of float64 up to d = 8 and of the tokens' dtype above.
    engine : str
        "dense" sums every pair; "tree" (d ≤ 4, CPU) and "cuda" (d ≤ 8, GPU) leave out or merge sources within the
        tolerance; "auto" takes the fastest, and ``frostline.dynamics.mean_map.choose`` says which and why.

    Returns
    -------
    Array
        The mean map (…, q, d), of the kind and dtype of ``x``.

    Raises
    ------
    BadArray, OffSphere, BadWeights
        Queries, sources or weights do not fit.
    BadParameter
        The tolerance is below float64's precision, the engine is unknown or cannot do this, or logits overflow.

    Examples
    --------
    >>> tokens = [[1.0, 0.0], [0.0, 1.0]]
    >>> mean_map(Attention.from_matrices(B=tokens, V=tokens, beta=1e6), tokens)
    array([[1., 0.],
           [0., 1.]])
    """
    queries, known, logs, tolerance, kind = _checked(head, x, sources, weights, tolerance)
    means = evaluate(head.to(queries), queries, known, logs, engine_named(engine), tolerance)
    if not bool(torch.isfinite(means).all()):
        raise BadParameter(f"the logits overflow {queries.dtype} at beta = {head.beta:g}; scale B or beta down.")
    return kind.restore(means)


def mean_map_and_exponent(
    head: Attention,
    x: Array,
    *,
    sources: Array | None = None,
    weights: Array | None = None,
    tolerance: float = TOLERANCE,
    engine: str = "auto",
) -> tuple[Array, Array]:
    """``mean_map``, and Λ(x) = −log ∫ e^{−κ|y−u|²/2} dρ(y) of THEORY eq. 19, from the same sums.

    It is κ − log ∫ e^{⟨p,y⟩} dρ(y), with p = β(Bᵀx + g), κ = |p|, u = p/κ, in float64 whatever the tokens are; rounding
    is about κ·1e-16.
    The tree engine leaves out or merges sources, and Λ inherits a relative error of the mass of that order.

    >>> tokens = [[1.0, 0.0], [0.0, 1.0]]
    >>> mean_map_and_exponent(Attention.from_matrices(B=tokens, V=tokens, beta=1e3), tokens)[1].round(6)  # log 2
    array([0.693147, 0.693147])
    """
    queries, known, logs, tolerance, kind = _checked(head, x, sources, weights, tolerance)
    queries, known = unit(queries.double()), unit(known.double())
    logs = None if logs is None else logs.double()
    p = head.beta * head.to(queries).logit_direction(queries)
    means, masses = mean_and_mass(p, *with_mass(known, logs), tolerance, engine)
    if not bool(torch.isfinite(means).all()):
        raise BadParameter(f"the logits overflow {queries.dtype} at beta = {head.beta:g}; scale B or beta down.")
    # Rounding may take a mass at u itself above 1.
    exponents = (torch.linalg.vector_norm(p, dim=-1) - masses).clamp_min(0.0)
    return kind.restore(means), kind.restore(exponents)


def choose(
    head: Attention,
    x: Array,
    *,
    sources: Array | None = None,
    weights: Array | None = None,
    tolerance: float = TOLERANCE,
) -> Choice:
    """The engine that "auto" takes for this mean map, and why; arguments as ``mean_map``'s.

    >>> choose(Attention.from_matrices(torch.eye(8), torch.eye(8), beta=1.0), torch.eye(8))
    Choice(engine='dense', reason='d = 8')
    """
    queries, known, logs, tolerance, _ = _checked(head, x, sources, weights, tolerance)
    return select(head.beta * head.to(queries).logit_direction(queries), *with_mass(known, logs), tolerance)


def _checked(
    head: Attention, x: Array, sources: Array | None, weights: Array | None, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None, float, Kind]:
    """Queries, sources and log weights in the precision of the computation, the tolerance, and the kind of ``x``."""
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
    """The tokens in the precision of the mean map, of unit length: at low temperature logits depend on it."""
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
    """The sources that have mass, and their log weights, which engines take to be finite.

    A massless source adds nothing to eq. 1, but its logit may be the largest by far, and e^logit would overflow.
    """
    if logs is None:
        return y, None
    there = logs > -torch.inf
    return (y, logs) if bool(there.all()) else (y[..., there, :], logs[there])
