"""frostline theory: what the matrices predict, no token moved."""

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
    """Predict from the matrices: tube, limit, rates, bound, time scales, terminal phase, validity.

    Nothing is simulated. Every number says where it comes from: proven, an order of magnitude, or a leading-order
    estimate; the last lines say which assumptions of the theory hold for these tokens.

    Example: frostline theory examples/two_clusters.toml --beta 1000
    """
    from frostline.arrays import as_order
    from frostline.runs import schema as specs
    from frostline.runs.predict import predict

    overrides = {"tokens": tokens, "dimension": dimension, "beta": beta, "until": until, "seed": seed}
    facts = predict(specs.read_spec(spec, overrides), as_order(p))
    if json:
        options.print_json(facts)
    else:
        _tell(facts)


def _tell(facts: dict[str, Any]) -> None:
    rows = facts["layers"]
    for number, row in enumerate(rows):
        if len(rows) > 1:
            print(f"{'' if number == 0 else chr(10)}Layer {number}")
        options.say(f"Tube (eq. 20): {row['tube']['none_because'] or row['tube']['meaning']}")
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
        options.say(f"Terminal phase: {row['terminal']['none_because'] or row['terminal']['meaning']}")
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


def _complex(real: float, imag: float) -> str:
    return f"{real:.4g}" if imag == 0 else f"{real:.4g}{imag:+.4g}i"
