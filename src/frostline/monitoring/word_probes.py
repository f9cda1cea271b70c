"""Words that do not belong: probes that tell changed tokens from unchanged ones, by where the model puts them.

A broken copy of a text shares most of its tokens with the original, so that which tokens changed is known without
anybody labelling them. One logistic regression per kind reads it off the states of single tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from frostline.monitoring.directions import logistic

FEWEST = 50
"""Tokens of either sort that a probe needs."""
LOWEST, HIGHEST = -30.0, 30.0
"""Log-odds beyond which no more is to be learned about a token."""
States: TypeAlias = Sequence[Tensor] | Tensor
"""States (b, n, d) at some clouds: one after another, or in one tensor."""


@dataclass(frozen=True, eq=False)
class Probes:
    """``weights`` act on a token's states at all clouds, side by side."""

    kinds: tuple[str, ...]
    weights: Float[Tensor, "clouds kinds d"]
    offsets: Float[Tensor, " kinds"]

    def __call__(self, states: States) -> Float[Tensor, "b kinds n"]:
        """Log-odds of every token to be changed, for every kind."""
        if isinstance(states, Tensor):
            odds = (self.weights[:, None] @ states.mT).sum(0)
        else:
            odds = sum((own @ x.mT for own, x in zip(self.weights, states, strict=True)), torch.zeros(()))
        return (odds + self.offsets[:, None]).clamp(LOWEST, HIGHEST)

    def to(self, device: torch.device) -> "Probes":
        return Probes(self.kinds, self.weights.to(device), self.offsets.to(device))


def learn_probe(
    states: Float[Tensor, "t f"], changed: Bool[Tensor, " t"]
) -> tuple[Float[Tensor, " f"], Float[Tensor, ""]] | None:
    """Weights and offset of the probe of one kind; None when there are too few tokens of either sort."""
    if min(int(changed.sum()), int((~changed).sum())) < FEWEST:
        return None
    centre, spread = states.mean(0), states.std(0) + 1e-3 * states.std() + 1e-9
    found = logistic((states[~changed] - centre) / spread, (states[changed] - centre) / spread)
    weights = found[1:] / spread
    return weights, found[0] - weights @ centre


def changed_tokens(before: Sequence[int], after: Sequence[int]) -> Bool[np.ndarray, " n"]:
    """Which tokens of ``after`` are not in ``before``, in order."""
    found = np.ones(len(after), dtype=bool)
    for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        found[block.b : block.b + block.size] = False
    return found
