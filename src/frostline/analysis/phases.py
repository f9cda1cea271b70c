"""phases: concentration, plateau and terminal phase of a run, from its distance to the limit over time.

Every criterion is a ratio on log W(t), so that neither the units of time nor those of W matter:

- *concentration*: W falls by a factor 1.5 or more, and by more than noise could;
- *plateau*: a stretch in which W stays within 25 % of its lowest value and changes at least eight times more slowly
  than it fell on the way there. A pure decay, exponential or like t^{−q} with q ≥ 1/4, does not slow down that much
  within 25 %; slower powers cannot be told from a plateau. Nor can a valley that rises slowly: that of THEORY eq. 11 is
  a plateau for C ≤ 0.25 c, and none for C ≥ 0.3 c;
- *terminal*: afterwards W rises by a factor 1.5 or more, and by more than noise could.

Boundaries are where the lines through the neighbouring stretches meet.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from frostline.analysis.distance import Curve, DistanceRecorder, number_or_none, step_curve
from frostline.arrays import Array, as_positive, as_tensor, as_times
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadArray, BadRun
from frostline.results import Result
from frostline.theory.regime import Regime

NAMES = ("concentration", "plateau", "terminal")
"""The phases of a run, in their order."""
FEWEST_TIMES = 12
"""Times that a curve needs."""
FACTOR = 1.5
"""Factor by which W must fall, or rise again, to count."""
BAND = 1.25
"""Within a plateau W is at most this factor above its lowest value."""
SLOWER = 8.0
"""On a plateau W changes at least this many times more slowly than it fell before."""
NOISES = 5.0
"""A change counts from this many standard deviations of the noise."""
FLOOR = 1e-10
"""Distances below this are rounding and count as zero (in float32: below 1e-6)."""


@dataclass(frozen=True, repr=False)
class Phase(Result):
    """One phase of a run, from ``begin`` to ``end``.

    Attributes
    ----------
    name : str
        "concentration", "plateau" or "terminal".
    begin, end : float
        The times of its begin and its end.
    open : bool
        Whether the run ended before the phase did.
    evidence : str
        The measured numbers that show the phase, in words.
    """

    name: str
    begin: float
    end: float
    open: bool
    evidence: str

    def describe(self) -> str:
        """The name, the times and the evidence."""
        return f"{self.name}, t = {self.begin:.4g} to {self.end:.4g}; {self.evidence}"


@dataclass(frozen=True, eq=False, repr=False)
class Phases(Result):
    """The phases of a run; one that was not seen is None, and ``none_seen`` gives the reason.

    Off-cluster tokens and imbalance are two different effects of finite n.

    Attributes
    ----------
    concentration, plateau, terminal : Phase or None
        The phases; None for one that was not seen.
    none_seen : dict
        The reason for each phase that was not seen, by its name.
    smallest, smallest_at : float
        The smallest distance, and its time.
    noise : float
        The standard deviation of the noise of log W.
    off_cluster, off_mass : int and float, or None
        The number and the mass of the tokens more than 0.3 rad from the limit at that time; None when not measured.
    imbalance : float or None
        The net mass at the wrong one of two points at that time; None when not measured.
    curve : Curve or None
        The distance over time.
    regime : Regime or None
        The assumptions of the theory for this run.
    """

    concentration: Phase | None
    plateau: Phase | None
    terminal: Phase | None
    none_seen: dict[str, str]
    smallest: float
    smallest_at: float
    noise: float
    off_cluster: int | None
    off_mass: float | None
    imbalance: float | None
    curve: Curve | None
    regime: Regime | None

    def describe(self) -> str:
        """The phases in words, a line for each."""
        lines = []
        for name in NAMES:
            phase: Phase | None = getattr(self, name)
            if phase is None:
                lines.append(f"{name.capitalize()}: none seen; {self.none_seen[name]}")
            else:
                until = f"{phase.end:.3g}" + (" (the end of the run)" if phase.open else "")
                lines.append(f"{name.capitalize()}: t = {phase.begin:.3g} to {until}; {phase.evidence}")
        if self.off_cluster is not None:
            wrong = "" if self.imbalance is None else f", net mass at the wrong point {self.imbalance:.3g}"
            lines.append(
                f"At the smallest distance ({self.smallest:.3g}, t = {self.smallest_at:.3g}): "
                f"{self.off_cluster} tokens off-cluster{wrong}."
            )
        return "\n".join(lines)

    def facts(self) -> dict[str, Any]:
        """The phases as the summary of a run directory stores them."""
        seen: dict[str, Phase | None] = {name: getattr(self, name) for name in NAMES}
        return {
            name: {"seen": False, "evidence": self.none_seen[name]}
            if phase is None
            else {"seen": True, "begin": phase.begin, "end": phase.end, "open": phase.open, "evidence": phase.evidence}
            for name, phase in seen.items()
        } | {"meaning": self.describe()}


def phases(run: Trajectory, *, p: float = 2.0) -> Phases:
    """The phases of a run, which is replayed for its distance to the limit over time (THEORY section 8).

    Parameters
    ----------
    run : Trajectory
        A run of one layer with tokens (n, d) and at least 12 steps.
    p : float
        Order of the distance W_p.

    Returns
    -------
    Phases
        The phases with their evidence, and the curve they were read from.

    Raises
    ------
    BadParameter
        The run is a stack of layers.
    BadRun
        The run has too few steps, or kept only its start.
    NoLimit
        The tokens have no limit.

    Examples
    --------
    >>> from frostline import Attention, sample, simulate
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=30.0)
    >>> seen = phases(simulate(head, sample.uniform(300, 2, seed=0), until=30.0))
    >>> seen.plateau is not None, seen.terminal is None
    (True, True)
    """
    curve = step_curve(run, p=p, verb="phases")
    if len(curve.times) < FEWEST_TIMES:
        raise BadRun(
            f"phases need at least {FEWEST_TIMES} steps, this run has {len(curve.times) - 1}; take a smaller step."
        )
    single = "float32" in str(run.tokens.dtype)
    best = int(np.argmin(curve.distance))
    return replace(
        phases_of_curve(curve.times, curve.distance, floor=1e-6 if single else FLOOR),
        off_cluster=int(curve.off_cluster[best]),
        off_mass=float(curve.off_mass[best]),
        imbalance=number_or_none(float(curve.imbalance[best])),
        curve=curve,
        regime=run.regime,
    )


def phases_of_curve(times: Array, distance: Array, *, floor: float = FLOOR) -> Phases:
    """The phases of any curve W(t): at least twelve times, W ≥ 0. Below ``floor`` W counts as zero."""
    t = as_times(times, "times")
    w = as_tensor(distance, "distance")[0].cpu().double().numpy()
    if w.shape != t.shape or len(t) < FEWEST_TIMES or not (w >= 0).all():
        raise BadArray(
            f"a curve of at least {FEWEST_TIMES} times and as many distances ≥ 0 is needed; got {len(t)} times and "
            f"distances of shape {w.shape}."
        )
    return _Reading(t, np.log(np.maximum(w, as_positive(floor, "floor"))), float(np.log(floor))).phases(w)


def phases_of_recording(recorder: DistanceRecorder) -> Phases | None:
    """The phases of a recorded distance; None while it has too few points."""
    if len(recorder.points) < FEWEST_TIMES:
        return None
    times, distances = np.array(recorder.points).T
    return phases_of_curve(times, distances)


class _Reading:
    """log W over t, smoothed as far as its noise requires, with the criteria of each phase."""

    def __init__(self, t: Float[np.ndarray, "k"], y: Float[np.ndarray, "k"], floor: float):
        # Medians are a quarter noisier than means.
        local = 1.25 * _noise(t, y)
        # A running median removes single outliers.
        y = ndimage.median_filter(y, 3 if len(t) < 60 else 5, mode="mirror")
        self.t, self.raw, self.floor = t, y, floor
        self.noise = float(local.max())
        # Enough points in a mean for its noise to be a quarter of the band; no more than a tenth of the curve.
        width = int(np.ceil((self.noise / (0.25 * np.log(BAND))) ** 2))
        self.y, counts = _running_mean(y, int(np.clip(width, 1, max(1, len(t) // 10))))
        self.errors = local / np.sqrt(counts)
        self.low = int(np.argmin(self.y))

    def phases(self, w: np.ndarray) -> Phases:
        """The phases of the curve, whose distances before smoothing are ``w``."""
        start = int(np.argmax(self.y[: self.low + 1]))
        fall, needed = float(self.y[start] - self.y[self.low]), self._needed(start)
        concentration = plateau = terminal = None
        if not fall >= needed:
            rise = float(np.exp(self.y[self.low :].max() - self.y[self.low]))
            reasons = {
                "concentration": f"W falls by a factor {np.exp(fall):.3g} only ({np.exp(needed):.3g} is needed).",
                "plateau": "there was no concentration before it.",
                "terminal": f"W rises by a factor {rise:.3g} in the end, but there was no concentration before it.",
            }
        else:
            flat, no_plateau = self._flat(start)
            terminal, no_terminal = self._rise(flat)
            concentration = Phase(
                "concentration",
                float(self.t[start]),
                flat[0] if flat is not None else float(self.t[self.low]),
                flat is None and self.low == len(self.t) - 1,
                f"W falls from {np.exp(self.y[start]):.3g} to {np.exp(self.y[self.low]):.3g}.",
            )
            if flat is not None:
                begin, end, slower = flat
                plateau = Phase(
                    "plateau",
                    begin,
                    end,
                    terminal is None and bool(end >= self.t[-1]),
                    f"W stays within 25 % of {np.exp(self.y[self.low]):.3g} for {end - begin:.3g}, at least "
                    f"{slower:.2g} times more slowly than it fell.",
                )
            reasons = {name: why for name, why in (("terminal", no_terminal), ("plateau", no_plateau)) if why}
        return Phases(
            concentration,
            plateau,
            terminal,
            reasons,
            smallest=float(w.min()),
            smallest_at=float(self.t[int(np.argmin(w))]),
            noise=self.noise,
            off_cluster=None,
            off_mass=None,
            imbalance=None,
            curve=None,
            regime=None,
        )

    def _needed(self, other: int) -> float:
        """The difference of log W between its lowest point and another one that counts as a change."""
        return max(float(np.log(FACTOR)), NOISES * float(np.hypot(self.errors[self.low], self.errors[other])))

    def _flat(self, start: int) -> tuple[tuple[float, float, float] | None, str]:
        """Begin and end of the plateau, and how many times slower W changes in it than before; or why there is none."""
        band = float(np.log(BAND) + 2 * np.median(self.errors))
        inside = self.y <= self.y[self.low] + band
        first = self.low - int(np.argmin(inside[self.low :: -1])) + 1 if not inside[: self.low + 1].all() else 0
        after = inside[self.low :]
        last = self.low + (len(after) if after.all() else int(np.argmin(after))) - 1
        # The fall just before: by a factor e, or the whole fall where that is less.
        top = min(self.y[first] + 1.0, self.y[start])
        before = np.flatnonzero(self.y[start : first + 1] >= top)
        above = start + int(before[-1]) if len(before) else start
        falling, flat = self.t[first] - self.t[above], self.t[last] - self.t[first]
        if self.y[self.low] <= self.floor + np.log(BAND):
            return None, f"W has fallen below {np.exp(self.floor):.1g}, where it is rounding."
        if first - above < 1 or last - first < 3:
            return None, "too few times before or at the lowest distance to tell; take smaller steps."
        speed = (self.y[above] - self.y[first]) / falling
        # A band that noise has widened also contains more of a decay, so more is required.
        slow = band**2 / np.log(BAND) / flat if flat > 0 else np.inf
        if not speed >= SLOWER * slow:
            if last == len(self.t) - 1:
                return None, (
                    f"W is within 25 % of its lowest value for the last {flat:.3g} of the run; to count as a plateau, "
                    f"not a slow decay, that would have to be {SLOWER * slow * flat / speed:.3g}."
                )
            return None, (
                f"near its lowest value W changes by 25 % within {flat:.3g}; it fell only {speed / slow:.2g} times "
                f"faster before ({SLOWER:g} is asked for)."
            )
        level = float(np.median(self.raw[first : last + 1]))
        begin = self._meeting(above, first, level, default=self.t[first])
        end, top_after = float(self.t[last]), last
        if last < len(self.t) - 1:
            beyond = np.flatnonzero(self.y[last:] >= self.y[last] + 1.0)
            top_after = last + int(beyond[0]) if len(beyond) else len(self.t) - 1
            end = self._meeting(last, top_after, level, default=self.t[last])
        begin = float(np.clip(begin, self.t[above], self.t[last]))
        end = float(np.clip(end, max(begin, self.t[self.low]), self.t[top_after]))
        return (begin, end, float(speed / slow)), ""

    def _meeting(self, first: int, last: int, level: float, default: float) -> float:
        """Where the line through this stretch meets the level of the plateau."""
        if last - first < 2:
            return float(default)
        slope, offset = np.polyfit(self.t[first : last + 1], self.raw[first : last + 1], 1)
        return float((level - offset) / slope) if slope != 0 else float(default)

    def _rise(self, flat: tuple[float, float, float] | None) -> tuple[Phase | None, str]:
        """The terminal phase, or the reason why there is none."""
        peak = self.low + int(np.argmax(self.y[self.low :]))
        rise, needed = float(self.y[peak] - self.y[self.low]), self._needed(peak)
        if not rise >= needed:
            return None, (
                f"after its lowest value W rises by a factor {np.exp(rise):.3g} only ({np.exp(needed):.3g} is needed)."
            )
        begin = flat[1] if flat is not None else float(self.t[self.low])
        # Settled again once W has come within 25 % of where it ends up.
        leaving = max(self.low, int(np.searchsorted(self.t, begin)))
        there = np.flatnonzero(self.y[leaving:] >= self.y[peak] - np.log(BAND))
        settled = leaving + int(there[0]) if len(there) else len(self.t) - 1
        return Phase(
            "terminal",
            begin,
            float(self.t[settled]),
            settled >= len(self.t) - 2,
            f"W rises from {np.exp(self.y[self.low]):.3g} to {np.exp(self.y[peak]):.3g}.",
        ), ""


def _noise(t: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "k"]:
    """Standard deviation of the noise around each point: its distance from the line through its neighbours.

    Robust (from medians); the larger of the estimates from all points and from those nearby.
    """
    before, after = t[1:-1] - t[:-2], t[2:] - t[1:-1]
    share = after / (before + after)
    off = np.abs(y[1:-1] - share * y[:-2] - (1 - share) * y[2:])
    off = 1.4826 * np.pad(off / np.sqrt(1 + share**2 + (1 - share) ** 2), 1, mode="edge")
    nearby = ndimage.median_filter(off, max(11, len(t) // 10), mode="mirror")
    return np.maximum(np.median(off), nearby)


def _running_mean(y: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean over about ``width`` neighbours, as many left as right (so fewer at the ends), and their number."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    k = np.arange(len(y))
    reach = np.minimum(width // 2, np.minimum(k, len(y) - 1 - k))
    return (sums[k + reach + 1] - sums[k - reach]) / (2 * reach + 1), 2 * reach + 1
