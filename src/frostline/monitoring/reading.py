"""Texts read by a model, and what is kept of them: profiles, and states of single tokens to learn from."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from frostline.encoders.forward import batches
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import Tokenized
from frostline.monitoring.detector import Features
from frostline.monitoring.hooks import Taking, Tap, our_own_passes
from frostline.monitoring.profile import profile
from frostline.monitoring.word_probes import Probes


@dataclass(frozen=True, eq=False)
class Reading:
    """Profiles of all texts for every level, and of the first few texts the tokens, their clouds side by side."""

    features: Mapping[str, Features]
    tokens: tuple[Float[Tensor, "_ f"], ...]


def read(
    encoder: Encoder,
    model: Model,
    tokenized: Tokenized,
    levels: Mapping[str, tuple[int, ...]],
    *,
    probes: Mapping[str, Probes] | None = None,
    sampled: int = 0,
) -> Reading:
    """One pass over the texts, by the same hooks that watch a model in use.

    ``levels``: clouds of every profile, the widest first; ``sampled``: how many texts the tokens are kept of.
    """
    clouds = next(iter(levels.values()))
    found: dict[str, list[Features]] = {level: [] for level in levels}
    tokens: dict[int, Tensor] = {}
    numbers: tuple[int, ...] = ()
    order: list[int] = []

    def take(taken: Taking) -> None:
        for level, own in levels.items():
            mine = [state for cloud, state in zip(clouds, taken.states, strict=True) if cloud in own]
            found[level].append(Features.of(profile(mine, taken.present, None if probes is None else probes[level])))
        for row, number in enumerate(numbers):
            if number < sampled:
                tokens[number] = torch.cat([state[row, taken.present[row]] for state in taken.states], 1)

    tap = Tap(model, encoder, clouds, take, strict=True)
    try:
        with torch.no_grad(), our_own_passes():
            for batch in batches(tokenized):
                numbers = batch.numbers
                model(**batch.inputs)
                order += numbers
    finally:
        tap.close()
    back = torch.tensor(order).argsort()
    return Reading(
        {level: Features.joined(parts)[back] for level, parts in found.items()},
        tuple(tokens[number] for number in sorted(tokens)),
    )
