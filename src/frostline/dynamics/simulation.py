"""simulate: tokens through depth at finite temperature (THEORY eq. 2), as a Trajectory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.arrays import Array, as_count, as_positive, as_times
from frostline.attention import Heads, Layer, as_layers, as_tokens_of
from frostline.dynamics.mean_map.base import LOOSEST, TOLERANCE, log_weights, raised, token_velocity
from frostline.dynamics.mean_map.select import engine_named
from frostline.dynamics.status import Status
from frostline.dynamics.steppers import Adaptive, FixedStepper, Stepper
from frostline.dynamics.walking import AdaptiveWalk, FixedWalk, Resume, Step, plan
from frostline.errors import BadParameter
from frostline.progress import ProgressFunction, telling
from frostline.results import Result, ability
from frostline.sample import as_weights
from frostline.sphere import as_tokens
from frostline.theory.regime import Regime, regime

FIRST_STEP = 0.01
"""The adaptive method's first trial step, in units of time; the error control corrects it at once."""
REMEMBERED = 1 << 27
"""The largest size, in bytes, of the steps that a run remembers for verbs that need more than the times it kept."""
MOST_SHOWN = 6
"""Saved times that the one-line repr of a run lists."""

Watcher: TypeAlias = Callable[[Step], bool | None]
"""Called after every step; returns true to stop the run."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Result):
    """Tokens through depth at the times asked for; ``layers``, ``initial`` and ``stepper`` allow to replay the rest.

    Attributes
    ----------
    times : ndarray
        The saved times, (k,); fewer than asked for when the run ended early.
    tokens : Array
        Tokens at these times, (k, …, n, d).
    weights : ndarray or None
        Weights of the tokens, (n,); None when they are equal.
    status : Status
        How the run ended; ``message`` is the sentence.
    layers : tuple
        The heads, layer by layer.
    initial : Array
        The tokens at time 0, (…, n, d).
    stepper : Stepper
        The method of the run.
    until : float
        The final time asked for.
    steps : int
        Steps taken.
    evaluations : int
        Mean maps evaluated, all heads of a layer counted as one.

    Examples
    --------
    >>> from frostline.attention import Attention
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=50.0)
    >>> run = simulate(head, [[0.6, 0.8], [0.8, -0.6]], until=1.0)
    >>> run.message
    'finished: reached the final time (last saved time 1 of 1).'
    >>> run.regime.verdict
    'no'
    """

    times: np.ndarray
    tokens: Array
    weights: np.ndarray | None
    status: Status
    layers: tuple[Layer, ...]
    initial: Array
    stepper: Stepper
    until: float
    steps: int
    evaluations: int
    _memory: "_Memory | None" = None

    @cached_property
    def regime(self) -> Regime:
        """Whether the theory's assumptions hold for this run, with numbers; computed at first use."""
        done = self.status.complete
        reached = self.until if done else float(self.times[-1]) if len(self.times) and self.times[-1] > 0 else None
        return regime([list(layer) for layer in self.layers], self.initial, weights=self.weights, until=reached)

    @property
    def message(self) -> str:
        """The status as a sentence."""
        reached = self.times[-1] if len(self.times) else 0.0
        return f"{self.status}: {self.status.sentence} (last saved time {reached:g} of {self.until:g})."

    def describe(self) -> str:
        """The size of the run, its cost, and how it ended, in words."""
        *batch, n, d = self.initial.shape
        runs = f"{int(np.prod(batch))} runs of {n}" if batch else f"{n}"
        return (
            f"{runs} tokens in d = {d}, {len(self.layers)} layer{'s' * (len(self.layers) > 1)}: {self.steps} "
            f"{type(self.stepper).__name__} steps, {self.evaluations} mean maps; {self.message}"
        )

    def headline(self) -> str:
        """Shape, saved times, status and steps."""
        times = ", ".join(f"{t:g}" for t in self.times[:MOST_SHOWN]) + ", …" * (len(self.times) > MOST_SHOWN)
        steps = f"{self.steps} {type(self.stepper).__name__} steps"
        return f"tokens {tuple(self.tokens.shape)}, t = {times}, {self.status}, {steps}"

    def _repr_html_(self) -> str:
        return str(ability("Trajectory._repr_html_")(self))


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
    progress: ProgressFunction | None = None,
) -> Trajectory:
    """Run tokens through depth: ẋ_i = Σ_h P_{x_i}V_h m_β[ρ](x_i), ρ = Σ_j w_j δ_{x_j} (THEORY eq. 2).

    Parameters
    ----------
    heads : Attention or list
        One head, a list of layers, or nested lists of heads; L layers share [0, until] equally.
    x0 : Array
        Initial tokens (…, n, d) on the sphere; leading axes are independent runs.
    until : float
        The final time, > 0.
    weights : Array, optional
        The w_j, (n,), ≥ 0 with sum 1; equal by default.
    stepper : Stepper, optional
        ``Adaptive(tolerance)``, the default, ``Euler(step)`` or ``RK4(step)``; without a step the last two take one
        step per layer.
    save_at : Array, optional
        The times to keep, ascending; fixed steps are shortened to land on them, adaptive ones interpolated. The final
        time by default.
    engine : str
        The engine of the mean map, as in ``mean_map``.
    max_steps : int
        After this many steps the run ends with the status "step limit".
    watch : callable, optional
        Called with each Step, tokens and all; returns true to end the run with the status "interrupted".
    resume : Resume, optional
        The state in which an earlier run was left; with the same arguments the result is the same, bit by bit, as
        without the interruption.
    progress : callable, optional
        Called with a ``Progress`` after every step.

    Returns
    -------
    Trajectory
        ``.times``, ``.tokens``, ``.status``, ``.message``, … A run that ends early is not an error.

    Raises
    ------
    BadArray, OffSphere, BadWeights
        ``x0`` or ``weights`` does not fit, or tokens are not on the sphere.
    BadParameter
        A time, the stepper, the engine or ``max_steps`` is outside its range.

    Examples
    --------
    >>> from frostline.attention import Attention
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=50.0)
    >>> simulate(head, [[0.6, 0.8], [0.8, -0.6]], until=1.0, save_at=[0, 1])
    Trajectory(tokens (2, 2, 2), t = 0, 1, finished, 5 Adaptive steps)
    """
    as_count(max_steps, "max_steps")
    telling(progress)
    steps = Steps(
        heads, x0, until=until, weights=weights, stepper=stepper, save_at=save_at, engine=engine, resume=resume
    )
    frames, last = list(steps.state.frames), None
    status: Status | None = None
    memory = _Memory([]) if resume is None else None
    for last in steps:
        memory = memory and memory.with_step(last)
        frames.extend(last.frames)
        if progress is not None:
            progress(last.progress)
        if watch is not None and watch(last):
            status = Status.INTERRUPTED
            break
        if last.steps >= max_steps and last.time < steps.until:
            status = Status.STEP_LIMIT
            break
    run = Trajectory(
        times=steps.saves[: len(frames)],
        tokens=steps.kind.restore(torch.stack(frames) if frames else steps.tokens.new_empty((0, *steps.tokens.shape))),
        weights=steps.weights,
        status=status or steps.status,
        layers=steps.layers,
        initial=steps.kind.restore(steps.tokens),
        stepper=steps.stepper,
        until=steps.until,
        steps=steps.state.steps if last is None else last.steps,
        evaluations=steps.state.evaluations if last is None else last.evaluations,
    )
    return run if memory is None else replace(run, _memory=memory.of(run))


