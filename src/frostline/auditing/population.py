"""The population of an encoder's tokens: mean and covariance of the inner tokens of reference texts, layer by layer.

The mean value over it, v̄, is what attention is expected to return before a text is seen: shares explained are of the
deviation from it (THEORY section 12).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.encoders.fold import FoldedLayer
from frostline.encoders.forward import batches, rows, see
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import Tokenized

REFERENCE_TEXTS = 300
"""Texts of the reference that are read, at most."""


@dataclass(frozen=True, eq=False)
class Population:
    """Inner tokens (neither first nor last) of the reference, as the heads of each layer see them.

    ``covariance`` is that within texts, about the mean of each: the cloud that a query of a text meets.
    """

    texts: int
    tokens: int
    mean: Float[np.ndarray, "layers d"]
    covariance: Float[np.ndarray, "layers d d"]


def population(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    model: Model,
    reference: Tokenized,
    *,
    tick: Callable[[int, int], None] = lambda done, of: None,
) -> Population:
    """Run the reference through the model. Texts without inner tokens count with all of theirs if no text has any."""
    d = encoder.dimension
    bare = all(len(ids) <= 2 for ids in reference.ids)
    mean, covariance = np.zeros((len(layers), d)), np.zeros((len(layers), d, d))
    tokens = done = 0
    for batch in batches(reference):
        seen = see(encoder, model, batch)
        lengths = [len(reference.ids[number]) for number in batch.numbers]
        tokens += sum(length if bare else max(length - 2, 0) for length in lengths)
        for layer, state in enumerate(seen.states[:-1]):
            deviations = []
            for x in rows(seen, state):
                u = _inner(layers[layer].norm.entering(*layers[layer].norm.on_sphere(x)), bare)
                if len(u):
                    mean[layer] += u.sum(0)
                    deviations.append(u - u.mean(0))
            if deviations:
                stacked = np.concatenate(deviations)
                covariance[layer] += stacked.T @ stacked
        done += len(batch.numbers)
        tick(done, len(reference.ids))
    return Population(len(reference.ids), tokens, mean / tokens, covariance / tokens)


def _inner(u: Float[np.ndarray, "n d"], bare: bool) -> Float[np.ndarray, "inner d"]:
    return u if bare else u[1:-1]
