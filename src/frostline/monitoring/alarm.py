"""The alarm over a stream of texts: the evidence of p-values, added up, and a threshold that false alarms rarely reach.

The sum (a CUSUM) never falls below zero: it forgets good texts and remembers a run of strange ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from frostline.errors import BadParameter
from frostline.results import Result

POWER = 0.5
"""The alarm bets that strange texts have p-values with density POWER·p^(POWER−1)."""
MARGIN = 1.1
"""Runs between false alarms are made this much longer than asked for: calibration texts are a sample too."""
GRID = 400
"""Number of cells of the grid on which the mean run length is computed."""
SHORTEST_RUN = 10.0
"""Smallest number of texts per false alarm that an alarm can be set to."""
LONGEST_RUN = 1e7
"""Largest number of texts per false alarm that an alarm can be set to."""


def evidence(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Logarithm of the bet's odds: positive for small p-values, with a negative mean over good texts."""
    return np.asarray(np.log(POWER) + (POWER - 1) * np.log(p))


@dataclass(frozen=True, repr=False)
class Alarm(Result):
    """An alarm for a stream of texts: it rings when the evidence since the last quiet moment reaches a threshold.

    Parameters
    ----------
    every
        Mean number of good texts between false alarms.
    threshold
        Evidence at which the alarm rings, in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from frostline.monitoring.alarm import Alarm
    >>> alarm = Alarm.once_in(1000)
    >>> levels, rang = alarm.after(0.0, np.array([0.5, 0.9, 0.001, 0.001, 0.001]))
    >>> rang
    [3]
    """

    every: float
    threshold: float

    def headline(self) -> str:
        """The two numbers."""
        return f"every={self.every!r}, threshold={self.threshold!r}"

    def describe(self) -> str:
        """How often the alarm rings falsely, and at which evidence."""
        return f"rings falsely about once in {self.every:,.0f} texts, at an evidence of {self.threshold:.3g} nats"

    @classmethod
    def once_in(cls, every: float) -> "Alarm":
        """An alarm that rings falsely once in this many texts (from ten to ten million)."""
        if not (np.isfinite(every) and SHORTEST_RUN <= every <= LONGEST_RUN):
            raise BadParameter(f"one false alarm per {every} texts; give a number from 10 to 10,000,000.")
        goal = MARGIN * every
        return cls(
            float(every),
            float(brentq(lambda level: np.log(run_length(level) / goal), 0.01, np.log(goal) + 3, xtol=1e-4)),
        )

    def delay(self, strangeness: float) -> float:
        """Mean number of texts until the alarm rings when p-values have density a·p^(a−1), a = 1/(1 + strangeness)."""
        return run_length(self.threshold, 1 / (1 + strangeness))

    def after(self, level: float, p: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], Sequence[int]]:
        """Evidence after each text, and the numbers of the texts that rang; after ringing the evidence is zero."""
        levels, rang = np.empty(len(p)), []
        for number, step in enumerate(evidence(p)):
            level = max(0.0, level + float(step))
            levels[number] = level
            if level >= self.threshold:
                rang.append(number)
                level = 0.0
        return levels, rang


def run_length(threshold: float, a: float = 1.0) -> float:
    """Mean number of texts until a CUSUM of ``evidence`` reaches the threshold, for p-values with density a·p^(a−1).

    −log p is exponential with rate a, so that each step is a constant plus an exponential: the mean solves a linear
    integral equation, here on a grid.
    """
    down, scale = -np.log(POWER), (1 - POWER) / a
    nodes = (np.arange(GRID) + 0.5) * threshold / GRID
    edges = np.arange(GRID + 1) * threshold / GRID

    def below(level: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.asarray(-np.expm1(-np.maximum(level - start + down, 0.0) / scale))

    # From 0 and from each node: the chance to be in each cell after one text; the first column is zero itself.
    starts = np.concatenate([[0.0], nodes])[:, None]
    cells = np.diff(below(edges[None], starts), axis=1)
    moves = np.concatenate([below(np.zeros((1, 1)), starts), cells], 1)
    return float(np.linalg.solve(np.eye(GRID + 1) - moves, np.ones(GRID + 1))[0])
