"""wasserstein: W_p between two clouds of any size; the method is chosen by their sizes and reported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from frostline.arrays import Array, as_float64, as_number, as_tensor
from frostline.errors import BadArray, BadParameter, BadWeights
from frostline.files.suggestions import is_name
from frostline.transport.atoms import MOST_ATOMS, few_atoms, two_atoms_bounds
from frostline.transport.exact import BUDGET, Solution, simplex
from frostline.transport.interval import KNOWN, Coupling, Distance
from frostline.transport.problem import TransportProblem

if TYPE_CHECKING:
    from frostline.transport.circle import Angles

SMALL = 2_000_000
"""Up to this number of pairs of points ``auto`` solves exactly, which takes a second or two."""
TOLERANCE = 0.02
"""Default relative width (upper − lower)/upper at which the bracket stops."""


@dataclass(frozen=True)
class _Options:
    """The options of one call that a method may use."""

    tolerance: float
    seconds: float
    start: Coupling | None


_Bounds: TypeAlias = tuple[float, float, Coupling | None, str]
"""Lower bound, upper bound, a coupling that costs the upper bound where there is one, and what ended the search."""


def wasserstein(
    x: Array,
    y: Array,
    *,
    p: float = 2.0,
    x_weights: Array | None = None,
    y_weights: Array | None = None,
    metric: str = "euclidean",
    coupling: str | Coupling | None = None,
    method: str = "auto",
    tolerance: float | None = None,
    seconds: float | None = None,
    plan: bool = False,
) -> Distance:
    """W_p between the clouds x and y, with guaranteed bounds (THEORY section 10).

    Parameters
    ----------
    x, y : arrays (n, d) and (m, d)
        The two clouds.
    p : float
        Order of the distance, 1 ≤ p ≤ 100.
    x_weights, y_weights : arrays (n,) and (m,), optional
        Masses with equal sums; all points of a cloud weigh the same by default.
    metric : str
        "euclidean" (the chord) or "geodesic" (the angle; the points must be on the sphere).
    coupling : str or Coupling, optional
        A good coupling from which the bracket starts: "index" (x_i ↔ y_i), or the ``plan`` of an earlier call with the
        same masses.
    method : str
        "auto", or one of "atoms", "circle", "exact", "bracket".
    tolerance : float, optional
        The relative width (upper − lower)/upper that is small enough, 0.02 by default: a bracket stops there. Exact
        methods are exact whatever it is.
    seconds : float, optional
        The bracket stops after about this time.
    plan : bool
        Whether to return a coupling that costs ``upper`` as well (two atoms by sorting and the circle have none).

    Returns
    -------
    Distance
        The best value, its bounds, the method and the reason for it.

    Raises
    ------
    BadArray
        A cloud is empty, or the dimensions differ.
    BadWeights
        The masses are negative, their sums differ, or a coupling does not have these masses.
    OffSphere
        ``metric="geodesic"`` and a point is not a unit vector.
    BadParameter
        An option is out of range, or the method does not apply to these clouds.

    Examples
    --------
    >>> wasserstein([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]], p=1)
    Distance(W1 = 1; atoms: one side has 2 atoms)
    """
    problem = TransportProblem.of(x, y, p, x_weights, y_weights, metric)
    options = _Options(
        TOLERANCE if tolerance is None else _as_tolerance(tolerance),
        np.inf if seconds is None else _as_seconds(seconds),
        _starting_coupling(problem, coupling),
    )
    bounds = None
    if is_name(method, ("auto",)):
        method, why, bounds = _select_method(problem, options)
    elif is_name(method, METHODS):
        why = "asked for"
    else:
        raise BadParameter(f"method {method!r} is unknown; there are: auto, {', '.join(METHODS)}.")
    lower, upper, merged_plan, ended = bounds or METHODS[method](problem, options)
    lower, upper = map(float, problem.widened(lower, upper))
    value = upper if upper - lower <= KNOWN * upper else (lower + upper) / 2
    full_plan = _split_merged_points(problem, merged_plan) if plan and merged_plan is not None else None
    reason = f"{why}; {ended}" if ended else why
    return Distance(value, lower, upper, problem.p, metric, method, reason, full_plan)


def _select_method(problem: TransportProblem, options: _Options) -> tuple[str, str, _Bounds | None]:
    """A method, the reason for it, and its bounds where the choice already needed them."""
    n, m, d = len(problem.x), len(problem.y), problem.x.shape[1]
    if min(n, m) <= 2:
        return "atoms", f"one side has {min(n, m)} atom{'s' * (min(n, m) > 1)}", None
    if problem.geodesic and _angles(problem) is not None:
        bounds = _circle(problem, options)
        # Clouds that are no larger than their distance from the circle do not lie on it.
        allowed = 1e-9 if n * m <= SMALL else options.tolerance
        if bounds[1] - bounds[0] <= allowed * bounds[1]:
            return "circle", "both clouds lie on one great circle", bounds
    if n * m <= SMALL:
        return "exact", f"{n} × {m} points are few", None
    if min(n, m) <= MOST_ATOMS:
        return "atoms", f"one side has {min(n, m)} atoms", None
    return "bracket", f"{n} × {m} points in d = {d} are too many for an exact solution", None


def _atoms(problem: TransportProblem, options: _Options) -> _Bounds:
    flipped = len(problem.y) > len(problem.x)
    oriented = problem.flipped if flipped else problem
    if len(oriented.y) > MOST_ATOMS:
        raise BadParameter(
            f"the smaller side has {len(oriented.y)} different points; method='atoms' takes up to {MOST_ATOMS}: "
            "try 'exact' or 'bracket'."
        )
    if len(oriented.y) == 2 and not oriented.geodesic:
        # The lighter atom first: its mass has more digits than 1 less the other's.
        light = int(oriented.b.argmin())
        atoms, share = oriented.y[[light, 1 - light]], float(oriented.b[light])
        lower, upper = two_atoms_bounds(oriented.x, oriented.a, atoms, share, oriented.p)
        return lower, upper, None, ""
    solution = few_atoms(oriented)
    rows, columns, mass = solution.coupling
    coupling = Coupling(columns, rows, mass) if flipped else solution.coupling
    return solution.lower, solution.upper, coupling, _missing_digits(solution)


def _angles(problem: TransportProblem) -> "Angles | None":
    # The import of numba takes a second; only the compiled methods need it.
    from frostline.transport.circle import angles_on_circle

    return angles_on_circle(problem.x, problem.y)


def _circle(problem: TransportProblem, options: _Options) -> _Bounds:
    if not problem.geodesic:
        raise BadParameter("method='circle' is exact for metric='geodesic' only; with the chord it is an upper bound.")
    from frostline.transport.circle import circular

    angles = _angles(problem)
    if angles is None:
        raise BadParameter("method='circle' needs both clouds on one great circle (to 1e-6), and they are not.")
    value, off = circular(angles.x, problem.a, angles.y, problem.b, problem.p)
    off += angles.off
    # Angles themselves have no digits below 1e-16.
    if off <= 1e-20:
        return value, value, None, ""
    ended = f"known to ±{off:.2g}: points off the circle, or tiny masses" if off > KNOWN * value else ""
    return max(0.0, value - off), value + off, None, ended


def _exact(problem: TransportProblem, options: _Options) -> _Bounds:
    solution = simplex(problem)
    return solution.lower, solution.upper, solution.coupling, _missing_digits(solution)


def _missing_digits(solution: Solution) -> str:
    """Why the bounds of a solution differ; empty when they do not."""
    if solution.upper - solution.lower <= KNOWN * solution.upper:
        return ""
    return "the moves are too short beside the longest one for all digits"


def _bracket(problem: TransportProblem, options: _Options) -> _Bounds:
    from frostline.transport.bracketing import bracket

    interval = bracket(problem, tolerance=options.tolerance, seconds=options.seconds, start=options.start)
    fits = 8 * len(problem.x) * len(problem.y) <= BUDGET
    advice = "; method='exact' has no width, and its costs fit in memory" if not interval.met and fits else ""
    return interval.lower, interval.upper, interval.coupling, interval.why + advice


METHODS: dict[str, Callable[[TransportProblem, _Options], _Bounds]] = {
    "atoms": _atoms,
    "circle": _circle,
    "exact": _exact,
    "bracket": _bracket,
}
"""The methods by their public names."""


def _as_tolerance(tolerance: float) -> float:
    number = as_number(tolerance, "tolerance")
    if not (0 <= number < 1):
        raise BadParameter(f"tolerance is {number:g}; it is relative and lies in [0, 1).")
    return number


def _as_seconds(seconds: float) -> float:
    number = as_number(seconds, "seconds")
    if not number > 0:
        raise BadParameter(f"seconds is {number:g}; it must be > 0.")
    return number


def _starting_coupling(problem: TransportProblem, coupling: Any) -> Coupling | None:
    """The coupling from which the bracket starts, in indices of the merged points."""
    if coupling is None:
        return None
    if isinstance(coupling, tuple) and len(coupling) == 3:
        return _checked_coupling(problem, coupling)
    if not is_name(coupling, ("index",)):
        shown = repr(coupling) if isinstance(coupling, str | None) else f"of type {type(coupling).__name__}"
        raise BadParameter(f"coupling {shown} is unknown; pass 'index', or the plan (rows, columns, mass) of a call.")
    if len(problem.x_of) != len(problem.y_of):
        raise BadArray(f"index coupling pairs points one by one: {len(problem.x_of)} do not match {len(problem.y_of)}.")
    if problem.by_index is None:
        raise BadWeights("index coupling pairs points one by one, but x_weights and y_weights differ.")
    massive = problem.by_index > 0
    return Coupling(problem.x_of[massive], problem.y_of[massive], problem.by_index[massive])


def _checked_coupling(problem: TransportProblem, coupling: tuple[Array, Array, Array]) -> Coupling:
    """The caller's coupling in indices of the merged points; refused when it is malformed or has other masses."""
    places = [_indices(part, len(owner)) for part, owner in zip(coupling, (problem.x_of, problem.y_of), strict=False)]
    mass = as_float64(as_tensor(coupling[2], "the coupling's mass")[0])
    if mass.ndim != 1 or any(part.shape != mass.shape for part in places) or not (mass >= 0).all():
        raise BadWeights("a coupling is three lists of one length: rows, columns and masses ≥ 0; this one is not.")
    rows, columns = problem.x_of[places[0]], problem.y_of[places[1]]
    if (rows < 0).any() or (columns < 0).any():
        raise BadWeights("the coupling to start from moves mass of points that have none.")
    moved = [
        np.bincount(place, weights=mass, minlength=n)
        for place, n in ((rows, len(problem.a)), (columns, len(problem.b)))
    ]
    error = max(float(np.abs(sums - mass).max()) for sums, mass in zip(moved, (problem.a, problem.b), strict=True))
    if not error <= 1e-9:
        raise BadWeights(f"the coupling to start from does not have these masses; they differ by {error:.3g}.")
    return Coupling(rows, columns, mass)


def _indices(part: Array, n: int) -> np.ndarray:
    indices = np.asarray(part)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not ((indices >= 0) & (indices < n)).all():
        raise BadArray(f"rows and columns of a coupling are lists of indices from 0 to {n - 1}; these are not.")
    return indices.astype(np.int64)


def _split_merged_points(problem: TransportProblem, coupling: Coupling) -> Coupling:
    """A coupling of the merged points as a coupling of the caller's points with the caller's masses."""
    assert problem.x_given is not None and problem.y_given is not None
    rows, first, mass = _deal(coupling.rows, coupling.mass, problem.x_of, problem.x_given)
    columns, second, mass = _deal(coupling.columns[first], mass, problem.y_of, problem.y_given)
    return Coupling(rows[second], columns, mass)


def _deal(
    place: np.ndarray, mass: np.ndarray, owner: np.ndarray, masses: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``couplings.dealt``, with a short cut for clouds in which no points were merged."""
    if len(np.unique(owner)) == len(owner):
        single = np.empty(owner.max() + 1, dtype=np.int64)
        single[owner[owner >= 0]] = np.flatnonzero(owner >= 0)
        return single[place], np.arange(len(place)), mass
    from frostline.transport.couplings import dealt

    return dealt(place, mass, owner, masses)