class Steps:
    """A simulation one step at a time: iterate for the Steps.

    Arguments are those of ``simulate``; ``status`` says how it ended.
    """

    def __init__(
        self,
        heads: Heads,
        x0: Array,
        *,
        until: float,
        weights: Array | None = None,
        stepper: Stepper | None = None,
        save_at: Sequence[float] | Array | None = None,
        engine: str = "auto",
        resume: Resume | None = None,
    ):
        self.layers = as_layers(heads)
        self.tokens, self.kind = as_tokens_of(self.layers[0], x0)
        self.until = as_positive(until, "until")
        self.stepper = stepper if stepper is not None else Adaptive()
        if isinstance(self.stepper, type) or not isinstance(self.stepper, FixedStepper | Adaptive):
            raise BadParameter(
                f"stepper is {stepper!r}; pass an object, for example Euler(0.05), RK4(0.05) or Adaptive(1e-6)."
            )
        self.saves = as_times(self.until if save_at is None else save_at, "save_at", until=self.until)
        self.weights = None if weights is None else as_weights(weights, self.tokens.shape[-2])
        self.walk = _walk(self.layers, self.tokens, self.weights, self.stepper, self.until, self.saves, engine)
        self.state = resume if resume is not None else _start(self.tokens, self.stepper, self.until, self.saves)

    @property
    def status(self) -> Status:
        """The status at which the run ended, or would end here."""
        return self.walk.status

    def __iter__(self) -> Iterator[Step]:
        return self.walk.go(self.state)


