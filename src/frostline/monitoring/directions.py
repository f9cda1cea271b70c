"""Directions that tell texts from broken copies of themselves: one logistic regression per kind of corruption."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

PENALTY = 1000.0
"""Of the squared weights, in texts: features are many, and what is learned must carry over to kinds never seen."""
STEPS = 100


@dataclass(frozen=True, eq=False)
class Directions:
    """Large where texts look like broken copies of this kind."""

    kinds: tuple[str, ...]
    weights: Float[Tensor, "kinds f"]
    offsets: Float[Tensor, " kinds"]

    def __call__(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n kinds"]:
        return features @ self.weights.T + self.offsets


def learn(reference: Float[Tensor, "n f"], broken: Mapping[str, Float[Tensor, "m f"]]) -> Directions:
    """One direction per kind, on features centred on the reference and divided by their spread."""
    centre = reference.mean(0)
    spread = torch.cat([reference, *broken.values()]).std(0) + 1e-9
    own = (reference - centre) / spread
    found = torch.stack([logistic(own, (copies - centre) / spread)[1:] for copies in broken.values()]) / spread
    return Directions(tuple(broken), found, -found @ centre)


def logistic(own: Float[Tensor, "n f"], other: Float[Tensor, "m f"], penalty: float = PENALTY) -> Float[Tensor, " f+1"]:
    """Offset and weights of the logistic regression, both classes weighing the same."""
    # Both classes and a column for the offset are never put side by side: they may be large.
    weights = torch.zeros(own.shape[1] + 1, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe", history_size=20)

    def loss() -> Tensor:
        solver.zero_grad()
        wrong = torch.nn.functional.softplus(own @ weights[1:] + weights[0]).mean()
        missed = torch.nn.functional.softplus(-(other @ weights[1:] + weights[0])).mean()
        total = (wrong + missed) / 2 + 0.5 * penalty * weights[1:].square().sum() / (len(own) + len(other))
        total.backward()  # type: ignore[no-untyped-call]
        return total

    with torch.inference_mode(False), torch.enable_grad():
        solver.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()
