"""Directions that separate texts from broken copies of themselves: one logistic regression per kind of corruption."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

PENALTY = 1000.0
"""Penalty of the squared weights, in texts: features are many, and directions must carry over to kinds never seen."""
STEPS = 100
"""Largest number of iterations of L-BFGS."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Linear functions of features, each large where texts look like broken copies of its kind."""

    kinds: tuple[str, ...]
    weights: Float[Tensor, "kinds f"]
    offsets: Float[Tensor, " kinds"]

    def __call__(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n kinds"]:
        return features @ self.weights.T + self.offsets


def learn_directions(
    reference: Float[Tensor, "n f"], broken: Mapping[str, Float[Tensor, "m f"]], penalty: float = PENALTY
) -> Directions:
    """One direction per kind, on features centred on the reference and divided by their spread."""
    centre = reference.mean(0)
    spread = torch.cat([reference, *broken.values()]).std(0) + 1e-9
    scaled = (reference - centre) / spread
    solutions = [logistic(scaled, (copies - centre) / spread, penalty)[1:] for copies in broken.values()]
    weights = torch.stack(solutions) / spread
    return Directions(tuple(broken), weights, -weights @ centre)


def logistic(
    normal: Float[Tensor, "n f"], other: Float[Tensor, "m f"], penalty: float = PENALTY
) -> Float[Tensor, " f+1"]:
    """Offset and weights of the logistic regression of ``other`` against ``normal``, both weighing the same."""
    # The two classes and a column for the offset are not copied into one matrix: they may be large.
    weights = torch.zeros(normal.shape[1] + 1, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe", history_size=20)

    def loss() -> Tensor:
        solver.zero_grad()
        wrong = torch.nn.functional.softplus(normal @ weights[1:] + weights[0]).mean()
        missed = torch.nn.functional.softplus(-(other @ weights[1:] + weights[0])).mean()
        total = (wrong + missed) / 2 + 0.5 * penalty * weights[1:].square().sum() / (len(normal) + len(other))
        total.backward()  # type: ignore[no-untyped-call]
        return total

    with torch.inference_mode(False), torch.enable_grad():
        solver.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()
