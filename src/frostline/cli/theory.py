"""frostline theory: what the matrices predict, no token moved."""

import math
from typing import Any

from frostline.cli import options


def theory(
    spec: options.SpecFile,
    tokens: options.Tokens = None,
    dimension: options.Dimension = None,
    beta: options.Beta = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """What the matrices predict: limit, gap, rate.

    Everything is for zero temperature and is worked out from the spectrum of A = VBᵀ; no token is moved.

    Example: frostline theory examples/two_clusters.toml --beta 1000
    """
    from frostline import spec as specs

    wanted = specs.read(spec, {"tokens": tokens, "dimension": dimension, "beta": beta, "seed": seed})
    facts = predict(wanted)
    if json:
        options.print_json({"layers": facts})
    else:
        _tell(facts)


def predict(spec: Any) -> list[dict[str, Any]]:
    """One row of facts per layer."""
    import numpy as np

    from frostline import spec as specs
    from frostline.recording import limit_facts
    from frostline.theory.limits import limit

    x0, _ = specs.build_tokens(spec)
    rows = []
    for layer in specs.build_heads(spec):
        found = limit([layer])
        heads = []
        for head in layer:
            A, sigma = head.matrices.A, head.singular_values
            heads.append(
                {
                    "beta": head.beta,
                    "key_bias": head.key_bias is not None,
                    "rank_of_B": int((sigma > sigma[0] * 1e-12).sum()),
                    "sigma_max": sigma[0],
                    "sigma_min": sigma[-1],
                    "eigenvalues_of_A": [[value.real, value.imag] for value in head.eigenvalues],
                    "asymmetry_of_A": float(np.linalg.norm(A - A.T) / (2 * np.linalg.norm(A) or 1.0)),
                }
            )
        # Numerical limits cost an integration for every token; here nothing is moved.
        closed = found.kind in ("points", "subspace", "defective")
        without = [int(i) for i in found.undefined(x0)] if closed else None
        rows.append({"limit": limit_facts(found), "heads": heads, "tokens_without_limit": without})
    return rows


def _tell(rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        if len(rows) > 1:
            print(f"{'' if number == 0 else chr(10)}Layer {number}")
        limit = row["limit"]
        options.say(f"Limit: {limit['kind']}. {limit['meaning']}")
        for head in row["heads"]:
            print(
                f"  head: β = {head['beta']:g}, rank of B {head['rank_of_B']}, σ(B) from {head['sigma_max']:.4g} down "
                f"to {head['sigma_min']:.4g}, asymmetry of A = VBᵀ {head['asymmetry_of_A']:.2g}"
                f"{', with a key bias' if head['key_bias'] else ''}"
            )
            values = [_complex(*value) for value in head["eigenvalues_of_A"]]
            more = f", … ({len(values)} in all)" if len(values) > 8 else ""
            print(f"        eigenvalues of A: {', '.join(values[:8])}{more}")
        if limit["rate"] is not None and math.isfinite(limit["rate"]) and limit["rate"] > 0:
            print(
                f"  rate: a token's angle to the limit falls at least like e^(−{limit['rate']:.4g} t) in the end "
                f"(gap/σ_max): a factor 10 in t = {2.302585 / limit['rate']:.4g}"
            )
        if limit["basis"] is not None and len(limit["basis"][0]) <= 8:
            for vector in limit["basis"]:
                print(f"  direction: ({', '.join(f'{value:.4f}' for value in vector)})")
        if row["tokens_without_limit"]:
            print(f"  {len(row['tokens_without_limit'])} of the initial tokens have no limit")


def _complex(real: float, imag: float) -> str:
    return f"{real:.4g}" if imag == 0 else f"{real:.4g}{imag:+.4g}i"
