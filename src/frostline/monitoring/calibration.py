"""Calibration: conformal p-values for single texts, and an alarm for streams that rings falsely once in N texts.

A p-value is the rank of a score among those of calibration texts of about the same length: when a text comes from the
same source it is at most α with probability at most α, whatever the scores are. The alarm adds up the evidence of
p-values (a CUSUM): it forgets good texts and remembers a run of strange ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import brentq
from torch import Tensor

from frostline.errors import BadParameter
from frostline.results import Result

BINS = 4
"""Largest number of groups of calibration texts by length, each with p-values of its own."""
FEWEST_IN_BIN = 100
"""Smallest number of texts in such a group."""
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


@dataclass(frozen=True, eq=False)
class Conformal:
    """Sorted calibration scores in groups by the length of the text, one row each, filled up with infinity.

    ``edges``: log-lengths between the groups.
    """

    table: Float[Tensor, "groups m"]
    edges: Float[Tensor, " edges"]

    @classmethod
    def fit(cls, scores: Float[np.ndarray, " n"], lengths: Float[np.ndarray, " n"]) -> "Conformal":
        # As many groups as possible; lengths that tie can leave one of them with too few texts.
        for bins in range(BINS, 0, -1):
            edges = np.unique(np.quantile(lengths, np.arange(1, bins) / bins))
            group = np.searchsorted(edges, lengths, side="right")
            if np.bincount(group, minlength=len(edges) + 1).min() >= FEWEST_IN_BIN:
                break
        rows = [torch.from_numpy(np.sort(scores[group == number])).float() for number in range(len(edges) + 1)]
        table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=torch.inf)
        return cls(table, torch.from_numpy(edges).float())

    @cached_property
    def counts(self) -> Int[Tensor, " groups"]:
        return torch.isfinite(self.table).sum(1)

    @property
    def smallest(self) -> float:
        """The smallest p-value that every group can give."""
        return 1 / (1 + int(self.counts.min()))

    def p_values(self, scores: Float[Tensor, " n"], lengths: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """(1 + calibration scores at least as large) / (1 + their number); what is no number is larger than all."""
        group = torch.bucketize(lengths.contiguous(), self.edges, right=True)
        count = self.counts[group]
        below = torch.searchsorted(self.table[group], scores[:, None].contiguous())[:, 0].minimum(count)
        return (1 + count - below).double() / (1 + count)


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
    >>> from frostline.monitoring.calibration import Alarm
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
