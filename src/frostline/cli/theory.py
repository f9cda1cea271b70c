"""frostline theory: what the matrices predict, no token moved."""

import math
from typing import Annotated, Any

import typer

from frostline.cli import options


def theory(
    spec: options.SpecFile,
    tokens: options.Tokens = None,
    dimension: options.Dimension = None,
    beta: options.Beta = None,
    until: Annotated[float | None, typer.Option(help="Final time, for what depends on it.")] = None,
    p: Annotated[float, typer.Option("--p", help="Order of the Wasserstein distance W_p.")] = 2.0,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """What the matrices predict: limit, rates, bound, time scales, terminal phase, validity.

    Nothing is simulated. Every number says where it comes from: proven, an order of magnitude, or a leading-order
    estimate; the last lines say which assumptions of the theory hold for these tokens.

    Example: frostline theory examples/two_clusters.toml --beta 1000
    """
    from frostline import spec as specs
    from frostline.arrays import as_order

    overrides = {"tokens": tokens, "dimension": dimension, "beta": beta, "until": until, "seed": seed}
    facts = predict(specs.read(spec, overrides), as_order(p))
    if json:
        options.print_json(facts)
    else:
        _tell(facts)


def predict(spec: Any, p: float = 2.0) -> dict[str, Any]:
    """A row of facts for each of the "layers", and the "regime" of the whole."""
    from frostline import spec as specs
    from frostline.theory.limits import limit
    from frostline.theory.regime import regime

    x0, weights = specs.build_tokens(spec)
    layers = specs.build_heads(spec)
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
                "rates": _or_why(lambda layer=layer: _rates(layer, p)),
                "laplace": [_laplace(head, x0) for head in layer],
                "bound": _or_why(lambda layer=layer: _bound(layer, p)),
                "terminal": _or_why(lambda layer=layer: _terminal(layer, x0, weights)),
            }
        )
    assumptions = regime(layers, x0, weights=weights, until=spec.until)
    return {"layers": rows, "regime": assumptions.facts() | {"meaning": assumptions.describe()}}


def _or_why(facts: Any) -> dict[str, Any]:
    """The facts, or the sentence that says why there are none."""
    from frostline.errors import BadParameter, NoLimit

    try:
        found: dict[str, Any] = facts()
    except (BadParameter, NoLimit) as error:
        return {"none_because": str(error)}
    return found | {"none_because": None}


def _head(head: Any) -> dict[str, Any]:
    from frostline.theory.regime import asymmetry

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


def _rates(layer: Any, p: float) -> dict[str, Any]:
    from frostline.theory.rates import rates

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


def _laplace(head: Any, x0: Any) -> dict[str, Any]:
    import numpy as np

    from frostline.theory.regime import kappas

    kappa = kappas([head], x0)[0]
    typical = (head.dimension - 1) / (2 * float(np.median(kappa))) if np.median(kappa) > 0 else math.inf
    return {
        "median_kappa": float(np.median(kappa)),
        "least_kappa": float(kappa.min()),
        "first_order_error": typical,
        "worst_case": float(np.sqrt(np.log1p(head.beta) / head.beta)),
        "status": "first_order_error: uniform density, leading order; worst_case: up to a constant",
    }


def _bound(layer: Any, p: float) -> dict[str, Any]:
    from frostline.theory.bounds import bound

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


def _terminal(layer: Any, x0: Any, weights: Any) -> dict[str, Any]:
    from frostline.theory.terminal import terminal

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


def _tell(facts: dict[str, Any]) -> None:
    rows = facts["layers"]
    for number, row in enumerate(rows):
        if len(rows) > 1:
            print(f"{'' if number == 0 else chr(10)}Layer {number}")
        limit = row["limit"]
        options.say(f"Limit: {limit['kind']}. {limit['meaning']}")
        for head, cold in zip(row["heads"], row["laplace"], strict=True):
            _tell_head(head, cold)
        if limit["basis"] is not None and len(limit["basis"][0]) <= 8:
            for vector in limit["basis"]:
                print(f"  direction: ({', '.join(f'{value:.4f}' for value in vector)})")
        if row["tokens_without_limit"]:
            print(f"  {len(row['tokens_without_limit'])} of the initial tokens have no limit")
        options.say(f"Rates: {row['rates']['none_because'] or row['rates']['meaning']}")
        bound = row["bound"]
        options.say(f"Bound (eq. 11): {bound['none_because'] or bound['meaning'] + _window_in_words(bound)}")
        options.say(f"Terminal phase: {row['terminal']['none_because'] or _terminal_in_words(row['terminal'])}")
    options.say(f"Regime: {facts['regime']['meaning']}")
    for name, check in facts["regime"]["checks"].items():
        options.say(f"  {check['verdict']:>7}  {name}: {check['sentence']}", hang=11)


def _tell_head(head: dict[str, Any], cold: dict[str, Any]) -> None:
    options.say(
        f"  head: β = {head['beta']:g}, rank of B {head['rank_of_B']}, σ(B) from {head['sigma_max']:.4g} down to "
        f"{head['sigma_min']:.4g}, asymmetry of A = VBᵀ {head['asymmetry_of_A']:.2g}"
        f"{', with a key bias' if head['key_bias'] else ''}",
        hang=8,
    )
    values = [_complex(*value) for value in head["eigenvalues_of_A"]]
    more = f", … ({len(values)} in all)" if len(values) > 8 else ""
    options.say(f"        eigenvalues of A: {', '.join(values[:8])}{more}", hang=8)
    first, worst = cold["first_order_error"], cold["worst_case"]
    words = f"        Laplace: the median κ = β|Bᵀx| is {cold['median_kappa']:.3g}, so "
    if first > 0.5:
        words += f"the first correction (d−1)/2κ = {first:.2g} is not small: too warm for eq. 10 to say anything"
    else:
        words += f"|m − y*| starts near (d−1)/2κ = {first:.2g} (uniform tokens)"
        words += f" and may climb to about {worst:.2g}" if worst > first else ""
    options.say(words, hang=8)


def _window_in_words(bound: dict[str, Any]) -> str:
    if not bound["best_time"] > 0:
        return ""
    if bound["window"] is None:
        return f" There is no time at which both of its terms are below {bound['window_delta']:g}."
    begin, end = bound["window"]
    return f" Both of its terms are below {bound['window_delta']:g} from t = {begin:.3g} to {end:.3g}."


def _terminal_in_words(terminal: dict[str, Any]) -> str:
    words = str(terminal["meaning"])
    if terminal["hand_over"] is not None:
        words += f" Hand-over (eq. 13, leading order) at about t = {terminal['hand_over']:.3g}."
    return words


def _complex(real: float, imag: float) -> str:
    return f"{real:.4g}" if imag == 0 else f"{real:.4g}{imag:+.4g}i"
