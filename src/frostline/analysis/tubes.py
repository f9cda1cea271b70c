"""tube: a bound of the distance to the limit that compares no trajectories, proven or with a measured Λ (THEORY 13)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from frostline.arrays import Array, as_float64, as_order, as_positive
from frostline.attention import Attention, Heads, as_one_layer, as_tokens_of
from frostline.dynamics.simulation import simulate
from frostline.dynamics.steppers import Adaptive
from frostline.errors import BadArray, BadParameter
from frostline.sample import Nodes, as_weights, nodes
from frostline.sphere import unit_rows
from frostline.theory import densities
from frostline.theory.shrinking_caps import Rings, ShrinkingCaps, Table
from frostline.theory.sides import Sides
from frostline.theory.starts import Start, start_of, uniform_distance
from frostline.theory.tubes import COLDEST, Course, Tokens, Tube, first_angles, follow

GROWTHS = ("proven", "measured")
"""Where bounds of the error of the mean map come from."""
FIRST_NODES = {2: 500, 3: 1000}
"""Nodes of the first measured run, by dimension; 1,000 in others."""
DOUBLINGS = 2
"""Measured runs have their nodes doubled at most this often."""
STILL = 0.005
"""A measured tube stands still when doubling the nodes moves its smallest value by no more than this."""
QUERIES = {2: 720, 3: 2000}
"""Places at which Λ is measured, by dimension; 2,000 in others."""
FRAMES = 30
"""Times at which Λ is measured."""
RUN_TOLERANCE = 1e-4
"""Tolerance of the measured run."""


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
        One head without key bias, whose A = VBᵀ is symmetric, or normal, or at least reduced by its dominant eigenspace.
    start : str, density, number or nodes
        "uniform"; a density of ``frostline.densities`` made of von Mises–Fisher densities; the smallest value of an
        unknown density against the uniform one, in (0, 1]; or, if measured, weighted nodes ``(tokens, weights)``.
    growth : str
        "proven": the density's lower bound is followed by (21), and the result is a theorem, rounding included.
        "measured": Λ of (19) is taken from a run of weighted nodes, which are doubled until the tube stands still.
    until : float, optional
        The final time. By default a proven tube ends when it has begun to rise, a measured one at 2σ_max/g at the latest.
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
    angles = first_angles(*sides.basis.shape)
    begin = start_of(start, angles, sides.basis)
    course = follow(
        Tokens(rings, angles, begin.even), ShrinkingCaps(rings, begin.log_ratio), begin.shares, until=until, p=p
    )
    if not course.values.min() < _initial(course, begin, sides, p):
        course = Course(course.times, course.values, course.sides, _never_opens(head, begin.log_ratio))
    return _tube(head, course, begin, sides, "proven", "", p)


def _measured(head: Attention, sides: Sides, start: object, until: float | None, p: float) -> Tube:
    B = head.matrices.B
    until = 2 * float(np.linalg.norm(B, 2)) / sides.gap if until is None else until
    angles, rings = first_angles(*sides.basis.shape), _rings(head, sides)
    d = len(B)
    count, values, said = FIRST_NODES.get(d, 1000), [], ""
    for doubling in range(DOUBLINGS + 1):
        cloud, begin = _nodes(head, start, count << doubling, angles, sides)
        lasts = MeasuredGrowth.of(head, rings, cloud, until)
        course = follow(Tokens(rings, angles, begin.even), lasts, begin.shares, until=until, p=p)
        values.append(float(course.values.min()))
        said = f"{len(cloud.weights)} nodes"
        if _are_nodes(start):
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
    return uniform_distance(*sides.basis.shape, p) if begin.log_ratio == 0 else float(course.values[0])


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
    """The β from which the drift would beat the error at the start, in words."""
    low, high = np.log(head.beta), np.log(COLDEST)
    words = "at no angle does the drift beat the error of the mean map for long enough"
    if _opens(head, log_ratio):
        return f"{words}, although it does at the start; a larger β gives it more time"
    if not _opens(head.with_beta(COLDEST), log_ratio):
        return f"{words}, at any β up to {COLDEST:.0e}"
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (low, middle) if _opens(head.with_beta(float(np.exp(middle))), log_ratio) else (middle, high)
    return f"{words}; at the start it would from about β = {np.exp(high):.2g}"


def _are_nodes(start: object) -> bool:
    return isinstance(start, tuple | list | np.ndarray)


def _nodes(head: Attention, start: object, count: int, angles: np.ndarray, sides: Sides) -> tuple[Nodes, Start]:
    """Weighted nodes of a start, and its shares within the first angles."""
    d = head.dimension
    if not _are_nodes(start):
        if isinstance(start, densities.Smooth):
            if start.dimension != d:
                raise BadParameter(f"the start has dimension {start.dimension}, the head {d}; they must agree.")
            cloud = nodes(count, d, log_density=lambda x: np.log(start.density(x)))
            return cloud, _shares(cloud, angles, sides, "the density given as a function")
        begin = start_of(start, angles, sides.basis)
        if isinstance(start, str):
            return nodes(count, d), begin
        if not isinstance(start, densities.Mixture):
            raise BadParameter('a lower bound alone cannot be run; pass a density or nodes, or growth="proven".')
        return nodes(count, d, log_density=start.log_density), begin
    pair = start if isinstance(start, tuple) and len(start) == 2 else (start, None)
    tokens, _ = as_tokens_of((head,), pair[0])
    if tokens.ndim != 2:
        raise BadArray(f"nodes have shape {tuple(tokens.shape)}; one cloud (n, d) is needed.")
    n = len(tokens)
    weights = np.full(n, 1 / n) if pair[1] is None else as_weights(pair[1], n)
    cloud = Nodes(unit_rows(as_float64(tokens)), weights)
    return cloud, _shares(cloud, angles, sides, f"{n} weighted nodes")


def _shares(cloud: Nodes, angles: Float[np.ndarray, "n"], sides: Sides, words: str) -> Start:
    away = sides.angles(cloud.tokens)
    order = np.argsort(away)
    below = np.concatenate([[0.0], np.cumsum(cloud.weights[order])])
    shares = below[np.searchsorted(away[order], angles, side="right")]
    shares[-1] = 1.0
    return Start(np.inf, shares, False, words)


@dataclass(eq=False)
class MeasuredGrowth:
    """Λ of (19) from a run: the largest over each ring and bin at the saved times, and between two of them the larger."""

    rings: Rings
    times: Float[np.ndarray, "k"]
    exponents: Float[np.ndarray, "k rings bins"]
    time: float = 0.0
    reason: str = "what was measured ends here"

    @classmethod
    def of(cls, head: Attention, rings: Rings, cloud: Nodes, until: float) -> "MeasuredGrowth":
        """Run the nodes and measure Λ."""
        times = np.linspace(0.0, until, FRAMES + 1)
        run = simulate(
            head, cloud.tokens, weights=cloud.weights, until=until, save_at=times, stepper=Adaptive(RUN_TOLERANCE)
        )
        queries = _queries(rings, head)
        frames = [_exponents(head, rings, queries, frame, cloud.weights) for frame in as_float64(run.tokens)]
        return cls(rings, run.times, np.stack(frames))

    @property
    def closed(self) -> bool:
        """The run has ended before."""
        return not self.time <= self.times[-1] * (1 + 1e-12)

    def step(self, share: float) -> float:
        """To the next saved time."""
        later = self.times[self.times > self.time * (1 + 1e-12)]
        return float(later[0] - self.time) if len(later) else np.inf

    def advance(self, h: float) -> Table:
        """Errors of the mean map throughout the step: those of the frames before and after."""
        first = max(int(np.searchsorted(self.times, self.time * (1 + 1e-12), side="right")) - 1, 0)
        self.time += h
        last = min(int(np.searchsorted(self.times, self.time * (1 - 1e-12))), len(self.times) - 1)
        worst = self.exponents[first : last + 1].max(0)
        return np.maximum.accumulate(np.sqrt(2 * worst / self.rings.sides.beta), axis=0)


def _queries(rings: Rings, head: Attention) -> Float[np.ndarray, "q d"]:
    d = head.dimension
    return nodes(QUERIES.get(d, 2000), d, seed=1).tokens


def _exponents(
    head: Attention, rings: Rings, x: Float[np.ndarray, "q d"], y: Float[np.ndarray, "n d"], weights: np.ndarray
) -> Table:
    """The largest Λ(x) over the queries of each ring and bin; zero where there is none."""
    direction = x @ head.matrices.B
    s = np.linalg.norm(direction, axis=1)
    u, kappa = direction / s[:, None], head.beta * s
    value = np.empty(len(x))
    for part in np.array_split(np.arange(len(x)), max(1, len(x) * len(y) // 4_000_000)):
        far = np.maximum(2 - 2 * (u[part] @ y.T), 0.0)
        value[part] = -special.logsumexp(-kappa[part, None] * far / 2, b=weights, axis=1)
    table = np.zeros(rings.low.shape)
    ring = rings.number(rings.sides.angles(x))
    begin, end = rings.bins
    np.maximum.at(table, (ring, np.clip(np.searchsorted(end, s), 0, len(end) - 1)), value)
    return table
