"""Facts of a run that every picture of it states: its limit, its headline."""

from frostline.arrays import as_float64
from frostline.attention import as_one_layer
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter
from frostline.theory.limits import Limit, limit

NOTHING_KEPT = "the run kept no times, so there is nothing to draw; ask for some with save_at."


def check_run(run: object) -> None:
    if not isinstance(run, Trajectory):
        raise BadParameter(f"plot draws a run of simulate (a Trajectory), not {type(run).__name__}.")


def limit_of(run: Trajectory) -> Limit | None:
    try:
        return limit([list(as_one_layer([list(layer) for layer in run.layers], "the limit"))])
    except BadParameter:
        return None


def headline(run: Trajectory, found: Limit | None) -> str:
    heads = [head for layer in run.layers for head in layer]
    betas = sorted({head.beta for head in heads})
    beta = f"β = {betas[0]:g}" if len(betas) == 1 else f"β = {betas[0]:g} … {betas[-1]:g}"
    n, d = as_float64(run.initial).shape[-2:]
    kind = "" if found is None else f", limit: {found.kind}"
    return f"{n} tokens on S$^{{{d - 1}}}$, {beta}{kind}"
