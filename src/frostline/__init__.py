"""frostline: how self-attention at low temperature freezes tokens into a predictable shape.

The public names below are imported when first used, so that ``import frostline`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frostline.notebooks import html_of

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
    "rates": "frostline.theory.rates",
    "bound": "frostline.theory.bounds",
    "terminal": "frostline.theory.terminal",
    "regime": "frostline.theory.regime",
    "certificate": "frostline.analysis.certificates",
    "phases": "frostline.analysis.phases",
    "clusters": "frostline.analysis.clusters",
    "stability": "frostline.analysis.stability",
    "laplace": "frostline.analysis.laplace",
    "laplace_growth": "frostline.analysis.laplace",
    "fit": "frostline.analysis.fits",
    "wasserstein": "frostline.transport.solve",
    "Coupling": "frostline.transport.distance",
    "sliced": "frostline.transport.sliced",
    "distance_curve": "frostline.analysis.curves",
    "load_run": "frostline.store",
    "audit": "frostline.auditing.audit",
    "diff": "frostline.auditing.comparing",
    "baseline": "frostline.monitoring.baseline",
    "load_baseline": "frostline.monitoring.frost",
    "merge": "frostline.monitoring.baseline",
    "watch": "frostline.monitoring.watching",
    "wrap": "frostline.monitoring.wrapping",
    "sweep": "frostline.sweeping.running",
}
_MODULES = {
    "sample": "frostline.sample",
    "sphere": "frostline.sphere",
    "densities": "frostline.theory.densities",
    "errors": "frostline.errors",
    "plot": "frostline.plot",
}

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from frostline import errors, plot, sample, sphere
    from frostline.analysis.certificates import certificate
    from frostline.analysis.clusters import clusters
    from frostline.analysis.curves import distance_curve
    from frostline.analysis.fits import fit
    from frostline.analysis.laplace import laplace, laplace_growth
    from frostline.analysis.phases import phases
    from frostline.analysis.stability import stability
    from frostline.attention import Attention, Factored
    from frostline.auditing.audit import audit
    from frostline.auditing.comparing import diff
    from frostline.dynamics.mean_map import mean_map
    from frostline.dynamics.simulation import Trajectory, simulate
    from frostline.dynamics.steppers import RK4, Adaptive, Euler
    from frostline.monitoring.baseline import baseline, merge
    from frostline.monitoring.frost import load_baseline
    from frostline.monitoring.watching import watch
    from frostline.monitoring.wrapping import wrap
    from frostline.store import load_run
    from frostline.sweeping.running import sweep
    from frostline.theory import densities
    from frostline.theory.bounds import bound
    from frostline.theory.flow import zero_temperature
    from frostline.theory.limits import limit
    from frostline.theory.rates import rates
    from frostline.theory.regime import regime
    from frostline.theory.terminal import terminal
    from frostline.transport.distance import Coupling
    from frostline.transport.sliced import sliced
    from frostline.transport.solve import wasserstein


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        raise AttributeError(f"frostline has no public name {name!r}; there are: {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def _html_of_run(run: Any) -> str:
    return str(import_module("frostline.plot").trajectory_html(run))


html_of["Trajectory"] = _html_of_run


def __dir__() -> list[str]:
    return sorted(__all__)
