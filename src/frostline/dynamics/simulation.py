"""simulate: tokens through depth at finite temperature (THEORY eq. 2), as a Trajectory."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, Kind, as_count, as_positive, as_times
from frostline.attention import Heads, Layer, as_layers
from frostline.dynamics.mean_map.base import log_weights, pick, raised, token_velocity
from frostline.dynamics.steppers import Euler, Stepper
from frostline.errors import BadArray, BadParameter
from frostline.sample import as_weights
from frostline.sphere import as_tokens

DEFAULT_STEP = 0.05
"""Euler's step for a single layer; a stack of L layers takes until/L, one step per layer."""

STATUSES = {
    "finished": "reached the final time",
    "stalled": "the tokens came to rest exactly: one more step would not change a bit, so later times repeat the last",
    "diverged": "a token became NaN or infinite; try a smaller step or float64",
    "step limit": "the step limit was reached before the final time; raise max_steps or the step",
    "interrupted": "stopped by the caller before the final time",
}


@dataclass(frozen=True)
class Progress:
    """Where a simulation is: what a progress bar and a checkpoint need."""

    steps: int
    total_steps: int
    time: float
    tokens: Float[Tensor, "*batch n d"]
    saved: bool
    """This time is one of ``save_at``."""


@dataclass(frozen=True)
class Resume:
    """Where a run was left: the steps already taken, the tokens there, and the frames kept up to there."""

    steps: int
    tokens: Float[Tensor, "*batch n d"]
    frames: tuple[Tensor, ...]


