"""Distance of a run to its predicted limit over time: target, measure, recorder, and curves with guaranteed bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from frostline.analysis.replay import evenly_spaced_nodes, one_run, shares
from frostline.arrays import Array, as_float64, as_order
from frostline.attention import Attention
from frostline.dynamics.simulation import Trajectory
from frostline.dynamics.walking import Step
from frostline.errors import BadArray, BadParameter, BadRun, NoLimit
from frostline.progress import ProgressFunction, telling
from frostline.results import Result
from frostline.sphere import as_tokens, unit_rows
from frostline.theory.limits import Limit
from frostline.theory.limits import limit as limit_of
from frostline.transport.atoms import two_atoms
from frostline.transport.index_coupling import index_coupling
from frostline.transport.interval import KNOWN, Coupling, Distance
from frostline.transport.solve import wasserstein

POINTS = 400
"""The approximate number of points of a curve, however many steps the run took."""
OFF_CLUSTER = 0.3
"""Angle (rad) from every point of the limit beyond which a token is off-cluster (THEORY section 8)."""


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Result):
    """W_p to the limit of the same tokens, and two symptoms of finite n, at each of ``times`` (k,).

    distance         W_p; ``method`` "two atoms" (exact) or "index coupling" (an upper bound)
    off_cluster      the number of tokens more than 0.3 rad from every point of the limit
    off_mass         their share of the mass
    imbalance        net mass at the wrong one of two points; NaN unless the limit is two points
    """

    p: float
    method: str
    times: Float[np.ndarray, "k"]
    distance: Float[np.ndarray, "k"]
    off_cluster: Float[np.ndarray, "k"]
    off_mass: Float[np.ndarray, "k"]
    imbalance: Float[np.ndarray, "k"]

    def describe(self) -> str:
        """The order, the number of times and the method."""
        return f"W{self.p:g} at {len(self.times)} times, {self.method}"


def step_curve(run: Trajectory, *, p: float = 2.0, verb: str = "step_curve") -> Curve:
    """Replay the run and measure it at every step (at about 400 of them, in a long run); ``verb`` is for errors."""
    one_run(run, verb)
    p = as_order(p)
    if len(run.layers) > 1:
        raise BadParameter(f"{verb} takes a run of one layer; a stack of {len(run.layers)} has no single limit.")
    if not run.times[-1] > 0:
        raise BadRun("the run kept only its start, t = 0; ask for later times with save_at.")
    measure = Measure.of_run(run, p)
    rows = []
    for node in evenly_spaced_nodes(run, POINTS):
        far = measure.off_cluster(node.tokens)
        rows.append(
            (
                node.time,
                measure.distance(node.tokens),
                float(far.sum()),
                float(measure.weights[far].sum()),
                measure.imbalance(node.tokens),
            )
        )
    return Curve(p, measure.method, *np.array(rows).T)


def common_limit(layers: Sequence[Sequence[Attention]]) -> Limit | None:
    """The limit of one layer; None for a stack of layers, which has no single limit."""
    try:
        return limit_of([list(layer) for layer in layers])
    except BadParameter:
        return None


def number_or_none(value: float) -> float | None:
    """The value, or None where it is NaN because it was not measured."""
    return None if np.isnan(value) else value


@dataclass(frozen=True, eq=False)
class Measure:
    """Distance W_p of tokens to the limit of the same tokens; tokens without a limit are left out.

    goal (n, d)    the limit of each token (0 where it has none)
    basis (m, d)   the limit's basis, empty for numerical limits
    defined (n,)   which tokens have a limit
    weights (n,)   their masses, which sum to 1
    """

    goal: Float[np.ndarray, "n d"]
    basis: Float[np.ndarray, "m d"]
    defined: Bool[np.ndarray, "n"]
    weights: Float[np.ndarray, "n"]
    p: float

    @classmethod
    def of(
        cls,
        limit: Limit,
        start: Float[np.ndarray, "n d"],
        weights: Float[np.ndarray, "n"] | None,
        p: float = 2.0,
    ) -> "Measure":
        """The measure for tokens that begin at ``start``; without weights all weigh the same."""
        if limit.kind in ("rotation", "mixed"):
            raise NoLimit(f"there is no limit to measure a distance to: the kind is {limit.kind}.")
        goal = np.asarray(limit(start), dtype=np.float64)
        defined = np.asarray(np.isfinite(goal).all(1))
        mass = np.where(defined, 1 / len(start) if weights is None else weights, 0.0)
        if not mass.any():
            raise NoLimit("there is no limit to measure a distance to: no token has one.")
        basis = np.zeros((0, start.shape[1])) if limit.basis is None else np.asarray(limit.basis, dtype=np.float64)
        return cls(np.where(defined[:, None], goal, 0.0), basis, defined, mass / mass.sum(), p)

    @classmethod
    def of_run(cls, run: Trajectory, p: float = 2.0, limit: Limit | None = None) -> "Measure":
        """The measure for the tokens of a run, with its own limit by default."""
        limit = limit_of([list(layer) for layer in run.layers]) if limit is None else limit
        return cls.of(limit, unit_rows(as_float64(run.initial)), run.weights, p)

    @property
    def exact(self) -> bool:
        """Whether ``distance`` is exact; otherwise it is an upper bound."""
        return len(self.basis) == 1

    @property
    def method(self) -> str:
        """How ``distance`` is computed."""
        return "two atoms" if self.exact else "index coupling"

    @property
    def left_out(self) -> int:
        """The number of tokens without a limit."""
        return int((~self.defined).sum())

    @property
    def share(self) -> float:
        """The mass that belongs to the first of two atoms."""
        return float(self.weights[self.goal @ self.basis[0] > 0].sum())

    def distance(self, x: Float[np.ndarray, "n d"]) -> float:
        """W_p from the tokens to their limit."""
        if self.exact:
            return two_atoms(x, self.weights, np.concatenate([self.basis, -self.basis]), self.share, p=self.p)
        return float(index_coupling(x, self.goal, p=self.p, weights=self.weights))

    def along(self, run: Trajectory) -> Float[np.ndarray, "k"]:
        """The distance at each time that the run kept."""
        return np.array([self.distance(as_float64(tokens)) for tokens in run.tokens])

    def interval(
        self, x: Float[np.ndarray, "n d"], coupling: str | Coupling | None = "index", **options: Any
    ) -> Distance:
        """W_p from the tokens to their limit with guaranteed bounds; ``options`` are those of ``wasserstein``."""
        mass = self.weights[self.defined]
        return wasserstein(
            x[self.defined],
            self.goal[self.defined],
            p=self.p,
            x_weights=mass,
            y_weights=mass,
            coupling=coupling,
            **options,
        )

    def imbalance(self, x: Float[np.ndarray, "n d"]) -> float:
        """Net mass on the wrong side of two points; NaN for other limits."""
        if not self.exact:
            return np.nan
        return abs(float(self.weights[x @ self.basis[0] > 0].sum()) - self.share)

    def off_cluster(self, x: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, "n"]:
        """Which tokens are more than 0.3 rad from the limit set: E, or (numerical limits) the tokens' own limits."""
        if len(self.basis):
            inside = x @ self.basis.T
            angle = np.arctan2(np.linalg.norm(x - inside @ self.basis, axis=1), np.linalg.norm(inside, axis=1))
            return self.defined & (angle > OFF_CLUSTER)
        points = unit_rows(np.unique(self.goal[self.defined].round(6), axis=0))
        nearest = np.array([(points @ token).max() for token in x])
        return self.defined & (nearest < np.cos(OFF_CLUSTER))


