"""Steppers: methods that move tokens from one depth to the next, each with its order and its cost.

A fixed stepper moves tokens by ``advance(field, x, h)``, where ``field(x)`` is the tangent velocity at unit vectors x;
the adaptive one makes a ``trial`` step with an error estimate. The field is extended off the sphere by f(x/|x|), whose
exact flow keeps |x|: so Runge–Kutta methods keep their order although stages and results are normalised.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import RK45
from torch import Tensor

from frostline.arrays import as_positive
from frostline.sphere import project, unit

FOURTH = np.append(RK45.B, 0.0) - RK45.E
"""Weights of the embedded fourth-order solution."""

Velocity: TypeAlias = Callable[[Tensor], Tensor]
"""Tangent velocity (…, n, d) at tokens (…, n, d)."""


@runtime_checkable
class FixedStepper(Protocol):
    """A stepper whose steps are planned before the run."""

    order: ClassVar[int]
    stages: ClassVar[int]

    @property
    def step(self) -> float | None: ...

    def advance(self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float) -> Float[Tensor, "*batch n d"]: ...


@dataclass(frozen=True)
class _EqualSteps:
    """The step of a fixed stepper, checked."""

    step: float | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            as_positive(self.step, "step")


@dataclass(frozen=True)
class Euler(_EqualSteps):
    """x ← (x + hẋ)/|x + hẋ|: one step is one transformer layer (THEORY section 2). Order 1, one mean map a step.

    Parameters
    ----------
    step : float, optional
        The largest step h > 0; by default one step per layer.

    Raises
    ------
    BadParameter
        ``step`` is not finite and positive.

    Examples
    --------
    >>> Euler(0.05)
    Euler(step=0.05)
    """

    order: ClassVar[int] = 1
    stages: ClassVar[int] = 1

    def advance(self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float) -> Float[Tensor, "*batch n d"]:
        """The tokens after one step of size h.

        Parameters
        ----------
        field
            The velocity of tokens: a function of them.
        x
            The tokens (…, n, d).
        h
            The size of the step.

        Returns
        -------
        Tensor
            The tokens after the step.
        """
        return unit(x + h * field(x))


@dataclass(frozen=True)
class RK4(_EqualSteps):
    """The classical Runge–Kutta method. Order 4, four mean maps a step.

    Parameters
    ----------
    step : float, optional
        The largest step h > 0; by default one step per layer.

    Raises
    ------
    BadParameter
        ``step`` is not finite and positive.

    Examples
    --------
    >>> RK4(0.05)
    RK4(step=0.05)
    """

    order: ClassVar[int] = 4
    stages: ClassVar[int] = 4

    def advance(self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float) -> Float[Tensor, "*batch n d"]:
        """The tokens after one step of size h.

        Parameters
        ----------
        field
            The velocity of tokens: a function of them.
        x
            The tokens (…, n, d).
        h
            The size of the step.

        Returns
        -------
        Tensor
            The tokens after the step.
        """
        k1 = field(x)
        k2 = field(unit(x + h / 2 * k1))
        k3 = field(unit(x + h / 2 * k2))
        k4 = field(unit(x + h * k3))
        return unit(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))


@dataclass(frozen=True, eq=False)
class TrialStep:
    """One trial step of the adaptive method: the tokens after it, its error, and dense output within it."""

    start: Float[Tensor, "*batch n d"]
    h: float
    slopes: Float[Tensor, "7 *batch n d"]
    moved: Float[Tensor, "*batch n d"]

    @property
    def error(self) -> Float[Tensor, "*batch n"]:
        """Per token, |x⁽⁵⁾ − x⁽⁴⁾| with both on the sphere: an estimate of the fourth-order solution's local error."""
        fourth = unit(self.start + self.h * _combine(FOURTH, self.slopes))
        return torch.linalg.vector_norm(self.moved - fourth, dim=-1)

    def at(self, fraction: float) -> Float[Tensor, "*batch n d"]:
        """Dense output: the tokens at start + fraction·h, to fourth order."""
        powers = [fraction ** (k + 1) for k in range(RK45.P.shape[1])]
        return unit(self.start + self.h * _combine(RK45.P @ powers, self.slopes))

    def slope_at(self, fraction: float) -> Float[Tensor, "*batch n d"]:
        """The velocity of the dense output there; at both ends it is that of the tokens."""
        exponents = np.arange(1, RK45.P.shape[1] + 1)
        z = self.start + self.h * _combine(RK45.P @ fraction**exponents, self.slopes)
        turned = _combine(RK45.P @ (exponents * fraction ** (exponents - 1)), self.slopes)
        return project(unit(z), turned) / torch.linalg.vector_norm(z, dim=-1, keepdim=True)


@dataclass(frozen=True)
class Adaptive:
    """Dormand–Prince 5(4) with error control and dense output. Order 5, six mean maps a step.

    A step is never longer than 1/2 in units of 1/Σ‖V_h‖. The tolerance is absolute, but a metastable phase is ended by
    an asymmetry far below it that grows by its own law; at λh ≤ 1/2 that growth is right to 2e-5 whatever its size.

    Parameters
    ----------
    tolerance : float
        The largest error of a step of the embedded fourth-order solution: chord distance, weighted root mean square
        over the tokens.
    step : float, optional
        The first trial step; by default ``min(until, 0.01)``.

    Raises
    ------
    BadParameter
        A parameter is not finite and positive.

    Examples
    --------
    >>> Adaptive(1e-8)
    Adaptive(tolerance=1e-08, step=None)
    """

    tolerance: float = 1e-6
    step: float | None = None
    order: ClassVar[int] = 5
    stages: ClassVar[int] = 6
    longest: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        as_positive(self.tolerance, "tolerance")
        if self.step is not None:
            as_positive(self.step, "step")

    def trial(
        self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float, slope: Float[Tensor, "*batch n d"]
    ) -> TrialStep:
        """Try one step from x.

        Parameters
        ----------
        field
            The velocity of tokens: a function of them.
        x
            The tokens (…, n, d).
        h
            The size of the step.
        slope
            The velocity at x: the last slope of the step before.

        Returns
        -------
        TrialStep
            The step, its error, and dense output within it.
        """
        slopes = [slope]
        for row in RK45.A[1:]:
            slopes.append(field(unit(x + h * _combine(row[: len(slopes)], torch.stack(slopes)))))
        moved = unit(x + h * _combine(RK45.B, torch.stack(slopes)))
        slopes.append(field(moved))
        return TrialStep(x, h, torch.stack(slopes), moved)

    def next_step(self, h: float, error: float) -> float:
        """Choose the step that would just meet the tolerance, with a margin.

        Parameters
        ----------
        h
            The size of the last step.
        error
            Its error.

        Returns
        -------
        float
            The size of the next step, at most 5 times longer or shorter than h.
        """
        if not error > 0:
            return 5 * h
        return h * min(5.0, max(0.2, 0.9 * (self.tolerance / error) ** 0.2))


Stepper: TypeAlias = FixedStepper | Adaptive


def _combine(weights: object, slopes: Tensor) -> Tensor:
    """Σ_k weights_k·slopes_k."""
    return torch.tensordot(torch.as_tensor(weights, dtype=slopes.dtype, device=slopes.device), slopes, dims=1)
