"""certificate: a bound, proven for one run, on how far its tokens are from their limit (THEORY section 7).

Between the steps of a run any path through its tokens will do. We take cubic Hermite arcs, normalised, and bound their
defect |ẋ − F(x)| inside every step. A token's angle θ to its own zero-temperature path then obeys θ' ≤ ℓθ + δ, with ℓ
a bound of the flow's expansion over the ball of radius θ: the radius is guessed, the guess verified, then
used. The mean map's own rounding plays no role: it moves the arcs, and the defect is measured on the arcs.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from frostline.analysis.replay import Node, one_run, replay, shares, velocity
from frostline.arrays import as_float64, as_order
from frostline.attention import is_plain
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter, BadRun
from frostline.results import Result
from frostline.sphere import unit_rows
from frostline.theory.expansion import PAD, Derivative
from frostline.theory.flow import zero_temperature
from frostline.theory.limits import limit
from frostline.theory.regime import Regime
from frostline.transport.index_coupling import power_mean

VACUOUS = 2.0
"""The diameter of the sphere; a bound of this size or more is vacuous."""
PIECES = 8
"""Pieces into which each step is cut to bound its defect; the evaluation of F costs no mean map."""
PATH_ERROR = 1e-9
"""The error zero_temperature guarantees, per 10/‖V‖ of time beyond the first; measured errors are below 1e-12."""
LONGEST_GAP = 1.0
"""Largest gap between kept times, in units of 1/‖V‖, that can be certified without a replay."""
ATTEMPTS = 8
"""Tries to find a radius that holds for a step; a token for which none is found counts as lost."""
STRAY = 1e-6
"""A replay that differs by this much from the kept tokens belongs to another run."""
ROUNDING = 1e-13
"""Relative rounding of the velocity of an arc and of the field."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Result):
    """W_p to the target is at most ``values`` at each kept time of this run of n tokens (not of the mean field).

    target               "limit" (Π♯ρ₀), or "zero-temperature path" (ρ_t^∞) where the tokens have no limit
    p                    the order of the distance
    times, values (k,)   the bound; ``vacuous`` (k,) marks values ≥ 2, which every distance satisfies
    temperature (k,)     the part due to β and to the steps: (Σ w_i chord(θ_i)^p)^{1/p}
    approach (k,)        the part present at zero temperature: W_p(ρ_t^∞, target), index coupling
    angles (k, n)        θ_i, a bound of each token's angle to its own zero-temperature path (π: unknown)
    defect (k,)          a bound of |ẋ − F(x)| up to then, over all tokens
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

    @property
    def vacuous(self) -> Bool[np.ndarray, "k"]:
        """Which values are no less than 2, the largest distance on the sphere."""
        return ~(self.values < VACUOUS)

    def describe(self) -> str:
        """The bound at the last kept time, in words."""
        target = "its limit" if self.target == "limit" else "the zero-temperature path of the same tokens"
        t, value = self.times[-1], self.values[-1]
        lost = int((self.angles[-1] >= np.pi).sum())
        tail = f" {lost} of {self.angles.shape[1]} tokens could not be followed." if lost else ""
        if self.vacuous[-1]:
            return f"Vacuous at t = {t:g}: the certificate is {value:.3g}, and no distance exceeds 2.{tail}"
        return (
            f"Certified at t = {t:g}: W{self.p:g} from this run to {target} is at most {value:.4g} "
            f"({self.temperature[-1]:.3g} from temperature and steps, {self.approach[-1]:.3g} from the approach)."
            f"{tail}"
        )


def certificate(run: Trajectory, *, p: float = 2.0, replayed: bool = True) -> Certificate:
    """Prove a bound of W_p from the tokens of a run to their limit, at every time it kept (THEORY section 7).

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
    B, V, A, _ = run.layers[0][0].matrices
    size = float(np.linalg.norm(V, 2)) or 1.0
    derivative, unit = Derivative.scaled(A, B)
    walk = _Walk(derivative)
    kept = {float(time): as_float64(frame) for time, frame in zip(run.times, run.tokens, strict=True)}
    angles, strays, defects = [], [], []
    for node in replay(run, spacing=0.1 / size) if replayed else _kept(run, size):
        walk.to(Node(node.time * unit, node.tokens), velocity(run.layers[0], node.tokens, run.weights) / unit)
        if node.time in kept:
            angles.append(walk.theta)
            strays.append(np.linalg.norm(kept[node.time] - node.tokens, axis=1))
            defects.append(walk.worst * unit)
    if len(angles) < len(run.times) or not max(stray.max() for stray in strays) < STRAY:
        raise BadRun(
            "replaying the run did not lead to the tokens it kept; it was not made by this stepper from this start "
            "(replayed=False certifies the kept times as they are)."
        )
    return _closed(run, p, np.array(angles), np.array(strays), np.array(defects))


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