@dataclass(eq=False)
class _Memory:
    """The steps that a run took, and the parts of the run that they follow from."""

    steps: list[Step]
    size: int = 0
    origin: tuple[Any, ...] = ()

    def with_step(self, step: Step) -> "_Memory | None":
        """The memory with one step more; None when it would be too large."""
        arrays = 1 if step.at is None else Adaptive.stages + 3
        self.size += arrays * step.tokens.numel() * step.tokens.element_size()
        if self.size > REMEMBERED:
            return None
        self.steps.append(step)
        return self

    def of(self, run: Trajectory) -> "_Memory":
        return _Memory(self.steps, self.size, _origin(run))

    def belongs_to(self, run: Trajectory) -> bool:
        """Whether these are the steps of this run, and not of one from which it was made with other tokens."""
        return all(mine is theirs for mine, theirs in zip(self.origin, _origin(run), strict=True))


def _origin(run: Trajectory) -> tuple[Any, ...]:
    return run.layers, run.initial, run.weights, run.stepper, run.times


def steps_again(run: Trajectory) -> Iterator[Step]:
    """The steps of a run up to its last saved time: remembered, or computed again from its initial tokens."""
    if run._memory is not None and run._memory.belongs_to(run):
        yield from run._memory.steps
        return
    tokens, _ = as_tokens(run.initial, "initial")
    walk = _walk(run.layers, tokens, run.weights, run.stepper, run.until, run.times, "auto")
    yield from walk.go(_start(tokens, run.stepper, run.until, run.times))


def _walk(
    layers: tuple[Layer, ...],
    tokens: Float[Tensor, "*batch n d"],
    weights: np.ndarray | None,
    stepper: Stepper,
    until: float,
    saves: Float[np.ndarray, "k"],
    engine: str,
) -> FixedWalk | AdaptiveWalk:
    logs, chosen = log_weights(weights, raised(tokens)), engine_named(engine)
    working = [tuple(head.to(raised(tokens)) for head in layer) for layer in layers]
    # An error of the mean map is one of the velocity: a tenth of the stepper's tolerance is small enough.
    tolerance = min(float(stepper.tolerance) / 10, LOOSEST) if isinstance(stepper, Adaptive) else TOLERANCE
    fields = [lambda x, layer=layer: token_velocity(layer, x, logs, chosen, tolerance) for layer in working]
    if isinstance(stepper, Adaptive):
        scales = [sum(float(np.linalg.norm(head.matrices.V, 2)) for head in layer) or 1.0 for layer in layers]
        return AdaptiveWalk(stepper, fields, scales, _mean_square(weights, tokens), until, saves)
    step = stepper.step if stepper.step is not None else until / len(layers)
    return FixedWalk(stepper, fields, plan(len(layers), until, step, saves), until)


def _start(tokens: Float[Tensor, "*batch n d"], stepper: Stepper, until: float, saves: np.ndarray) -> Resume:
    first = min(until, stepper.step if isinstance(stepper, Adaptive) and stepper.step is not None else FIRST_STEP)
    return Resume(0, 0.0, first, 0, tokens, (tokens,) if saves[0] == 0 else ())


def _mean_square(weights: np.ndarray | None, tokens: Float[Tensor, "*batch n d"]) -> Callable[[Tensor], float]:
    """(Σ w_i e_i²)^{1/2} of the tokens' errors; in an ensemble, of its worst member."""
    n = tokens.shape[-2]
    shares = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else torch.from_numpy(weights)
    shares = shares.to(tokens)
    return lambda error: float((shares * error**2).sum(-1).sqrt().max())
