"""Conformal p-values of single texts: the rank of a score among those of calibration texts of about the same length.

When a text comes from the same source its p-value is at most α with probability at most α, whatever the scores are.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

BINS = 4
"""Largest number of groups of calibration texts by length, each with p-values of its own."""
FEWEST_IN_BIN = 100
"""Smallest number of texts in such a group."""


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
