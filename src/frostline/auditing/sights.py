"""What the tokens of a kept text see through every head: four tokens and a tilted cloud (THEORY eq. 18), and the truth.

The law speaks of any number that tokens have: here it moves the mean of their places in the explorer's picture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float

from frostline.auditing.clouds import CLOSE_TOKENS
from frostline.auditing.explanations import LAW, Moments, explain, inner_tokens, visible_tokens
from frostline.encoders import heads
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.positions import Positions

LARGEST = float(np.finfo(np.float16).max)
"""Largest number that a file of sights can hold."""


@dataclass(frozen=True, eq=False)
class Sights:
    """What q tokens of a text see in L layers of h heads, with places along 3 directions in each of f frames.

    law         shares of attention by the law, in the order of ``LAW``
    paid        shares really paid to the same tokens, and to all the others together
    best        the place of the best token; −1: there is none
    freezing    σ/σ_N: above 1 the cloud is frozen
    tilt        how far the mean of the cloud's places moves by the law, f·c
    moved       how far it moves under the attention really paid
    count       number of inner tokens that a query can see besides itself, of which the best is one
    mean        of their places, without any attention
    covariance  of their places: xx, xy, xz, yy, yz, zz
    """

    law: Float[np.ndarray, "L h q 5"]
    paid: Float[np.ndarray, "L h q 5"]
    best: Float[np.ndarray, "L h q"]
    freezing: Float[np.ndarray, "L h q"]
    tilt: Float[np.ndarray, "L h q f 3"]
    moved: Float[np.ndarray, "L h q f 3"]
    count: Float[np.ndarray, "L q"]
    mean: Float[np.ndarray, "L q f 3"]
    covariance: Float[np.ndarray, "L q f 6"]

    def arrays(self) -> dict[str, Float[np.ndarray, "..."]]:
        """The arrays by their names."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


UPPER = np.triu_indices(3)
"""Places of a symmetric matrix that are kept."""


def shapes_of(layers: int, head_count: int, queries: int, frames: int) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a text's sights."""
    per_head, per_layer = (layers, head_count, queries), (layers, queries)
    return {
        "law": (*per_head, len(LAW)),
        "paid": (*per_head, len(LAW)),
        "best": per_head,
        "freezing": per_head,
        "tilt": (*per_head, frames, 3),
        "moved": (*per_head, frames, 3),
        "count": per_layer,
        "mean": (*per_layer, frames, 3),
        "covariance": (*per_layer, frames, 6),
    }


def sights_of(
    layers: Sequence[FoldedLayer],
    entering: Sequence[Float[np.ndarray, "n d"]],
    at: Sequence[Positions],
    places: Sequence[Float[np.ndarray, "n f 3"]],
) -> Sights:
    """What the first tokens of a text see, of all that enter each layer; as many as the audit measures closely."""
    rows = np.arange(min(len(entering[0]), CLOSE_TOKENS))
    each = [
        _of_layer(layer, x, where, shown, rows)
        for layer, x, where, shown in zip(layers, entering, at, places, strict=True)
    ]
    return Sights(**{name: np.stack([of_layer[name] for of_layer in each]) for name in each[0]})


def _of_layer(
    layer: FoldedLayer, x: Float[np.ndarray, "n d"], at: Positions, shown: Float[np.ndarray, "n f 3"], rows: np.ndarray
) -> Mapping[str, np.ndarray]:
    attended = heads.attend(layer, x, at, rows=rows)
    visible = visible_tokens(at, rows, len(x))
    inner = inner_tokens(visible, rows)
    explanation = explain(attended, rows, visible)
    h, q, n = attended.weights.shape
    frames = shown.shape[1]
    seen = Moments.of(attended.logits, np.broadcast_to(shown.reshape(n, -1), (h, n, 3 * frames)), inner)
    share = inner / np.maximum(inner.sum(-1, keepdims=True), 1)
    mean = np.einsum("qn,nfk->qfk", share, shown)
    apart = shown - mean[:, None]
    covariance = np.einsum("qn,qnfk,qnfl->qfkl", share, apart, apart)
    # The cloud of the law: inner tokens without the best one.
    chosen = explanation.places
    rest = attended.weights * inner
    np.put_along_axis(rest, np.maximum(chosen[..., 3:], 0), 0.0, axis=-1)
    mass = rest.sum(-1)
    single = np.where(chosen < 0, 0.0, np.take_along_axis(attended.weights, np.maximum(chosen, 0), -1))
    there = mass > 0
    really = np.einsum("hqn,nfk->hqfk", rest, shown) / np.where(there, mass, 1.0)[..., None, None]
    edge = np.maximum(explanation.edge, np.finfo(float).tiny)
    return {
        "law": explanation.shares,
        "paid": np.concatenate([single, mass[..., None]], -1),
        "best": chosen[..., 3].astype(float),
        "freezing": np.minimum(explanation.sigma / edge, LARGEST),
        "tilt": (explanation.tilt[..., None] * seen.covariance).reshape(h, q, frames, 3),
        "moved": np.where(there[..., None, None], really - mean, 0.0),
        "count": inner.sum(-1).astype(float),
        "mean": mean,
        "covariance": covariance[(..., *UPPER)],
    }
