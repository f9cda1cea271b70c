"""How far a run is from its limit, over time: the curve that phases, fits and figures are made from."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from frostline.analysis.replay import one_run, replay, shares
from frostline.arrays import Array, as_float64, as_order
from frostline.attention import Attention
from frostline.dynamics.simulation import Trajectory
from frostline.dynamics.walking import Progress
from frostline.errors import BadArray, BadParameter, BadRun, NoLimit
from frostline.printable import one_line
from frostline.sphere import as_tokens, unit_rows
from frostline.theory.limits import Limit
from frostline.theory.limits import limit as limit_of
from frostline.transport.atoms import two_atoms
from frostline.transport.index_coupling import index_coupling
from frostline.transport.interval import Coupling, Distance
from frostline.transport.solve import wasserstein

POINTS = 400
"""A curve has about this many points, however many steps the run took."""
OFF_CLUSTER = 0.3
"""Farther than this (rad) from every place of the limit, a token is off-cluster (THEORY section 8)."""


@dataclass(frozen=True, eq=False)
class Curve:
    """W_p to the limit of the same tokens, and two symptoms of finite n, at each of ``times`` (k,).

    distance         W_p; ``method`` "two atoms" (exact) or "index coupling" (an upper bound)
    off_cluster      how many tokens are more than 0.3 rad from every place of the limit
    off_mass         their share of the mass
    imbalance        mass that sits at the wrong one of two points, net; NaN unless the limit is two points
    """

    p: float
    method: str
    times: Float[np.ndarray, "k"]
    distance: Float[np.ndarray, "k"]
    off_cluster: Float[np.ndarray, "k"]
    off_mass: Float[np.ndarray, "k"]
    imbalance: Float[np.ndarray, "k"]

    def __repr__(self) -> str:
        return one_line(self, f"W{self.p:g} at {len(self.times)} times, {self.method}")


def step_curve(run: Trajectory, *, p: float = 2.0, verb: str = "step_curve") -> Curve:
    """Replay the run and measure it at every step (at about 400 of them, in a long run); ``verb`` is for refusals."""
    one_run(run, verb)
    p = as_order(p)
    layers = [list(layer) for layer in run.layers]
    if len(layers) > 1:
        raise BadParameter(f"{verb} takes a run of one layer; a stack of {len(layers)} has no single limit.")
    last = float(run.times[-1])
    if not last > 0:
        raise BadRun("the run kept only its start, t = 0; ask for later times with save_at.")
    measure = Measure.of(limit_of(layers), next(replay(run)).tokens, shares(run), p)
    rows, due = [], 0.0
    for node in replay(run, spacing=last / POINTS):
        if node.time >= due or node.time == last:
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
            due = node.time + last / POINTS * (1 - 1e-9)
    columns = np.array(rows).T
    return Curve(p, measure.method, *columns)


@dataclass(frozen=True, eq=False)
class Measure:
    """How far tokens are from the limit of the same tokens. Tokens without a limit are left out: ``defined`` (n,)."""

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
        """For tokens that begin at ``start``; without weights all weigh the same."""
        if limit.kind in ("rotation", "mixed"):
            raise NoLimit(f"there is no limit to measure a distance to: the kind is {limit.kind}.")
        goal = np.asarray(limit(start), dtype=np.float64)
        defined = np.asarray(np.isfinite(goal).all(1))
        mass = np.where(defined, 1 / len(start) if weights is None else weights, 0.0)
        if not mass.any():
            raise NoLimit("there is no limit to measure a distance to: no token has one.")
        basis = np.zeros((0, start.shape[1])) if limit.basis is None else np.asarray(limit.basis, dtype=np.float64)
        return cls(np.where(defined[:, None], goal, 0.0), basis, defined, mass / mass.sum(), p)

    @property
    def method(self) -> str:
        return "two atoms" if len(self.basis) == 1 else "index coupling"

    @property
    def share(self) -> float:
        """The mass that belongs to the first of two atoms."""
        return float(self.weights[self.goal @ self.basis[0] > 0].sum())

    def distance(self, x: Float[np.ndarray, "n d"]) -> float:
        """W_p from the tokens to their limit."""
        if self.method == "two atoms":
            return two_atoms(x, self.weights, np.concatenate([self.basis, -self.basis]), self.share, p=self.p)
        return float(index_coupling(x, self.goal, p=self.p, weights=self.weights))

    def along(self, run: Trajectory) -> Float[np.ndarray, "k"]:
        """The distance at each time that the run kept."""
        return np.array([self.distance(as_float64(tokens)) for tokens in run.tokens])

    def imbalance(self, x: Float[np.ndarray, "n d"]) -> float:
        """Net mass on the wrong side of two points; NaN for other limits."""
        if self.method != "two atoms":
            return np.nan
        return abs(float(self.weights[x @ self.basis[0] > 0].sum()) - self.share)

    def off_cluster(self, x: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, "n"]:
        """Which tokens are more than 0.3 rad from the limit set: E, or (numerical limits) the tokens' own limits."""
        if len(self.basis):
            inside = x @ self.basis.T
            angle = np.arctan2(np.linalg.norm(x - inside @ self.basis, axis=1), np.linalg.norm(inside, axis=1))
            return self.defined & (angle > OFF_CLUSTER)
        places = unit_rows(np.unique(self.goal[self.defined].round(6), axis=0))
        nearest = np.array([(places @ token).max() for token in x])
        return self.defined & (nearest < np.cos(OFF_CLUSTER))