@dataclass(frozen=True, eq=False)
class Target:
    """The predicted limit of a run's tokens with its measure, or the reason (``why_none``) why there is none."""

    limit: Limit | None
    measure: Measure | None
    why_none: str

    @classmethod
    def of(
        cls, layers: Sequence[Sequence[Attention]], x0: Array, weights: np.ndarray | None, p: float = 2.0
    ) -> "Target":
        """The target of tokens that begin at ``x0`` and pass these layers."""
        limit = common_limit(layers)
        if limit is None:
            return cls(None, None, f"A stack of {len(layers)} layers has no single limit to measure a distance to.")
        try:
            return cls(limit, Measure.of(limit, unit_rows(as_float64(x0)), weights, p), "")
        except NoLimit as error:
            return cls(limit, None, f"{str(error)[0].upper()}{str(error)[1:]}")

    @property
    def tokens(self) -> np.ndarray | None:
        """The limit of each token; NaN for tokens without one."""
        if self.measure is None:
            return None
        return np.where(self.measure.defined[:, None], self.measure.goal, np.nan)

    @property
    def exact(self) -> bool:
        """Whether the distance to this target is exact; otherwise it is an upper bound, or there is none."""
        return self.measure is not None and self.measure.exact

    @property
    def left_out(self) -> int | None:
        """The number of tokens without a limit; None where no distance is measured."""
        return None if self.measure is None else self.measure.left_out


class DistanceRecorder:
    """Watches a run and records its distance to the target as ``points`` (time, distance), about ``POINTS`` of them."""

    def __init__(self, target: Target, points: list[tuple[float, float]]):
        self.target, self.points = target, points

    def __call__(self, step: Step) -> None:
        """Record the points that this step has reached."""
        # The time of the last point decides, so that a resumed run records the same points.
        gap = step.until / POINTS
        before = self.points[-1][0] if self.points else 0.0
        while step.at is not None and self.target.measure is not None and before + gap < step.time:
            before = before + gap
            self.add(before, step.at(before))
        if step.time - before >= gap or step.time == step.until:
            self.add(step.time, step.tokens)

    def add(self, time: float, tokens: Array) -> None:
        """Record the distance of these tokens, where there is a target."""
        if self.target.measure is not None:
            self.points.append((time, self.target.measure.distance(as_float64(tokens))))

    def facts(self) -> dict[str, Any]:
        """The first, last and smallest distance as plain values for JSON."""
        method = "exact" if self.target.exact else "index coupling (an upper bound)"
        smallest = min(self.points, key=lambda point: point[1], default=None)
        return {
            "what": f"W2 to the limit of the same tokens, {method}",
            "exact": self.target.exact,
            "none_because": self.target.why_none or None,
            "first": self.points[0][1] if self.points else None,
            "last": self.points[-1][1] if self.points else None,
            "smallest": None if smallest is None else smallest[1],
            "smallest_at": None if smallest is None else smallest[0],
        }


