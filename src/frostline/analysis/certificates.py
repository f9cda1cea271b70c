"""certificate: a bound, proven for one run, on how far its tokens are from their limit (THEORY section 7, eq. 20).

Arcs through the tokens of the run have a defect |ẋ − F(x)| that is bounded inside every step. Two certificates follow
from it. One compares each token with its own zero-temperature path: it pays e^{ℓt} and ends early. The other compares
nothing: the flow draws a token to the limit on its side, the defect pushes it away, and as long as the first wins the
token stays close. The mean map's own rounding plays no role: it moves the arcs, and the defect is measured on the arcs.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from frostline.analysis.arcs import Arc
from frostline.analysis.distance import Measure
from frostline.analysis.path_angles import PathAngles
from frostline.analysis.replay import Node, one_run, replay, shares, velocity
from frostline.analysis.side_angles import SideAngles
from frostline.arrays import as_float64, as_order
from frostline.attention import is_plain
from frostline.dynamics.simulation import Trajectory
from frostline.dynamics.steppers import Euler
from frostline.errors import BadParameter, BadRun, NoLimit
from frostline.results import Result
from frostline.sphere import unit_rows
from frostline.theory.expansion import PAD, Derivative
from frostline.theory.flow import zero_temperature
from frostline.theory.limits import Limit, limit
from frostline.theory.regime import Regime
from frostline.theory.sides import Sides
from frostline.theory.spectrum import scale_of
from frostline.transport.index_coupling import power_mean

NEAREST = 1e-14
"""Squared distance from E that rounding of a unit vector can pretend."""
DIAMETER = 2.0
"""The diameter of the sphere: no distance is larger."""
PATH_ERROR = 1e-9
"""The error zero_temperature guarantees, per 10/‖V‖ of time beyond the first; measured errors are below 1e-12."""
LONGEST_GAP = 1.0
"""Largest gap between kept times, in units of 1/‖V‖, that can be certified without a replay."""
SPACING = 0.1
"""The spacing of nodes, in units of 1/‖V‖, while tokens move."""
RESTING = 0.4
"""The spacing of nodes, in units of 1/‖V‖, while tokens hardly move."""
MOVED = 0.01
"""Tokens hardly move while their root mean square displacement between nodes is below this."""
STRAY = 1e-6
"""A replay that differs by this much from the kept tokens belongs to another run."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Result):
    """W_p to the target is at most ``values`` at each kept time of this run of n tokens (not of the mean field).

    Attributes
    ----------
    target : str
        "limit" (Π♯ρ₀), or "zero-temperature path" (ρ_t^∞) where the tokens have no limit.
    p : float
        The order of the distance.
    times, values : ndarray
        The kept times, (k,), and at each the smaller of the two certificates.
    temperature : ndarray
        Of ``by_path``, the part due to β and to the steps: (Σ w_i chord(θ_i)^p)^{1/p}, (k,).
    approach : ndarray
        Of ``by_path``, the part present at zero temperature: W_p(ρ_t^∞, target), index coupling, (k,).
    angles : ndarray
        θ_i, a bound of each token's angle to its own zero-temperature path, (k, n); π where it is unknown.
    defect : ndarray
        A bound of |ẋ − F(x)| up to then, over all tokens, (k,).
    regime : Regime
        Whether the theory is about this run.
    ruled_by : tuple
        Which certificate is the smaller one at each time: "path" or "sides".
    by_path : ndarray
        The certificate by zero-temperature paths, (k,): ``temperature`` + ``approach``, token by token.
    by_sides : ndarray
        The certificate by sides (THEORY eq. 20), (k,); infinite where ``no_sides`` says why there is none.
    side_angles : ndarray
        A bound of each token's angle to the limit on its side (to E where dim E > 1), (k, n); π where it is unknown.
    start : float
        A lower bound of W_p at t = 0, exact for two atoms and for symmetric A; values not below it are ``vacuous``.
        It is 2, the diameter, for the target "zero-temperature path".
    no_sides : str
        The reason why (20) does not apply, or "".
    """

    target: str
    p: float
    times: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    temperature: Float[np.ndarray, "k"]
    approach: Float[np.ndarray, "k"]
    angles: Float[np.ndarray, "k n"]
    defect: Float[np.ndarray, "k"]
    regime: Regime
    ruled_by: tuple[str, ...]
    by_path: Float[np.ndarray, "k"]
    by_sides: Float[np.ndarray, "k"]
    side_angles: Float[np.ndarray, "k n"]
    start: float
    no_sides: str

    @property
    def vacuous(self) -> Bool[np.ndarray, "k"]:
        """Which values are no less than ``start``: the tokens are not known to have come closer than they were."""
        return ~(self.values < self.start)

    def describe(self) -> str:
        """The bound at the last kept time, in words.

        The smallest value and its time follow, where that is another time.
        """
        target = "its limit" if self.target == "limit" else "the zero-temperature path of the same tokens"
        t, value = self.times[-1], self.values[-1]
        tail = self._unknown() + self._smallest()
        if self.vacuous[-1]:
            least = f"W{self.p:g} at t = 0 is {self.start:.4g}" if self.target == "limit" else "no distance exceeds 2"
            return f"Vacuous at t = {t:g}: the certificate is {value:.3g}, and {least}.{tail}"
        if self.ruled_by[-1] == "sides":
            reason = "by sides: each token against the pull of the limit on its side"
        else:
            reason = f"{self.temperature[-1]:.3g} from temperature and steps, {self.approach[-1]:.3g} from the approach"
        return f"Certified at t = {t:g}: W{self.p:g} from this run to {target} is at most {value:.4g} ({reason}).{tail}"

    def _smallest(self) -> str:
        """The smallest value and its time, in words; nothing where it is the last one, or says nothing."""
        place = int(np.argmin(self.values))
        if place == len(self.values) - 1 or self.vacuous[place]:
            return ""
        return f" The smallest value is {self.values[place]:.4g}, at t = {self.times[place]:g}."

    def _unknown(self) -> str:
        """How many tokens the certificate that ruled last could not follow, in words."""
        angles = self.side_angles if self.ruled_by[-1] == "sides" else self.angles
        lost = int((angles[-1] >= np.pi).sum())
        return f" {lost} of {angles.shape[1]} tokens could not be followed." if lost else ""


