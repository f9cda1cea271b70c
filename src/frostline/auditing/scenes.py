"""Token clouds of a few texts, kept for the explorer: every token at every depth, along three directions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from frostline.auditing.clouds import CLOSE_TOKENS, linked
from frostline.encoders.fold import FoldedLayer, norm_before
from frostline.encoders.forward import batches, rows, see
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
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
    """

    words: tuple[str, ...]
    places: dict[str, Float[np.ndarray, "clouds n 3"]]
    clusters: Int[np.ndarray, "clouds n"]

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
    clouds_of: dict[int, list[np.ndarray]] = {}
    for batch in batches(few):
        seen = see(encoder, model, batch)
        states = [list(rows(seen, state)) for state in seen.states]
        for place, number in enumerate(batch.numbers):
            clouds = [norm.on_sphere(state[place])[0] for norm, state in zip(norms, states, strict=True)]
            clouds_of[number] = [cloud[:CLOSE_TOKENS] for cloud in clouds]
    last = np.concatenate([clouds[-1] for clouds in clouds_of.values()])
    fixed = np.linalg.svd(last, full_matrices=True)[2][:DIRECTIONS]
    turning = [Factors.of(layer).leading_of_sum(DIRECTIONS).T for layer in layers]
    frames = {"tokens": [fixed] * len(norms), "heads": [*turning, turning[-1]]}
    return tuple(
        Scene(
            words=tuple(map(str, tokenizer.convert_ids_to_tokens(list(few.ids[number][:CLOSE_TOKENS])))),
            places={
                name: np.stack([cloud @ frame.T for cloud, frame in zip(clouds, frame_of, strict=True)])
                for name, frame_of in frames.items()
            },
            clusters=np.stack([linked(x) for x in clouds]),
        )
        for number, clouds in sorted(clouds_of.items())
    )