class _Walk:
    """Each token's angle to its zero-temperature path, bounded step by step."""

    def __init__(self, derivative: Derivative):
        self.derivative, self.worst, self.theta = derivative, 0.0, np.zeros(0)
        self.last: tuple[Node, np.ndarray] | None = None

    def to(self, node: Node, slope: Float[np.ndarray, "n d"]) -> None:
        """Advance to this node, where the tokens move with the velocity ``slope``."""
        if self.last is None:
            self.theta = np.zeros(len(node.tokens))
        else:
            arc = _Arc.between(*self.last, node, slope)
            self.theta = self._grown(arc)
        self.last = node, slope

    def _grown(self, arc: "_Arc") -> Float[np.ndarray, "n"]:
        around = self.derivative.around(arc.middle)
        defects = self._defects(arc, around.steepness(arc.reach))
        total = defects.sum(0)
        radius, verified = 1.5 * (self.theta + total) + 1e-15, np.zeros(len(total), dtype=bool)
        for _ in range(ATTEMPTS):
            # A verified radius implies a smaller one that holds as well.
            rate = around.expansion(np.minimum(arc.reach + radius, np.pi))
            with np.errstate(over="ignore"):
                highest = PAD * (self.theta + total) * np.exp(np.maximum(rate, 0.0) * arc.h)
            verified |= highest < radius
            radius = np.where(verified, np.minimum(radius, highest), 1.5 * highest)
        rate = around.expansion(np.minimum(arc.reach + radius, np.pi))
        with np.errstate(over="ignore", invalid="ignore"):
            # A defect in one piece grows over the rest of the step, at most the whole piece included.
            left = arc.h * (1 - np.arange(PIECES) / PIECES)[:, None]
            carried = (np.exp(rate * np.where(rate > 0, left, left - arc.h / PIECES)) * defects).sum(0)
            theta = PAD * (self.theta * np.exp(rate * arc.h) + carried)
        known = verified & (self.theta < np.pi) & (theta < np.pi)
        return np.where(known, theta, np.pi)

    def _defects(self, arc: "_Arc", steepness: Float[np.ndarray, "n"]) -> Float[np.ndarray, "pieces n"]:
        """∫|ẋ − F(x)| over each piece of the step, bounded: its values at both ends, and its rise between."""
        A, B = self.derivative.A, self.derivative.B
        x, speed = arc.at(np.arange(PIECES + 1) / PIECES)
        push = x @ A.T
        push = push - (x * push).sum(-1, keepdims=True) * x
        key = np.linalg.norm(x @ B, axis=-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            sizes = np.linalg.norm(speed - push / key, axis=-1)
            # Rounding of the arc's velocity (a difference over h) and of the field, whose denominator may be small.
            field = np.linalg.norm(A, 2) / key[..., 0]
            steep = np.linalg.norm(push, axis=-1) / key[..., 0] * (self.derivative.sigma[0] / key[..., 0])
            sizes = sizes + ROUNDING * (arc.speed + field + steep) + 4e-16 / arc.h
            rise = arc.acceleration + arc.speed * steepness
            piece = arc.h / PIECES
            defects = PAD * (piece * (sizes[1:] + sizes[:-1]) / 2 + rise * piece**2 / 4)
            highest = np.maximum(sizes[1:], sizes[:-1]) + rise * piece / 2
            self.worst = max(self.worst, float(np.where(np.isfinite(highest), highest, np.inf).max()))
        return np.where(np.isfinite(defects), defects, np.inf)


@dataclass(frozen=True, eq=False)
class _Arc:
    """x = z/|z| for the cubic z with the given ends and slopes; its bounds come from Bernstein's convex hulls."""

    h: float
    points: Float[np.ndarray, "4 n d"]
    middle: Float[np.ndarray, "n d"]
    reach: Float[np.ndarray, "n"]
    """The arc stays within this angle of its middle."""
    speed: Float[np.ndarray, "n"]
    """|ẋ| is at most this."""
    acceleration: Float[np.ndarray, "n"]
    """The covariant acceleration |P_x ẍ| is at most this."""

    @classmethod
    def between(cls, start: Node, slope: np.ndarray, end: Node, end_slope: np.ndarray) -> "_Arc":
        """The arc between two nodes with these velocities, and its bounds."""
        h = end.time - start.time
        points = np.stack([start.tokens, start.tokens + h / 3 * slope, end.tokens - h / 3 * end_slope, end.tokens])
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = unit_rows(start.tokens + end.tokens)
            height = (points * middle).sum(-1)
            least, size = height.min(0), np.linalg.norm(points, axis=-1)
            # The points lie in a cone around the middle, and a cone narrower than a half-space is convex.
            across = np.linalg.norm(points - height[..., None] * middle, axis=-1)
            reach = PAD * np.arctan2(across, height).max(0)
            velocity = 3 / h * np.linalg.norm(np.diff(points, axis=0), axis=-1).max(0)
            bend = 6 / h**2 * np.linalg.norm(np.diff(points, 2, axis=0), axis=-1).max(0)
            # P_xẍ = P_x z̈/|z| − 2ẋ⟨x,ż⟩/|z|; ⟨z,ż⟩ is rounding at both ends and changes by |ż|² + ⟨z,z̈⟩ between.
            ends = [np.abs((node.tokens * f).sum(1)) for node, f in ((start, slope), (end, end_slope))]
            drift = h / 2 * (velocity**2 + size.max(0) * bend) + np.maximum(*ends) + 1e-12 * velocity + 4e-16 / h
            acceleration = bend / least + 2 * velocity * drift / least**3
        inside = (least > 0.1) & np.isfinite(acceleration)
        far = np.where(inside, 0.0, np.inf)
        middle = np.where(inside[:, None], middle, start.tokens)
        return cls(
            h,
            points,
            middle,
            np.where(inside, reach, np.pi),
            velocity / np.maximum(least, 0.1) + far,
            acceleration + far,
        )

    def at(self, fractions: Float[np.ndarray, "k"]) -> tuple[Float[np.ndarray, "k n d"], Float[np.ndarray, "k n d"]]:
        """Positions and velocities at these fractions of the step."""
        s = np.asarray(fractions)
        basis = np.stack([(1 - s) ** 3, 3 * s * (1 - s) ** 2, 3 * s**2 * (1 - s), s**3], axis=1)
        slopes = np.stack([(1 - s) ** 2, 2 * s * (1 - s), s**2], axis=1)
        z = np.tensordot(basis, self.points, axes=1)
        w = np.tensordot(slopes, 3 / self.h * np.diff(self.points, axis=0), axes=1)
        size = np.linalg.norm(z, axis=-1, keepdims=True)
        x = z / size
        return x, (w - (x * w).sum(-1, keepdims=True) * x) / size


def _closed(run: Trajectory, p: float, angles: np.ndarray, strays: np.ndarray, defects: np.ndarray) -> Certificate:
    """The certificate: each token's chord to its zero-temperature path, and that path's distance to the target."""
    start = unit_rows(as_float64(run.initial))
    layers = [list(layer) for layer in run.layers]
    path = zero_temperature(layers, start, times=run.times)
    target = limit(layers)
    goal = target(start) if target.kind not in ("rotation", "mixed") else np.full_like(start, np.nan)
    to_limit = bool(np.isfinite(goal).all())
    # For a token whose zero-temperature path has ended only the diameter is known.
    alive = np.isfinite(path.tokens).all(-1)
    # The kept tokens, not the replayed ones, are what is certified.
    angles = np.minimum(angles + 2 * np.arcsin(np.minimum(1.0, strays / 2)), np.pi)
    path_error = PATH_ERROR * (1 + 0.1 * float(np.linalg.norm(run.layers[0][0].matrices.V, 2)) * run.times[:, None])
    to_path = np.where(alive, 2 * np.sin(angles / 2), VACUOUS) + path_error
    rest = np.where(alive, np.linalg.norm(path.tokens - goal, axis=-1), 0.0) if to_limit else np.zeros_like(to_path)

    def total(chords: np.ndarray) -> np.ndarray:
        return power_mean(np.minimum(chords, VACUOUS), shares(run), p)

    return Certificate(
        target="limit" if to_limit else "zero-temperature path",
        p=p,
        times=run.times,
        values=PAD * total(to_path + rest),
        temperature=total(to_path),
        approach=total(rest),
        angles=np.where(alive, angles, np.pi),
        defect=defects,
        regime=run.regime,
    )
