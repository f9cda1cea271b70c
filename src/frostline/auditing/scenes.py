"""Texts kept for the explorer: their tokens at every depth along three directions, and what these tokens see."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from frostline.auditing.clouds import CLOSE_SOURCES, CLOSE_TOKENS, linked
from frostline.auditing.sights import Sights, sights_of
from frostline.encoders.fold import FoldedLayer, Norm, norm_before
from frostline.encoders.forward import batches, rows, see
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.positions import positions
from frostline.encoders.spectra import Factors
from frostline.encoders.tokenization import Tokenized
from frostline.results import Result

DIRECTIONS = 3
"""Directions along which tokens are shown."""
FRAMES = {
    "tokens": "where these tokens point most, at the last layer: the same directions at every depth",
    "heads": "the dominant eigenspace of ΣVBᵀ over the heads of the layer that the tokens enter: other directions at "
    "every depth, to look along and not a limit, for heads do not simply add up",
}
"""The directions that tokens are shown along, in words."""


@dataclass(frozen=True, eq=False, repr=False)
class Scene(Result):
    """One text of an audit, kept to be looked at.

    Attributes
    ----------
    words
        Its tokens as words.
    places
        Where the tokens are at each of L + 1 depths, in each of ``FRAMES``.
    clusters
        The number of each token's group at each depth: tokens linked by angles below 0.3 rad.
    length
        Number of tokens of the text that heads look at: it may be longer than what is kept.
    sights
        What the tokens see through every head of every layer, with places in each of ``FRAMES``.
    """

    words: tuple[str, ...]
    places: dict[str, Float[np.ndarray, "clouds n 3"]]
    clusters: Int[np.ndarray, "clouds n"]
    length: int
    sights: Sights

    def describe(self) -> str:
        """Its size, and its words."""
        return f"{len(self.words)} tokens at {len(self.clusters)} depths: {' '.join(self.words)}"


def scenes(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    model: Model,
    tokenizer: Any,
    tokenized: Tokenized,
    count: int,
) -> tuple[Scene, ...]:
    """The first ``count`` texts, each up to its 128th token."""
    few = replace(tokenized, ids=tokenized.ids[:count])
    norms = [layer.norm for layer in layers] + [norm_before(encoder, encoder.layers)]
    # Twice through the model: the directions come from all texts, and the clouds of one text at a time fit in memory.
    last = np.concatenate([pairs[-1][0][:CLOSE_TOKENS] for _, pairs in _clouds(encoder, model, few, norms)])
    fixed = np.linalg.svd(last, full_matrices=True)[2][:DIRECTIONS]
    turning = [Factors.of(layer).leading_of_sum(DIRECTIONS).T for layer in layers]
    frames = {"tokens": [fixed] * len(norms), "heads": [*turning, turning[-1]]}
    kept = {}
    for number, pairs in _clouds(encoder, model, few, norms):
        clouds = [cloud[:CLOSE_SOURCES] for cloud, _ in pairs]
        shown = {
            name: [cloud @ frame.T for cloud, frame in zip(clouds, frame_of, strict=True)]
            for name, frame_of in frames.items()
        }
        kept[number] = Scene(
            words=tuple(map(str, tokenizer.convert_ids_to_tokens(list(few.ids[number][:CLOSE_TOKENS])))),
            places={name: np.stack([x[:CLOSE_TOKENS] for x in places]) for name, places in shown.items()},
            clusters=np.stack([linked(cloud[:CLOSE_TOKENS]) for cloud in clouds]),
            length=len(clouds[0]),
            sights=sights_of(
                layers,
                [norm.entering(*pair)[:CLOSE_SOURCES] for norm, pair in zip(norms[:-1], pairs[:-1], strict=True)],
                [positions(encoder, model, layer, len(clouds[0])) for layer in range(len(layers))],
                [np.stack(places, 1) for places in zip(*(shown[name][:-1] for name in FRAMES), strict=True)],
            ),
        )
    return tuple(kept[number] for number in sorted(kept))


def _clouds(
    encoder: Encoder, model: Model, tokenized: Tokenized, norms: Sequence[Norm]
) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """The number of each text and its tokens at every depth: on the sphere, and their sizes."""
    for batch in batches(tokenized):
        seen = see(encoder, model, batch)
        states = [list(rows(seen, state)) for state in seen.states]
        for place, number in enumerate(batch.numbers):
            yield number, [norm.on_sphere(state[place]) for norm, state in zip(norms, states, strict=True)]
