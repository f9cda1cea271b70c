"""A run as messages for the page: an opening, a frame for every layer, phases, brackets, the end."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from frostline.analysis.distance import DistanceRecorder, Target, number_or_none
from frostline.analysis.phases import phases_of_recording
from frostline.arrays import evenly_spread
from frostline.attention import Attention
from frostline.dynamics.simulation import Steps, Trajectory
from frostline.dynamics.status import Status
from frostline.dynamics.walking import Step
from frostline.errors import FrostlineError
from frostline.exploring.address import times_of
from frostline.exploring.messages import coarse, pack
from frostline.runs import schema as specs
from frostline.runs.build import build_heads, build_stepper, build_tokens
from frostline.theory.bounds import bound

MOST_DRAWN = 20_000
"""Tokens that are sent to the page; of more, every k-th."""
MOST_STEPS = 100_000
"""Steps at most of a stepper that chooses its own."""
PHASES_EVERY = 20
"""Frames after which the phases are worked out again."""
BRACKETED = 12
"""Times at which W is bracketed by optimal transport when the run is over."""
SECONDS = 1.0
"""Time limit of each bracket, in seconds."""
WORKING_EVERY = 0.5
"""Seconds between two messages about steps without a frame."""


def show(spec: specs.Spec) -> Iterator[bytes]:
    """Messages of a new run, one by one as it is computed; a FrostlineError before the first if the spec makes no run.

    Empty ones only give the caller an opportunity to stop.
    """
    assert spec.until is not None
    layers = build_heads(spec)
    initial, weights = build_tokens(spec)
    times = times_of(spec)
    x0 = torch.from_numpy(initial)
    steps = Steps(layers, x0, until=spec.until, weights=weights, stepper=build_stepper(spec), save_at=times)
    if any(len(layer) > 1 for layer in layers):
        # The limit of several heads is integrated token by token, which may take a while.
        yield pack("preparing", {})
    frames = _Frames(steps)
    yield from _messages(layers, x0, weights, times, frames)
    yield _end(frames.status)


def show_again(run: Trajectory, noted: Iterable[bytes] = ()) -> Iterator[bytes]:
    """Messages of a finished run: its kept times as frames, then the messages that are already known (``noted``)."""
    layers = [list(layer) for layer in run.layers]
    x0 = torch.from_numpy(np.asarray(run.initial, dtype=np.float64))
    yield from _messages(layers, x0, run.weights, run.times, (np.asarray(x, dtype=np.float64) for x in run.tokens))
    yield from noted
    yield _end(run.status)


def _messages(
    layers: list[list[Attention]],
    x0: torch.Tensor,
    weights: np.ndarray | None,
    times: np.ndarray,
    frames: Iterable[np.ndarray | Step],
) -> Iterator[bytes]:
    target, initial = Target.of(layers, x0, weights), x0.numpy()
    drawn = slice(None, None, -(-len(initial) // MOST_DRAWN))
    goal = np.full_like(initial, np.nan) if target.tokens is None else target.tokens
    opening: dict[str, Any] = {
        "times": times,
        "tokens": len(initial),
        "drawn": len(initial[drawn]),
        "dimension": initial.shape[1],
        "limit": None if target.limit is None else target.limit.facts(),
        "no_distance": target.why_none or None,
        "exact": target.exact,
        "without_limit": target.left_out or 0,
        "bound": _bound(layers, times),
    }
    yield pack("opening", opening, coarse(initial[drawn]), goal[drawn].astype("<f4"))
    measured = _Measured(target, times)
    started = reported = time.monotonic()
    number = -1
    for x in frames:
        if isinstance(x, Step):
            due = time.monotonic() > reported + WORKING_EVERY
            yield pack("working", {"t": x.time, "steps": x.steps}) if due else b""
            reported = time.monotonic() if due else reported
            continue
        number += 1
        facts = measured.at(number, x)
        facts["per_second"] = number / max(time.monotonic() - started, 1e-9) if number else None
        yield pack("frame", {"number": number, "t": times[number], **facts}, coarse(x[drawn]))
        if number % PHASES_EVERY == PHASES_EVERY - 1:
            yield from measured.phases()
    yield from measured.phases()
    yield from measured.brackets()


class _Frames:
    """The frames of a run, and after a step without a frame the step itself, so that the caller can stop in between."""

    def __init__(self, steps: Steps):
        self.steps, self.cut = steps, False

    def __iter__(self) -> Iterator[np.ndarray | Step]:
        yield from (frame.numpy() for frame in self.steps.state.frames)
        for step in self.steps:
            if not step.frames:
                yield step
            yield from (frame.numpy() for frame in step.frames)
            if step.steps >= MOST_STEPS and step.time < step.until:
                self.cut = True
                return

    @property
    def status(self) -> Status:
        return Status.STEP_LIMIT if self.cut else self.steps.status


def _end(status: Status) -> bytes:
    return pack("end", {"status": status.value, "says": f"{status.sentence[0].upper()}{status.sentence[1:]}."})


def _bound(layers: list[list[Attention]], times: np.ndarray) -> dict[str, Any]:
    try:
        eq_11 = bound(layers)
    except FrostlineError as error:
        return {"none_because": str(error)}
    return {"none_because": None, "values": eq_11(times), "says": eq_11.describe()}


class _Measured:
    """The distance to the limit, frame by frame, and the phases and brackets that come from it."""

    def __init__(self, target: Target, times: np.ndarray):
        self.measure, self.times = target.measure, times
        self.recorder = DistanceRecorder(target, [])
        self.kept: dict[int, np.ndarray | None] = dict.fromkeys(evenly_spread(len(times), BRACKETED))
        """Tokens of the frames at which W will be bracketed, by the number of the frame."""

    def at(self, number: int, x: np.ndarray) -> dict[str, Any]:
        """The distance of this frame and its symptoms of finite n."""
        if self.measure is None:
            return {}
        self.recorder.add(self.times[number], x)
        if number in self.kept and not self.measure.exact:
            self.kept[number] = x
        return {
            "w": self.recorder.points[-1][1],
            # Without a basis this takes too long for every frame.
            "off_cluster": int(self.measure.off_cluster(x).sum()) if len(self.measure.basis) else None,
            "imbalance": number_or_none(self.measure.imbalance(x)),
        }

    def phases(self) -> Iterator[bytes]:
        """The phases so far, once there are enough frames."""
        phases = phases_of_recording(self.recorder)
        if phases is not None:
            yield pack("phases", phases.facts())

    def brackets(self) -> Iterator[bytes]:
        """Guaranteed bounds of W at some times; the W of a frame is exact only where the limit is two points."""
        for number, x in self.kept.items():
            if x is not None and self.measure is not None:
                distance = self.measure.interval(x, seconds=SECONDS)
                facts = {"t": self.times[number], "lower": distance.lower, "upper": distance.upper}
                yield pack("bracket", {"number": number, **facts, "method": distance.method})
