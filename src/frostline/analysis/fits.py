"""fit: the constants of THEORY eq. 11 from measured curves over β and t, with confidence intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from frostline.arrays import Array, as_number, as_tensor, as_times
from frostline.errors import BadArray, BadParameter
from frostline.printable import one_line
from frostline.theory.bounds import Bound

FEWEST_BETAS, WIDEST_RATIO, FEWEST_TIMES = 3, 10.0, 4
NARROW = 0.5
"""Intervals narrower than this (half-width in the logarithm) come from the linear theory; wider ones are profiled."""
EXTREME = 15.0
"""A constant e^15 times smaller or larger than the guess is zero or infinite for every purpose."""


class Interval(NamedTuple):
    """A fitted constant with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Fit:
    """Constants fitted to log W, with intervals of the stated ``confidence``.

    M, C, c       (value, low, high) each
    spread        standard deviation of log W around the fit: 0.05 is 5 %
    r_squared     share of the variance of log W that (11) explains
    correlation   of neighbouring residuals in time: near 0 for noise, near 1 when (11) has the wrong shape
    residuals     (betas, times) of log W
    bound         the fitted curve; ``ceiling`` the same with M raised so that no measured point lies above it
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
        return Bound(self.M.value, self.C.value, self.c.value, origin="fitted")

    @property
    def ceiling(self) -> Bound:
        # A rounding above: the point that touches must not lie above by an ulp.
        raised = self.M.value * float(np.exp(max(0.0, float(self.residuals.max())))) * (1 + 1e-12)
        return Bound(raised, self.C.value, self.c.value, origin="fitted")

    @property
    def adequate(self) -> bool:
        """Whether what is left looks like noise; if not, (11) has the wrong shape and the intervals are too narrow.

        Three questions, each with one false "no" in 30,000: are neighbouring residuals correlated (four standard
        deviations n^{−1/2}), do the residuals of all β at one time agree, do those of all times at one β? Residuals of
        the size of rounding are adequate.
        """
        if self.spread < 1e-9:
            return True
        count, noise = np.array(self.residuals.shape), self.spread**2
        tests = [(count[1 - axis] * (self.residuals.mean(1 - axis) ** 2).sum() / noise, count[axis]) for axis in (0, 1)]
        common = any(stats.chi2.sf(value, freedom) < 3e-5 for value, freedom in tests)
        return bool(abs(self.correlation) <= 4 / np.sqrt(self.residuals.size)) and not common

    def describe(self) -> str:
        """The result in words."""
        numbers = ", ".join(
            f"{name} = {found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"
            for name, found in (("M", self.M), ("C", self.C), ("c", self.c))
        )
        words = f"Fitted ({100 * self.confidence:g} % intervals): {numbers}. R² = {self.r_squared:.3f}, spread "
        words += f"{100 * self.spread:.2g} %."
        if not self.adequate:
            words += (
                f" What is left is not noise (neighbours correlate by {self.correlation:.2f}): the curves do not have "
                "the shape of (11), and the intervals are too narrow."
            )
        return words

    def __repr__(self) -> str:
        return one_line(self, self.describe())


def fit(betas: Array, times: Array, distances: Array, *, confidence: float = 0.95) -> Fit:
    """Fit M, C, c of eq. 11 to distances (b, k), one row per β, one column per time, by least squares in log W.

    The intervals assume independent multiplicative noise of one size; ``correlation`` and ``adequate`` say whether that
    is so. At least three β over a factor of ten and four times are needed.
    """
    b, t, w = _checked(betas, times, distances)
    if not (0 < as_number(confidence, "confidence") < 1):
        raise BadParameter(f"confidence is {confidence}; it lies between 0 and 1.")
    target = np.log(w)
    amplitudes = 0.5 * np.log(np.log1p(b) / b)[:, None]

    def residuals(parameters: np.ndarray) -> np.ndarray:
        log_M, log_C, log_c = parameters
        return (log_M + np.logaddexp(amplitudes + np.exp(log_C) * t, -np.exp(log_c) * t) - target).ravel()

    best = min((_solved(residuals, start, free=(0,)) for start in _starts(b, t, target)), key=lambda found: found.cost)
    free = target.size - 3
    variance = 2 * best.cost / free
    _, sizes, rows = np.linalg.svd(best.jac, full_matrices=False)
    widths = np.sqrt(variance * ((rows / np.maximum(sizes, 1e-150)[:, None]) ** 2).sum(0))
    reach = float(stats.t.ppf((1 + confidence) / 2, free)) * widths
    with np.errstate(over="ignore"):
        M, C, c = (Interval(*(float(np.exp(v)) for v in (m, m - r, m + r))) for m, r in zip(best.x, reach, strict=True))
    worst = best.cost * (1 + float(stats.f.ppf(confidence, 1, free)) / free)
    M, C, c = (
        found if wide < NARROW else Interval(found.value, *_profiled(residuals, best.x, index, worst))
        for index, (found, wide) in enumerate(zip((M, C, c), reach, strict=True))
    )
    left = -best.fun.reshape(target.shape)
    total = float(((target - target.mean()) ** 2).sum())
    return Fit(
        M,
        C,
        c,
        confidence=float(confidence),
        spread=float(np.sqrt(variance)),
        r_squared=1 - 2 * best.cost / total if total > 0 else 0.0,
        correlation=_neighbours(left),
        residuals=left,
    )


def _starts(b: np.ndarray, t: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """A few guesses on the scale of the time axis; the least cost wins."""
    scale = np.log(1 / (t[-1] or 1.0))
    level = float(target[:, 0].mean())
    return [np.array([level, scale + i, scale + j]) for i in (-1.0, 1.0) for j in (0.0, 1.5)]


def _solved(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, *, free: tuple[int, ...] = ()
) -> optimize.OptimizeResult:
    """Least squares, each parameter within e^{±15} of its start but the ``free`` ones (log M, which is linear)."""
    reach = np.full(len(start), EXTREME)
    reach[list(free)] = np.inf
    return optimize.least_squares(
        residuals, start, bounds=(start - reach, start + reach), x_scale="jac", ftol=1e-14, xtol=1e-14, gtol=1e-14
    )


def _profiled(
    residuals: Callable[[np.ndarray], np.ndarray], best: np.ndarray, index: int, worst: float
) -> tuple[float, float]:
    """How far this constant can go, the others following, before the fit becomes worse than ``worst``."""
    others = np.delete(np.arange(3), index)

    def cost(fixed: float) -> float:
        def rest(two: np.ndarray) -> np.ndarray:
            three = np.empty(3)
            three[index], three[others] = fixed, two
            return residuals(three)

        return float(_solved(rest, best[others], free=(0,) if index else ()).cost)

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


def _neighbours(residuals: Float[np.ndarray, "b t"]) -> float:
    """Correlation of each residual with the next one in time."""
    centred = residuals - residuals.mean()
    total = float((centred**2).sum())
    size = residuals[:, 1:].size / residuals.size
    return float((centred[:, 1:] * centred[:, :-1]).sum() / (total * size)) if total > 0 else 0.0


def _checked(betas: Array, times: Array, distances: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    b = as_tensor(betas, "betas")[0].cpu().double().numpy()
    t = as_times(times, "times")
    w = as_tensor(distances, "distances")[0].cpu().double().numpy()
    if b.ndim != 1 or w.shape != (len(b), len(t)):
        raise BadArray(f"distances has shape {w.shape}; {b.size} betas and {len(t)} times need ({b.size}, {len(t)}).")
    if not (b > 0).all():
        raise BadParameter(f"betas must be > 0; the least is {b.min():g}.")
    if len(np.unique(b)) < FEWEST_BETAS or not b.max() >= WIDEST_RATIO * b.min():
        raise BadParameter(
            f"the grid of {len(np.unique(b))} betas from {b.min():g} to {b.max():g} is too small to fit (11): take at "
            f"least {FEWEST_BETAS}, over a factor of {WIDEST_RATIO:g} or more."
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
