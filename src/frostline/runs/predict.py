"""Predictions from the matrices of a spec, as plain facts and words; no token is moved."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from frostline.analysis.tubes import tube
from frostline.attention import Attention
from frostline.errors import BadParameter, NoLimit
from frostline.results import plain_value
from frostline.runs import schema as specs
from frostline.runs.build import build_density, build_heads, build_tokens
from frostline.theory.bounds import bound
from frostline.theory.limits import limit
from frostline.theory.rates import rates
from frostline.theory.regime import asymmetry, kappas, regime
from frostline.theory.terminal import HELD, terminal

SMALL_TERMS = 0.1
"""The window of the bound: the times at which both of its terms are below this."""


def predict(spec: specs.Spec, p: float = 2.0) -> dict[str, Any]:
    """A row of facts for each of the "layers", and the "regime" of the whole."""
    x0, weights = build_tokens(spec)
    layers = build_heads(spec)
    rows: list[dict[str, Any]] = []
    for layer in layers:
        target = limit([layer])
        # Numerical limits cost an integration for every token; here nothing is moved.
        closed_form = target.kind in ("points", "subspace", "defective")
        rows.append(
            {
                "limit": target.facts(),
                "heads": [_head(head) for head in layer],
                "tokens_without_limit": [int(i) for i in target.undefined(x0)] if closed_form else None,
                "rates": _facts_or_reason(_rates, layer, p),
                "laplace": [_laplace(head, x0) for head in layer],
                "tube": _facts_or_reason(_tube, layers, spec, p),
                "bound": _facts_or_reason(_bound, layer, p),
                "terminal": _facts_or_reason(_terminal, layer, x0, weights),
            }
        )
    assumptions = regime(layers, x0, weights=weights, until=spec.until)
    if assumptions["freezing"].verdict == "no":
        for row in rows:
            if "meaning" in row["tube"]:
                row["tube"]["meaning"] += f" The {len(x0)} tokens here are too few for it: see Regime."
    return {"layers": rows, "regime": assumptions.facts() | {"meaning": assumptions.describe()}}


def _facts_or_reason(facts: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """The facts, or the sentence that says why there are none."""
    try:
        return facts(*arguments) | {"none_because": None}
    except (BadParameter, NoLimit) as error:
        return {"none_because": str(error)}


def _head(head: Attention) -> dict[str, Any]:
    """The spectra of one head."""
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


def _laplace(head: Attention, x0: np.ndarray) -> dict[str, Any]:
    """The expected error of the Laplace principle for the initial tokens."""
    kappa = kappas([head], x0)[0]
    typical = (head.dimension - 1) / (2 * float(np.median(kappa))) if np.median(kappa) > 0 else math.inf
    return {
        "median_kappa": float(np.median(kappa)),
        "least_kappa": float(kappa.min()),
        "first_order_error": typical,
        "worst_case": float(np.sqrt(np.log1p(head.beta) / head.beta)),
        "status": "first_order_error: uniform density, leading order; worst_case: up to a constant",
    }


def _rates(layer: list[Attention], p: float) -> dict[str, Any]:
    predicted = rates([layer], p=p)
    return predicted.facts() | {"meaning": predicted.describe()}


def _tube(layers: list[list[Attention]], spec: specs.Spec, p: float) -> dict[str, Any]:
    density = build_density(spec)
    if density is None:
        raise BadParameter(
            "no density is known of these tokens that is positive everywhere, so nothing bounds what they will see."
        )
    predicted = tube(layers, start=density, p=p)
    value, time = predicted.best()
    course = {name: plain_value(getattr(predicted, name)) for name in ("times", "values", "sides")}
    return course | {
        "start": predicted.start,
        "growth": predicted.growth,
        "initial": predicted.initial,
        "best": value,
        "best_time": time,
        "ended": predicted.ended,
        "empty": predicted.empty,
        "meaning": predicted.describe(),
    }


def _bound(layer: list[Attention], p: float) -> dict[str, Any]:
    predicted = bound([layer], p=p)
    window = predicted.window(SMALL_TERMS)
    constants = {name: value for name, value in predicted.facts().items() if name not in ("beta", "regime")}
    return constants | {
        "amplitude": predicted.amplitude(),
        "best_time": predicted.best_time(),
        "best": predicted.best(),
        "window_delta": SMALL_TERMS,
        "window": None if window is None else list(window),
        "empty": predicted.empty(),
        "meaning": predicted.describe(),
    }


def _terminal(layer: list[Attention], x0: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
    predicted = terminal([layer], x0, weights=weights)
    facts = predicted.facts()
    when = predicted.hand_over
    hand_over = "" if when is None else f" Hand-over (eq. 13, leading order) at about t = {when:.3g}; {HELD}."
    scales = ("attends", "tightens", "contraction", "growth", "drift", "hand_over")
    return {name: facts[name] for name in scales} | {
        "end_kind": None if predicted.end is None else predicted.end.kind,
        # The vectors with all their entries, of which facts() omits long ones.
        "goes_to": predicted.goes_to,
        "escape_direction": predicted.direction,
        "status": "leading order",
        "meaning": predicted.describe() + hand_over,
    }
