"""Probes that find single tokens that do not belong: one logistic regression on token states per kind of corruption.

A broken copy of a text shares most of its tokens with the original, so the changed tokens are known without labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from frostline.monitoring.corruption_directions import PENALTY, logistic

FEWEST = 15
"""Smallest number of changed, and of unchanged, tokens that the probe of a fold is learned from."""
LOWEST = -30.0
"""Lower bound of a token's log-odds; smaller values carry no more information."""
HIGHEST = 30.0
"""Upper bound of a token's log-odds; larger values carry no more information."""
States: TypeAlias = Sequence[Tensor] | Tensor
"""States (b, n, d) at some clouds: a sequence with one tensor per cloud, or one tensor of all clouds."""


@dataclass(frozen=True, eq=False)
class Probes:
    """Probes of all kinds; ``weights`` act on a token's states at all clouds, side by side."""

    kinds: tuple[str, ...]
    weights: Float[Tensor, "clouds kinds d"]
    offsets: Float[Tensor, " kinds"]

    def __call__(self, states: States) -> Float[Tensor, "b kinds n"]:
        """Log-odds that a token was changed, for every kind and token."""
        if isinstance(states, Tensor):
            odds = (self.weights[:, None] @ states.mT).sum(0)
        else:
            odds = sum((weights @ x.mT for weights, x in zip(self.weights, states, strict=True)), torch.zeros(()))
        return (odds + self.offsets[:, None]).clamp(LOWEST, HIGHEST)


def learn_probe(
    states: Float[Tensor, "t f"], changed: Bool[Tensor, " t"], penalty: float = PENALTY
) -> tuple[Float[Tensor, " f"], Float[Tensor, ""]] | None:
    """Weights and offset of the probe of one kind; None when too few tokens are changed or unchanged."""
    if min(int(changed.sum()), int((~changed).sum())) < FEWEST:
        return None
    centre, spread = states.mean(0), states.std(0) + 1e-3 * states.std() + 1e-9
    solution = logistic((states[~changed] - centre) / spread, (states[changed] - centre) / spread, penalty)
    weights = solution[1:] / spread
    return weights, solution[0] - weights @ centre


def changed_tokens(before: Sequence[int], after: Sequence[int]) -> Bool[np.ndarray, " n"]:
    """True for every token of ``after`` that is not in ``before``, in order."""
    changed = np.ones(len(after), dtype=bool)
    for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        changed[block.b : block.b + block.size] = False
    return changed
