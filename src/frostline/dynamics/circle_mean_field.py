"""The mean field on the circle: a density moved by its own mean map (THEORY eq. 3), over the labels of its tokens.

The unknown is the place at time t of the token that began at each label. Nodes are added where neighbours come apart by
more than a part of a kernel width κ^{−1/2}, so none ever sees only itself, and taken away where they crowd.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.integrate import RK45

from frostline.arrays import as_number
from frostline.attention import Attention, Heads, as_one_layer, is_plain
from frostline.cancellation import poll
from frostline.dynamics.label_panels import NODES, Panels
from frostline.dynamics.panel_sums import panel_sums
from frostline.errors import BadArray, BadParameter

REACH = 40.0
"""|log tan(ψ/2)| of the last label of a half circle: tokens nearer to the separatrix than 2e^{−REACH} are left out."""
SPACING = 0.5
"""The widest gap between neighbouring nodes, in kernel widths."""
TOLERANCE = 1e-3
"""Error of a time step and of interpolation, in kernel widths."""
LONGEST_STEP = 0.25
"""Velocities vary over times of order one."""
SHORTEST_STEP = 1e-6
"""Steps are not made shorter than this to meet the tolerance."""
MOST_NODES = 200_000
"""A run that needs more nodes than this is refused."""
MOST_ROUNDS = 60
"""Times that panels are halved in a row."""

LogDensity: TypeAlias = Callable[[Float[np.ndarray, "n 2"]], Float[np.ndarray, "n"]]


class WholeCircle:
    """The angle φ, x = (cos φ, sin φ)."""

    mirrored = False

    def tokens(self, values: np.ndarray) -> np.ndarray:
        """The unit vectors."""
        return np.stack([np.cos(values), np.sin(values)], axis=-1)

    def angles(self, values: np.ndarray) -> np.ndarray:
        """Angles that increase along the panels."""
        return values

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Radians per unit of the coordinate."""
        return np.ones_like(values)

    def speed(self, values: np.ndarray, push: np.ndarray) -> np.ndarray:
        """The rate of the coordinate under ẋ = P_x push."""
        x = self.tokens(values)
        return x[..., 0] * push[..., 1] - x[..., 1] * push[..., 0]


