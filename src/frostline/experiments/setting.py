"""Settings that several claims share: a head without its temperature, a smooth start, and its runs."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from frostline.analysis.distance import Measure
from frostline.attention import Attention
from frostline.dynamics.simulation import Trajectory, simulate
from frostline.sample import Nodes, nodes
from frostline.theory.limits import limit

Matrix: TypeAlias = tuple[tuple[float, ...], ...]
"""A matrix as rows, which can be hashed."""
NEAREST = 1e-3
"""Distance (rad) to the equator at which the density of graded nodes stops growing."""


def diagonal(*values: float) -> Matrix:
    """The diagonal matrix with these values."""
    return tuple(tuple(value if i == j else 0.0 for j in range(len(values))) for i, value in enumerate(values))


@dataclass(frozen=True)
class Setting:
    """B and V, and a start with density ∝ e^{⟨tilt, x⟩} on weighted nodes; ``mirrored``: and its mirror image in x₁."""

    B: Matrix
    V: Matrix
    tilt: tuple[float, ...]
    count: int
    mirrored: bool = False

    def head(self, beta: float) -> Attention:
        """The head at this inverse temperature."""
        return Attention.from_matrices(self.B, self.V, beta)

    def start(self) -> Nodes:
        """Tokens of the start and their weights."""
        tilt = np.array(self.tilt)
        if len(tilt) == 2:
            tokens, weights = _graded(self.count, tilt)
        else:
            tokens, weights = nodes(self.count, len(tilt), log_density=lambda x: x @ tilt)
        if self.mirrored:
            image = tokens * np.array([1.0] + [-1.0] * (len(tilt) - 1))
            tokens, weights = np.concatenate([tokens, image]), np.concatenate([weights, weights]) / 2
        return Nodes(tokens, weights)


def _graded(count: int, tilt: Float[np.ndarray, "2"]) -> Nodes:
    """Weighted nodes on the circle, half of them dense towards the equator x₁ = 0, down to NEAREST.

    The flow tears tokens there apart by orders of magnitude: equispaced ones would soon see only themselves.
    """
    fine = np.linspace(0.0, 2 * np.pi, 200_001)
    steep = 1 / np.sqrt(np.cos(fine) ** 2 + NEAREST**2)
    density = 0.5 / (2 * np.pi) + 0.5 * steep / np.trapezoid(steep, fine)
    share = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(fine))])
    # An irrational offset: no node falls on an axis.
    angle = np.interp((np.arange(count) + 1 / np.pi) / count, share / share[-1], fine)
    tokens = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    weights = np.exp(tokens @ tilt) / np.interp(angle, fine, density)
    return Nodes(tokens, weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Followed:
    """A run kept at ``times``, and W₂ to the limit of the same tokens there (exact for two points)."""

    run: Trajectory
    times: Float[np.ndarray, "k"]
    distance: Float[np.ndarray, "k"]

    @property
    def best(self) -> int:
        """The index of the time with the smallest distance."""
        return int(self.distance.argmin())

    def crosses(self, level: float) -> float | None:
        """The time at which W₂ rises through this level after its minimum, by linear interpolation; None if never."""
        later = np.flatnonzero(self.distance[self.best :] >= level)
        if not len(later) or later[0] == 0:
            return None
        k = self.best + int(later[0])
        (a, b), (s, t) = self.distance[k - 1 : k + 1], self.times[k - 1 : k + 1]
        return float(s + (t - s) * (level - a) / (b - a))


@lru_cache(maxsize=64)
def follow(setting: Setting, beta: float, until: float, frames: int = 121) -> Followed:
    """Run the setting at this temperature; several claims share these runs."""
    start = setting.start()
    head = setting.head(beta)
    run = simulate(
        head, start.tokens, until=until, weights=start.weights, save_at=np.linspace(0.0, until, frames).tolist()
    )
    # The limit of the head that was asked for: the run's own would follow a simulator that runs another one.
    return Followed(run, run.times, Measure.of_run(run, limit=limit(head)).along(run))
