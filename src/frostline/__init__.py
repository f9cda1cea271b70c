"""frostline: how self-attention at low temperature freezes tokens into a predictable shape.

The public names below are imported when first used, so that ``import frostline`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Attention": "frostline.attention",
    "Factored": "frostline.attention",
    "limit": "frostline.theory.limits",
    "zero_temperature": "frostline.theory.flow",
    "mean_map": "frostline.dynamics.mean_map",
    "simulate": "frostline.dynamics.simulation",
    "Trajectory": "frostline.dynamics.simulation",
    "Euler": "frostline.dynamics.steppers",
    "RK4": "frostline.dynamics.steppers",
    "Adaptive": "frostline.dynamics.steppers",
    "load_run": "frostline.store",
}
_MODULES = ("sample", "sphere", "errors", "plot")

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from frostline import errors, plot, sample, sphere
    from frostline.attention import Attention, Factored
    from frostline.dynamics.mean_map import mean_map
    from frostline.dynamics.simulation import Trajectory, simulate
    from frostline.dynamics.steppers import RK4, Adaptive, Euler
    from frostline.store import load_run
    from frostline.theory.flow import zero_temperature
    from frostline.theory.limits import limit


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"frostline.{name}")
    else:
        raise AttributeError(f"frostline has no public name {name!r}; there are: {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
