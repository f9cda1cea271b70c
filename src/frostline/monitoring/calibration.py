"""Conformal p-values of single texts: the rank of a score among those of calibration texts of about the same length.

When a text comes from the same source its p-value is at most α with probability at most α, whatever the scores are.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from frostline.errors import BadParameter
from frostline.monitoring.reference_texts import FEWEST, MOST

MOST_GROUPS = 4
"""Largest number of groups of calibration texts by length, each with p-values of its own."""
FEWEST_PER_GROUP = 200
"""Smallest number of texts in a group, for each group that there is: two groups have 400 texts each, four have 800."""
CALIBRATED = 0.4
"""Share of the texts of a baseline that calibrates its p-values."""


@dataclass(frozen=True, eq=False)
class Conformal:
    """Sorted calibration scores in groups by the length of the text, one row each, filled up with infinity.

    ``edges``: log-lengths between the groups.
    """

    table: Float[Tensor, "groups m"]
    edges: Float[Tensor, " edges"]

    @classmethod
    def fit(cls, scores: Float[np.ndarray, " n"], lengths: Float[np.ndarray, " n"]) -> "Conformal":
        """Groups of nearly equal count: no group has less than half of its share, whatever lengths tie.

        With n texts every p-value can thus be as small as 8/(n + 8).
        """
        lengths = lengths.astype(np.float32)
        edges = _edges(lengths)
        group = np.searchsorted(edges, lengths, side="right")
        rows = [torch.from_numpy(np.sort(scores[group == number])).float() for number in range(len(edges) + 1)]
        table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=torch.inf)
        return cls(table, torch.from_numpy(edges))

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


def check_alpha(conformal: Conformal, alpha: float) -> None:
    """Check the p-value up to which a text counts as strange.

    Raises
    ------
    BadParameter
        Some texts could never count as strange: no p-value of their group is that small.
    """
    if not 0 < alpha <= 1:
        raise BadParameter(f"alpha is {alpha:g}; texts with p-values up to it are strange: between 0 and 1.")
    if alpha < conformal.smallest:
        raise BadParameter(
            f"alpha is {alpha:g}, but p-values of this baseline go down to {conformal.smallest:.2g} only, so that no "
            f"text would be strange. Give an alpha of {_rounded_up(conformal.smallest):g} or more{_or_more(alpha)}."
        )


def group_sizes(texts: int) -> tuple[int, ...]:
    """Numbers of texts in the groups that ``texts`` calibration texts make when no lengths tie."""
    groups = max(groups for groups in range(1, MOST_GROUPS + 1) if groups == 1 or texts // groups >= _fewest(groups))
    return tuple(texts // groups + (number < texts % groups) for number in range(groups))


def texts_for(alpha: float) -> int:
    """Number of texts from which on every baseline has p-values as small as ``alpha``, if few lengths tie."""
    fewest = int(np.ceil(1 / alpha - 1e-9)) - 1
    # Fewer texts may do too, but a few more would then split a group and lose it again.
    groups = max((groups for groups in range(2, MOST_GROUPS + 1) if _fewest(groups) < fewest), default=1)
    return max(FEWEST, int(np.ceil(groups * fewest / CALIBRATED - 1e-9)))


def _or_more(alpha: float) -> str:
    """Advice on the number of texts, where there is a number that helps."""
    texts = texts_for(alpha)
    return f", or make a baseline of about {texts:,} texts" if texts <= MOST else "; no baseline reaches smaller ones"


def _fewest(groups: int) -> int:
    return FEWEST_PER_GROUP * groups


def _edges(lengths: Float[np.ndarray, " n"]) -> Float[np.ndarray, " edges"]:
    """Lengths between as many groups as there can be, each of which lies between two lengths that occur."""
    values, counts = np.unique(lengths, return_counts=True)
    until = np.cumsum(counts)
    for groups in range(MOST_GROUPS, 1, -1):
        ends = len(lengths) * np.arange(1, groups) / groups
        cuts = np.unique(np.abs(until - ends[:, None]).argmin(1))
        sizes = np.diff(until[cuts], prepend=0, append=len(lengths))
        if len(sizes) == groups and sizes.min() >= max(_fewest(groups), len(lengths) / (2 * groups)):
            low, high = values[cuts], values[cuts + 1]
            middle = low + (high - low) / 2
            return np.where(middle > low, middle, high)
    return np.empty(0, np.float32)


def _rounded_up(value: float) -> float:
    """The value with two digits, not smaller than it is."""
    unit = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(f"{np.ceil(value / unit - 1e-9) * unit:.2g}")
