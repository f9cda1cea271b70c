"""Replay of a run step by step: states that were not kept are computed again from the same start."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch

from frostline.arrays import as_float64
from frostline.attention import Layer
from frostline.dynamics.mean_map.base import log_weights, raised, token_velocity
from frostline.dynamics.mean_map.select import engine_named
from frostline.dynamics.simulation import Trajectory, steps_again
from frostline.dynamics.steppers import Adaptive
from frostline.dynamics.walking import Step
from frostline.errors import BadParameter, BadRun
from frostline.sphere import unit_rows


@dataclass(frozen=True, eq=False)
class Node:
    """The tokens (n, d) at one time of a run, in float64 on the sphere."""

    time: float
    tokens: np.ndarray
    slope: Callable[[], np.ndarray] | None = None
    """Their velocity, where the stepper knows it without another mean map."""


def one_run(run: Trajectory, verb: str) -> None:
    """Raise BadParameter or BadRun unless this is one run (n, d) that kept some times."""
    if not isinstance(run, Trajectory):
        raise BadParameter(f"{verb} takes a run of simulate (a Trajectory), not {type(run).__name__}.")
    if len(run.initial.shape) != 2:
        raise BadParameter(
            f"{verb} takes one run (n, d); this one has tokens of shape {tuple(run.initial.shape)}: call it member by "
            "member."
        )
    if not len(run.times):
        raise BadRun(f"{verb}: the run kept no times, so there is nothing to measure; ask for some with save_at.")


def replay(run: Trajectory, *, spacing: float | None = None) -> Iterator[Node]:
    """Every step of the run up to the last time it kept, its start first.

    A run that was just made still has its steps, unless they are too many; those of any other are computed again.
    Fixed steppers give the tokens after each step. The adaptive method's steps are long; it gives its dense output at
    the kept times and at others no more than ``spacing`` apart (a hundredth of the run by default).
    """
    last = float(run.times[-1])
    steps = steps_again(run) if last > 0 else iter(())
    first = next(steps, None)
    start = Node(0.0, _float64(run.initial))
    yield start if first is None or first.at is None else replace(_dense(first, 0.0), tokens=start.tokens)
    if first is None:
        return
    due = np.append(run.times[run.times > 0], np.inf)
    if isinstance(run.stepper, Adaptive):
        gap = last / 100 if spacing is None else spacing
        grid = np.linspace(0, last, int(np.ceil(last / gap)) + 1)[1:]
        place = np.searchsorted(run.times, grid)
        before = grid - np.append(run.times, np.inf)[place - 1]
        after = np.append(run.times, np.inf)[place] - grid
        due = np.unique(np.concatenate([due, grid[np.minimum(np.abs(before), after) > gap / 100]]))
    for step in chain([first], steps):
        while step.at is not None and due[0] <= step.time:
            yield _dense(step, float(due[0]))
            due = due[1:]
        if step.at is None:
            yield Node(step.time, _float64(step.tokens))
        if step.time >= last:
            return


def _dense(step: Step, time: float) -> Node:
    """Dense output of an adaptive step."""
    assert step.at is not None and step.slope_at is not None
    tokens, slope_at = _float64(step.at(time)), step.slope_at

    def slope() -> np.ndarray:
        moved = as_float64(slope_at(time))
        return moved - np.einsum("ni,ni->n", tokens, moved)[:, None] * tokens

    return Node(time, tokens, slope)


def evenly_spaced_nodes(run: Trajectory, count: int) -> Iterator[Node]:
    """About ``count`` nodes of a replay at nearly even times, the first and the last among them."""
    last, due = float(run.times[-1]), 0.0
    for node in replay(run, spacing=last / count):
        if node.time >= due or node.time == last:
            yield node
            due = node.time + last / count * (1 - 1e-9)


def shares(run: Trajectory) -> np.ndarray:
    """The tokens' weights (n,), equal unless the run has its own."""
    n = int(run.initial.shape[-2])
    return np.full(n, 1 / n) if run.weights is None else run.weights


def velocity(layer: Layer, tokens: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Σ_h P_x V_h m_h(x) in float64 (THEORY eq. 2)."""
    x = torch.from_numpy(tokens)
    heads = tuple(head.to(raised(x)) for head in layer)
    return token_velocity(heads, x, log_weights(weights, x), engine_named("auto")).numpy()


def _float64(tokens: object) -> np.ndarray:
    return unit_rows(as_float64(tokens))
