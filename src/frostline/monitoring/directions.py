"""Directions that tell texts from broken copies of themselves: one logistic regression per kind of corruption."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float

PENALTY = 1000.0
"""Of the squared weights, in texts: features are many, and what is learned must carry over to kinds never seen."""
STEPS = 100


@dataclass(frozen=True, eq=False)
class Directions:
    """``weights`` act on features that are centred on the reference and divided by their spread."""

    kinds: tuple[str, ...]
    centre: Float[np.ndarray, " f"]
    spread: Float[np.ndarray, " f"]
    weights: Float[np.ndarray, "kinds f"]

    @cached_property
    def _ready(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and offsets for features as they come."""
        weights = self.weights / self.spread
        return torch.from_numpy(weights.T).float().contiguous(), torch.from_numpy(-weights @ self.centre).float()

    def __call__(self, features: Float[np.ndarray, "n f"]) -> Float[np.ndarray, "n kinds"]:
        weights, offset = self._ready
        # In torch, as all that runs beside a model: numpy's threads and torch's get in each other's way.
        return (torch.from_numpy(features) @ weights + offset).double().numpy()


def learn(
    reference: Float[np.ndarray, "n f"], broken: Mapping[str, Float[np.ndarray, "m f"]], *, penalty: float = PENALTY
) -> Directions:
    """One direction per kind: large where texts look like that kind of broken copy."""
    centre = reference.mean(0)
    spread = np.concatenate([reference, *broken.values()]).std(0) + 1e-9
    own = torch.from_numpy((reference - centre) / spread).float()
    found = []
    for copies in broken.values():
        other = torch.from_numpy((copies - centre) / spread).float()
        found.append(_logistic(own, other, penalty))
    return Directions(tuple(broken), centre, spread, np.stack(found))


def _logistic(own: torch.Tensor, other: torch.Tensor, penalty: float) -> np.ndarray:
    """Weights of the logistic regression, both classes weighing the same."""
    x = torch.cat([own, other])
    answer = torch.cat([torch.zeros(len(own)), torch.ones(len(other))])
    share = torch.where(answer == 1, 0.5 / len(other), 0.5 / len(own))
    weights = torch.zeros(x.shape[1] + 1, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe", history_size=20)

    def loss() -> torch.Tensor:
        solver.zero_grad()
        odds = x @ weights[1:] + weights[0]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(odds, answer, reduction="none")
        total = (share * losses).sum() + 0.5 * penalty * weights[1:].square().sum() / len(x)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    solver.step(loss)  # type: ignore[no-untyped-call]
    return np.asarray(weights[1:].detach().double().numpy())
