"""The alarm over a stream of texts: bets on p-values, added up, and a threshold that false alarms rarely reach.

A bet is a function of a p-value whose mean over normal texts is at most 1. For each bet the statistic of Shiryaev and
Roberts, R ← (R + 1)·bet(p), sums over all texts at which a shift may have begun. As the mean of R grows by at most 1
with every normal text, the weighted mean of all R reaches N once in N normal texts at most, whatever N is.

Calibration texts are a sample, so p-values of a real baseline are not quite uniform: over thousands of texts a bet that
is fair on average over baselines wins against some of them. Every bet is therefore divided by the mean that it stays
below for nine of ten baselines with so many calibration texts, whichever group of lengths the texts come from: the
promise holds for a baseline, not for their average, and also when texts are longer at weekends.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.errors import BadParameter
from frostline.results import Result

FALSE_ALARM_EVERY = "30d"
"""Time between two false alarms, if nothing else is asked for."""
RATE = 10.0
"""Texts per second at which that time is promised, if nothing else is said."""
SHORTEST_RUN = 10.0
"""Smallest number of texts per false alarm that an alarm can be set to."""
LONGEST_RUN = 1e8
"""Largest number of texts per false alarm that can be promised."""
LONGEST_HALF = 2 * LONGEST_RUN
"""Largest number that an alarm can be set to: one of two that share a promise keeps twice as long."""
SHARES = np.array([1.0, 0.25, 0.06, 0.015])
"""Shares of strange texts in the stream, one for each bet."""
FINEST = 1e-4
"""Least p-value of an alarm that is not told how many calibration texts there are."""
KEPT_BY = 0.9
"""Share of baselines with so many calibration texts that keep the promise."""
BASELINES = 2000
"""Number of baselines that are drawn to find how far their p-values are from uniform."""
SLOWEST = 50
"""Texts after which a stream of nothing but the strangest texts has to ring, or the alarm is refused."""
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
"""Seconds of the units in which a time between false alarms can be given."""


@dataclass(frozen=True, eq=False, repr=False)
class Alarm(Result):
    """An alarm for a stream of texts: it rings when the evidence since the last quiet moment reaches a threshold.

    Parameters
    ----------
    every
        Number of normal texts in which there is one false alarm at most.
    threshold
        Evidence at which the alarm rings, in nats.
    least
        The least p-value that is told from smaller ones.
    costs
        Logarithm of the mean that each bet may have over normal texts, taken off its gains.

    Examples
    --------
    >>> import numpy as np
    >>> from frostline.monitoring.alarm import Alarm
    >>> alarm = Alarm.once_in(1000)
    >>> levels, rang, state = alarm.after(alarm.quiet, np.array([0.5, 0.9, 0.001, 0.001, 0.001]))
    >>> rang
    [3]
    """

    every: float
    threshold: float
    least: float
    costs: Float[np.ndarray, " bets"]

    def headline(self) -> str:
        """The two numbers."""
        return f"every={self.every!r}, threshold={self.threshold!r}"

    def describe(self) -> str:
        """How often the alarm rings falsely, and at which evidence."""
        return f"rings falsely at most once in {self.every:,.0f} texts, at an evidence of {self.threshold:.3g} nats"

    @classmethod
    def once_in(cls, every: float, *, calibrated_by: Sequence[int] | None = None) -> "Alarm":
        """An alarm that rings falsely once in this many texts (from ten to two hundred million) at most.

        ``calibrated_by`` are the numbers of calibration texts in the groups of a baseline; None stands for p-values
        that are exactly uniform. Raises BadParameter for an alarm that such a baseline cannot keep.
        """
        if not (np.isfinite(every) and SHORTEST_RUN <= every <= LONGEST_HALF):
            raise BadParameter(f"one false alarm per {every} texts; give a number from 10 to 200,000,000.")
        threshold = float(np.log(every))
        if calibrated_by is None:
            return cls(float(every), threshold, FINEST, np.zeros(len(SHARES)))
        counts = np.asarray(list(calibrated_by))
        if not (counts.size and counts.min() >= 1):
            raise BadParameter(f"groups of {list(calibrated_by)} calibration texts; each group has at least one.")
        least = 1 / (1 + int(counts.max()))
        alarm = cls(float(every), threshold, least, np.log1p(SHARES * (_largest_mean(counts, least) - 1)))
        # The floor of the smallest group: the strangest that every text of the baseline can look.
        texts = np.full(SLOWEST, 1 / (1 + int(counts.min())))
        if not alarm.after(alarm.quiet, texts)[1]:
            raise BadParameter(
                f"{counts.sum()} calibration texts cannot keep one false alarm in {every:,.0f} texts: {SLOWEST} texts "
                "of nothing but the strangest would not ring. Make a baseline of more texts, or allow more alarms."
            )
        return alarm

    @property
    def quiet(self) -> Float[np.ndarray, " bets"]:
        """The state before the first text, and after the alarm has rung."""
        return np.zeros(self.costs.size)

    def level(self, state: Float[np.ndarray, "... bets"]) -> Float[np.ndarray, "..."]:
        """Evidence of a state, in nats; a quiet stream hovers at a third of the threshold or less."""
        return np.asarray(np.log(np.maximum(state.mean(-1), 1.0)))

    def bets(self, p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "... bets"]:
        """Factors by which the sums are multiplied at these p-values; what is no number is as strange as can be."""
        return np.asarray((1 + SHARES * (_density(p, self.least)[..., None] - 1)) * np.exp(-self.costs))

    def step(self, state: Float[np.ndarray, "... bets"], p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "... bets"]:
        """The states after one more text each; they are held at the threshold, beyond which they say no more."""
        return np.asarray(np.minimum((state + 1) * self.bets(p), self.every * self.costs.size))

    def after(
        self, state: Float[np.ndarray, " bets"], p: Float[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"], list[int], Float[np.ndarray, " bets"]]:
        """Evidence after each text, the numbers of the texts that rang, and the state at the end."""
        evidence, rang, enough = np.empty(len(p)), list[int](), self.every * self.costs.size
        # Four numbers per text: a loop over plain numbers takes a fifth of the time of ``step``.
        sums = state.tolist()
        for number, bets in enumerate(self.bets(p).tolist()):
            sums = [min((one + 1) * bet, enough) for one, bet in zip(sums, bets, strict=True)]
            evidence[number] = total = sum(sums)
            if total >= enough:
                rang.append(number)
                sums = [0.0] * len(sums)
        return np.log(np.maximum(evidence / self.costs.size, 1.0)), rang, np.array(sums)


def texts_between_alarms(false_alarm_every: float | str, rate: float = RATE) -> float:
    """Texts between two false alarms: a number is one of texts, "30d", "12h" or "2w" a time at ``rate`` texts/s.

    Examples
    --------
    >>> from frostline.monitoring.alarm import texts_between_alarms
    >>> texts_between_alarms("1d", rate=2.0)
    172800.0
    """
    if not (np.isfinite(rate) and rate > 0):
        raise BadParameter(f"the rate is {rate} texts per second; it is a number above zero.")
    words = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e\+?[0-9]+)?)\s*([smhdw]?)\s*", str(false_alarm_every).lower())
    if words is None:
        raise BadParameter(
            f"false_alarm_every is {false_alarm_every!r}; give a number of texts, or a time such as 30d, 12h or 2w."
        )
    number, unit = float(words[1]), words[2]
    return number * SECONDS[unit] * rate if unit else number


def _density(p: Float[np.ndarray, "..."], least: float) -> Float[np.ndarray, "..."]:
    """Density of strange texts' p-values, like 1/p and constant below the least; its mean over normal texts is ≤ 1.

    A density like 1/p gives p-values of every order of magnitude the same chance, however strange the texts are.
    """
    # p-values of normal texts are ranks k/m: as the density falls, their mean is at most its integral, which is 1.
    return np.asarray(1 / np.fmax(np.asarray(p, float), least) / (1 - np.log(least)))


def _largest_mean(counts: np.ndarray, least: float) -> float:
    """Mean of the density over normal texts of any one group that nine of ten baselines stay below.

    Given the calibration texts, the probabilities of the ranks are uniform on the simplex: spacings of uniform numbers.
    Texts of several groups, in whatever proportions, deviate less than those of the group that deviates most.
    """
    largest = 1.0
    for count in sorted(set(counts.tolist())):
        rng = np.random.default_rng([19, count])
        density = _density(np.arange(1, count + 2) / (count + 1), least)
        means = np.empty(BASELINES)
        for rows in np.array_split(np.arange(BASELINES), max(1, BASELINES * count // 10**6)):
            spacings = rng.standard_exponential((len(rows), count + 1))
            means[rows] = spacings @ density / spacings.sum(1)
        largest = max(largest, float(np.quantile(means, KEPT_BY)))
    return largest
