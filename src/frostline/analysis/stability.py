"""stability: the distance of two clouds at zero temperature over time, against e^{ℓt} (THEORY section 7)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.arrays import Array, as_float64, as_times
from frostline.attention import Heads, as_one_layer, is_plain
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.sphere import as_tokens, unit_rows
from frostline.theory.expansion import Derivative
from frostline.theory.flow import zero_temperature
from frostline.transport.exact import exact


@dataclass(frozen=True, eq=False, repr=False)
class Stability(Result):
    """W(ρ_t, ρ̃_t) of two clouds under (5), geodesic cost, and its bound e^{ℓt}W(ρ₀, ρ̃₀), at each of ``times``.

    Attributes
    ----------
    p : float
        The order of the distance.
    times : ndarray
        The times, (k,).
    measured : ndarray
        The distance at each time, (k,).
    bound : ndarray
        Its bound, (k,).
    ell : float
        ℓ, a proven bound of the expansion rate over the sphere; infinite for a rank-deficient B.
    seen : float
        The largest expansion rate on the tokens' own paths: an observation, never more than ℓ.
    observed : float
        The largest log(W_t/W_0)/t over the times: the rate at which the clouds separated.
    """

    p: float
    times: Float[np.ndarray, "k"]
    measured: Float[np.ndarray, "k"]
    bound: Float[np.ndarray, "k"]
    ell: float
    seen: float
    observed: float

    @property
    def holds(self) -> bool:
        """Whether measured ≤ bound at every time, up to the solver's rounding."""
        return bool((self.measured <= self.bound * (1 + 1e-9) + 1e-9).all())

    @property
    def vacuous(self) -> np.ndarray:
        """Which bounds are no less than π, the largest geodesic distance."""
        return ~(self.bound < np.pi)

    def describe(self) -> str:
        """The distance and its bound at the last time, and the rates."""
        end = f"At t = {self.times[-1]:g} W{self.p:g} is {self.measured[-1]:.3g}, the bound {self.bound[-1]:.3g}"
        empty = " (vacuous: no distance exceeds π)" if self.vacuous[-1] else ""
        proven = f"ℓ ≤ {self.ell:.3g} is proven" if np.isfinite(self.ell) else "No ℓ is proven: B is rank-deficient"
        return f"{end}{empty}. {proven}; {self.seen:.3g} was met; W grew at a rate of {self.observed:.3g}."


def stability(
    heads: Heads,
    x: Array,
    other: Array,
    *,
    times: Sequence[float] | Array = (0.0, 0.5, 1.0, 2.0),
    p: float = 2.0,
    x_weights: Array | None = None,
    other_weights: Array | None = None,
) -> Stability:
    """Compare the distance of two clouds under the zero-temperature flow (THEORY eq. 5) with e^{ℓt}.

    ℓ bounds the growth of angles, so the geodesic cost is measured. The chord obeys the same inequality: while an
    angle grows, its chord grows no faster (sin λx ≤ λ sin x for λ ≥ 1 and λx ≤ π/2), and ℓ ≥ 0, since antipodes stay
    antipodes.

    Parameters
    ----------
    heads : Attention
        One head without key bias.
    x, other : arrays (n, d) and (m, d)
        The two clouds at t = 0.
    times : sequence of floats
        Ascending times at which the distance is measured.
    p : float
        Order of the distance.
    x_weights, other_weights : arrays (n,) and (m,), optional
        Masses; equal by default.

    Returns
    -------
    Stability
        The distances, their bounds and the rates.

    Raises
    ------
    BadParameter
        There are several heads or a key bias, or tokens reach ker Bᵀ, where the flow ends.
    BadArray
        A cloud does not have the shape (n, d).

    Examples
    --------
    >>> from frostline import Attention, sample
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1.0)
    >>> stability(head, sample.uniform(50, 2, seed=0), sample.uniform(50, 2, seed=1)).holds
    True
    """
    layer = as_one_layer(heads, "stability")
    if not is_plain(layer):
        raise BadParameter("stability takes one head without key bias, whose zero-temperature flow is THEORY eq. 5.")
    clouds = [unit_rows(as_float64(as_tokens(cloud, name)[0])) for cloud, name in ((x, "x"), (other, "other"))]
    if any(cloud.ndim != 2 for cloud in clouds):
        raise BadArray(f"x has shape {clouds[0].shape}, other {clouds[1].shape}; two clouds (n, d) are needed.")
    wanted = as_times(times, "times")
    grid = np.unique(np.concatenate([[0.0], wanted]))
    paths = [np.asarray(zero_temperature(heads, cloud, times=grid).tokens) for cloud in clouds]
    lost = sum(int((~np.isfinite(path[-1]).all(1)).sum()) for path in paths)
    if lost:
        raise BadParameter(
            f"{lost} tokens run into ker Bᵀ before t = {grid[-1]:g}, where the flow ends; ask for earlier times, or "
            "leave those out."
        )
    distances = np.array(
        [
            exact(a, b, p=p, x_weights=x_weights, y_weights=other_weights, metric="geodesic")
            for a, b in zip(*paths, strict=True)
        ]
    )
    B, _, A, _ = layer[0].matrices
    derivative, unit = Derivative.scaled(A, B)
    ell = unit * derivative.largest
    points = np.concatenate([path.reshape(-1, path.shape[-1]) for path in paths])
    seen = unit * float(derivative.rate(points).max())
    with np.errstate(over="ignore", invalid="ignore"):
        bound = np.where(grid == 0, distances[0], np.exp(ell * grid) * distances[0])
    later = (grid > 0) & (distances > 0)
    grown = np.log(distances[later] / distances[0]) / grid[later] if distances[0] > 0 else np.zeros(0)
    keep = np.isin(grid, wanted)
    return Stability(
        p=float(p),
        times=wanted,
        measured=distances[keep],
        bound=np.where(np.isnan(bound), np.inf, bound)[keep],
        ell=ell,
        seen=seen,
        observed=float(grown.max()) if len(grown) else 0.0,
    )