class HalfCircle:
    """ξ = log tan(ψ/2) for the angle ψ from e₂, on the half x₁ > 0; the other half is its mirror image.

    x = (sech ξ, −tanh ξ): ±e₂ are at ∓∞, so that tokens near them keep their relative precision.
    """

    mirrored = True

    def tokens(self, values: np.ndarray) -> np.ndarray:
        """The unit vectors."""
        e = np.exp(-np.abs(values))
        return np.stack([2 * e, -np.sign(values) * (1 - e) * (1 + e)], axis=-1) / (1 + e * e)[..., None]

    def angles(self, values: np.ndarray) -> np.ndarray:
        """Angles that increase along the panels."""
        return 2 * np.arctan(np.exp(values))

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Radians per unit of the coordinate."""
        e = np.exp(-np.abs(values))
        return 2 * e / (1 + e * e)

    def speed(self, values: np.ndarray, push: np.ndarray) -> np.ndarray:
        """The rate of the coordinate under ẋ = P_x push: (x₂ push₁ − x₁ push₂)/x₁."""
        x = self.tokens(values)
        return x[..., 1] * (push[..., 0] / x[..., 0]) - push[..., 1]


Chart: TypeAlias = WholeCircle | HalfCircle
"""The coordinate of the circle in which labels and places are given."""


@dataclass(frozen=True, eq=False)
class CircleState:
    """The mean field at one time, at its nodes; of a mirrored one, the half x₁ > 0, whose weights sum to a half.

    tokens, weights     the nodes (n, 2) and their masses
    exponents           Λ at the nodes (THEORY section 13)
    panels              the place of every label
    initial_log_density log ρ₀ at the labels, per radian
    """

    time: float
    tokens: Float[np.ndarray, "n 2"]
    weights: Float[np.ndarray, "n"]
    exponents: Float[np.ndarray, "n"]
    velocity: Float[np.ndarray, "n"]
    panels: Panels
    chart: Chart = field(repr=False)
    initial_log_density: Float[np.ndarray, "n"] = field(repr=False)

    @cached_property
    def log_density(self) -> Float[np.ndarray, "n"]:
        """log ρ at the nodes, per radian: the initial one, thinned by how far labels have come apart."""
        labels, values = self.panels.labels(), self.panels.values
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = self.panels.slopes() * self.chart.scale(values) / self.chart.scale(labels)
            return self.initial_log_density - np.log(spread).ravel()

    def whole(self) -> tuple[Float[np.ndarray, "m 2"], Float[np.ndarray, "m"]]:
        """Tokens and weights of both halves, sum one."""
        if not self.chart.mirrored:
            return self.tokens, self.weights
        image = self.tokens * [-1.0, 1.0]
        return np.concatenate([self.tokens, image]), np.concatenate([self.weights, self.weights])


def circle_mean_field(
    heads: Heads,
    log_density: LogDensity,
    *,
    until: float,
    mirrored: bool = False,
    reach: float = REACH,
    spacing: float = SPACING,
    tolerance: float = TOLERANCE,
) -> Iterator[CircleState]:
    """The states of the mean field on the circle, one after every time step, the first at time 0.

    Parameters
    ----------
    heads : Attention or list
        One head without key bias in d = 2, B invertible.
    log_density : callable
        Takes tokens (n, 2) and returns the logarithm of the initial density, up to a constant; smooth and finite.
    until : float
        The last time.
    mirrored : bool
        Whether B and V are diagonal and the density is even in x₁: one half is followed, with labels
        ξ₀ = log tan(ψ₀/2) for the angle ψ₀ from e₂, where tokens part.
    reach : float
        The largest |ξ₀| of a mirrored start: tokens nearer to ±e₂ than 2e^{−reach} are left out.
    spacing : float
        The widest gap between neighbouring nodes, in kernel widths κ^{−1/2}: the resolution.
    tolerance : float
        The error of a time step and of an interpolation, in kernel widths.

    Yields
    ------
    CircleState
        Tokens, weights, Λ, density.

    Raises
    ------
    BadParameter
        Several heads, a key bias, B without inverse, a mirrored start that has no mirror symmetry, numbers outside
        their range, or more than MOST_NODES nodes needed.
    BadArray
        ``log_density`` does not return n finite numbers.

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=30.0)
    >>> states = list(circle_mean_field(head, lambda x: 0 * x[:, 0], until=6.0, mirrored=True))
    >>> print(states[-1].time, round(2 * states[-1].weights @ states[-1].tokens[:, 0], 2))
    6.0 1.0
    """
    layer = as_one_layer(heads, "circle_mean_field")
    if not is_plain(layer) or layer[0].dimension != 2:
        raise BadParameter("circle_mean_field takes one head without key bias in dimension 2.")
    for name, value in (("until", until), ("reach", reach), ("spacing", spacing), ("tolerance", tolerance)):
        if not (0 < as_number(value, name) < np.inf):
            raise BadParameter(f"{name} is {value}; it must be finite and > 0.")
    return _Solver(layer[0], log_density, mirrored, reach, spacing, tolerance).states(until)


class _Solver:
    """The moving nodes of one run."""

    def __init__(
        self, head: Attention, log_density: LogDensity, mirrored: bool, reach: float, spacing: float, tolerance: float
    ):
        B, V = head.matrices.B, head.matrices.V
        if not (np.linalg.cond(B) < 1 / np.finfo(float).eps):
            raise BadParameter("B has no inverse: somewhere a kernel would be infinitely wide.")
        if not (head.beta > 0):
            raise BadParameter(f"beta is {head.beta}; the kernel needs it > 0.")
        self.B, self.V, self.beta = B, V, head.beta
        self.inverse = np.linalg.inv(B.T)
        self.log_density, self.spacing, self.tolerance = log_density, spacing, tolerance
        self.chart: Chart = HalfCircle() if mirrored else WholeCircle()
        if mirrored:
            self._check_mirror()
            count = 2 * int(np.ceil(reach))
            self.panels = Panels.uniform(-reach, reach, count)
        else:
            self.panels = Panels.uniform(0.0, 2 * np.pi, 8)
        self.log_mass = 0.0
        self._refine()
        self._weigh()
        # A mirrored half has mass one half.
        self.log_mass = float(np.log(self.weights.sum() * (2 if mirrored else 1)))
        self._weigh()

    def states(self, until: float) -> Iterator[CircleState]:
        """One after every time step."""
        time, step = 0.0, 0.05
        while True:
            poll()
            state = self._state(time)
            yield state
            if time >= until:
                return
            solver = RK45(
                lambda t, values: self._speed(values.reshape(-1, NODES)).ravel(),
                time,
                self.panels.values.ravel(),
                until,
                first_step=max(min(step, until - time), SHORTEST_STEP) if until - time > SHORTEST_STEP else None,
                max_step=LONGEST_STEP,
                rtol=1e-13,
                # One tolerance per node: scipy takes an array, its stubs do not.
                atol=self._allowed(),  # type: ignore[arg-type]
            )
            solver.step()
            time, step = solver.t, solver.h_abs
            self.panels = self.panels.with_values(solver.y.reshape(-1, NODES))
            self._refine()
            self._weigh()

    def _state(self, time: float) -> CircleState:
        values = self.panels.values
        speed = self._speed(values)
        return CircleState(
            time,
            self.chart.tokens(values).reshape(-1, 2),
            self.weights,
            self.exponents,
            (speed * self.chart.scale(values)).ravel(),
            self.panels,
            self.chart,
            self.initial,
        )

    def _speed(self, values: np.ndarray) -> np.ndarray:
        x = self.chart.tokens(values).reshape(-1, 2)
        means, self.exponents = panel_sums(
            self.beta * x @ self.B, x, self.chart.angles(values).ravel(), self.weights, mirrored=self.chart.mirrored
        )
        return self.chart.speed(values, (means @ self.V.T).reshape(*values.shape, 2))

    def _kernel_widths(self, values: np.ndarray) -> np.ndarray:
        """κ^{1/2} at each place y: of the query with y*(x) = y, which is B^{−T}y normalised."""
        away = np.linalg.norm(self.chart.tokens(values) @ self.inverse.T, axis=-1)
        return np.sqrt(self.beta / away)

    def _allowed(self) -> np.ndarray:
        """The error of a step that is allowed at each node, in units of the coordinate."""
        widths = self.chart.scale(self.panels.values) * self._kernel_widths(self.panels.values)
        # Far out on a half circle a place is known far better than its kernel; there labels must keep their order.
        return (self.tolerance / np.maximum(widths, 1.0)).ravel()

    def _coarseness(self, panels: Panels) -> tuple[np.ndarray, np.ndarray]:
        """For each panel its widest gap, and kernel widths per unit of the coordinate in its middle."""
        values = panels.with_ends()
        widths = self._kernel_widths(values)
        gaps = np.abs(np.diff(self.chart.angles(values), axis=1)) * widths[:, 1:]
        middle = panels.values[:, NODES // 2]
        return gaps.max(1), self.chart.scale(middle) * widths[:, NODES // 2]

    def _refine(self) -> None:
        """Split panels that are coarse or badly interpolated, join those that are finer than needed."""
        for _ in range(MOST_ROUNDS):
            gaps, widths = self._coarseness(self.panels)
            bent = (self.panels.tails() * widths > self.tolerance) & (gaps > 1e-3 * self.spacing)
            coarse = (gaps > self.spacing) | bent
            before = len(gaps)
            if coarse.any():
                self.panels = self.panels.split(coarse)
            if len(self.panels.edges) == before:
                break
            if len(self.panels.edges) * NODES > MOST_NODES:
                raise BadParameter(
                    f"more than {MOST_NODES:,} nodes are needed at β = {self.beta:g}; a larger spacing takes fewer."
                )
        self.panels = self.panels.join(self._fits)

    def _fits(self, joined: Panels, error: np.ndarray) -> np.ndarray:
        gaps, widths = self._coarseness(joined)
        # Well inside what is split, or panels would be split and joined in turn.
        return (gaps < self.spacing / 2) & (np.maximum(error, joined.tails() / 3) * widths < self.tolerance / 10)

    def _weigh(self) -> None:
        labels = self.panels.labels()
        logs = np.asarray(self.log_density(self.chart.tokens(labels).reshape(-1, 2)), dtype=np.float64)
        if logs.shape != (labels.size,) or not np.isfinite(logs).all():
            raise BadArray(
                f"log_density returned shape {logs.shape} (needed {(labels.size,)}) or numbers not finite; the "
                "mean field on the circle needs a positive density."
            )
        self.initial = logs - self.log_mass
        self.weights = np.exp(self.initial) * (self.chart.scale(labels) * self.panels.weights()).ravel()

    def _check_mirror(self) -> None:
        off = max(abs(self.B[0, 1]), abs(self.B[1, 0]), abs(self.V[0, 1]), abs(self.V[1, 0]))
        if not (off <= 1e-12 and self.B[0, 0] > 0):
            raise BadParameter("a mirrored start needs diagonal B and V with B₁₁ > 0; leave mirrored out.")
        x = self.chart.tokens(np.linspace(-5.0, 5.0, 41))
        here, there = self.log_density(x), self.log_density(x * [-1.0, 1.0])
        if not (np.abs(here - there) <= 1e-9 * (1 + np.abs(here))).all():
            raise BadParameter("the density is not even in x₁; leave mirrored out.")