def certificate(run: Trajectory, *, p: float = 2.0, replayed: bool = True) -> Certificate:
    """Prove a bound of W_p from the tokens of a run to their limit, at every time it kept (THEORY section 7, eq. 20).

    Parameters
    ----------
    run : Trajectory
        A run of one layer with one head and no key bias.
    p : float
        Order of the distance.
    replayed : bool
        Whether to replay the run for the steps it did not keep. With False the kept times alone are used, which must
        then be close together.

    Returns
    -------
    Certificate
        The bound at each kept time and its parts.

    Raises
    ------
    BadParameter
        The run has several layers, several heads or a key bias.
    BadRun
        The kept tokens do not belong to this run, or their times are too far apart.

    Examples
    --------
    >>> from frostline import Attention, sample, simulate
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1000.0)
    >>> run = simulate(head, sample.uniform(200, 2, seed=0), until=4.0)
    >>> bool(certificate(run).values[-1] < 0.6)
    True
    """
    one_run(run, "certificate")
    p = as_order(p)
    if len(run.layers) > 1 or not is_plain(run.layers[0]):
        raise BadParameter(
            "certificate covers one layer with one head and no key bias, where the zero-temperature flow has the form "
            f"of THEORY eq. 5; this run has {len(run.layers)} layers, {len(run.layers[0])} heads in the first"
            f"{', with a key bias' if run.layers[0][0].key_bias is not None else ''}."
        )
    walk = _Walk(run, _Goal.of(run), straight=isinstance(run.stepper, Euler) and (replayed or _kept_all(run)))
    kept = {float(time): as_float64(frame) for time, frame in zip(run.times, run.tokens, strict=True)}
    rows = []
    for node in replay(run, spacing=SPACING / walk.size) if replayed else _kept(run, walk.size):
        if node.time in kept or walk.far_from(node):
            walk.to(node)
        if node.time in kept:
            rows.append(walk.row(kept[node.time]))
    if len(rows) < len(run.times) or not max(row.stray.max() for row in rows) < STRAY:
        raise BadRun(
            "replaying the run did not lead to the tokens it kept; it was not made by this stepper from this start "
            "(replayed=False certifies the kept times as they are)."
        )
    return _closed(run, p, walk, rows)


