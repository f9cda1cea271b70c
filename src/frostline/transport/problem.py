"""Two discrete measures to compare: checked, in float64, without massless points and with repeated points merged."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from frostline.arrays import Array, as_float64, as_order, as_tensor
from frostline.errors import BadArray, BadParameter, BadWeights, OffSphere
from frostline.files.suggestions import is_name
from frostline.sphere import OFF_SPHERE

METRICS = ("euclidean", "geodesic")
"""The costs: the chord and the angle."""
HIGHEST = 100.0
"""Larger orders p are refused: c^p leaves the range of float64 within one problem."""
MOST = 1e290
"""The largest weight that is accepted."""
ALL = slice(None)
"""The index of all rows."""
EPSILON = np.finfo(float).eps
"""The relative rounding of float64."""
BLUR = 16 * EPSILON
"""How far bringing both ends to unit length may move an angle; radians."""


@dataclass(frozen=True, eq=False)
class TransportProblem:
    """Σ a_i δ_{x_i} against Σ b_j δ_{y_j}, cost c(x, y)^p with c the chord (euclidean) or the angle (geodesic).

    ``x_of`` and ``y_of`` give, for each point of the caller, its row of x or y (−1 for a point without mass).
    """

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "m d"]
    a: Float[np.ndarray, "n"]
    b: Float[np.ndarray, "m"]
    p: float
    metric: str
    x_of: np.ndarray
    y_of: np.ndarray
    scale: float = 1.0
    """Points and distances are in this unit, a power of two: squares of the caller's points might leave float64."""
    x_given: np.ndarray | None = None
    y_given: np.ndarray | None = None
    """The masses of the caller's points."""

    @classmethod
    def of(
        cls, x: Array, y: Array, p: float, x_weights: Array | None, y_weights: Array | None, metric: str
    ) -> "TransportProblem":
        """The checked problem of two clouds; a BadArray, BadWeights, OffSphere or BadParameter says what is wrong."""
        if not is_name(metric, METRICS):
            raise BadParameter(f"metric {metric!r} is unknown; there are: {', '.join(METRICS)}.")
        order = as_order(p)
        if order > HIGHEST:
            raise BadParameter(f"p is {order:g}; up to {HIGHEST:g} is supported, where W_p is nearly the largest move.")
        left, right = _points(x, "x", metric), _points(y, "y", metric)
        if left.shape[1] != right.shape[1]:
            raise BadArray(f"x has dimension {left.shape[1]}, y {right.shape[1]}; they must agree.")
        a, b = _masses(x_weights, len(left), "x_weights"), _masses(y_weights, len(right), "y_weights")
        if not abs(a.sum() - b.sum()) <= 1e-6 * max(a.sum(), b.sum()):
            raise BadWeights(
                f"x_weights sum to {a.sum():.9g}, y_weights to {b.sum():.9g}: they differ by "
                f"{abs(a.sum() - b.sum()):.3g}; mass can only be moved, not made. Divide each by its sum if shares are "
                "meant."
            )
        # Sums to the last bit do not depend on the order of the points: equal masses stay equal.
        a, b = a / math.fsum(a), b / math.fsum(b)
        scale = 1.0 if metric == "geodesic" else _binary(max(np.abs(left).max(), np.abs(right).max()))
        x_rows, x_mass, x_of = _merge(left / scale, a)
        y_rows, y_mass, y_of = _merge(right / scale, b)
        return cls(x_rows, y_rows, x_mass, y_mass, order, metric, x_of, y_of, scale, a, b)

    @property
    def geodesic(self) -> bool:
        """Whether the cost is the angle."""
        return self.metric == "geodesic"

    @property
    def by_index(self) -> np.ndarray | None:
        """The masses of the caller's points when those of x and y agree one by one: then x_i ↔ y_i is a coupling."""
        a, b = self.x_given, self.y_given
        if a is None or b is None or len(a) != len(b) or not np.allclose(a, b, rtol=1e-12, atol=0):
            return None
        return a

    @property
    def flipped(self) -> "TransportProblem":
        """The same problem from y to x."""
        x, a, x_of, x_given = self.x, self.a, self.x_of, self.x_given
        y, b, y_of, y_given = self.y, self.b, self.y_of, self.y_given
        return replace(self, x=y, y=x, a=b, b=a, x_of=y_of, y_of=x_of, x_given=y_given, y_given=x_given)

    def distances(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """c(x_i, y_i), pair by pair."""
        chords = np.linalg.norm(x - y, axis=-1)
        return _angles(chords, np.linalg.norm(x + y, axis=-1)) if self.geodesic else chords

    def costs(self, rows: np.ndarray | slice = ALL, columns: np.ndarray | slice = ALL) -> np.ndarray:
        """c(x_i, y_j) for these rows and columns, from differences: near zero 2 − 2⟨x,y⟩ has no digits left."""
        x, y = self.x[rows], self.y[columns]
        chords = np.asarray(cdist(x, y))
        return _angles(chords, np.asarray(cdist(x, -y))) if self.geodesic else chords

    def widened(self, lower: float, upper: float) -> tuple[float, float]:
        """The bounds in the caller's unit, with room for the rounding of costs, sums and masses; 0 stays 0."""
        share, blur = (64 + self.x.shape[1]) * EPSILON, BLUR if self.geodesic and upper > 0 else 0.0
        lower, upper = max(0.0, lower * (1 - share) - blur), upper * (1 + share) + blur
        return self.scale * lower, self.scale * upper


def _angles(chords: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Angles from |x − y| and |x + y|: the chord alone has lost half the digits near antipodes."""
    return 2 * np.arctan2(chords, sums)


def _points(points: Array, name: str, metric: str) -> np.ndarray:
    tensor, kind = as_tensor(points, name)
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise BadArray(f"{name} has shape {tuple(tensor.shape)}; a cloud (n, d) of one or more points is needed.")
    rows = as_float64(tensor)
    if metric == "geodesic":
        size = np.linalg.norm(rows, axis=1)
        off = float(np.abs(size - 1).max())
        if not off <= OFF_SPHERE[kind.dtype]:
            raise OffSphere(
                f"{name} has points off the unit sphere, by up to {off:.3g}, where angles have no meaning; normalise "
                "them, or take metric='euclidean'."
            )
        rows = rows / size[:, None]
    return rows


def _masses(weights: Array | None, n: int, name: str) -> np.ndarray:
    if weights is None:
        return np.full(n, 1 / n)
    masses = as_float64(as_tensor(weights, name)[0])
    if masses.shape != (n,):
        raise BadWeights(f"{name} has shape {masses.shape}; {n} points need ({n},).")
    if not (masses >= 0).all() or not masses.max() > 0:
        raise BadWeights(
            f"{name} must be ≥ 0 and not all zero; the least is {masses.min():.3g}, the largest {masses.max():.3g}."
        )
    if not masses.max() <= MOST:
        raise BadWeights(f"{name} has entries up to {masses.max():.3g}, whose sum may overflow; divide by the largest.")
    return masses


def _merge(points: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge equal points and drop those without mass; also returns the new row of each point (−1: dropped)."""
    massive = np.flatnonzero(masses > 0)
    # Equal points have equal projections on a line, so one sort brings them together.
    order = massive[np.argsort(points[massive] @ _line(points.shape[1]))]
    rows = points[order]
    new = np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)])
    owner = np.full(len(points), -1)
    if new.all() and len(massive) == len(points):
        return points, masses, np.arange(len(points))
    number = np.cumsum(new) - 1
    owner[order] = number
    # In extended precision where there is one: masses of large clusters must not depend on the order of their points.
    sums = np.add.reduceat(masses[order].astype(np.longdouble), np.flatnonzero(new))
    return rows[new], sums.astype(np.float64), owner


def _binary(largest: float) -> float:
    """The next power of two; a division by it loses no digits."""
    return float(np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1000, 1000))) if largest > 0 else 1.0


def _line(d: int) -> np.ndarray:
    """A direction on which different points have different projections in practice."""
    return np.random.default_rng(d).standard_normal(d)
