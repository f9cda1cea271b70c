"""What the matrices of a spec predict, as plain facts and words; no token is moved."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from frostline.attention import Attention
from frostline.errors import BadParameter, NoLimit
from frostline.runs import schema as specs
from frostline.runs.build import build_heads, build_tokens
from frostline.theory.bounds import bound
from frostline.theory.limits import limit
from frostline.theory.rates import rates
from frostline.theory.regime import asymmetry, kappas, regime
from frostline.theory.terminal import terminal


def predict(spec: specs.Spec, p: float = 2.0) -> dict[str, Any]:
    """A row of facts for each of the "layers", and the "regime" of the whole."""
    x0, weights = build_tokens(spec)
    layers = build_heads(spec)
    rows = []
    for layer in layers:
        found = limit([layer])
        # Numerical limits cost an integration for every token; here nothing is moved.
        closed = found.kind in ("points", "subspace", "defective")
        rows.append(
            {
                "limit": found.facts(),
                "heads": [_head(head) for head in layer],
                "tokens_without_limit": [int(i) for i in found.undefined(x0)] if closed else None,
                "rates": _or_why(_rates, layer, p),
                "laplace": [_laplace(head, x0) for head in layer],
                "bound": _or_why(_bound, layer, p),
                "terminal": _or_why(_terminal, layer, x0, weights),
            }
        )
    assumptions = regime(layers, x0, weights=weights, until=spec.until)
    return {"layers": rows, "regime": assumptions.facts() | {"meaning": assumptions.describe()}}


def _or_why(facts: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """The facts, or the sentence that says why there are none."""
    try:
        found = facts(*given)
    except (BadParameter, NoLimit) as error:
        return {"none_because": str(error)}
    return found | {"none_because": None}


def _head(head: Attention) -> dict[str, Any]:
    sigma = head.singular_values
    return {
        "beta": head.beta,
        "key_bias": head.key_bias is not None,
        "rank_of_B": int((sigma > sigma[0] * 1e-12).sum()),
        "sigma_max": sigma[0],
        "sigma_min": sigma[-1],
        "eigenvalues_of_A": [[value.real, value.imag] for value in head.eigenvalues],
        "asymmetry_of_A": asymmetry(head),
    }


def _rates(layer: list[Attention], p: float) -> dict[str, Any]:
    found = rates([layer], p=p)
    return {
        "p": found.p,
        "token_in_clock": found.token_in_clock,
        "in_clock": found.in_clock,
        "logarithm": found.logarithm,
        "token": found.token,
        "guaranteed": found.guaranteed,
        "at_most": found.at_most,
        "exact": found.exact,
        "factor_in_time": found.factor_in_time,
        "status": found.status,
        "meaning": found.describe(),
    }


def _laplace(head: Attention, x0: np.ndarray) -> dict[str, Any]:
    kappa = kappas([head], x0)[0]
    typical = (head.dimension - 1) / (2 * float(np.median(kappa))) if np.median(kappa) > 0 else math.inf
    return {
        "median_kappa": float(np.median(kappa)),
        "least_kappa": float(kappa.min()),
        "first_order_error": typical,
        "worst_case": float(np.sqrt(np.log1p(head.beta) / head.beta)),
        "status": "first_order_error: uniform density, leading order; worst_case: up to a constant",
    }


def _bound(layer: list[Attention], p: float) -> dict[str, Any]:
    found = bound([layer], p=p)
    window = found.window(0.1)
    return {
        "origin": found.origin,
        "M": found.M,
        "C": found.C,
        "c": found.c,
        "amplitude": found.amplitude(),
        "best_time": found.best_time(),
        "best": found.best(),
        "window_delta": 0.1,
        "window": None if window is None else list(window),
        "empty": found.empty(),
        "meaning": found.describe(),
    }


def _terminal(layer: list[Attention], x0: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
    found = terminal([layer], x0, weights=weights)
    return {
        "attends": found.attends,
        "tightens": found.tightens,
        "end_kind": None if found.end is None else found.end.kind,
        "goes_to": found.goes_to,
        "escape_direction": found.direction,
        "contraction": found.contraction,
        "growth": found.growth,
        "drift": found.drift,
        "hand_over": found.hand_over,
        "status": "leading order",
        "meaning": found.case,
    }