def _kept(run: Trajectory, size: float) -> list[Node]:
    """The kept times alone; refused when they are too far apart."""
    frames = [as_float64(frame) for frame in run.tokens]
    start = as_float64(run.initial)
    if run.times[0] == 0 and not np.abs(frames[0] - start).max() < STRAY:
        raise BadRun("the tokens kept at t = 0 are not those the run started from; it was changed.")
    if run.times[0] > 0:
        frames = [start, *frames]
    times = np.unique(np.concatenate([[0.0], run.times]))
    gap = float(np.diff(times).max()) if len(times) > 1 else 0.0
    if gap * size > LONGEST_GAP:
        needed = int(np.ceil(times[-1] * size / LONGEST_GAP)) + 1
        raise BadRun(
            f"the run kept too few steps to be certified without a replay: {len(run.times)} times, up to {gap:.3g} "
            f"apart, where 1/‖V‖ = {1 / size:.3g}; keep at least {needed} with save_at, or let it be replayed."
        )
    return [Node(float(time), unit_rows(frame)) for time, frame in zip(times, frames, strict=True)]


def _kept_all(run: Trajectory) -> bool:
    """Whether a run with a fixed step kept every step."""
    return len(run.times) - int(run.times[0] == 0) == run.steps


@dataclass(frozen=True, eq=False)
class _Goal:
    """The limits of the tokens of a run; or why there are none, or no sides."""

    limit: Limit
    start: Float[np.ndarray, "n d"]
    tokens: Float[np.ndarray, "n d"] | None
    """The limit of each token; None unless all have one."""

    @classmethod
    def of(cls, run: Trajectory) -> "_Goal":
        target, start = limit([list(layer) for layer in run.layers]), unit_rows(as_float64(run.initial))
        goal = target(start) if target.kind not in ("rotation", "mixed") else None
        return cls(target, start, goal if goal is not None and np.isfinite(goal).all() else None)

    def least_distance(self, run: Trajectory, p: float) -> float:
        """A lower bound of W_p from the initial tokens to their limits; the diameter where they have none.

        No limit is closer than E. For two atoms W_p is exact.
        """
        if self.tokens is None or self.limit.basis is None:
            return DIAMETER
        measure = Measure.of_run(run, p, self.limit)
        if measure.exact:
            return measure.distance(self.start)
        inside = np.linalg.norm(self.start @ np.asarray(self.limit.basis, dtype=np.float64).T, axis=1)
        # Rounding of ``inside`` alone must not keep a token from its limit.
        return float(power_mean(np.sqrt(np.maximum(2 - 2 * inside - NEAREST, 0.0)), shares(run), p)) / PAD


@dataclass(frozen=True, eq=False)
class _Row:
    """The state of a walk at one kept time, per token."""

    stray: Float[np.ndarray, "n"]
    """The chord from the kept token to the path that was certified."""
    path_angles: Float[np.ndarray, "n"]
    side_angles: Float[np.ndarray, "n"]
    side_chords: Float[np.ndarray, "n"]
    defect: float


