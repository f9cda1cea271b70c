"""Runs that say how long clusters stay: mean fields on the circle, until W₂ has come back or hypothesis (H) is broken.

The problem is the theorem's: B = diag(1, ½), and V = diag(1, 1.5), which prefers e₂, or V = I, which prefers nothing.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from frostline.attention import Attention
from frostline.dynamics.circle_mean_field import REACH, SPACING, CircleState, circle_mean_field
from frostline.transport.atoms import two_atoms

B = np.diag([1.0, 0.5])
V = np.diag([1.0, 1.5])
ATOMS = np.array([[1.0, 0.0], [-1.0, 0.0]])
"""The limit."""
LEVEL = 0.7
"""W₂ at which a cluster counts as gone: half of its way to √2."""
EXCESS = 0.5
"""By how much −log min ρ and Λ may exceed their lines before hypothesis (H) counts as broken."""
EXPANSION = 1.0
"""Γ = sup div F of B = diag(1, ½), V = I: (λ₁ − λ₂)/b₂, at e₂."""


@dataclass(frozen=True, eq=False)
class Stay:
    """A run until W₂ has come back to LEVEL, or to its end.

    leaves      when it has; NaN if it has not
    nodes       the most nodes
    parting     x₁ of the two tokens, at t = 0, that end between the clusters: the separatrices
    """

    times: Float[np.ndarray, "k"]
    distances: Float[np.ndarray, "k"]
    leaves: float
    nodes: int
    parting: Float[np.ndarray, "two"]
    last: CircleState


@lru_cache(maxsize=64)
def stay(
    beta: float, across: float, *, until: float, along: float = 0.0, reach: float = 15.0, spacing: float = SPACING
) -> Stay:
    """Follow the start with density ∝ e^{along·x₁ + across·x₂} until W₂ to its limit is back at LEVEL."""
    head = Attention.from_matrices(B, V, beta)
    tilt = np.array([along, across])
    times: list[float] = []
    distances: list[float] = []
    nodes, share = 0, 0.5
    for state in circle_mean_field(
        head, lambda x: x @ tilt, until=until, mirrored=along == 0, reach=reach, spacing=spacing
    ):
        tokens, weights = state.whole()
        if not times:
            # A panel may lie across the equator: the density itself says how much is on each side.
            share = _share_right(along, across)
        times.append(state.time)
        distances.append(two_atoms(tokens, weights, ATOMS, share))
        nodes = max(nodes, len(state.weights))
        leaves = _rises_through(times, distances)
        if not np.isnan(leaves):
            break
    return Stay(np.array(times), np.array(distances), leaves, nodes, _parting(state), state)


def _share_right(along: float, across: float) -> float:
    """The mass of x₁ > 0 under the density ∝ e^{along·x₁ + across·x₂}."""
    angles, weights = np.polynomial.legendre.leggauss(64)
    sides = [
        weights @ np.exp(along * np.cos(angles * np.pi / 2 + turn) + across * np.sin(angles * np.pi / 2 + turn))
        for turn in (0.0, np.pi)
    ]
    return float(sides[0] / sum(sides))


def _rises_through(times: list[float], distances: list[float]) -> float:
    """The last two times' crossing of LEVEL from below, if W₂ was below it."""
    if len(times) < 2 or not distances[-2] < LEVEL <= distances[-1]:
        return np.nan
    (s, t), (a, b) = times[-2:], distances[-2:]
    return s + (t - s) * (LEVEL - a) / (b - a)


def _parting(state: CircleState) -> Float[np.ndarray, "two"]:
    """x₁ at t = 0 of the labels between which the places pass ±e₂, by interpolation."""
    if state.chart.mirrored:
        return np.zeros(2)
    labels, places = state.panels.labels().ravel(), state.panels.values.ravel()
    return np.cos(np.interp([np.pi / 2, 3 * np.pi / 2], places, labels))


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """Hypothesis (H) along one run, V = I, uniform start: until when it holds, and what stays.

    density, exponent   when −log min ρ (in units of the uniform one) exceeds Γt, and Λ exceeds Λ₀ + Γt, by EXCESS
    log_means           log ∫ e^Λ dρ over time
    """

    density: float
    exponent: float
    times: Float[np.ndarray, "k"]
    least: Float[np.ndarray, "k"]
    largest: Float[np.ndarray, "k"]
    log_means: Float[np.ndarray, "k"]
    distances: Float[np.ndarray, "k"]


@lru_cache(maxsize=16)
def follow_hypothesis(beta: float, *, until: float, spacing: float = SPACING) -> Hypothesis:
    """Follow the uniform start under V = I, where clusters have no reason to leave."""
    head = Attention.from_matrices(B, np.eye(2), beta)
    rows = []
    for state in circle_mean_field(
        head, lambda x: 0 * x[:, 0], until=until, mirrored=True, reach=max(REACH, 1.5 * until), spacing=spacing
    ):
        top = state.exponents.max()
        mean = top + np.log(2 * state.weights @ np.exp(state.exponents - top))
        apart = np.sqrt(2 * state.weights @ (2 - 2 * state.tokens[:, 0]))
        rows.append((state.time, -np.log(2 * np.pi) - np.nanmin(state.log_density), top, mean, apart))
    times, least, largest, means, distances = np.array(rows).T
    return Hypothesis(
        _first_above(times, least - EXPANSION * times),
        _first_above(times, largest - largest[0] - EXPANSION * times),
        times,
        least,
        largest,
        means,
        distances,
    )


def _first_above(times: np.ndarray, excess: np.ndarray) -> float:
    """When the excess first passes EXCESS; NaN if it does not."""
    above = np.flatnonzero(excess > EXCESS)
    if not len(above) or above[0] == 0:
        return np.nan
    k = int(above[0])
    return float(np.interp(EXCESS, excess[k - 1 : k + 1], times[k - 1 : k + 1]))
