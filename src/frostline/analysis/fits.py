"""fit: the constants of THEORY eq. 11 from measured curves over β and t, with confidence intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from frostline.arrays import Array, as_number, as_tensor, as_times
from frostline.errors import BadArray, BadParameter
from frostline.results import Result, plain_value
from frostline.theory.bounds import Bound

FEWEST_BETAS = 3
"""Different values of β that a fit needs."""
LEAST_RATIO = 10.0
"""The largest β must be at least this many times the smallest one."""
FEWEST_TIMES = 4
"""Times that a fit needs."""
NARROW = 0.5
"""Intervals narrower than this (half-width in the logarithm) come from the linear theory; wider ones are profiled."""
EXTREME = 15.0
"""Logarithmic range of the search: a constant e^15 times smaller or larger than the guess counts as 0 or infinite."""


class _Ends(NamedTuple):
    value: float
    low: float
    high: float


class Interval(Result, _Ends):
    """A fitted constant with its confidence interval: a tuple (value, low, high)."""

    def describe(self) -> str:
        """The value and the ends of its interval."""
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def facts(self) -> dict[str, Any]:
        """The three numbers by name."""
        return {name: plain_value(value) for name, value in self._asdict().items()}


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Result):
    """Constants of THEORY eq. 11 fitted to log W, with intervals of the stated ``confidence``.

    Attributes
    ----------
    M, C, c : Interval
        The constants, each with value, low and high.
    confidence : float
        The confidence of the intervals, 0.95 for 95 %.
    spread : float
        The standard deviation of log W around the fit: 0.05 is 5 %.
    r_squared : float
        The share of the variance of log W that (11) explains.
    correlation : float
        The correlation of neighbouring residuals in time: near 0 for noise, near 1 when (11) has the wrong shape.
    residuals : ndarray
        The residuals of log W, (betas, times).
    """

    M: Interval
    C: Interval
    c: Interval
    confidence: float
    spread: float
    r_squared: float
    correlation: float
    residuals: Float[np.ndarray, "b t"]

    @property
    def bound(self) -> Bound:
        """The fitted curve."""
        return Bound(self.M.value, self.C.value, self.c.value, origin="fitted")

    @property
    def ceiling(self) -> Bound:
        """The fitted curve with M raised until no measured point lies above it."""
        # Rounded up, so that the highest point does not lie above the curve by an ulp.
        raised = self.M.value * float(np.exp(max(0.0, float(self.residuals.max())))) * (1 + 1e-12)
        return Bound(raised, self.C.value, self.c.value, origin="fitted")

    @property
    def adequate(self) -> bool:
        """Whether the residuals look like noise; if not, (11) has the wrong shape and the intervals are too narrow.

        Three tests, each with one false "no" in 30,000: the correlation of neighbouring residuals (four standard
        deviations n^{−1/2}), the mean over all β at each time, and the mean over all times at each β. Residuals of the
        size of rounding are adequate.
        """
        if self.spread < 1e-9:
            return True
        count, noise = np.array(self.residuals.shape), self.spread**2
        tests = [(count[1 - axis] * (self.residuals.mean(1 - axis) ** 2).sum() / noise, count[axis]) for axis in (0, 1)]
        common = any(stats.chi2.sf(value, freedom) < 3e-5 for value, freedom in tests)
        return bool(abs(self.correlation) <= 4 / np.sqrt(self.residuals.size)) and not common

    def describe(self) -> str:
        """The constants with their intervals, the quality of the fit, and a warning where (11) has the wrong shape."""
        constants = (("M", self.M), ("C", self.C), ("c", self.c))
        numbers = ", ".join(f"{name} = {constant.describe()}" for name, constant in constants)
        words = f"Fitted ({100 * self.confidence:g} % intervals): {numbers}. R² = {self.r_squared:.3f}, spread "
        words += f"{100 * self.spread:.2g} %."
        if not self.adequate:
            words += (
                f" What is left is not noise (neighbours correlate by {self.correlation:.2f}): the curves do not have "
                "the shape of (11), and the intervals are too narrow."
            )
        return words


def fit(betas: Array, times: Array, distances: Array, *, confidence: float = 0.95) -> Fit:
    """Fit the constants of M(√(log(β+1)/β)·e^{Ct} + e^{−ct}) (THEORY eq. 11) to measured distances.

    It is a least-squares fit in log W. The intervals assume independent multiplicative noise of one size;
    ``correlation`` and ``adequate`` of the result say whether that holds.

    Parameters
    ----------
    betas : array (b,)
        At least three temperatures β over a factor of ten or more.
    times : array (k,)
        At least four ascending times.
    distances : array (b, k)
        Distances > 0, one row for each β.
    confidence : float
        Probability that an interval contains its constant, between 0 and 1.

    Returns
    -------
    Fit
        The constants with their intervals, and measures of how well (11) fits.

    Raises
    ------
    BadParameter
        The grid is too small, or an option is out of range.
    BadArray
        The shapes do not fit together, or a distance is not > 0.

    Examples
    --------
    >>> betas, times = np.array([10.0, 100.0, 1000.0]), np.linspace(0, 4, 9)
    >>> exact = Bound(1.0, 0.5, 1.0, origin="fitted")
    >>> fitted = fit(betas, times, [exact(times, beta) for beta in betas])
    >>> round(fitted.C.value, 6), fitted.adequate
    (0.5, True)
    """
    b, t, w = _checked(betas, times, distances)
    if not (0 < as_number(confidence, "confidence") < 1):
        raise BadParameter(f"confidence is {confidence}; it lies between 0 and 1.")
    target = np.log(w)
    amplitudes = 0.5 * np.log(np.log1p(b) / b)[:, None]

    def residuals(parameters: np.ndarray) -> np.ndarray:
        log_M, log_C, log_c = parameters
        return (log_M + np.logaddexp(amplitudes + np.exp(log_C) * t, -np.exp(log_c) * t) - target).ravel()

    solutions = (_minimise(residuals, start, free=(0,)) for start in _initial_guesses(t, target))
    best = min(solutions, key=lambda solution: solution.cost)
    free = target.size - 3
    variance = 2 * best.cost / free
    _, sizes, rows = np.linalg.svd(best.jac, full_matrices=False)
    widths = np.sqrt(variance * ((rows / np.maximum(sizes, 1e-150)[:, None]) ** 2).sum(0))
    reach = float(stats.t.ppf((1 + confidence) / 2, free)) * widths
    with np.errstate(over="ignore"):
        M, C, c = (Interval(*(float(np.exp(v)) for v in (m, m - r, m + r))) for m, r in zip(best.x, reach, strict=True))
    worst = best.cost * (1 + float(stats.f.ppf(confidence, 1, free)) / free)
    M, C, c = (
        constant if width < NARROW else Interval(constant.value, *_profile(residuals, best.x, index, worst))
        for index, (constant, width) in enumerate(zip((M, C, c), reach, strict=True))
    )
    misfit = -best.fun.reshape(target.shape)
    total = float(((target - target.mean()) ** 2).sum())
    return Fit(
        M,
        C,
        c,
        confidence=float(confidence),
        spread=float(np.sqrt(variance)),
        r_squared=1 - 2 * best.cost / total if total > 0 else 0.0,
        correlation=_correlation_in_time(misfit),
        residuals=misfit,
    )


def _initial_guesses(t: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """A few guesses on the scale of the time axis; the least cost wins."""
    scale = np.log(1 / (t[-1] or 1.0))
    level = float(target[:, 0].mean())
    return [np.array([level, scale + i, scale + j]) for i in (-1.0, 1.0) for j in (0.0, 1.5)]


def _minimise(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, *, free: tuple[int, ...] = ()
) -> optimize.OptimizeResult:
    """Least squares; each parameter stays within e^{±15} of its start, except the ``free`` ones (log M is linear)."""
    reach = np.full(len(start), EXTREME)
    reach[list(free)] = np.inf
    return optimize.least_squares(
        residuals, start, bounds=(start - reach, start + reach), x_scale="jac", ftol=1e-14, xtol=1e-14, gtol=1e-14
    )


def _profile(
    residuals: Callable[[np.ndarray], np.ndarray], best: np.ndarray, index: int, worst: float
) -> tuple[float, float]:
    """The interval of this constant in which the fit, with the others adapted, costs at most ``worst``."""
    others = np.delete(np.arange(3), index)

    def cost(fixed: float) -> float:
        def rest(two: np.ndarray) -> np.ndarray:
            three = np.empty(3)
            three[index], three[others] = fixed, two
            return residuals(three)

        return float(_minimise(rest, best[others], free=(0,) if index else ()).cost)

    ends = []
    for sign, beyond in ((-1.0, 0.0), (1.0, np.inf)):
        inside, outside = 0.0, EXTREME
        if cost(best[index] + sign * EXTREME) <= worst:
            ends.append(beyond)
            continue
        while outside - inside > 1e-3:
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if cost(best[index] + sign * middle) <= worst else (inside, middle)
        ends.append(float(np.exp(best[index] + sign * outside)))
    return ends[0], ends[1]


def _correlation_in_time(residuals: Float[np.ndarray, "b t"]) -> float:
    """Correlation of each residual with the next one in time."""
    centred = residuals - residuals.mean()
    total = float((centred**2).sum())
    size = residuals[:, 1:].size / residuals.size
    return float((centred[:, 1:] * centred[:, :-1]).sum() / (total * size)) if total > 0 else 0.0


def _checked(betas: Array, times: Array, distances: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays in float64; refused when they are too small for a fit."""
    b = as_tensor(betas, "betas")[0].cpu().double().numpy()
    t = as_times(times, "times")
    w = as_tensor(distances, "distances")[0].cpu().double().numpy()
    if b.ndim != 1 or w.shape != (len(b), len(t)):
        raise BadArray(f"distances has shape {w.shape}; {b.size} betas and {len(t)} times need ({b.size}, {len(t)}).")
    if not (b > 0).all():
        raise BadParameter(f"betas must be > 0; the least is {b.min():g}.")
    if len(np.unique(b)) < FEWEST_BETAS or not b.max() >= LEAST_RATIO * b.min():
        raise BadParameter(
            f"the grid of {len(np.unique(b))} betas from {b.min():g} to {b.max():g} is too small to fit (11): take at "
            f"least {FEWEST_BETAS}, over a factor of {LEAST_RATIO:g} or more."
        )
    if len(t) < FEWEST_TIMES:
        raise BadParameter(f"{len(t)} times are too few to fit (11); take at least {FEWEST_TIMES}.")
    if not (w > 0).all():
        row, column = np.argwhere(~(w > 0))[0]
        raise BadArray(
            f"{int((~(w > 0)).sum())} distances are not > 0, the first at beta = {b[row]:g}, t = {t[column]:g}; "
            "the fit is in log W: leave those times out."
        )
    return b, t, w
