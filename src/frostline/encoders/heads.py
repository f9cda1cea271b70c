"""One forward pass of a layer's heads, from the folded matrices alone (THEORY eq. 14).

The proof of extraction compares this pass with the model's own, and an audit at work measures with the same pass.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from frostline.encoders.fold import FoldedLayer
from frostline.encoders.positions import EVERY, NOWHERE, Positions


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention of q tokens to all n in the heads of a layer.

    queries  before places turn them
    logits   up to a constant per query
    weights  their softmax
    values   of every token, in value coordinates (k numbers per token and head)
    """

    queries: Float[np.ndarray, "h q k"]
    logits: Float[np.ndarray, "h q n"]
    weights: Float[np.ndarray, "h q n"]
    values: Float[np.ndarray, "h n k"]

    @cached_property
    def mean(self) -> Float[np.ndarray, "h q k"]:
        """The softmax mean that each head gives a token, in value coordinates."""
        return self.weights @ self.values

    @property
    def best(self) -> Float[np.ndarray, "h q k"]:
        """The value of the token with the largest logit: the mean at zero temperature."""
        return np.take_along_axis(self.values, self.logits.argmax(-1)[..., None], axis=1)

    @property
    def perplexity(self) -> Float[np.ndarray, "h q"]:
        """exp of the entropy of the weights: how many tokens a token attends to."""
        logs = np.log(np.where(self.weights > 0, self.weights, 1.0))
        return np.asarray(np.exp(-(self.weights * logs).sum(-1)))


def queries(layer: FoldedLayer, u: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "h n k"]:
    """The queries of tokens u (as heads see them: ``Norm.entering``)."""
    return _projected(layer.query, u) + layer.query_shift[:, None, :]


def attend(
    layer: FoldedLayer,
    u: Float[np.ndarray, "n d"],
    at: Positions = NOWHERE,
    *,
    rows: Int[np.ndarray, " q"] | slice = EVERY,
) -> Attended:
    """Attention of the tokens ``rows`` of u (all, if not said) to all tokens u, at these places."""
    asking = queries(layer, u[rows])
    turned, keys = asking, _projected(layer.key, u)
    if at.turning:
        turned, keys = at.turned(asking, rows), at.turned(keys + layer.key_shift[:, None])
    logits = turned @ keys.transpose(0, 2, 1)
    if at.bias is not None:
        logits = logits + at.bias[:, rows]
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return Attended(asking, logits, weights, _projected(layer.value, u))


def outputs(layer: FoldedLayer, means: Float[np.ndarray, "h n k"]) -> Float[np.ndarray, "h n d"]:
    """V_h m_h + c_h of every head."""
    return np.asarray(means @ layer.output.transpose(0, 2, 1) + layer.head_shift[:, None, :])


def update(layer: FoldedLayer, means: Float[np.ndarray, "... h n k"]) -> Float[np.ndarray, "... n d"]:
    """Σ_h (V_h m_h + c_h) and the output bias, which attention adds to the tokens. No (h, n, d) array is formed."""
    *several, h, n, k = means.shape
    added = np.moveaxis(means, -3, -2).reshape(*several, n, h * k) @ layer.stacked_output
    return np.asarray(added + layer.head_shift.sum(0) + layer.output_bias)


def _projected(factor: Float[np.ndarray, "h k d"], u: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "h n k"]:
    """Tokens in the coordinates of every head: one product for all heads."""
    h, k, d = factor.shape
    return np.ascontiguousarray((u @ factor.reshape(h * k, d).T).reshape(len(u), h, k).transpose(1, 0, 2))
