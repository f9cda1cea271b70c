"""wasserstein: one verb for W_p between two clouds, whatever their size; the method is chosen, and said."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from frostline.arrays import Array, as_number, as_positive
from frostline.errors import BadArray, BadParameter, BadWeights
from frostline.transport.atoms import MOST_ATOMS, few_atoms, two_atoms
from frostline.transport.distance import Coupling, Distance
from frostline.transport.exact import simplex
from frostline.transport.problem import Problem

SMALL = 2_000_000
"""Pairs of points up to which ``auto`` solves exactly (a second or two)."""
TOLERANCE = 0.02


@dataclass(frozen=True)
class _Wish:
    """What the caller asks of a method."""

    tolerance: float
    seconds: float
    start: Coupling | None


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
        np.inf if seconds is None else as_positive(seconds, "seconds"),
        _start(problem, coupling),
    )
    if method == "auto":
        method, why = _chosen(problem)
    elif isinstance(method, str) and method in METHODS:
        why = "asked for"
    else:
        raise BadParameter(f"method {method!r} is unknown; there are: auto, {', '.join(METHODS)}.")
    lower, upper, found, ended = METHODS[method](problem, wish)
    value = upper if method != "bracket" else (lower + upper) / 2
    given = _given(problem, found) if plan and found is not None else None
    reason = f"{why}; {ended}" if ended else why
    return Distance(value, lower, upper, problem.p, metric, method, reason, given)


def _chosen(problem: Problem) -> tuple[str, str]:
    n, m, d = len(problem.x), len(problem.y), problem.x.shape[1]
    if min(n, m) <= 2:
        return "atoms", f"one side has {min(n, m)} atom{'s' * (min(n, m) > 1)}"
    if problem.geodesic and _angles(problem) is not None:
        return "circle", "both clouds lie on one great circle"
    if n * m <= SMALL:
        return "exact", f"{n} × {m} points are few"
    if min(n, m) <= MOST_ATOMS:
        return "atoms", f"one side has {min(n, m)} atoms"
    return "bracket", f"{n} × {m} points in d = {d} are too many for an exact solution"


def _atoms(problem: Problem, wish: _Wish) -> tuple[float, float, Coupling | None, str]:
    flipped = len(problem.y) > len(problem.x)
    one = _flip(problem) if flipped else problem
    if len(one.y) > MOST_ATOMS:
        raise BadParameter(
            f"the smaller side has {len(one.y)} different points; method='atoms' takes up to {MOST_ATOMS}: try 'exact' "
            "or 'bracket'."
        )
    if len(one.y) == 2 and not one.geodesic:
        value: float = two_atoms(one.x, one.a, one.y, float(one.b[0]), p=one.p)
        return value, value, None, ""
    value, found = few_atoms(one)
    return value, value, Coupling(found.columns, found.rows, found.mass) if flipped else found, ""


def _angles(problem: Problem) -> tuple[np.ndarray, np.ndarray] | None:
    # numba takes a second to import: only those who need a compiled method pay for it.
    from frostline.transport.circle import angles_on_circle

    return angles_on_circle(problem.x, problem.y)


def _circle(problem: Problem, wish: _Wish) -> tuple[float, float, Coupling | None, str]:
    if not problem.geodesic:
        raise BadParameter("method='circle' is exact for metric='geodesic' only; with the chord it is an upper bound.")
    from frostline.transport.circle import circular

    angles = _angles(problem)
    if angles is None:
        raise BadParameter("method='circle' needs both clouds on one great circle (to 1e-9), and they are not.")
    value = circular(angles[0], problem.a, angles[1], problem.b, problem.p)
    return value, value, None, ""


def _exact(problem: Problem, wish: _Wish) -> tuple[float, float, Coupling | None, str]:
    value, found = simplex(problem)
    return value, value, found, ""


def _bracket(problem: Problem, wish: _Wish) -> tuple[float, float, Coupling | None, str]:
    from frostline.transport.bracketing import bracket

    found = bracket(problem, tolerance=wish.tolerance, seconds=wish.seconds, start=wish.start)
    return found.lower, found.upper, found.coupling, found.why


METHODS: dict[str, Callable[[Problem, _Wish], tuple[float, float, Coupling | None, str]]] = {
    "atoms": _atoms,
    "circle": _circle,
    "exact": _exact,
    "bracket": _bracket,
}


def _flip(problem: Problem) -> Problem:
    return Problem(problem.y, problem.x, problem.b, problem.a, problem.p, problem.metric, problem.y_of, problem.x_of)


def _share(tolerance: float) -> float:
    number = as_number(tolerance, "tolerance")
    if not (0 <= number < 1):
        raise BadParameter(f"tolerance is {number:g}; it is relative and lies in [0, 1).")
    return number


def _start(problem: Problem, coupling: str | Coupling | None) -> Coupling | None:
    """The coupling to start from, in terms of the merged points."""
    if coupling is None:
        return None
    if isinstance(coupling, Coupling):
        return _checked(problem, coupling)
    if coupling != "index":
        raise BadParameter(f"coupling {coupling!r} is unknown; there is: index.")
    if len(problem.x_of) != len(problem.y_of):
        raise BadArray(f"index coupling pairs points one by one: {len(problem.x_of)} do not match {len(problem.y_of)}.")
    if problem.by_index is None:
        raise BadWeights("index coupling pairs points one by one, but x_weights and y_weights differ.")
    there = problem.by_index > 0
    return Coupling(problem.x_of[there], problem.y_of[there], problem.by_index[there])


def _checked(problem: Problem, coupling: Coupling) -> Coupling:
    """A caller's coupling; refused when it does not have the masses."""
    rows, columns = problem.x_of[coupling.rows], problem.y_of[coupling.columns]
    if (rows < 0).any() or (columns < 0).any():
        raise BadWeights("the coupling to start from moves mass of points that have none.")
    moved = [
        np.bincount(place, weights=coupling.mass, minlength=n)
        for place, n in ((rows, len(problem.a)), (columns, len(problem.b)))
    ]
    off = max(float(np.abs(one - mass).max()) for one, mass in zip(moved, (problem.a, problem.b), strict=True))
    if not off <= 1e-9:
        raise BadWeights(f"the coupling to start from does not have these masses; they differ by {off:.3g}.")
    return Coupling(rows, columns, coupling.mass)


def _given(problem: Problem, found: Coupling) -> Coupling:
    """A coupling of the merged points as one of the points given: of repeated ones, the first."""
    firsts = [np.unique(owner[owner >= 0], return_index=True)[1] for owner in (problem.x_of, problem.y_of)]
    places = [
        np.flatnonzero(owner >= 0)[first] for owner, first in zip((problem.x_of, problem.y_of), firsts, strict=True)
    ]
    return Coupling(places[0][found.rows], places[1][found.columns], found.mass)
