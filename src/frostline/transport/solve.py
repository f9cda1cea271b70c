"""wasserstein: one verb for W_p between two clouds, whatever their size; the method is chosen, and said."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from frostline.arrays import Array, as_float64, as_number, as_tensor
from frostline.errors import BadArray, BadParameter, BadWeights
from frostline.transport.atoms import MOST_ATOMS, few_atoms, two_atoms_bounds
from frostline.transport.exact import BUDGET, Solution, simplex
from frostline.transport.interval import KNOWN, Coupling, Distance
from frostline.transport.problem import Problem

if TYPE_CHECKING:
    from frostline.transport.circle import Angles

SMALL = 2_000_000
"""Pairs of points up to which ``auto`` solves exactly (a second or two)."""
TOLERANCE = 0.02


@dataclass(frozen=True)
class _Wish:
    """What the caller asks of a method."""

    tolerance: float
    seconds: float
    start: Coupling | None


_Found: TypeAlias = tuple[float, float, Coupling | None, str]
"""Lower, upper, a coupling that costs the upper bound where there is one, and what ended the search."""


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
    """W_p between the clouds x (n, d) and y (m, d), with guaranteed bounds.

    metric     "euclidean" (the chord) or "geodesic" (the angle; points must be on the sphere)
    coupling   a good coupling to start from, used by the bracket: "index" (x_i ↔ y_i), or the ``plan`` of an earlier
               call with the same masses
    method     "auto", or one of: atoms, circle, exact, bracket
    tolerance  for the bracket: stop when (upper − lower)/upper is this small (0.02 by default)
    seconds    for the bracket: stop after about so long
    plan       also return a coupling that costs ``upper`` (two atoms by sorting and the circle have none)

    >>> round(wasserstein([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]], p=1).value, 6)
    1.0
    """
    problem = Problem.of(x, y, p, x_weights, y_weights, metric)
    wish = _Wish(
        TOLERANCE if tolerance is None else _share(tolerance),
        np.inf if seconds is None else _time(seconds),
        _start(problem, coupling),
    )
    known = None
    if isinstance(method, str) and method == "auto":
        method, why, known = _chosen(problem, wish)
    elif isinstance(method, str) and method in METHODS:
        why = "asked for"
    else:
        raise BadParameter(f"method {method!r} is unknown; there are: auto, {', '.join(METHODS)}.")
    lower, upper, found, ended = known or METHODS[method](problem, wish)
    lower, upper = map(float, problem.widened(lower, upper))
    value = upper if upper - lower <= KNOWN * upper else (lower + upper) / 2
    given = _given(problem, found) if plan and found is not None else None
    reason = f"{why}; {ended}" if ended else why
    return Distance(value, lower, upper, problem.p, metric, method, reason, given)


def _chosen(problem: Problem, wish: _Wish) -> tuple[str, str, _Found | None]:
    """A method, why, and what it found where that had to be known."""
    n, m, d = len(problem.x), len(problem.y), problem.x.shape[1]
    if min(n, m) <= 2:
        return "atoms", f"one side has {min(n, m)} atom{'s' * (min(n, m) > 1)}", None
    if problem.geodesic and _angles(problem) is not None:
        found = _circle(problem, wish)
        # Clouds that are no larger than they are off the circle lie on no circle.
        allowed = 1e-9 if n * m <= SMALL else wish.tolerance
        if found[1] - found[0] <= allowed * found[1]:
            return "circle", "both clouds lie on one great circle", found
    if n * m <= SMALL:
        return "exact", f"{n} × {m} points are few", None
    if min(n, m) <= MOST_ATOMS:
        return "atoms", f"one side has {min(n, m)} atoms", None
    return "bracket", f"{n} × {m} points in d = {d} are too many for an exact solution", None


def _atoms(problem: Problem, wish: _Wish) -> _Found:
    flipped = len(problem.y) > len(problem.x)
    one = problem.flipped if flipped else problem
    if len(one.y) > MOST_ATOMS:
        raise BadParameter(
            f"the smaller side has {len(one.y)} different points; method='atoms' takes up to {MOST_ATOMS}: try 'exact' "
            "or 'bracket'."
        )
    if len(one.y) == 2 and not one.geodesic:
        # The lighter atom first: its mass has more digits than 1 less the other's.
        light = int(one.b.argmin())
        lower, upper = two_atoms_bounds(one.x, one.a, one.y[[light, 1 - light]], float(one.b[light]), one.p)
        return lower, upper, None, ""
    found = few_atoms(one)
    rows, columns, mass = found.coupling
    return found.lower, found.upper, Coupling(columns, rows, mass) if flipped else found.coupling, _ended(found)


def _angles(problem: Problem) -> "Angles | None":
    # numba takes a second to import: only those who need a compiled method pay for it.
    from frostline.transport.circle import angles_on_circle

    return angles_on_circle(problem.x, problem.y)


def _circle(problem: Problem, wish: _Wish) -> _Found:
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


def _exact(problem: Problem, wish: _Wish) -> _Found:
    found = simplex(problem)
    return found.lower, found.upper, found.coupling, _ended(found)


def _ended(found: Solution) -> str:
    return (
        ""
        if found.upper - found.lower <= KNOWN * found.upper
        else "the moves are too short beside the longest one for all digits"
    )


def _bracket(problem: Problem, wish: _Wish) -> _Found:
    from frostline.transport.bracketing import bracket

    found = bracket(problem, tolerance=wish.tolerance, seconds=wish.seconds, start=wish.start)
    fits = 8 * len(problem.x) * len(problem.y) <= BUDGET
    advice = "; method='exact' has no width, and its costs fit in memory" if not found.met and fits else ""
    return found.lower, found.upper, found.coupling, found.why + advice


METHODS: dict[str, Callable[[Problem, _Wish], _Found]] = {
    "atoms": _atoms,
    "circle": _circle,
    "exact": _exact,
    "bracket": _bracket,
}


def _share(tolerance: float) -> float:
    number = as_number(tolerance, "tolerance")
    if not (0 <= number < 1):
        raise BadParameter(f"tolerance is {number:g}; it is relative and lies in [0, 1).")
    return number


def _time(seconds: float) -> float:
    number = as_number(seconds, "seconds")
    if not number > 0:
        raise BadParameter(f"seconds is {number:g}; it must be > 0.")
    return number


def _start(problem: Problem, coupling: str | Coupling | None) -> Coupling | None:
    """The coupling to start from, in terms of the merged points."""
    if coupling is None:
        return None
    if isinstance(coupling, tuple) and len(coupling) == 3:
        return _checked(problem, coupling)
    if not isinstance(coupling, str) or coupling != "index":
        shown = repr(coupling) if isinstance(coupling, str) else f"of type {type(coupling).__name__}"
        raise BadParameter(f"coupling {shown} is unknown; pass 'index', or the plan (rows, columns, mass) of a call.")
    if len(problem.x_of) != len(problem.y_of):
        raise BadArray(f"index coupling pairs points one by one: {len(problem.x_of)} do not match {len(problem.y_of)}.")
    if problem.by_index is None:
        raise BadWeights("index coupling pairs points one by one, but x_weights and y_weights differ.")
    there = problem.by_index > 0
    return Coupling(problem.x_of[there], problem.y_of[there], problem.by_index[there])


def _checked(problem: Problem, coupling: tuple[Array, Array, Array]) -> Coupling:
    """A caller's coupling; refused when it is none, or does not have the masses."""
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
    off = max(float(np.abs(one - given).max()) for one, given in zip(moved, (problem.a, problem.b), strict=True))
    if not off <= 1e-9:
        raise BadWeights(f"the coupling to start from does not have these masses; they differ by {off:.3g}.")
    return Coupling(rows, columns, mass)


def _indices(part: Array, n: int) -> np.ndarray:
    found = np.asarray(part)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not ((found >= 0) & (found < n)).all():
        raise BadArray(f"rows and columns of a coupling are lists of indices from 0 to {n - 1}; these are not.")
    return found.astype(np.int64)


def _given(problem: Problem, found: Coupling) -> Coupling:
    """A coupling of the merged points as one of the points given, with the masses given."""
    assert problem.x_given is not None and problem.y_given is not None
    rows, first, mass = _dealt(found.rows, found.mass, problem.x_of, problem.x_given)
    columns, second, mass = _dealt(found.columns[first], mass, problem.y_of, problem.y_given)
    return Coupling(rows[second], columns, mass)


def _dealt(
    place: np.ndarray, mass: np.ndarray, owner: np.ndarray, given: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``couplings.dealt``; nothing to do where no points were merged."""
    if len(np.unique(owner)) == len(owner):
        single = np.empty(owner.max() + 1, dtype=np.int64)
        single[owner[owner >= 0]] = np.flatnonzero(owner >= 0)
        return single[place], np.arange(len(place)), mass
    from frostline.transport.couplings import dealt

    return dealt(place, mass, owner, given)
