"""Captions that all pictures of a run share: its title, and the errors about runs that cannot be drawn."""

from frostline.arrays import as_float64
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter
from frostline.theory.limits import Limit

NOTHING_KEPT = "the run kept no times, so there is nothing to draw; ask for some with save_at."
"""The message about a run without kept times."""


def check_run(run: object) -> None:
    """Raise BadParameter unless this is a run of ``simulate``."""
    if not isinstance(run, Trajectory):
        raise BadParameter(f"plot draws a run of simulate (a Trajectory), not {type(run).__name__}.")


def headline(run: Trajectory, limit: Limit | None) -> str:
    """The title of a picture: number of tokens, sphere, temperatures and kind of limit."""
    betas = sorted({head.beta for layer in run.layers for head in layer})
    beta = f"β = {betas[0]:g}" if len(betas) == 1 else f"β = {betas[0]:g} … {betas[-1]:g}"
    n, d = as_float64(run.initial).shape[-2:]
    kind = "" if limit is None else f", limit: {limit.kind}"
    return f"{n} tokens on S$^{{{d - 1}}}$, {beta}{kind}"
