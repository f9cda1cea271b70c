"""Small changes of the input, followed through the layers: random ones, the worst one, and at zero temperature."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from frostline.arrays import evenly_spread
from frostline.auditing.explanations import explain, visible_tokens
from frostline.auditing.fidelity import Glass
from frostline.encoders import heads
from frostline.encoders.fold import FoldedLayer, Norm
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.positions import Positions, positions
from frostline.encoders.tokenization import Tokenized
from frostline.results import Result
from frostline.sphere import unit_rows

TEXTS = 4
"""Texts whose changes are followed."""
TOKENS = 48
"""Tokens of each of them, at most."""
RANDOM = 4
"""Random changes of each text."""
POWERS = 12
"""Steps of power iteration towards the worst change."""
SIZE = 1e-2
"""Norm of a change over that of the embeddings: small, and far above rounding in float32."""
HALF_SIZE = 1e-4
"""Norm of a change of unit vectors in float64."""


@dataclass(frozen=True, eq=False, repr=False)
class Perturbations(Result):
    """Sizes of a change of the input embeddings at each cloud, on the sphere, relative to the first cloud (k texts).

    Attributes
    ----------
    random, worst
        Of random changes, root mean square; and of the change that power iteration finds.
    attention, law, cold
        Growth of a random change of a layer's input through its attention half, per layer: as it is, by the law (four
        tokens and a cut cloud), and at zero temperature.
    """

    random: Float[np.ndarray, "k clouds"]
    worst: Float[np.ndarray, "k clouds"]
    attention: Float[np.ndarray, "k layers"]
    law: Float[np.ndarray, "k layers"]
    cold: Float[np.ndarray, "k layers"]

    def describe(self) -> str:
        """Growth up to the last cloud, in words."""
        worst, random = (float(np.median(sizes[:, -1])) for sizes in (self.worst, self.random))
        return f"a small change of the input grows {worst:.2g} times at worst, {random:.2g} times at random"


def perturb(
    encoder: Encoder, layers: Sequence[FoldedLayer], last: Norm, model: Model, tokenized: Tokenized, *, seed: int
) -> Perturbations:
    """Follow changes of the embeddings of a few texts through the model."""
    rng = np.random.default_rng([6, seed])
    norms = [layer.norm for layer in layers] + [last]
    glasses = [Glass(layer) for layer in layers]
    random, worst = [], []
    halves: dict[str, list[list[float]]] = {"attention": [], "law": [], "cold": []}
    for number in evenly_spread(len(tokenized.ids), TEXTS):
        text = _Text(model, torch.tensor(tokenized.ids[number][:TOKENS])[None])
        sizes = [_followed(text, norms, _drawn(text, rng)) for _ in range(RANDOM)]
        random.append(np.sqrt(np.mean(np.square(sizes), axis=0)))
        worst.append(_followed(text, norms, _worst(text, _drawn(text, rng))))
        with torch.no_grad():
            states = text.run()
        grown = [
            _grown(glass, state[0].double().numpy(), positions(encoder, model, layer, state.shape[1]), rng)
            for layer, (glass, state) in enumerate(zip(glasses, states, strict=False))
        ]
        for name, rows in halves.items():
            rows.append([of_layer[name] for of_layer in grown])
    return Perturbations(np.array(random), np.array(worst), **{name: np.array(rows) for name, rows in halves.items()})


@dataclass(frozen=True, eq=False)
class _Text:
    """A text that the model can be run on with a change added to what its embedding table gives."""

    model: Model
    ids: Tensor

    @cached_property
    def start(self) -> Tensor:
        """The output of the embedding table."""
        embeddings: Tensor = self.model.get_input_embeddings()(self.ids).detach()
        return embeddings

    def run(self, change: Tensor | None = None) -> tuple[Tensor, ...]:
        """The states before, between and after the layers."""

        def add(module: nn.Module, inputs: object, result: Tensor) -> Tensor:
            return result if change is None else result + change

        hook = self.model.get_input_embeddings().register_forward_hook(add)
        try:
            output = self.model(input_ids=self.ids, output_hidden_states=True)
        finally:
            hook.remove()
        return (*output.hidden_states[:-1], output.last_hidden_state)


def _drawn(text: _Text, rng: np.random.Generator) -> Tensor:
    """A random direction of norm one."""
    direction = torch.from_numpy(rng.standard_normal(tuple(text.start.shape))).to(text.start)
    return direction / direction.norm()


def _followed(text: _Text, norms: Sequence[Norm], direction: Tensor) -> np.ndarray:
    """Root mean square size of the change at each cloud, relative to the first, by central differences.

    NaN where the first cloud does not change.
    """
    change = SIZE * text.start.norm() * direction
    with torch.no_grad():
        ends = [text.run(sign * change) for sign in (1, -1)]
    sizes = [
        np.linalg.norm(norm.on_sphere(plus[0].double().numpy())[0] - norm.on_sphere(minus[0].double().numpy())[0])
        for norm, plus, minus in zip(norms, *ends, strict=True)
    ]
    return np.asarray(sizes) / (sizes[0] or np.nan)


def _worst(text: _Text, direction: Tensor) -> Tensor:
    """The change that grows most on its way to the last cloud: power iteration on JᵀJ."""
    size = SIZE * text.start.norm()
    for _ in range(POWERS):
        with torch.no_grad():
            ends = [text.run(sign * size * direction)[-1] for sign in (1, -1)]
            pushed = (ends[0] - ends[1]) / (2 * size)
        with torch.enable_grad():
            free = torch.zeros_like(text.start, requires_grad=True)
            (back,) = torch.autograd.grad((text.run(free)[-1] * pushed).sum(), free)
        direction = back / back.norm()
    return direction


def _grown(glass: Glass, x: np.ndarray, at: Positions, rng: np.random.Generator) -> dict[str, float]:
    """Growth of a random tangent change through one attention half: as it is, by the law, at zero temperature."""
    u, size = glass.layer.norm.on_sphere(x)
    change = rng.standard_normal(u.shape)
    if glass.layer.norm.present:
        change -= change.mean(-1, keepdims=True)
    change -= (change * u).sum(-1, keepdims=True) * u
    change *= HALF_SIZE / np.linalg.norm(change)
    ends = [_halves(glass, unit_rows(u + sign * change), size, at) for sign in (1, -1)]
    return {name: float(np.linalg.norm(ends[0][name] - ends[1][name]) / (2 * HALF_SIZE)) for name in ends[0]}


def _halves(glass: Glass, u: np.ndarray, size: np.ndarray, at: Positions) -> dict[str, np.ndarray]:
    """The tokens after the attention half."""
    attended, rows = heads.attend(glass.layer, glass.layer.norm.entering(u, size), at), np.arange(len(u))
    law = explain(attended, rows, visible_tokens(at, rows, len(u))).means["bridge"]
    full = glass.full_support(attended.queries)[1]
    means = {"attention": attended.mean, "law": law, "cold": full}
    return {name: glass.after(u, size, seen) for name, seen in means.items()}
