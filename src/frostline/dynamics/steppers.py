"""Steppers: how tokens get from one depth to the next. Each states its order and its cost in a few lines.

A stepper is a frozen object with ``step`` (its step size), ``order`` and ``stages``, and moves tokens by
``advance(field, x, h)``, where ``field(x)`` is the tangent velocity at unit vectors x.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from frostline.arrays import as_positive
from frostline.sphere import unit

Velocity: TypeAlias = Callable[[Tensor], Tensor]


@runtime_checkable
class Stepper(Protocol):
    """What ``simulate`` needs of a stepper."""

    order: ClassVar[int]
    stages: ClassVar[int]

    @property
    def step(self) -> float | None: ...

    def advance(self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float) -> Float[Tensor, "*batch n d"]: ...


@dataclass(frozen=True)
class Euler:
    """x ← (x + hẋ)/|x + hẋ|: one step is one transformer layer (THEORY section 2). Order 1, one mean map."""

    step: float | None = None
    order: ClassVar[int] = 1
    stages: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.step is not None:
            as_positive(self.step, "step")

    def advance(self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float) -> Float[Tensor, "*batch n d"]:
        return unit(x + h * field(x))


@dataclass(frozen=True)
class RK4:
    """The classical Runge–Kutta method with stages on the sphere. Order 4, four mean maps.

    The field is extended off the sphere by f(x/|x|), whose exact flow keeps |x|; so the order survives the final
    normalisation.
    """

    step: float | None = None
    order: ClassVar[int] = 4
    stages: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if self.step is not None:
            as_positive(self.step, "step")

    def advance(self, field: Velocity, x: Float[Tensor, "*batch n d"], h: float) -> Float[Tensor, "*batch n d"]:
        k1 = field(x)
        k2 = field(unit(x + h / 2 * k1))
        k3 = field(unit(x + h / 2 * k2))
        k4 = field(unit(x + h * k3))
        return unit(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))


STEPPERS: dict[str, Callable[[float | None], Stepper]] = {"euler": Euler, "rk4": RK4}
