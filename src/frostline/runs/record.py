"""Runs a spec into a run directory: checkpoints on the way, summary and pictures at the end; resumes killed runs."""

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from frostline import __version__, plot
from frostline.analysis.distance import DistanceRecorder, Target
from frostline.analysis.phases import Phases, phases_of_recording
from frostline.arrays import as_positive, as_times, evenly_spread
from frostline.attention import Attention
from frostline.dynamics.simulation import Trajectory, simulate
from frostline.dynamics.steppers import Stepper
from frostline.dynamics.walking import Resume, Step, layer_edges
from frostline.errors import BadSpec
from frostline.progress import ProgressFunction, telling
from frostline.results import Result
from frostline.runs import directory as store
from frostline.runs import schema as specs
from frostline.runs.build import build_heads, build_stepper, build_tokens, token_count
from frostline.runs.summary import bounds_at_kept_times, summarise

DEFAULT_FRAMES = 5
"""Times that are kept when the spec has no save_at."""
SECONDS_PER_TIME = 10.0
"""Seconds after which the bounds of the distance at one kept time are not tightened further."""


@dataclass(frozen=True, repr=False)
class Recording(Result):
    """A finished run directory.

    Attributes
    ----------
    folder : Path
        The run directory; ``load_run`` reads it.
    summary : dict
        The contents of its summary.json.
    resumed : int
        The step from which an interrupted run went on; 0 if it ran in one go.
    fresh : bool
        Whether it ran just now, and was not there already.
    """

    folder: Path
    summary: dict[str, Any]
    resumed: int
    fresh: bool

    def headline(self) -> str:
        """The folder, and how the run ended."""
        return f"{self.folder}, {self.summary['status']}, {self.summary['steps']} steps"

    def describe(self) -> str:
        """How the run ended, and where it is."""
        return f"{self.summary['message']} {'Written' if self.fresh else 'There'}: {self.folder}/"

    def facts(self) -> dict[str, Any]:
        """The summary, the folder, and whether the run was there or interrupted before."""
        more = {"folder": str(self.folder), "already_there": not self.fresh, "resumed_at_step": self.resumed}
        return dict(self.summary) | more


def record(
    spec: specs.Spec,
    *,
    out: str | Path | None = None,
    force: bool = False,
    progress: ProgressFunction | None = None,
) -> Recording:
    """Run a spec into a run directory: arrays, summary and pictures.

    A finished run of the same spec is not run again, and one that was interrupted or killed goes on.

    Parameters
    ----------
    spec : Spec
        The run, as ``read_spec`` reads it.
    out : str or Path, optional
        The run directory; ``spec.out`` by default.
    force : bool
        Whether a run of another spec that is there is replaced.
    progress : callable, optional
        Called with a ``Progress`` after every step, and after the distance at each kept time.

    Returns
    -------
    Recording
        The folder and the summary.

    Raises
    ------
    BadSpec
        The spec has no final time, or its folder cannot be made.
    BadRun
        The folder holds something else.

    Examples
    --------
    >>> spec = specs.read_spec({"tokens": 40, "dimension": 2, "B": [1.0, 0.5], "beta": 10.0, "until": 1.0})
    >>> record(spec, out=Path("run")).summary["status"]  # doctest: +SKIP
    'finished'
    """
    if not isinstance(spec, specs.Spec):
        raise BadSpec(f"spec is of type {type(spec).__name__}; read_spec makes a Spec of a file or a table.")
    telling(progress)
    _check_until(spec)
    out = Path(spec.out if out is None else out)
    if out.name in ("", ".", ".."):
        raise BadSpec(f'out = {spec.out!r} is not a name for a run directory; choose one, for example out = "run".')
    if not out.parent.is_dir():
        raise BadSpec(f"out = {spec.out!r}: the folder {str(out.parent)!r} does not exist; make it first.")
    identity = specs.identity(spec)
    if not force and store.finished(out, identity):
        return Recording(out, store.read_summary(out), 0, fresh=False)
    ready = _Ready.of(spec)
    with store.Partial(out, identity, force=force) as partial:
        return _record(spec, partial, ready, progress)


def run_once(spec: specs.Spec, *, transport: bool = False) -> tuple[Trajectory, dict[str, Any], store.Arrays]:
    """Run ``spec`` without writing: the run, its summary as in ``record``, and its arrays.

    The summary has W by optimal transport at the kept times only with ``transport``.
    """
    _check_until(spec)
    ready = _Ready.of(spec)
    recorder = DistanceRecorder(ready.target, [])
    recorder.add(0.0, ready.x0)
    run = ready.simulate(spec, watch=recorder)
    # Without a time limit, on which the result would depend.
    bounds = bounds_at_kept_times(run, recorder) if transport else None
    summary = summarise(run, recorder, phases_of_recording(recorder), bounds)
    return run, summary, ready.arrays(run, recorder)