class _Walk:
    """Both certificates, from node to node; in units in which A and B are of order one."""

    def __init__(self, run: Trajectory, goal: _Goal, *, straight: bool):
        B, V, A, _ = run.layers[0][0].matrices
        self.derivative, self.unit = Derivative.scaled(A, B)
        self.run, self.goal, self.straight, self.worst = run, goal, straight, 0.0
        self.size = float(np.linalg.norm(V, 2)) or 1.0
        self.path = PathAngles(len(goal.start))
        self.sides, self.no_sides = None, "not every token has a limit"
        if goal.tokens is not None:
            try:
                sides = Sides.of(run.layers[0][0], "the certificate by sides")
                self.sides, self.no_sides = SideAngles(sides, scale_of(A), goal.start, goal.tokens), ""
            except NoLimit as error:
                self.no_sides = str(error)
        self.last: Node | None = None
        self.slope: np.ndarray | None = None

    def far_from(self, node: Node) -> bool:
        """Whether the path has to be bounded up to this node before it goes on."""
        if self.last is None or self.straight or (node.time - self.last.time) * self.size >= RESTING * (1 - 1e-9):
            return True
        square = np.square(node.tokens - self.last.tokens).sum(1)
        return not float(shares(self.run) @ square) < MOVED**2

    def to(self, node: Node) -> None:
        """Advance to this node."""
        slope = None
        if not self.straight:
            field = node.slope or partial(velocity, self.run.layers[0], node.tokens, self.run.weights)
            slope = field() / self.unit
        if self.last is not None:
            arc = self._arc(self.last, self.slope, node, slope)
            around = self.derivative.around(arc.middle)
            defects, worst = arc.defects(self.derivative, around.steepness(arc.reach))
            self.worst = max(self.worst, worst * self.unit)
            self.path.advance(arc, around, defects)
            if self.sides is not None:
                self.sides.advance(arc, *around.scales(arc.reach), defects)
        self.last, self.slope = node, slope

    def _arc(self, before: Node, leaving: np.ndarray | None, node: Node, arriving: np.ndarray | None) -> Arc:
        h = (node.time - before.time) * self.unit
        if leaving is None or arriving is None:
            # An Euler step moves tokens along great circles: its velocities follow from its ends.
            return Arc.straight(h, before.tokens, node.tokens)
        return Arc.between(h, before.tokens, leaving, node.tokens, arriving)

    def row(self, kept: Float[np.ndarray, "n d"]) -> _Row:
        """The state now, at a time at which the run kept these tokens."""
        assert self.last is not None
        unknown = np.full(len(kept), np.inf)
        return _Row(
            np.linalg.norm(kept - self.last.tokens, axis=1),
            self.path.theta,
            unknown if self.sides is None else self.sides.theta,
            unknown if self.sides is None else self.sides.chords,
            self.worst,
        )


def _closed(run: Trajectory, p: float, walk: _Walk, rows: list[_Row]) -> Certificate:
    """The certificate: each token's distance to the target, by its zero-temperature path and by its side."""
    goal = walk.goal
    path = zero_temperature([list(layer) for layer in run.layers], goal.start, times=run.times)
    # For a token whose zero-temperature path has ended only the diameter is known.
    alive = np.isfinite(path.tokens).all(-1)
    # The kept tokens, not the replayed ones, are what is certified.
    strays = np.array([row.stray for row in rows])
    off = 2 * np.arcsin(np.minimum(1.0, strays / 2))
    angles = np.where(alive, np.minimum(np.array([row.path_angles for row in rows]) + off, np.pi), np.pi)
    path_error = PATH_ERROR * (1 + 0.1 * float(np.linalg.norm(run.layers[0][0].matrices.V, 2)) * run.times[:, None])
    to_path = np.where(alive, 2 * np.sin(angles / 2), DIAMETER) + path_error
    to_limit = goal.tokens is not None
    rest = np.where(alive, np.linalg.norm(path.tokens - goal.tokens, axis=-1), 0.0) if to_limit else 0 * to_path

    def total(chords: np.ndarray) -> np.ndarray:
        return power_mean(np.minimum(chords, DIAMETER), shares(run), p)

    by_path = PAD * total(to_path + rest)
    by_sides = np.full(len(rows), np.inf)
    if walk.sides is not None:
        by_sides = PAD * total(np.array([row.side_chords for row in rows]) + strays)
    return Certificate(
        target="limit" if to_limit else "zero-temperature path",
        p=p,
        times=run.times,
        values=np.minimum(by_path, by_sides),
        temperature=total(to_path),
        approach=total(rest),
        angles=angles,
        defect=np.array([row.defect for row in rows]),
        regime=run.regime,
        ruled_by=tuple(np.where(by_sides < by_path, "sides", "path").tolist()),
        by_path=by_path,
        by_sides=by_sides,
        side_angles=np.minimum(np.array([row.side_angles for row in rows]) + off, np.pi),
        start=goal.least_distance(run, p),
        no_sides=walk.no_sides,
    )
