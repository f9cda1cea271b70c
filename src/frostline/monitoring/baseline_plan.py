"""Plans of baselines: what p-values and the alarm of a baseline of so many texts can promise, before it is made.

Calibration texts are a sample, so that two baselines of the same source differ. Everything is said with its spread over
baselines; averages over baselines would promise too much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaincinv

from frostline.errors import BadParameter
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.baseline import Baseline, count_calibration_texts
from frostline.monitoring.calibration import group_sizes
from frostline.monitoring.detection_delay import shortest_delay
from frostline.monitoring.reference_texts import FEWEST, MOST
from frostline.results import Result

SIZES = (500, 1000, 2000, 3000, 5000, 10_000, 20_000)
"""Numbers of texts that are planned for if none are given."""
SHARES = (1.0, 0.1, 0.02)
"""Shares of strange texts in a stream for which the delay of the alarm is said."""
SEPARATION = 0.97
"""Chance that a strange text has a higher score than a normal one, for the delays."""
RUNS = 200
"""Number of simulated streams of which the delay is the median."""
LONGEST_DELAY = 20_000
"""Number of texts after which a share of strange texts counts as not noticed."""
TEXTS_OF_BOUND = 5000
"""Number of p-values of strange texts, evenly spaced quantiles, from which the bound of the delay is computed."""
OF_BASELINES = (0.05, 0.5, 0.95)
"""Quantiles over baselines of the false-alarm rate of single texts."""
BINS = 4000
"""Number of bins in which the rate of a group is added to those of other groups."""


@dataclass(frozen=True, repr=False)
class PlannedBaseline(Result):
    """Promises of one baseline.

    Parameters
    ----------
    texts
        Number of different texts that the baseline is made of.
    calibrated_by
        Number of calibration texts in every group of similar length.
    smallest
        The smallest p-value that every group can give.
    flagged
        Share of normal texts with p-values up to alpha: the quantiles of 5, 50 and 95 % of all such baselines. None
        where alpha is smaller than the smallest p-value.
    delays
        Texts after which the alarm has rung in half of all streams, by the share of strange texts in them; None where
        it takes more than ``LONGEST_DELAY``. Empty where the alarm is refused.
    bounds
        The likelihood-ratio bounds of these delays, for an alarm that knows the distribution of normal p-values.
    refused
        The reason why such a baseline cannot keep the alarm; empty if it can.
    """

    texts: int
    calibrated_by: tuple[int, ...]
    smallest: float
    flagged: tuple[float, float, float] | None
    delays: Mapping[float, int | None]
    bounds: Mapping[float, float]
    refused: str = ""

    def describe(self) -> str:
        """The numbers in one sentence."""
        flagged = "none" if self.flagged is None else "{:.2%} to {:.2%}".format(*self.flagged[::2])
        delays = ", ".join(f"{share:.0%} strange after {_delay(self, share)}" for share in self.delays)
        return (
            f"{self.texts:,} texts: p-values down to {self.smallest:.2g}; normal texts that count as strange: {flagged}"
            f"; alarm: {self.refused or delays}"
        )


@dataclass(frozen=True, repr=False)
class BaselinePlan(Result):
    """Promises of baselines of several sizes.

    Parameters
    ----------
    alpha
        P-value up to which a single text counts as strange.
    every
        Number of normal texts with one false alarm of the stream.
    baselines
        One plan for every size.
    missing
        What the wanted alpha and the wanted alarm need beyond the smallest of the sizes, in sentences.

    Examples
    --------
    >>> from frostline.monitoring.baseline_plan import plan_baselines
    >>> plan_baselines([500, 5000], alpha=0.002, every=1e5).baselines[0].flagged is None
    True
    """

    alpha: float
    every: float
    baselines: tuple[PlannedBaseline, ...]
    missing: tuple[str, ...] = ()

    def headline(self) -> str:
        """The sizes, and what is wanted of them."""
        sizes = ", ".join(f"{planned.texts:,}" for planned in self.baselines)
        return f"{sizes} texts, alpha={self.alpha:g}, one false alarm in {self.every:,.0f} texts"

    def describe(self) -> str:
        """A table with a line for every size, the meaning of its columns, and what is missing."""
        alpha = f"p ≤ {self.alpha:g}"
        heads = ["texts", "calibrate", "least p", alpha, *(f"{share:.0%}" for share in SHARES)]
        rows = [heads, *(_cells(planned) for planned in self.baselines)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
        table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        notes = [
            "calibrate: two fifths of the texts, in groups of similar length.",
            f"{alpha}: share of normal texts that count as strange; 5 % of such baselines lie below, 5 % above.",
            f"{', '.join(heads[4:])}: texts until the alarm rings in half of all streams with such a share of strange "
            f"texts, where one of them looks stranger than a normal text with a chance of {SEPARATION:.0%}; in "
            "brackets the likelihood-ratio bound, for which the distribution of normal p-values is known. Nine "
            f"of ten baselines ring falsely at most once in {self.every:,.0f} normal texts.",
        ]
        return "\n".join([*table, *notes, *self.missing])


def plan_baselines(sizes: Sequence[int] = SIZES, *, alpha: float = 0.01, every: float = 1e5) -> BaselinePlan:
    """Plan baselines of these numbers of texts; no model and no text is needed.

    Parameters
    ----------
    sizes
        Numbers of different texts.
    alpha
        P-value up to which a single text counts as strange.
    every
        Number of normal texts in which one false alarm of the stream is allowed.

    Returns
    -------
    BaselinePlan
        The promises of every size, and what the smallest of them lacks.

    Raises
    ------
    BadParameter
        A size is none of a baseline, alpha is no probability, or the alarm is out of range.
    """
    for size in sizes:
        if not FEWEST <= size <= MOST:
            raise BadParameter(f"a baseline of {size:,} texts; it is made of {FEWEST} to {MOST:,} different texts.")
    rows = [_plan(size, group_sizes(count_calibration_texts(size)), alpha, every) for size in sizes]
    return _with_missing(rows, alpha, every)


def plan_baseline(base: Baseline, *, alpha: float = 0.01, every: float = 1e5) -> BaselinePlan:
    """Plan with a baseline that is there, whose groups may differ from those of its number of texts.

    Raises
    ------
    BadParameter
        Alpha is no probability, or the alarm is out of range.
    """
    counts = tuple(base.judges["full"].conformal.counts.tolist())
    return _with_missing([_plan(base.about["texts"], counts, alpha, every)], alpha, every)


def spread_of_rates(counts: Sequence[int], alpha: float) -> tuple[float, float, float]:
    """Quantiles over baselines of the share of normal texts with p ≤ α.

    In a group of m calibration texts this share is the k-th of m uniform numbers, k = ⌊α(m + 1)⌋: it has the density of
    Beta(k, m + 1 − k). Groups are independent, and texts fall into them as calibration texts do.
    """
    total, rates = sum(counts), np.ones(1)
    groups = [(int(alpha * (count + 1) + 1e-9), count) for count in counts]
    groups = [(rank, count) for rank, count in groups if rank > 0]
    if not groups:
        return 0.0, 0.0, 0.0
    if alpha >= 1:
        return 1.0, 1.0, 1.0
    largest = max(betaincinv(rank, count + 1 - rank, 1 - 1e-9) * count / total for rank, count in groups)
    edges = np.linspace(0, largest, BINS + 1)
    for rank, count in groups:
        below = betainc(rank, count + 1 - rank, np.minimum(edges * total / count, 1.0))
        rates = np.convolve(rates, np.diff(below))
    # A sum of numbers from several bins lies half a bin higher for each of them.
    middles = (np.arange(len(rates)) + len(groups) / 2) * largest / BINS
    low, middle, high = np.interp(np.array(OF_BASELINES) * rates.sum(), np.cumsum(rates) - rates / 2, middles).tolist()
    return low, middle, high


def _plan(texts: int, counts: tuple[int, ...], alpha: float, every: float) -> PlannedBaseline:
    if not 0 < alpha <= 1:
        raise BadParameter(f"alpha is {alpha:g}; texts with p-values up to it are strange: between 0 and 1.")
    # An alarm that no baseline can keep is refused at once.
    Alarm.once_in(every)
    smallest = 1 / (1 + min(counts))
    flagged = spread_of_rates(counts, alpha) if alpha >= smallest else None
    try:
        alarm = Alarm.once_in(every, calibrated_by=counts)
    except BadParameter as error:
        return PlannedBaseline(texts, counts, smallest, flagged, {}, {}, str(error))
    delays = {share: _median_delay(alarm, counts, share) for share in SHARES}
    strange = ((np.arange(TEXTS_OF_BOUND) + 0.5) / TEXTS_OF_BOUND) ** (SEPARATION / (1 - SEPARATION))
    strange = np.ceil(strange / smallest) * smallest  # p-values are ranks
    bounds = {share: shortest_delay(every, share, strange, counts=counts) for share in SHARES}
    return PlannedBaseline(texts, counts, smallest, flagged, delays, bounds)


def _median_delay(alarm: Alarm, counts: Sequence[int], share: float) -> int | None:
    """Texts until half of the streams have rung, from the first of these texts on; None if it takes too many."""
    rng = np.random.default_rng([27, round(1000 * share)])
    sizes = np.array(counts)
    states, rang = np.tile(alarm.quiet, (RUNS, 1)), np.zeros(RUNS, bool)
    for number in range(1, LONGEST_DELAY + 1):
        p = _ranks(rng, sizes[rng.choice(len(sizes), RUNS, p=sizes / sizes.sum())], share)
        states = alarm.step(states, p)
        rang |= alarm.level(states) >= alarm.threshold
        if 2 * rang.sum() >= RUNS:
            return number
    return None


def _ranks(rng: np.random.Generator, counts: np.ndarray, share: float) -> Float[np.ndarray, " n"]:
    """P-values of texts of which some are strange: uniform, or with density a·p^(a−1) and mean a/(a + 1)."""
    p = rng.random(len(counts))
    p = np.where(rng.random(len(counts)) < share, p ** (SEPARATION / (1 - SEPARATION)), p)
    return np.asarray(np.maximum(np.ceil(p * (counts + 1)), 1) / (counts + 1))


def _with_missing(rows: Sequence[PlannedBaseline], alpha: float, every: float) -> BaselinePlan:
    """The plan, with the smallest sizes that do what the smallest of the given ones does not."""
    least = min(rows, key=lambda planned: planned.texts)
    lacks = {
        f"an alpha of {alpha:g}": lambda planned: planned.flagged is None,
        f"one false alarm in {every:,.0f} texts": lambda planned: bool(planned.refused),
    } | {
        f"{share:.0%} strange texts to be noticed": lambda planned, share=share: planned.delays.get(share) is None
        for share in SHARES
    }
    larger = [size for size in SIZES if size > least.texts]
    known = {planned.texts: planned for planned in rows}
    missing = []
    for wanted, lack in lacks.items():
        if not lack(least):
            continue
        for size in larger:
            if size not in known:
                known[size] = _plan(size, group_sizes(count_calibration_texts(size)), alpha, every)
        enough = next((size for size in larger if not lack(known[size])), None)
        needs = f"takes about {enough:,} texts" if enough else f"takes more than {MOST:,} texts, which no baseline has"
        missing.append(f"Missing with {least.texts:,} texts: {wanted} {needs}.")
    return BaselinePlan(alpha, float(every), tuple(rows), tuple(missing))


def _cells(planned: PlannedBaseline) -> list[str]:
    groups, flagged = planned.calibrated_by, planned.flagged
    return [
        f"{planned.texts:,}",
        f"{len(groups)} × {min(groups)}" if max(groups) - min(groups) <= 1 else " + ".join(map(str, groups)),
        f"{planned.smallest:.2g}",
        "never" if flagged is None else f"{flagged[0]:.2%} to {flagged[2]:.2%}",
        *(_delay(planned, share) if planned.delays else "refused" for share in SHARES),
    ]


def _delay(planned: PlannedBaseline, share: float) -> str:
    """The delay, with its bound in brackets."""
    texts = planned.delays[share]
    return f"{'not noticed' if texts is None else f'{texts:,}'} ({planned.bounds[share]:,.0f})"