@dataclass(frozen=True, eq=False)
class Target:
    """Where the tokens should go: the predicted limit, or the reason why there is none to measure against."""

    limit: Limit | None
    measure: Measure | None
    why_none: str

    @classmethod
    def of(cls, layers: list[list[Attention]], x0: torch.Tensor, weights: np.ndarray | None) -> "Target":
        try:
            limit = limit_of(layers)
        except BadParameter:
            return cls(None, None, f"A stack of {len(layers)} layers has no single limit to measure a distance to.")
        try:
            return cls(limit, Measure.of(limit, unit_rows(as_float64(x0)), weights), "")
        except NoLimit as error:
            return cls(limit, None, f"{str(error)[0].upper()}{str(error)[1:]}")

    @property
    def tokens(self) -> np.ndarray | None:
        """Where each token should go; NaN for those without a limit."""
        if self.measure is None:
            return None
        return np.where(self.measure.defined[:, None], self.measure.goal, np.nan)


class DistanceRecorder:
    """Watches a run and keeps its distance to the limit, at about ``POINTS`` times however many steps there are."""

    def __init__(self, measure: Measure | None, points: list[tuple[float, float]]):
        self.measure, self.points = measure, points

    def __call__(self, progress: Progress) -> None:
        # The time of the last point decides, so that a resumed run records the same points.
        gap = progress.until / POINTS
        before = self.points[-1][0] if self.points else 0.0
        while progress.at is not None and self.measure is not None and before + gap < progress.time:
            before = before + gap
            self.add(before, progress.at(before))
        if progress.time - before >= gap or progress.time == progress.until:
            self.add(progress.time, progress.tokens)

    def add(self, time: float, tokens: torch.Tensor) -> None:
        if self.measure is not None:
            self.points.append((time, self.measure.distance(as_float64(tokens))))


@dataclass(frozen=True, eq=False)
class DistanceCurve:
    """W_p to the limit at each kept time of a run: the best value, and guaranteed bounds; all (k,).

    ``methods`` says how each was found, ``left_out`` how many tokens have no limit and are not counted.
    """

    p: float
    times: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    lower: Float[np.ndarray, "k"]
    upper: Float[np.ndarray, "k"]
    methods: tuple[str, ...]
    left_out: int

    def __repr__(self) -> str:
        widest = float(((self.upper - self.lower) / np.where(self.upper > 0, self.upper, 1.0)).max())
        return one_line(
            self,
            f"W{self.p:g} from {self.values[0]:.4g} to {self.values[-1]:.4g} at {len(self.times)} times, "
            f"{'exact' if widest < 1e-9 else f'known to {100 * widest:.2g} %'}; {', '.join(sorted(set(self.methods)))}",
        )


def distance_curve(
    run: Trajectory,
    limit: Limit | Array | None = None,
    *,
    p: float = 2.0,
    metric: str = "euclidean",
    method: str = "auto",
    tolerance: float | None = None,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DistanceCurve:
    """W_p from a run to its limit at the times it kept, with bounds; the plan of one time starts the next.

    ``limit`` is the run's own by default; another Limit, or tokens (n, d) to compare with, may be given. The other
    options are those of ``wasserstein``, for each time; ``progress(done, of)`` is called after each.
    """
    one_run(run, "distance_curve")
    if progress is not None and not callable(progress):
        raise BadParameter(f"progress is {progress!r}; a function (done, of) is needed.")
    start, mine = unit_rows(as_float64(run.initial)), shares(run)
    target = _target(run, limit, start)
    defined = np.isfinite(target).all(1)
    # A limit belongs to its token and has its mass; a cloud of one's own is a cloud of equal masses.
    paired = limit is None or isinstance(limit, Limit)
    if paired and not (mine * defined).any():
        raise NoLimit("there is no limit to measure a distance to: no token has one.")
    weights = mine[defined] / mine[defined].sum() if paired else mine
    goal_weights = weights if paired else np.full(int(defined.sum()), 1 / defined.sum())
    found: list[Distance] = []
    coupling: str | Coupling | None = "index" if paired else None
    for number, frame in enumerate(run.tokens):
        # float32 tokens are unit vectors to 1e-7 only.
        x = unit_rows(as_float64(frame))
        x = x[defined] if paired else x
        one = wasserstein(
            x,
            target[defined],
            p=p,
            x_weights=weights,
            y_weights=goal_weights,
            metric=metric,
            coupling=coupling,
            method=method,
            tolerance=tolerance,
            seconds=seconds,
            plan=True,
        )
        coupling = one.plan if one.plan is not None and one.method == "bracket" else coupling
        found.append(one)
        if progress is not None:
            progress(number + 1, len(run.times))
    return DistanceCurve(
        p=found[0].p,
        times=run.times,
        values=np.array([one.value for one in found]),
        lower=np.array([one.lower for one in found]),
        upper=np.array([one.upper for one in found]),
        methods=tuple(one.method for one in found),
        left_out=int((~defined).sum()) if paired else 0,
    )


def _target(run: Trajectory, given: Limit | Array | None, start: np.ndarray) -> np.ndarray:
    """Where the tokens should be: (n, d), NaN for those without a limit."""
    if given is None or isinstance(given, Limit):
        found = limit_of([list(layer) for layer in run.layers]) if given is None else given
        return as_float64(found(start))
    tokens = as_float64(as_tokens(given, "limit")[0])
    if tokens.ndim != 2 or tokens.shape[1] != start.shape[1]:
        raise BadArray(
            f"limit has shape {tokens.shape}; tokens of the run's dimension, (n, {start.shape[1]}), are needed."
        )
    return unit_rows(tokens)
