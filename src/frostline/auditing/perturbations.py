"""How far a small change of the input travels: random ones, the worst one, and what zero temperature makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from frostline.arrays import evenly_spread
from frostline.auditing.fidelity import Glass
from frostline.encoders.fold import FoldedLayer, Norm
from frostline.encoders.live_model import Model
from frostline.encoders.tokenization import Tokenized

TEXTS, TOKENS, RANDOM, POWERS = 4, 48, 4, 12
SIZE = 1e-2
"""Of a change, relative to the embeddings: small, and still far above what float32 rounds away."""


@dataclass(frozen=True, eq=False)
class Perturbations:
    """Sizes of a change of the input embeddings at each cloud, on the sphere, relative to the first cloud (k texts).

    ``cold``: what one zero-temperature attention half makes of a random change of its own input, per layer.
    """

    random: Float[np.ndarray, "k clouds"]
    worst: Float[np.ndarray, "k clouds"]
    cold: Float[np.ndarray, "k layers"]


def perturb(
    layers: Sequence[FoldedLayer], last: Norm, model: Model, tokenized: Tokenized, *, seed: int
) -> Perturbations:
    """Follow changes of the embeddings of a few texts through the model."""
    rng = np.random.default_rng([6, seed])
    norms = [layer.norm for layer in layers] + [last]
    glasses = [Glass(layer) for layer in layers]
    numbers = evenly_spread(len(tokenized.ids), TEXTS)
    random, worst, cold = [], [], []
    for number in numbers:
        text = _Text(model, torch.tensor(tokenized.ids[number][:TOKENS])[None])
        sizes = [_followed(text, norms, _drawn(text, rng)) for _ in range(RANDOM)]
        random.append(np.sqrt(np.mean(np.square(sizes), axis=0)))
        worst.append(_followed(text, norms, _worst(text, _drawn(text, rng))))
        with torch.no_grad():
            states = text.run()
        cold.append(
            [_cold(glass, state[0].double().numpy(), rng) for glass, state in zip(glasses, states, strict=False)]
        )
    return Perturbations(np.array(random), np.array(worst), np.array(cold))


@dataclass(frozen=True, eq=False)
class _Text:
    """A text that the model can be run on with a change added to what its embedding table gives."""

    model: Model
    ids: Tensor

    @cached_property
    def start(self) -> Tensor:
        found: Tensor = self.model.get_input_embeddings()(self.ids).detach()
        return found

    def run(self, change: Tensor | None = None) -> tuple[Tensor, ...]:
        """The states before, between and after the layers."""

        def add(module: nn.Module, given: object, result: Tensor) -> Tensor:
            return result if change is None else result + change

        hook = self.model.get_input_embeddings().register_forward_hook(add)
        try:
            found = self.model(input_ids=self.ids, output_hidden_states=True)
        finally:
            hook.remove()
        return (*found.hidden_states[:-1], found.last_hidden_state)


def _drawn(text: _Text, rng: np.random.Generator) -> Tensor:
    """A random direction of norm one."""
    found = torch.from_numpy(rng.standard_normal(tuple(text.start.shape))).to(text.start)
    return found / found.norm()


def _followed(text: _Text, norms: Sequence[Norm], direction: Tensor) -> np.ndarray:
    """Root mean square size of the change at each cloud, relative to the first, by central differences; NaN where the
    first does not know of it."""
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


def _cold(glass: Glass, x: np.ndarray, rng: np.random.Generator) -> float:
    """Growth of a random tangent change through one zero-temperature attention half."""
    u, size = glass.layer.norm.on_sphere(x)
    change = rng.standard_normal(u.shape)
    if glass.layer.norm.present:
        change -= change.mean(-1, keepdims=True)
    change -= (change * u).sum(-1, keepdims=True) * u
    change *= 1e-4 / np.linalg.norm(change)
    ends = []
    for sign in (1, -1):
        moved = u + sign * change
        moved /= np.linalg.norm(moved, axis=-1, keepdims=True)
        ends.append(glass.cold(moved, size))
    return float(np.linalg.norm(ends[0] - ends[1]) / 2e-4)
