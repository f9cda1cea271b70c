"""Delay of detection: how many texts an alarm needs to notice a shift, simulated, beside the best that can be reached.

No alarm with one false ring in N texts notices a shift sooner, on average and for large N, than after log N / KL texts:
KL is the information of one p-value, the divergence of its distribution under the shift from that of normal texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from frostline.errors import BadParameter
from frostline.monitoring.alarm import Alarm
from frostline.results import Result

LONGEST_WAIT = 50_000
"""Number of texts after which a simulated stream that has not rung counts as not noticed."""
AT_ONCE = 500
"""Number of texts that are drawn at once for every stream."""


@dataclass(frozen=True, repr=False)
class DetectionDelay(Result):
    """How many texts of a shifted stream an alarm reads before it rings.

    Parameters
    ----------
    share
        Share of strange texts in the stream.
    delay
        Mean number of texts until the alarm rings; infinite where a stream did not ring within ``waited`` texts.
    noticed
        Share of the simulated streams that rang.
    bound
        Likelihood-ratio bound: log(every) divided by the information of one text. Infinite without information.
    waited
        Largest number of texts of a simulated stream.
    streams
        Number of simulated streams.

    Examples
    --------
    >>> from frostline.monitoring.alarm import Alarm
    >>> from frostline.monitoring.detection_delay import detection_delay
    >>> detection_delay(Alarm.once_in(1e5, calibrated_by=[500]), share=1.0, counts=[500])
    DetectionDelay(1 of the texts strange: rings after 4 texts; the likelihood-ratio bound is 2)
    """

    share: float
    delay: float
    noticed: float
    bound: float
    waited: int
    streams: int

    @property
    def ratio(self) -> float:
        """The delay in units of the bound."""
        return self.delay / self.bound if np.isfinite(self.bound) else np.nan

    def describe(self) -> str:
        """The delay beside the bound."""
        best = (
            f"the likelihood-ratio bound is {self.bound:,.0f}" if np.isfinite(self.bound) else "there is nothing to see"
        )
        if np.isfinite(self.delay):
            return f"{self.share:.3g} of the texts strange: rings after {self.delay:,.0f} texts; {best}"
        seen = f"{self.noticed:.0%} of the streams ring" if self.noticed else "not noticed"
        seen += f" within {self.waited:,} texts"
        return f"{self.share:.3g} of the texts strange: {seen}; {best}"


def detection_delay(
    alarm: Alarm,
    share: float,
    strange: Sequence[float] | Float[np.ndarray, " k"] | None = None,
    *,
    counts: Sequence[int] | None = None,
    streams: int = 200,
    seed: int = 0,
) -> DetectionDelay:
    """Delay of an alarm on streams in which a share of the texts is strange from the first text on.

    Parameters
    ----------
    alarm
        The alarm; streams begin in its quiet state.
    share
        Share of strange texts in the stream, above 0 and at most 1.
    strange
        p-values of strange texts, from which theirs are drawn; None: the smallest of their group.
    counts
        Numbers of calibration texts in the groups of the baseline, with which texts are met; None: one group whose
        smallest p-value is the least that the alarm tells apart.
    streams
        Number of streams that are simulated.
    seed
        Seed of the simulation.

    Returns
    -------
    DetectionDelay
        The mean delay, and the likelihood-ratio bound. With ``strange`` it is the bound for alarms that a smaller
        p-value never calms: the information is that of the falling density nearest to these p-values.

    Raises
    ------
    BadParameter
        The share, a p-value, or the number of streams is out of its range.

    Examples
    --------
    >>> from frostline.monitoring.alarm import Alarm
    >>> from frostline.monitoring.detection_delay import detection_delay
    >>> alarm = Alarm.once_in(1e5, calibrated_by=[500])
    >>> result = detection_delay(alarm, 0.1, counts=[500])
    >>> result.delay < 2 * result.bound
    True
    """
    if not 0 < share <= 1:
        raise BadParameter(f"share is {share}; it is a share of the texts, above 0 and at most 1.")
    if streams < 1:
        raise BadParameter(f"streams is {streams}; it is a number of streams, at least 1.")
    values = None if strange is None else np.asarray(strange, float)
    if values is not None and not (values.ndim == 1 and values.size and ((values > 0) & (values <= 1)).all()):
        raise BadParameter("strange are p-values, at least one, each above 0 and at most 1.")
    groups = np.array([round(1 / alarm.least) - 1] if counts is None else list(counts))
    if groups.ndim != 1 or not groups.size or groups.min() < 1:
        raise BadParameter(f"counts is {counts}; it has the number of calibration texts of each group, at least 1.")
    rang = _first_rings(alarm, share, values, groups, streams, np.random.default_rng([20, seed]))
    noticed = float((rang > 0).mean())
    return DetectionDelay(
        float(share),
        float(rang.mean()) if noticed == 1 else np.inf,
        noticed,
        shortest_delay(alarm.every, share, values, counts=groups.tolist()),
        LONGEST_WAIT,
        streams,
    )


def shortest_delay(
    every: float, share: float, strange: Float[np.ndarray, " k"] | None = None, *, counts: Sequence[int]
) -> float:
    """Likelihood-ratio bound of the delay of all alarms with one false ring in so many texts (``detection_delay``)."""
    information = sum(
        size / sum(counts) * _information(share, _ranks(strange, size), size + 1) for size in map(int, counts)
    )
    return float(np.log(every) / information) if information > 0 else np.inf


def _ranks(strange: Float[np.ndarray, " k"] | None, count: int) -> np.ndarray:
    """Ranks among a group's calibration texts that are nearest to these p-values, which may be of another group."""
    if strange is None:
        return np.ones(1, int)
    return np.rint(strange * (count + 1)).astype(int).clip(1, count + 1)


def _information(share: float, ranks: np.ndarray, places: int) -> float:
    """Divergence, in nats, of a mixture of normal and strange p-values from normal ones, all ranks 1 … places.

    The density of strange ones is the falling one of greatest likelihood (Grenander): the slopes of the least concave
    majorant of their distribution. A mixture with normal ones keeps it, and no falling bet gains more from the ranks.
    """
    shares = np.bincount(ranks, minlength=places + 1)[1:] / len(ranks)
    densities = 1 - share + share * places * isotonic_regression(shares, increasing=False).x
    gains = densities * np.log(np.maximum(densities, np.finfo(float).tiny))
    return float(max(gains.mean(), 0.0))


def _first_rings(
    alarm: Alarm,
    share: float,
    strange: Float[np.ndarray, " k"] | None,
    groups: np.ndarray,
    streams: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Number of texts until each stream rings; 0 where it does not."""
    rang, running = np.zeros(streams, int), np.arange(streams)
    state = np.tile(alarm.quiet, (streams, 1))
    for begin in range(0, LONGEST_WAIT, AT_ONCE):
        shape = (AT_ONCE, len(running))
        places = 1 + rng.choice(groups, shape, p=groups / groups.sum())
        chosen = 1 / places
        if strange is not None:
            chosen = np.maximum(rng.choice(strange, shape), 1 / places)  # none is below the smallest of its group
        p = np.where(rng.random(shape) < share, chosen, rng.integers(1, places, endpoint=True) / places)
        for number, bets in enumerate(alarm.bets(p), begin + 1):
            state = np.minimum((state + 1) * bets, alarm.every * state.shape[1])
            new = (rang[running] == 0) & (state.mean(1) >= alarm.every)
            rang[running[new]] = number
        state, running = state[rang[running] == 0], running[rang[running] == 0]
        if not len(running):
            break
    return rang
