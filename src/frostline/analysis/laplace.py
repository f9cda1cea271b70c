"""The Laplace principle (THEORY section 6): how far the mean map is from its zero-temperature value y*."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.analysis.replay import evenly_spaced_nodes, one_run, shares
from frostline.arrays import Array, as_float64
from frostline.attention import Attention
from frostline.dynamics.mean_map.base import mean_map_and_exponent
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.sphere import as_tokens, row_norms, unit_rows
from frostline.theory.densities import Density
from frostline.theory.regime import Regime

ROUNDING = 1e-13
"""Room for the rounding of Λ, relative to 1 + κ; measured: 2e-14 κ."""
POINTS = 60
"""Times at which the growth along a run is measured; each costs one mean map."""


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(Result):
    """The mean map at finite temperature beside its approximations, for each query.

    Attributes
    ----------
    kappa : ndarray
        κ = β|Bᵀx + g|, (n,).
    exact : ndarray
        m_β[ρ](x), (n, d).
    zeroth : ndarray
        The zero-temperature value y*, (n, d).
    first : ndarray or None
        The first-order value of THEORY eq. 10, (n, d); None for a cloud, which has no density.
    exponent : ndarray or None
        Λ = −log ∫e^{−κ|y−u|²/2}dρ of THEORY eq. 19, (n,); None for a density.
    """

    kappa: Float[np.ndarray, "n"]
    exact: Float[np.ndarray, "n d"]
    zeroth: Float[np.ndarray, "n d"]
    first: Float[np.ndarray, "n d"] | None
    exponent: Float[np.ndarray, "n"] | None

    @property
    def proven_error(self) -> Float[np.ndarray, "n"] | None:
        """√(2Λ/κ) with room for rounding, at most 2: |m − y*| never exceeds it (THEORY eq. 19); None for a density."""
        if self.exponent is None:
            return None
        room = ROUNDING * (1 + self.kappa)
        with np.errstate(divide="ignore", over="ignore"):
            return np.minimum(np.sqrt(2 * (self.exponent + room) / self.kappa), 2.0)

    @property
    def zeroth_error(self) -> Float[np.ndarray, "n"]:
        """|m − y*| of each query."""
        return np.linalg.norm(self.exact - self.zeroth, axis=1)

    @property
    def first_error(self) -> Float[np.ndarray, "n"] | None:
        """The distance of the first-order value to the exact one; None for a cloud."""
        return None if self.first is None else np.linalg.norm(self.exact - self.first, axis=1)

    def describe(self) -> str:
        """The largest errors of both approximations."""
        first = "" if self.first_error is None else f", first order at most {self.first_error.max():.3g}"
        proven = "" if self.proven_error is None else f" (eq. 19 allows {self.proven_error.max():.3g})"
        return f"{len(self.kappa)} queries, |m − y*| at most {self.zeroth_error.max():.3g}{proven}{first}"


def laplace(head: Attention, x: Array, density: Density | Array, *, weights: Array | None = None) -> Laplace:
    """m_β[ρ](x), and the errors of y*(x) and of its first-order correction (THEORY eq. 10).

    Parameters
    ----------
    head : Attention
        One head.
    x : array (…, n, d)
        The queries, unit vectors.
    density : Density or array (m, d)
        A density of ``frostline.densities`` (uniform, vmf, mixture, from_function), or a cloud of tokens.
    weights : array (m,), optional
        Masses of the cloud; equal by default.

    Returns
    -------
    Laplace
        The exact value and its approximations, for each query.

    Raises
    ------
    BadParameter
        A query has no y*, β|Bᵀx| overflows, or weights are given for a density.
    BadArray
        The dimensions of the head, the density and the queries differ.

    Examples
    --------
    >>> from frostline.theory.densities import uniform
    >>> head = Attention.from_matrices(np.eye(3), np.eye(3), beta=1000.0)
    >>> bool(laplace(head, [[1.0, 0.0, 0.0]], uniform(3)).first_error < 1e-9)
    True
    """
    if not isinstance(head, Attention):
        raise BadParameter(f"laplace takes one Attention, not {type(head).__name__}; call it head by head.")
    tokens, _ = as_tokens(x, "x")
    queries = unit_rows(as_float64(tokens).reshape(-1, tokens.shape[-1]))
    smooth = isinstance(density, Density)
    sources = None if smooth else unit_rows(as_float64(as_tokens(density, "density")[0]))
    d = density.dimension if sources is None else sources.shape[-1]
    if not head.dimension == d == queries.shape[1]:
        raise BadArray(
            f"the head has dimension {head.dimension}, the density {d}, x {queries.shape[1]}; they must agree."
        )
    if smooth and weights is not None:
        raise BadParameter("weights belong to a cloud of tokens; a density has none.")
    B, _, _, bias = head.matrices
    key = queries @ B + (0.0 if bias is None else bias)
    with np.errstate(over="ignore"):
        p, kappa = head.beta * key, head.beta * row_norms(key)
    if not np.isfinite(kappa).all():
        raise BadParameter(f"β|Bᵀx| overflows at beta = {head.beta:g}; scale B or beta down.")
    if not (kappa > 0).all():
        raise BadParameter(f"Bᵀx + g vanishes for {int((kappa == 0).sum())} queries: they have no y*; leave them out.")
    zeroth = key / row_norms(key)[:, None]
    if not smooth:
        exact, exponent = mean_map_and_exponent(head, queries, sources=sources, weights=weights)
        return Laplace(kappa, exact, zeroth, None, exponent)
    shrink = 1 - (d - 1) / (2 * kappa)
    first = shrink[:, None] * zeroth + density.log_gradient(zeroth) / kappa[:, None]
    return Laplace(kappa, density.mean_map(p), zeroth, first, None)


@dataclass(frozen=True, eq=False, repr=False)
class Growth(Result):
    """|m_β[ρ_t](x) − y*(x)| over the tokens of a run at each of ``times`` (THEORY section 6).

    Attributes
    ----------
    times : ndarray
        The kept times of the run, (k,).
    typical : ndarray
        The root mean square over the tokens, (k,).
    largest : ndarray
        The maximum over the tokens, (k,).
    beta : float
        The inverse temperature of the head.
    regime : Regime
        The assumptions of the theory for this run.
    """

    times: Float[np.ndarray, "k"]
    typical: Float[np.ndarray, "k"]
    largest: Float[np.ndarray, "k"]
    beta: float
    regime: Regime

    @property
    def worst_case(self) -> float:
        """√(log(β+1)/β), which the flow approaches although a smooth start is at O(1/β)."""
        return float(np.sqrt(np.log1p(self.beta) / self.beta))

    def describe(self) -> str:
        """The error at the start and its largest value, beside the worst case."""
        peak = int(np.argmax(self.largest))
        later = f", and grows to {self.largest[peak]:.3g} at t = {self.times[peak]:.3g}" if peak else ", and never more"
        return f"|m − y*| is at most {self.largest[0]:.3g} at the start{later}; √(log(β+1)/β) = {self.worst_case:.3g}."


def laplace_growth(run: Trajectory) -> Growth:
    """The error of the Laplace principle along a run of one head; it grows because the flow sharpens ρ_t.

    Parameters
    ----------
    run : Trajectory
        A run of one layer with one head; it is replayed.

    Returns
    -------
    Growth
        The typical and the largest error at about 60 times.

    Raises
    ------
    BadParameter
        The run has several layers or several heads.

    Examples
    --------
    >>> from frostline import sample, simulate
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> growth = laplace_growth(simulate(head, sample.uniform(200, 2, seed=0), until=2.0))
    >>> bool(growth.largest.max() > growth.largest[0])
    True
    """
    one_run(run, "laplace_growth")
    if len(run.layers) > 1 or len(run.layers[0]) > 1:
        raise BadParameter("laplace_growth takes a run of one layer with one head.")
    head, mass = run.layers[0][0], shares(run)
    rows = []
    for node in evenly_spaced_nodes(run, POINTS):
        error = laplace(head, node.tokens, node.tokens, weights=run.weights).zeroth_error
        rows.append((node.time, float(np.sqrt((mass * error**2).sum())), float(error.max())))
    times, typical, largest = np.array(rows).T
    return Growth(times, typical, largest, head.beta, run.regime)
