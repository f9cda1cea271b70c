# The one list of public names: type checkers read it, and names are imported as it says when they are first used.
from . import errors, plot, sample, sphere
from .analysis.certificates import Certificate, certificate
from .analysis.clusters import Clusters, clusters
from .analysis.distance import DistanceCurve, distance_curve
from .analysis.fits import Fit, fit
from .analysis.laplace import Growth, Laplace, laplace, laplace_growth
from .analysis.phases import Phase, Phases, phases
from .analysis.stability import Stability, stability
from .analysis.tubes import Tube, tube
from .attention import Attention, Factored
from .auditing.audit import Audit, audit
from .auditing.comparison.compare import Comparison, diff
from .auditing.findings import Finding
from .dynamics.mean_map import mean_map
from .dynamics.simulation import Trajectory, simulate
from .dynamics.status import Status
from .dynamics.steppers import RK4, Adaptive, Euler
from .monitoring.baseline import Baseline, baseline
from .monitoring.baseline_file import load_baseline
from .monitoring.merge import merge
from .monitoring.reasons import Reason, Scores
from .monitoring.watch import Watch, watch
from .monitoring.wrap import wrap
from .progress import Progress
from .runs.directory import load_run
from .runs.record import Recording, record
from .runs.schema import Spec, read_spec
from .sweeping.driver import Sweep, sweep
from .theory import densities
from .theory.bounds import Bound, bound
from .theory.closure import Closure, closure
from .theory.flow import ZeroTemperaturePath, zero_temperature
from .theory.limits import Limit, limit
from .theory.moment_flow import MomentFlow, moment_flow
from .theory.rates import Rates, rates
from .theory.regime import Regime, regime
from .theory.terminal import Terminal, terminal
from .theory.token_cloud import Cloud
from .theory.warm_flow import WarmLimit, warm_limit
from .transport.interval import Coupling, Distance
from .transport.sliced import Sliced, sliced
from .transport.solve import wasserstein

__version__: str

__all__ = [
    "RK4",
    "Adaptive",
    "Attention",
    "Audit",
    "Baseline",
    "Bound",
    "Certificate",
    "Closure",
    "Cloud",
    "Clusters",
    "Comparison",
    "Coupling",
    "Distance",
    "DistanceCurve",
    "Euler",
    "Factored",
    "Finding",
    "Fit",
    "Growth",
    "Laplace",
    "Limit",
    "MomentFlow",
    "Phase",
    "Phases",
    "Progress",
    "Rates",
    "Reason",
    "Recording",
    "Regime",
    "Scores",
    "Sliced",
    "Spec",
    "Stability",
    "Status",
    "Sweep",
    "Terminal",
    "Trajectory",
    "Tube",
    "WarmLimit",
    "Watch",
    "ZeroTemperaturePath",
    "__version__",
    "audit",
    "baseline",
    "bound",
    "certificate",
    "closure",
    "clusters",
    "densities",
    "diff",
    "distance_curve",
    "errors",
    "fit",
    "laplace",
    "laplace_growth",
    "limit",
    "load_baseline",
    "load_run",
    "mean_map",
    "merge",
    "moment_flow",
    "phases",
    "plot",
    "rates",
    "read_spec",
    "record",
    "regime",
    "sample",
    "simulate",
    "sliced",
    "sphere",
    "stability",
    "sweep",
    "terminal",
    "tube",
    "warm_limit",
    "wasserstein",
    "watch",
    "wrap",
    "zero_temperature",
]