@dataclass(frozen=True, eq=False)
class _Ready:
    """The heads, tokens, stepper and kept times of a spec, built and checked."""

    layers: list[list[Attention]]
    x0: torch.Tensor
    weights: np.ndarray | None
    stepper: Stepper
    saves: np.ndarray

    @classmethod
    def of(cls, spec: specs.Spec) -> "_Ready":
        """Build everything the spec describes."""
        until = as_positive(spec.until, "until")
        layers = build_heads(spec)
        default = _default_frames(until, len(layers))
        saves = as_times(default if spec.save_at is None else spec.save_at, "save_at", until=until)
        _check_memory(token_count(spec), spec.dimension, len(saves))
        stepper = build_stepper(spec)
        initial, weights = build_tokens(spec)
        return cls(layers, _on_device(initial, spec), weights, stepper, saves)

    @cached_property
    def target(self) -> Target:
        """The predicted limit of the tokens, worked out when it is first used."""
        return Target.of(self.layers, self.x0, self.weights)

    def simulate(self, spec: specs.Spec, watch: Callable[[Step], None], resume: Resume | None = None) -> Trajectory:
        """Run the tokens through depth, from the start or from a checkpoint."""
        assert spec.until is not None
        return simulate(
            self.layers,
            self.x0,
            until=spec.until,
            weights=self.weights,
            stepper=self.stepper,
            save_at=self.saves,
            engine=spec.engine,
            max_steps=spec.max_steps,
            watch=watch,
            resume=resume,
        )

    def arrays(self, run: Trajectory, recorder: DistanceRecorder) -> store.Arrays:
        """The contents of arrays.safetensors."""
        arrays = {
            "times": torch.from_numpy(run.times),
            "tokens": torch.as_tensor(run.tokens).cpu(),
            "initial": self.x0.cpu(),
            "curve": torch.tensor(recorder.points, dtype=torch.float64).reshape(-1, 2),
            **store.heads_as_arrays(self.layers),
        }
        return arrays if self.weights is None else arrays | {"weights": torch.from_numpy(self.weights)}


def _record(
    spec: specs.Spec,
    partial: store.Partial,
    ready: _Ready,
    progress: ProgressFunction | None,
) -> Recording:
    started = time.time()
    state, points = partial.resume(ready.x0.device) or (None, [])
    recorder = DistanceRecorder(ready.target, points)
    keeper = _Keeper(partial, recorder, progress)
    if state is None:
        keeper.begin(ready.x0, save=bool(ready.saves[0] == 0))
    try:
        run = ready.simulate(spec, keeper, state)
    except KeyboardInterrupt:
        keeper.write_checkpoint()
        raise
    keeper.write_checkpoint()
    phases = phases_of_recording(recorder)
    summary = summarise(run, recorder, phases, bounds_at_kept_times(run, recorder, progress, SECONDS_PER_TIME))
    provenance = _provenance(started, state is not None)
    final = partial.finish(spec, ready.arrays(run, recorder), summary, provenance)
    _draw(final, run, recorder, phases)
    partial.publish()
    return Recording(partial.out, summary, 0 if state is None else state.steps, fresh=True)


class _Keeper:
    """Watches a run: keeps its frames, records its distance, writes checkpoints and forwards the progress."""

    def __init__(self, partial: store.Partial, recorder: DistanceRecorder, progress: ProgressFunction | None):
        self.partial, self.recorder, self.progress = partial, recorder, progress
        self.written, self.pause = time.monotonic(), _checkpoint_seconds()
        self.last: Step | None = None

    def begin(self, x0: torch.Tensor, *, save: bool) -> None:
        """Keep and record the initial tokens."""
        if save:
            self.partial.keep_frame(0, x0)
        self.recorder.add(0.0, x0)

    def __call__(self, step: Step) -> None:
        for frame in step.frames:
            self.partial.keep_frame(len(self.partial.frames), frame)
        self.recorder(step)
        self.last = step
        if time.monotonic() - self.written > self.pause:
            self.write_checkpoint()
        if self.progress is not None:
            self.progress(step.progress)

    def write_checkpoint(self) -> None:
        """Write the last step, where there is one."""
        if self.last is not None:
            self.partial.checkpoint(self.last, self.recorder.points)
            self.written = time.monotonic()


def _draw(folder: Path, run: Trajectory, recorder: DistanceRecorder, phases: Phases | None) -> None:
    """The pictures of a run directory."""
    figures = {"tokens": plot.tokens(run, target=recorder.target)[0].figure}
    if recorder.points:
        figures["distance"] = plot.distance(run, curve=np.array(recorder.points), phases=phases).figure
    for name, figure in figures.items():
        plot.save(figure, folder / name)


def _check_until(spec: specs.Spec) -> None:
    if spec.until is None:
        raise BadSpec("the spec has no until; say how long to simulate, for example until = 3.0.")


def _default_frames(until: float, layers: int) -> np.ndarray:
    """Five times, evenly spread; in a stack only layer boundaries, so that keeping them does not change the steps."""
    if layers == 1:
        return np.linspace(0, until, DEFAULT_FRAMES)
    return np.array(layer_edges(layers, until))[evenly_spread(layers + 1, DEFAULT_FRAMES)]


def _on_device(initial: np.ndarray, spec: specs.Spec) -> torch.Tensor:
    try:
        if torch.device(spec.device).type == "meta":
            raise RuntimeError("it holds no numbers")
        return torch.from_numpy(initial).to(dtype=getattr(torch, spec.dtype), device=spec.device)
    except (RuntimeError, AssertionError) as error:
        raise BadSpec(f"device = {spec.device!r} cannot be used: {str(error).splitlines()[0]}") from None


def _check_memory(count: int, dimension: int, frames: int) -> None:
    """Raise BadSpec for a run that cannot fit into memory before hours are spent on it."""
    needed = 8 * count * dimension * (2 * frames + 12)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise BadSpec(
            f"{count} tokens at {frames} saved times need about {needed / 2**30:.3g} GiB, this machine has "
            f"{available / 2**30:.3g}; take fewer tokens or a shorter save_at."
        )


def _checkpoint_seconds() -> float:
    return as_positive(os.environ.get("FROSTLINE_CHECKPOINT_SECONDS", "2"), "FROSTLINE_CHECKPOINT_SECONDS")


def _provenance(started: float, resumed: bool) -> dict[str, Any]:
    return {
        "frostline": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 3),
        "resumed": resumed,
    }
