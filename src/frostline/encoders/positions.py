"""Positions inside attention, where they cannot be folded into a head's matrices: a bias, a rotation, a window."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder

EVERY = slice(None)
"""All rows."""
UNSEEN = -1e30
"""The logit of a token outside the window: finite, so that zero times it is zero."""


@dataclass(frozen=True, eq=False)
class Positions:
    """For n tokens in a row: ``bias`` is added to the logits, queries and keys are turned by ``cos`` and ``sin``."""

    bias: Float[np.ndarray, "#h n n"] | None = None
    cos: Float[np.ndarray, "n k"] | None = None
    sin: Float[np.ndarray, "n k"] | None = None

    @property
    def turning(self) -> bool:
        """Whether queries and keys are turned."""
        return self.cos is not None

    def turned(
        self, x: Float[np.ndarray, "h q k"], rows: Int[np.ndarray, " q"] | slice = EVERY
    ) -> Float[np.ndarray, "h q k"]:
        """Queries or keys of the tokens ``rows`` (all, if not said), turned by the places they are at."""
        if self.cos is None or self.sin is None:
            return x
        half = x.shape[-1] // 2
        return np.asarray(x * self.cos[rows] + np.concatenate([-x[..., half:], x[..., :half]], -1) * self.sin[rows])


NOWHERE = Positions()
"""Positions without effect inside attention."""


def positions(encoder: Encoder, model: Model, layer: int, tokens: int) -> Positions:
    """The positions of this many tokens in a row, in a layer."""
    with torch.inference_mode():
        if encoder.positions == "relative":
            bias = model.encoder.compute_position_bias(torch.zeros(1, tokens, encoder.dimension))
            return Positions(bias=bias[0].double().numpy())
        if encoder.positions == "added":
            return NOWHERE
        window = encoder.window(layer)
        kinds = () if encoder.family.window is None else ("full_attention" if window is None else "sliding_attention",)
        cos, sin = getattr(model, str(encoder.family.rotary))(torch.zeros(1), torch.arange(tokens)[None], *kinds)
    mask = None
    if window is not None:
        apart = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
        mask = np.where(apart <= window, 0.0, UNSEEN)[None]
    return Positions(mask, cos[0].double().numpy(), sin[0].double().numpy())
