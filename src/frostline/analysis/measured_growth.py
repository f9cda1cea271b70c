"""Measured growth: Λ of THEORY eq. 19 along a run of weighted nodes, over rings of angles and bins of |Bᵀx|."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from frostline.arrays import as_float64
from frostline.attention import Attention, as_tokens_of
from frostline.dynamics.simulation import simulate
from frostline.dynamics.steppers import Adaptive
from frostline.errors import BadArray, BadParameter
from frostline.sample import Nodes, as_weights, nodes
from frostline.sphere import unit_rows
from frostline.theory import densities
from frostline.theory.rings import Rings, Table
from frostline.theory.sides import Sides
from frostline.theory.starts import Start, start_of

QUERIES = {2: 720, 3: 2000}
"""Places at which Λ is measured, by dimension; 2,000 in others."""
FRAMES = 30
"""Times at which Λ is measured."""
RUN_TOLERANCE = 1e-4
"""Tolerance of the measured run."""


def are_nodes(start: object) -> bool:
    return isinstance(start, tuple | list | np.ndarray)


def nodes_of(head: Attention, start: object, count: int, angles: np.ndarray, sides: Sides) -> tuple[Nodes, Start]:
    """Weighted nodes of a start, and its shares within the first angles."""
    d = head.dimension
    if not are_nodes(start):
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
    """Λ of (19) from a run: the largest over each ring and bin at saved times; between two, the larger."""

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
        energies = kappa[part, None] * far / 2
        # Warm: Λ is a small number, which the logarithm of a number near 1 would lose.
        lost = -np.expm1(-energies) @ weights
        cold = -special.logsumexp(-energies, b=weights, axis=1)
        value[part] = np.where(lost < 0.5, -np.log1p(-np.minimum(lost, 0.5)), cold)
    table = np.zeros(rings.low.shape)
    ring = rings.number(rings.sides.angles(x))
    _, end = rings.bins
    np.maximum.at(table, (ring, np.clip(np.searchsorted(end, s), 0, len(end) - 1)), value)
    return table
