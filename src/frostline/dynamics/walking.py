"""Walks through time: the states that a stepper computes, fixed or adaptive, from the start or from a checkpoint.

A walk yields its Steps; its ``status`` says how it ended. Both walks are deterministic given a
Resume, so that a run that was interrupted goes on with the same bits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.dynamics.status import Status
from frostline.dynamics.steppers import Adaptive, FixedStepper, TrialStep, Velocity
from frostline.errors import BadParameter
from frostline.progress import Progress


@dataclass(frozen=True)
class Step:
    """The state of a simulation after a step, for checkpoints and progress."""

    steps: int
    time: float
    until: float
    tokens: Float[Tensor, "*batch n d"]
    frames: tuple[Tensor, ...]
    """The tokens at the times of ``save_at`` that this step reached or passed."""
    next_step: float
    evaluations: int
    """Mean maps evaluated so far, all heads of a layer counted as one."""
    at: Callable[[float], Tensor] | None = None
    """Dense output: the tokens at any time within this step (adaptive method only)."""
    slope_at: Callable[[float], Tensor] | None = None
    """The velocity of the dense output."""

    @property
    def progress(self) -> Progress:
        """The time reached, of the final time."""
        return Progress("", f"step {self.steps}, t = {self.time:.4g}", self.time, self.until)


@dataclass(frozen=True)
class Resume:
    """The state in which a run was left: everything the next step depends on, and the frames kept so far."""

    steps: int
    time: float
    next_step: float
    evaluations: int
    tokens: Float[Tensor, "*batch n d"]
    frames: tuple[Tensor, ...]


MOST_STEPS = 1e15
"""The largest number of steps of a plan: float64 counts more of them only inexactly."""

Walk: TypeAlias = Iterator[Step]


@dataclass(frozen=True)
class StepPlan:
    """All steps of a fixed run."""

    segments: tuple[tuple[int, float, float, int, bool], ...]
    """(layer, start, end, number of equal steps, whether the end is to be saved)"""

    @property
    def total(self) -> int:
        """The number of steps."""
        return sum(segment[3] for segment in self.segments)

    def steps(self) -> Iterator[tuple[int, float, float, bool]]:
        """(layer, step size, time after the step, save it)"""
        for layer, start, end, count, save in self.segments:
            h = (end - start) / count
            for k in range(1, count + 1):
                last = k == count
                yield layer, h, end if last else start + k * h, save and last


def layer_edges(layers: int, until: float) -> list[float]:
    """The times at which layers begin, and the final time."""
    return [until * layer / layers for layer in range(layers)] + [until]


def plan(layers: int, until: float, step: float, save_at: Float[np.ndarray, "k"]) -> StepPlan:
    """Cut [0, until] at layer boundaries and at the times to save; equal steps no longer than ``step`` in between."""
    edges = layer_edges(layers, until)
    cuts = np.unique(np.concatenate([edges, save_at[save_at > 0]]))
    segments = []
    for start, end in pairwise(cuts):
        layer = min(int(np.searchsorted(edges, (start + end) / 2, side="right")) - 1, layers - 1)
        # A quotient like 80.000000001 is rounding, not a reason for an 81st step.
        steps = float((end - start) / step * (1 - 1e-9))
        if not steps < MOST_STEPS:
            raise BadParameter(f"a step of {step:g} takes {steps:.3g} steps to t = {end:g}; choose a longer one.")
        count = max(1, math.ceil(steps))
        segments.append((layer, float(start), float(end), count, bool(np.isin(end, save_at))))
    return StepPlan(tuple(segments))


def _on_sphere(x: Float[Tensor, "*batch n d"]) -> bool:
    """Whether all tokens are unit vectors; NaN fails, and so does a norm that over- or underflowed."""
    return bool(((torch.linalg.vector_norm(x, dim=-1) - 1).abs() <= 1e-4).all())


class FixedWalk:
    """Equal steps; tokens that rest to the last bit are not computed again."""

    def __init__(self, stepper: FixedStepper, fields: Sequence[Velocity], steps: StepPlan, until: float):
        self.stepper, self.fields, self.plan, self.until = stepper, fields, steps, until
        self.status: Status = Status.FINISHED

    def go(self, state: Resume) -> Walk:
        """The steps from this state on."""
        x, done, evaluations = state.tokens, state.steps, state.evaluations
        # At rest in this layer under steps up to this size: the map is deterministic, so every such step would return
        # the same bits again (a longer one might not).
        resting, calm = -1, 0.0
        if done and done == self.plan.total:
            # Resumed after the last step: only whether the tokens are at rest is left to say.
            layer, start, end, count, _ = self.plan.segments[-1]
            moved = self.stepper.advance(self.fields[layer], x, (end - start) / count)
            self.status = Status.STALLED if torch.equal(moved, x) else Status.FINISHED
        for layer, h, time, save in islice(self.plan.steps(), done, None):
            if resting != layer or h > calm:
                moved = self.stepper.advance(self.fields[layer], x, h)
                evaluations += self.stepper.stages
                if not _on_sphere(moved):
                    self.status = Status.DIVERGED
                    return
                resting, calm = (layer, h) if torch.equal(moved, x) else (-1, 0.0)
                x = moved
            done += 1
            self.status = Status.FINISHED if resting < 0 else Status.STALLED
            yield Step(done, time, self.until, x, (x,) if save else (), h, evaluations)


class AdaptiveWalk:
    """Steps as long as the error allows; they end at layer boundaries, and saved times are read off between."""

    def __init__(
        self,
        stepper: Adaptive,
        fields: Sequence[Velocity],
        scales: Sequence[float],
        norm: Callable[[Tensor], float],
        until: float,
        save_at: Float[np.ndarray, "k"],
    ):
        self.stepper, self.fields, self.norm, self.until, self.save_at = stepper, fields, norm, until, save_at
        self.longest = [stepper.longest / scale for scale in scales]
        self.edges = layer_edges(len(fields), until)
        self.status: Status = Status.FINISHED

    def go(self, state: Resume) -> Walk:
        """The accepted steps from this state on; a step with too large an error is tried again, shorter."""
        x, t, done, h, evaluations = state.tokens, state.time, state.steps, state.next_step, state.evaluations
        for layer, field in enumerate(self.fields):
            end = self.edges[layer + 1]
            if t >= end:
                continue
            slope = field(x)
            evaluations += 1
            while t < end:
                h = min(h, self.longest[layer])
                # Stretch a little rather than leave a sliver before the boundary.
                size = end - t if t + 1.01 * h >= end else h
                if size <= 1e-13 * max(1.0, t):
                    self.status = Status.STEP_TOO_SMALL
                    return
                trial = self.stepper.trial(field, x, size, slope)
                evaluations += self.stepper.stages
                error = self.norm(trial.error) if _on_sphere(trial.moved) else math.nan
                if not error <= self.stepper.tolerance:
                    h = self.stepper.next_step(size, error) if math.isfinite(error) else size / 5
                    continue
                arrived = end if size == end - t else t + size
                frames = tuple(trial.at((s - t) / size) for s in self.save_at if t < s < arrived)
                if (self.save_at == arrived).any():
                    frames = (*frames, trial.moved)
                # A step cut short by a boundary says little about the step the tokens could take.
                h = max(h, self.stepper.next_step(size, error)) if size < h else self.stepper.next_step(size, error)
                between, slopes = partial(_dense, trial, t, size), partial(_dense_slope, trial, t, size)
                x, t, slope, done = trial.moved, arrived, trial.slopes[-1], done + 1
                yield Step(done, t, self.until, x, frames, h, evaluations, between, slopes)


def _dense(trial: TrialStep, start: float, size: float, time: float) -> Float[Tensor, "*batch n d"]:
    return trial.moved if time >= start + size else trial.at((time - start) / size)


def _dense_slope(trial: TrialStep, start: float, size: float, time: float) -> Float[Tensor, "*batch n d"]:
    return trial.slope_at(min(1.0, (time - start) / size))