@dataclass(frozen=True, eq=False, repr=False)
class DistanceCurve(Result):
    """W_p to the limit at each kept time of a run, with guaranteed bounds.

    Attributes
    ----------
    p : float
        The order of the distance.
    times : ndarray
        The kept times, (k,).
    values, lower, upper : ndarray
        The best value and its bounds at each time, (k,).
    methods : tuple of str
        The method at each time.
    left_out : int
        The number of tokens without a limit, which are not counted.
    """

    p: float
    times: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    lower: Float[np.ndarray, "k"]
    upper: Float[np.ndarray, "k"]
    methods: tuple[str, ...]
    left_out: int

    def describe(self) -> str:
        """The first and last value, the largest relative width of the bounds, and the methods."""
        widest = float(((self.upper - self.lower) / np.where(self.upper > 0, self.upper, 1.0)).max())
        known = "exact" if widest < KNOWN else f"known to {100 * widest:.2g} %"
        return (
            f"W{self.p:g} from {self.values[0]:.4g} to {self.values[-1]:.4g} at {len(self.times)} times, "
            f"{known}; {', '.join(sorted(set(self.methods)))}"
        )

    def facts(self) -> dict[str, Any]:
        """The curve as the summary of a run directory stores it."""
        return {
            "times": self.times.tolist(),
            "value": self.values.tolist(),
            "lower": self.lower.tolist(),
            "upper": self.upper.tolist(),
            "method": list(self.methods),
        }


def distance_curve(
    run: Trajectory,
    limit: Limit | Array | None = None,
    *,
    p: float = 2.0,
    metric: str = "euclidean",
    method: str = "auto",
    tolerance: float | None = None,
    seconds: float | None = None,
    progress: ProgressFunction | None = None,
) -> DistanceCurve:
    """W_p from a run to its limit at the times it kept, with bounds; the plan of one time starts the next.

    Parameters
    ----------
    run : Trajectory
        A run of tokens (n, d).
    limit : Limit or array (m, d), optional
        The limit of the run by default; another Limit, or tokens with equal masses, may be given.
    p, metric, method, tolerance, seconds
        Options of ``wasserstein``, for each time.
    progress : callable, optional
        Called with a ``Progress`` after each time.

    Returns
    -------
    DistanceCurve
        The values and their bounds at ``run.times``.

    Raises
    ------
    NoLimit
        The tokens have no limit.
    BadRun
        The run kept no times.
    BadArray
        The tokens given as ``limit`` have another dimension.

    Examples
    --------
    >>> from frostline import Attention, sample, simulate
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> run = simulate(head, sample.uniform(50, 2, seed=0), until=2.0, save_at=[0.0, 1.0, 2.0])
    >>> curve = distance_curve(run)
    >>> curve.methods, bool((curve.lower <= curve.upper).all())
    (('atoms', 'atoms', 'atoms'), True)
    """
    one_run(run, "distance_curve")
    p = as_order(p)
    options: dict[str, Any] = {"metric": metric, "method": method, "tolerance": tolerance, "seconds": seconds}
    paired = limit is None or isinstance(limit, Limit)
    # A limit belongs to its token and has the mass of that token; a cloud has equal masses.
    measure = Measure.of_run(run, p, limit) if paired else None
    cloud = None if paired else _as_cloud(limit, int(run.initial.shape[1]))
    tell, distances = telling(progress), list[Distance]()
    coupling: str | Coupling | None = "index" if paired else None
    for number, tokens in enumerate(run.tokens):
        # float32 tokens are unit vectors to 1e-7 only.
        x = unit_rows(as_float64(tokens))
        if measure is not None:
            distance = measure.interval(x, coupling=coupling, plan=True, **options)
        else:
            distance = wasserstein(x, cloud, p=p, x_weights=shares(run), coupling=coupling, plan=True, **options)
        coupling = distance.plan if distance.plan is not None and distance.method == "bracket" else coupling
        distances.append(distance)
        tell("measuring distances", f"time {number + 1} of {len(run.times)}", number + 1, len(run.times))
    return DistanceCurve(
        p=distances[0].p,
        times=run.times,
        values=np.array([distance.value for distance in distances]),
        lower=np.array([distance.lower for distance in distances]),
        upper=np.array([distance.upper for distance in distances]),
        methods=tuple(distance.method for distance in distances),
        left_out=0 if measure is None else measure.left_out,
    )


def _as_cloud(limit: Array, dimension: int) -> np.ndarray:
    """The caller's tokens (m, d) as unit vectors."""
    tokens = as_float64(as_tokens(limit, "limit")[0])
    if tokens.ndim != 2 or tokens.shape[1] != dimension:
        raise BadArray(f"limit has shape {tokens.shape}; tokens of the run's dimension, (n, {dimension}), are needed.")
    return unit_rows(tokens)