Watcher: TypeAlias = Callable[[Progress], bool | None]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Tokens through depth. Only the times asked for are kept.

    times (k,); tokens (k, …, n, d); weights (n,) or None (equal); status, a key of ``STATUSES``; layers, initial and
    stepper: what was run, so that what was not kept can be replayed; steps, how many were taken.
    """

    times: np.ndarray
    tokens: Array
    weights: np.ndarray | None
    status: str
    layers: tuple[Layer, ...]
    initial: Array
    stepper: Stepper
    until: float
    steps: int

    @property
    def message(self) -> str:
        """The status as a sentence."""
        reached = self.times[-1] if len(self.times) else 0.0
        return f"{self.status}: {STATUSES[self.status]} (last saved time {reached:g} of {self.until:g})."

    def __repr__(self) -> str:
        return (
            f"Trajectory(tokens {tuple(self.tokens.shape)}, t = {', '.join(f'{t:g}' for t in self.times[:6])}"
            f"{', …' if len(self.times) > 6 else ''}, {self.status}, {self.steps} {type(self.stepper).__name__} steps)"
        )

    def _repr_html_(self) -> str:
        from frostline.plot import trajectory_html

        return trajectory_html(self)


@dataclass(frozen=True)
class Plan:
    """Every step of a run, fixed before it starts: so a resumed run takes the very same steps."""

    segments: tuple[tuple[int, float, float, int, bool], ...]
    """(layer, start, end, number of equal steps, whether the end is to be saved)"""

    @property
    def total_steps(self) -> int:
        return sum(segment[3] for segment in self.segments)

    def steps(self) -> Iterator[tuple[int, float, float, bool]]:
        """(layer, step size, time after the step, save it)"""
        for layer, start, end, count, save in self.segments:
            h = (end - start) / count
            for k in range(1, count + 1):
                last = k == count
                yield layer, h, end if last else start + k * h, save and last


def plan(layers: int, until: float, step: float, save_at: Float[np.ndarray, "k"]) -> Plan:
    """Cut [0, until] at layer boundaries and at the times to save; equal steps no longer than ``step`` in between."""
    edges = [until * layer / layers for layer in range(layers)] + [until]
    cuts = np.unique(np.concatenate([edges, save_at[save_at > 0]]))
    segments = []
    for start, end in pairwise(cuts):
        layer = min(int(np.searchsorted(edges, (start + end) / 2, side="right")) - 1, layers - 1)
        # A quotient like 80.000000001 is rounding, not a reason for an 81st step.
        count = max(1, math.ceil((end - start) / step * (1 - 1e-9)))
        segments.append((layer, float(start), float(end), count, bool(np.isin(end, save_at))))
    return Plan(tuple(segments))


def simulate(
    heads: Heads,
    x0: Array,
    *,
    until: float,
    weights: Array | None = None,
    stepper: Stepper | None = None,
    save_at: Sequence[float] | Array | None = None,
    engine: str = "auto",
    max_steps: int = 10_000_000,
    watch: Watcher | None = None,
    resume: Resume | None = None,
) -> Trajectory:
    """Run tokens x0 (…, n, d) through depth up to time ``until`` (THEORY eq. 2).

    heads      one Attention, a list of layers, or nested lists of heads; L layers share [0, until] equally
    weights    (n,) ≥ 0 with sum 1: the empirical measure is Σ w_j δ_{x_j}; equal by default
    stepper    ``Euler(step)`` (default: one step per layer, 0.05 for a single layer) or ``RK4(step)``
    save_at    the times to keep, ascending; steps are shortened to land on them. Default: the final time only
    watch      called after every step with a Progress; return True to stop (status "interrupted")
    resume     continue a run left earlier: same arguments, same arrays as without the interruption

    >>> from frostline.attention import Attention
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=50.0)
    >>> simulate(head, [[0.6, 0.8], [0.8, -0.6]], until=1.0, save_at=[0, 1])
    Trajectory(tokens (2, 2, 2), t = 0, 1, finished, 20 Euler steps)
    """
    layers = as_layers(heads)
    tokens, kind = as_tokens(x0, "x0")
    if tokens.shape[-1] != layers[0][0].dimension:
        raise BadArray(f"x0 has dimension {tokens.shape[-1]}, the heads {layers[0][0].dimension}; they must agree.")
    until = as_positive(until, "until")
    as_count(max_steps, "max_steps")
    method = stepper if stepper is not None else Euler()
    if not isinstance(method, Stepper):
        raise BadParameter(f"stepper is {stepper!r}; pass an object, for example Euler(0.05) or RK4(0.05).")
    step = (
        method.step if method.step is not None else until / len(layers) if len(layers) > 1 else min(DEFAULT_STEP, until)
    )
    saves = as_times(until if save_at is None else save_at, "save_at", until=until)
    run = _Run(layers, tokens, kind, weights, method, plan(len(layers), until, step, saves), saves, engine)
    return run.go(until, x0, max_steps, watch, resume)


class _Run:
    """One simulation on its way."""

    def __init__(
        self,
        layers: tuple[Layer, ...],
        tokens: Float[Tensor, "*batch n d"],
        kind: Kind,
        weights: Array | None,
        stepper: Stepper,
        steps: Plan,
        saves: Float[np.ndarray, "k"],
        engine: str,
    ):
        self.layers, self.kind, self.stepper, self.plan, self.saves = layers, kind, stepper, steps, saves
        self.x = tokens
        self.weights = None if weights is None else as_weights(weights, tokens.shape[-2])
        logs = log_weights(weights, raised(tokens))
        chosen = pick(engine)
        working = [tuple(head.to(raised(tokens)) for head in layer) for layer in layers]
        self.fields = [lambda x, layer=layer: token_velocity(layer, x, logs, chosen) for layer in working]

    def go(self, until: float, x0: Array, max_steps: int, watch: Watcher | None, resume: Resume | None) -> Trajectory:
        frames: list[Tensor] = [self.x] if self.saves[0] == 0 else []
        done, status = 0, "finished"
        # At rest in this layer under steps up to this size: the map is deterministic, so every such step would return
        # the same bits again (a longer one might not).
        resting, calm = -1, 0.0
        if resume is not None:
            done, self.x, frames = resume.steps, resume.tokens, list(resume.frames)
        for layer, h, time, save in islice(self.plan.steps(), done, None):
            if done >= max_steps:
                status = "step limit"
                break
            if resting != layer or h > calm:
                moved = self.stepper.advance(self.fields[layer], self.x, h)
                if not bool(torch.isfinite(moved).all()):
                    status = "diverged"
                    break
                resting, calm = (layer, h) if torch.equal(moved, self.x) else (-1, 0.0)
                self.x = moved
            done += 1
            if save:
                frames.append(self.x)
            if watch is not None and watch(Progress(done, self.plan.total_steps, time, self.x, save)):
                status = "interrupted"
                break
        if status == "finished" and resting >= 0:
            status = "stalled"
        return Trajectory(
            times=self.saves[: len(frames)],
            tokens=self.kind.restore(torch.stack(frames) if frames else self.x.new_empty((0, *self.x.shape))),
            weights=self.weights,
            status=status,
            layers=self.layers,
            initial=x0,
            stepper=self.stepper,
            until=until,
            steps=done,
        )
