"""frostline: how self-attention at low temperature freezes tokens into a predictable shape.

The public names below are imported when first used, so that ``import frostline`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frostline import moved
from frostline.results import ABILITIES

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
    "closure": "frostline.theory.closure",
    "Cloud": "frostline.theory.token_cloud",
    "warm_limit": "frostline.theory.warm_flow",
    "moment_flow": "frostline.theory.moment_flow",
    "certificate": "frostline.analysis.certificates",
    "phases": "frostline.analysis.phases",
    "clusters": "frostline.analysis.clusters",
    "stability": "frostline.analysis.stability",
    "laplace": "frostline.analysis.laplace",
    "laplace_growth": "frostline.analysis.laplace",
    "fit": "frostline.analysis.fits",
    "wasserstein": "frostline.transport.solve",
    "Coupling": "frostline.transport.interval",
    "sliced": "frostline.transport.sliced",
    "distance_curve": "frostline.analysis.distance",
    "load_run": "frostline.runs.directory",
    "audit": "frostline.auditing.audit",
    "diff": "frostline.auditing.comparison.compare",
    "baseline": "frostline.monitoring.baseline",
    "load_baseline": "frostline.monitoring.baseline_file",
    "merge": "frostline.monitoring.merge",
    "watch": "frostline.monitoring.watch",
    "wrap": "frostline.monitoring.wrap",
    "sweep": "frostline.sweeping.driver",
}
_MODULES = {
    "sample": "frostline.sample",
    "sphere": "frostline.sphere",
    "densities": "frostline.theory.densities",
    "errors": "frostline.errors",
    "plot": "frostline.plot",
}

moved.install()
ABILITIES.update({"Trajectory._repr_html_": "frostline.plot.notebook:trajectory_html"})
ABILITIES.update(
    {
        "Audit.save": "frostline.auditing.save:save_audit",
        "Audit.to_html": "frostline.auditing.page:write_audit",
        "Audit.to_markdown": "frostline.auditing.page:model_card",
        "Comparison.save": "frostline.auditing.comparison.comparison_page:save_comparison",
        "Baseline.save": "frostline.monitoring.baseline_file:save",
        "Baseline.score": "frostline.monitoring.scorer:Scorer",
    }
)

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from frostline import errors, plot, sample, sphere
    from frostline.analysis.certificates import certificate
    from frostline.analysis.clusters import clusters
    from frostline.analysis.distance import distance_curve
    from frostline.analysis.fits import fit
    from frostline.analysis.laplace import laplace, laplace_growth
    from frostline.analysis.phases import phases
    from frostline.analysis.stability import stability
    from frostline.attention import Attention, Factored
    from frostline.auditing.audit import audit
    from frostline.auditing.comparison.compare import diff
    from frostline.dynamics.mean_map import mean_map
    from frostline.dynamics.simulation import Trajectory, simulate
    from frostline.dynamics.steppers import RK4, Adaptive, Euler
    from frostline.monitoring.baseline import baseline
    from frostline.monitoring.baseline_file import load_baseline
    from frostline.monitoring.merge import merge
    from frostline.monitoring.watch import watch
    from frostline.monitoring.wrap import wrap
    from frostline.runs.directory import load_run
    from frostline.sweeping.driver import sweep
    from frostline.theory import densities
    from frostline.theory.bounds import bound
    from frostline.theory.closure import closure
    from frostline.theory.flow import zero_temperature
    from frostline.theory.limits import limit
    from frostline.theory.moment_flow import moment_flow
    from frostline.theory.rates import rates
    from frostline.theory.regime import regime
    from frostline.theory.terminal import terminal
    from frostline.theory.token_cloud import Cloud
    from frostline.theory.warm_flow import warm_limit
    from frostline.transport.interval import Coupling
    from frostline.transport.sliced import sliced
    from frostline.transport.solve import wasserstein


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif f"frostline.{name}" in moved.MOVED:
        value = import_module(f"frostline.{name}")
    else:
        raise AttributeError(f"frostline has no public name {name!r}; there are: {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
