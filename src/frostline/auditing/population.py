"""The population of an encoder's tokens: mean and covariance of the inner tokens of reference texts, layer by layer.

The mean value over it, v̄, is what attention is expected to return before a text is seen: shares explained are of the
deviation from it (THEORY section 12).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.arrays import evenly_spread
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


@dataclass(frozen=True, eq=False)
class PopulationSums:
    """Sums over the inner tokens of some texts: their number, the tokens, and their squares about each text's mean."""

    tokens: int
    total: Float[np.ndarray, "layers d"]
    squares: Float[np.ndarray, "layers d d"]

    @classmethod
    def of(cls, texts: Sequence[Sequence[Float[np.ndarray, "_ d"]]], *, bare: bool) -> "PopulationSums":
        """Of texts, each given as the tokens that enter every layer; ``bare``: first and last tokens count too."""
        total, squares, tokens = [], [], 0
        for states in zip(*texts, strict=True):
            inner = [u if bare else u[1:-1] for u in states]
            tokens = sum(map(len, inner))
            total.append(sum(u.sum(0) for u in inner))
            centred = np.concatenate([u - u.mean(0) if len(u) else u for u in inner])
            squares.append(centred.T @ centred)
        return cls(tokens, np.stack(total), np.stack(squares))


def population_of(texts: int, parts: Sequence[PopulationSums]) -> Population:
    """The population of so many texts, from the sums over parts of them."""
    tokens = sum(part.tokens for part in parts)
    total, squares = sum(part.total for part in parts), sum(part.squares for part in parts)
    return Population(texts, tokens, np.asarray(total / tokens), np.asarray(squares / tokens))


def only_ends(ids: Iterable[Sequence[int]]) -> bool:
    """Whether no text has an inner token: then all tokens count."""
    return all(len(text) <= 2 for text in ids)


def every_second(count: int) -> list[int]:
    """Numbers of the texts that are the reference of a corpus of their own: every second one, or the only one."""
    second = range(1, count, 2) if count > 1 else range(count)
    return [second[k] for k in evenly_spread(len(second), REFERENCE_TEXTS)]


def population(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    model: Model,
    reference: Tokenized,
    *,
    tick: Callable[[int, int], None] = lambda done, of: None,
) -> Population:
    """Run the reference through the model. Texts without inner tokens count with all of theirs if no text has any."""
    bare, parts, done = only_ends(reference.ids), [], 0
    for batch in batches(reference):
        seen = see(encoder, model, batch)
        of_layers = [
            [layer.norm.entering(*layer.norm.on_sphere(x)) for x in rows(seen, state)]
            for layer, state in zip(layers, seen.states, strict=False)
        ]
        parts.append(PopulationSums.of(list(zip(*of_layers, strict=True)), bare=bare))
        done += len(batch.numbers)
        tick(done, len(reference.ids))
    return population_of(len(reference.ids), parts)
