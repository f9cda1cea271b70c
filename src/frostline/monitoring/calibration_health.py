"""Health of a calibration: whether the p-values of the last texts are uniform, all of them and in the lower tail.

The test of Kolmogorov and Smirnov sees a shift of all texts. A few strange texts among good ones hardly move the
distribution: small p-values are counted too. Both tests allow for calibration texts being a sample themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.special import betaln, gammaln

from frostline.results import Result

ENOUGH = 200
"""Smallest number of p-values from which the health of a calibration is judged."""
MISTAKES = 1e-3
"""Share of judgements in which good p-values are called bad; each of the two tests gets half of it."""
TAILS = (0.01, 0.02, 0.05, 0.1)
"""Levels at which small p-values are counted, beside the smallest p-value that there is."""


@dataclass(frozen=True, repr=False)
class CalibrationHealth(Result):
    """Whether the p-values of the last texts are uniform, as those of a calibrated baseline are.

    Parameters
    ----------
    verdict
        good, low (stranger than the reference), high (more ordinary), or unknown while there are too few texts.
    says
        The verdict in words.
    texts
        Number of texts that were judged.
    distance
        Largest distance of the p-values' distribution from the uniform one, anywhere; where small p-values are too
        many, the distance at their level.
    allowed
        The distance up to which p-values are called good.

    Examples
    --------
    >>> import numpy as np
    >>> from frostline.monitoring.calibration_health import judge_calibration
    >>> p_values = np.concatenate([np.linspace(0.01, 1, 240), np.full(60, 0.005)])
    >>> judge_calibration(p_values, [300, 300]).verdict
    'low'
    """

    verdict: str
    says: str
    texts: int
    distance: float | None = None
    allowed: float | None = None

    def describe(self) -> str:
        """The verdict in words."""
        return self.says


def judge_calibration(p_values: Float[np.ndarray, " n"], counts: Sequence[int]) -> CalibrationHealth:
    """Judge the last p-values of a stream.

    Parameters
    ----------
    p_values
        Conformal p-values, in any order.
    counts
        Number of calibration texts in every group. All p-values might be of the smallest one: with several groups good
        p-values are called bad more rarely than ``MISTAKES``.

    Returns
    -------
    CalibrationHealth
        The verdict, and the distance that decided.
    """
    texts, calibrated_by = len(p_values), int(min(counts))
    if texts < ENOUGH:
        return CalibrationHealth("unknown", f"{texts} texts so far; it takes {ENOUGH} to judge the calibration.", texts)
    grid, repeats = np.unique(p_values, return_counts=True)
    differences = np.cumsum(repeats) / texts - grid
    # Kolmogorov's distance of two samples: exceeded with a chance of at most 2 exp(−2 c²).
    critical = np.sqrt(np.log(4 / MISTAKES) / 2)
    distance, allowed = float(np.abs(differences).max()), float(critical * np.sqrt(1 / texts + 1 / calibrated_by))
    lower = f"p-values of the last {texts} texts run too low"
    advice = (
        "they are not like the reference. If they are meant to be so, make the baseline again with some of them in it."
    )
    if distance > allowed and differences.max() >= distance:
        return CalibrationHealth("low", f"{lower}: {advice}", texts, distance, allowed)
    for level, most in _most_in_tails(texts, calibrated_by):
        small = int((p_values <= level * (1 + 1e-9)).sum())
        if small > most:
            says = (
                f"{lower} for some of them: {small} are at most {level:.2g}, where {level * texts:.3g} would be usual "
                f"and {most} would be chance. Some texts are strange: {advice}"
            )
            return CalibrationHealth("low", says, texts, small / texts - level, most / texts - level)
    if distance > allowed:
        says = f"p-values of the last {texts} texts run too high: they are more ordinary than the reference."
        return CalibrationHealth("high", says, texts, distance, allowed)
    says = f"p-values of the last {texts} texts are spread as they should be."
    return CalibrationHealth("good", says, texts, distance, allowed)


@lru_cache(maxsize=2048)
def _most_in_tails(texts: int, calibrated_by: int) -> tuple[tuple[float, int], ...]:
    """Levels of p-values, and the number of texts up to which p-values below each may be chance.

    Of texts like the m calibration texts a share has p ≤ k/(m + 1) that is itself random, with the density of
    Beta(k, m + 1 − k): their number has a beta-binomial distribution.
    """
    size = calibrated_by + 1
    ranks = sorted({1, *(int(level * size + 1e-9) for level in TAILS)} - {0})
    number = np.arange(texts + 1)
    choose = gammaln(texts + 1) - gammaln(number + 1) - gammaln(texts - number + 1)
    tails = []
    for rank in ranks:
        log_chance = betaln(number + rank, texts - number + size - rank) - betaln(rank, size - rank)
        beyond = np.cumsum(np.exp(choose + log_chance)[::-1])[::-1]
        # beyond[c] is the chance of c or more; the largest count that is still allowed is one less.
        rare = np.flatnonzero(beyond <= MISTAKES / 2 / len(ranks))
        if len(rare):
            tails.append((rank / size, int(rare[0]) - 1))
    return tuple(tails)
