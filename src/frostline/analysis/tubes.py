"""tube: a bound of the distance to the limit that compares no trajectories, proven or with a measured Λ (THEORY 13)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.analysis.measured_growth import MeasuredGrowth, are_nodes, nodes_of
from frostline.arrays import as_order, as_positive
from frostline.attention import Attention, Heads, as_one_layer
from frostline.errors import BadParameter
from frostline.results import Result
from frostline.theory.rings import Rings
from frostline.theory.shrinking_caps import ShrinkingCaps
from frostline.theory.side_keeping import AngleBounds, Course, first_angles, follow
from frostline.theory.sides import Sides
from frostline.theory.starts import Start, start_of, uniform_distance

GROWTHS = ("proven", "measured")
"""Where bounds of the error of the mean map come from."""
FIRST_NODES = {2: 500, 3: 1000}
"""Nodes of the first measured run, by dimension; 1,000 in others."""
DOUBLINGS = 2
"""Measured runs have their nodes doubled at most this often."""
STILL = 0.005
"""A measured tube stands still when doubling the nodes moves its smallest value by no more than this."""
COLDEST = 1e15
"""The largest β at which it is tried whether a tube would open."""


@dataclass(frozen=True, eq=False, repr=False)
class Tube(Result):
    """W_p(ρ_t^β, Π♯ρ₀) is at most ``values`` at ``times``, for the mean field that starts as ``start`` says.

    Attributes
    ----------
    times, values : ndarray
        The bound, (k,).
    sides : ndarray
        The critical angle (k,), in radians: tokens that started nearer to E than this are still on their side then.
    p : float
        Order of the Wasserstein distance.
    beta : float
        The inverse temperature.
    growth : str
        "proven": nothing but the matrices and the start is used; "measured": Λ of (19) was taken from a run.
    start : str
        The starting density, in words.
    initial : float
        The bound at t = 0: a tube is of use where it is below.
    ended : str
        Why it ends where it ends, in words.
    refinement : str
        How the measured run was refined; empty for a proven tube.

    Examples
    --------
    >>> tight = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e6)
    >>> tube(tight, until=1.0)
    Tube(W2 ≤ 0.6792 at t=1, proven, beta=1e+06, until t=1)
    """

    times: Float[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    sides: Float[np.ndarray, "k"]
    p: float
    beta: float
    growth: str
    start: str
    initial: float
    ended: str
    refinement: str

    def best(self) -> tuple[float, float]:
        """The smallest value, and its time.

        Returns
        -------
        value, time : float
            The smallest bound of W_p, and the first time at which it holds.
        """
        place = int(np.argmin(self.values))
        return float(self.values[place]), float(self.times[place])

    @property
    def empty(self) -> bool:
        """The tube never falls below its value at t = 0, so that it says nothing."""
        return not (self.best()[0] < self.initial)

    def describe(self) -> str:
        """The smallest value and its time, what it rests on, and why the tube ends, in words."""
        value, time = self.best()
        rests = (
            "proven, from the matrices and a lower bound of the start alone"
            if self.growth == "proven"
            else f"with Λ measured in a run ({self.refinement})"
        )
        if self.empty:
            return f"The tube never opens at β = {self.beta:g} ({rests}): {self.ended}."
        return (
            f"At β = {self.beta:g} and t = {time:.3g} the mean field that starts as {self.start} is within "
            f"W{self.p:g} ≤ {value:.3g} of its limit; at the start the bound is {self.initial:.3g} ({rests}). "
            f"It ends at t = {self.times[-1]:.3g}: {self.ended}."
        )

    def headline(self) -> str:
        """The smallest value, its time, what it rests on, and the last time."""
        value, time = self.best()
        last = f"until t={self.times[-1]:.4g}"
        return f"W{self.p:g} ≤ {value:.4g} at t={time:.4g}, {self.growth}, beta={self.beta:g}, {last}"


def tube(
    heads: Heads,
    *,
    start: object = "uniform",
    growth: str = "proven",
    until: float | None = None,
    p: float = 2.0,
) -> Tube:
    """W_p(ρ_t^β, Π♯ρ₀) bounded over time by (20): tokens keep their side while the drift beats the mean map's error.

    Parameters
    ----------
    heads : Attention or list
        One head without key bias; A = VBᵀ symmetric or normal, or at least reduced by its dominant eigenspace.
    start : str, density, number or nodes
        "uniform"; a density of ``frostline.densities`` made of von Mises–Fisher densities; the smallest value of an
        unknown density against the uniform one, in (0, 1]; or, if measured, weighted nodes ``(tokens, weights)``.
    growth : str
        "proven": the density's lower bound is followed by (21), and the result is a theorem, rounding included.
        "measured": Λ of (19) is taken from a run of weighted nodes, which are doubled until the tube stands still.
    until : float, optional
        The final time. By default a tube ends when it has begun to rise, a measured one at 2σ_max/g at the latest.
    p : float
        Order of the Wasserstein distance, finite and ≥ 1.

    Returns
    -------
    Tube
        ``.times``, ``.values``, ``.best()``, ``.sides``, ``.ended``, ``.describe()``.

    Raises
    ------
    NoLimit
        The limit is neither points nor a subspace, lies in ker Bᵀ, or E does not reduce A.
    BadParameter
        There are several layers, several heads or a key bias, or an argument is outside its range.
    BadArray
        Nodes do not fit the head.

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=1e5)
    >>> value, time = tube(head).best()
    >>> bool(value < 0.85), bool(tube(head).initial < 1.01)
    (True, True)
    """
    p = as_order(p)
    if growth not in GROWTHS:
        raise BadParameter(f"growth is {growth!r}; it is one of {', '.join(GROWTHS)}.")
    until = None if until is None else as_positive(until, "until")
    sides = Sides.of(heads)
    head = as_one_layer(heads, "tube")[0]
    return _proven(head, sides, start, until, p) if growth == "proven" else _measured(head, sides, start, until, p)


def _proven(head: Attention, sides: Sides, start: object, until: float | None, p: float) -> Tube:
    if isinstance(start, tuple | list | np.ndarray):
        raise BadParameter(
            'nodes have no density and so no lower bound of one; pass growth="measured", or the density itself.'
        )
    rings = _rings(head, sides)
    angles = first_angles(sides.basis)
    begin = start_of(start, angles, sides.basis)
    course = follow(
        AngleBounds(rings, angles, begin.even), ShrinkingCaps(rings, begin.log_ratio), begin.shares, until=until, p=p
    )
    if not course.values.min() < _initial(course, begin, sides, p):
        course = Course(course.times, course.values, course.sides, _never_opens(head, begin.log_ratio))
    return _tube(head, course, begin, sides, "proven", "", p)


def _measured(head: Attention, sides: Sides, start: object, until: float | None, p: float) -> Tube:
    B = head.matrices.B
    until = 2 * float(np.linalg.norm(B, 2)) / sides.gap if until is None else until
    angles, rings = first_angles(sides.basis), _rings(head, sides)
    d = len(B)
    count, values, said = FIRST_NODES.get(d, 1000), [], ""
    for doubling in range(DOUBLINGS + 1):
        cloud, begin = nodes_of(head, start, count << doubling, angles, sides)
        lasts = MeasuredGrowth.of(head, rings, cloud, until)
        course = follow(AngleBounds(rings, angles, begin.even), lasts, begin.shares, until=until, p=p)
        values.append(float(course.values.min()))
        said = f"{len(cloud.weights)} nodes"
        if are_nodes(start):
            said += ", given and not refined"
            break
        if doubling:
            said += f"; half as many change the smallest value by {abs(values[-1] - values[-2]):.2g}"
            if abs(values[-1] - values[-2]) <= STILL:
                break
    return _tube(head, course, begin, sides, "measured", said, p)


def _rings(head: Attention, sides: Sides) -> Rings:
    _, V, A, _ = head.matrices
    return Rings.of(sides, A, V)


def _initial(course: Course, begin: Start, sides: Sides, p: float) -> float:
    """W_p at t = 0: exact for the uniform density, where no ring of tokens need be charged its outer edge."""
    d, m = sides.basis.shape
    return uniform_distance(d, m, p) if begin.log_ratio == 0 else float(course.values[0])


def _tube(head: Attention, course: Course, begin: Start, sides: Sides, growth: str, refinement: str, p: float) -> Tube:
    return Tube(
        times=course.times,
        values=course.values,
        sides=course.sides,
        p=p,
        beta=head.beta,
        growth=growth,
        start=begin.words,
        initial=_initial(course, begin, sides, p),
        ended=course.ended,
        refinement=refinement,
    )


def _opens(head: Attention, log_ratio: float) -> bool:
    """Whether at t = 0 the drift beats the error of the mean map at some angle."""
    sides = Sides.of(head)
    rings = _rings(head, sides)
    angle = (rings.edges[1:] + rings.edges[:-1]) / 2
    return bool((rings.outward(angle, angle, ShrinkingCaps(rings, log_ratio).errors) < 0).any())


def _never_opens(head: Attention, log_ratio: float) -> str:
    """A β that is necessary, not sufficient: from it on the drift beats the error at t = 0; in words."""
    low, high = np.log(head.beta), np.log(COLDEST)
    if _opens(head, log_ratio):
        return "the drift wins at first, but not long enough for the bound to fall; raise β"
    words = "at no angle does the drift beat the error of the mean map, even at t = 0"
    if not _opens(head.with_beta(COLDEST), log_ratio):
        return f"{words}, at any β up to {COLDEST:.0e}"
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (low, middle) if _opens(head.with_beta(float(np.exp(middle))), log_ratio) else (middle, high)
    return f"{words}; to open it needs more than β = {float(f'{np.exp(high):.2g}'):g}"
