"""Proof of extraction: logits and head outputs rebuilt from the folded matrices against the model's own.

They are rebuilt by the very pass that measures (``heads``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frostline.encoders import heads
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.forward import Batch, Seen, see
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.positions import Positions, positions
from frostline.encoders.unused_tensors import unused
from frostline.errors import BadModel

ALLOWED = 1e-5
SMALL = 0.05
FAINT = 1e-20
"""Weights below this are float32 noise in the model's own softmax: their logarithm says nothing."""


@dataclass(frozen=True)
class Proof:
    """Largest relative errors over layers and texts: of the logits, of each head's output, of the whole update."""

    logits: float
    outputs: float
    update: float
    tokens: int
    radius: float
    """The largest distance of a token from the sphere as heads see it, |radius − 1|."""
    unused: tuple[str, ...] = ()
    """Tensors that the model brings and that have no part in what is proved: heads of other tasks, buffers."""

    @property
    def holds(self) -> bool:
        return max(self.logits, self.outputs, self.update) <= ALLOWED

    def describe(self) -> str:
        return (
            f"rebuilt from the extracted matrices on {self.tokens} tokens: logits to {self.logits:.1e}, head "
            f"outputs to {self.outputs:.1e}, attention updates to {self.update:.1e} (at most {ALLOWED:g} is allowed)"
        )


def prove(encoder: Encoder, layers: Sequence[FoldedLayer], model: Model, given: Iterable[Batch]) -> Proof:
    """Compare on these batches of one text each; raises BadModel when the extraction misses the model,
    or when the model is not the one that its file describes (``unused``)."""
    others = unused(encoder)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    worst = np.zeros(3)
    radius, tokens = 0.0, 0
    try:
        for batch in given:
            seen = see(encoder, model, batch, close=True, weights=True)
            tokens += seen.states[0].shape[1]
            for number, layer in enumerate(layers):
                x = seen.states[number][0].double().numpy()
                errors, off = _errors(layer, x, seen, number, positions(encoder, model, number, len(x)), encoder, model)
                worst = np.maximum(worst, errors)
                radius = max(radius, off)
    finally:
        model.set_attn_implementation(before)
    logits, outputs, update = map(float, worst)
    found = Proof(logits, outputs, update, tokens, radius, others)
    if not found.holds:
        raise BadModel(
            f"{encoder.name}: the extraction does not reproduce the model: {found.describe()}. Either "
            f"config.json does not belong to these weights (biases switched off, other norms), or the adapter for "
            f"{encoder.family.name} does not fit them, or they are so large that float32 rounds the logits away."
        )
    return found


def _errors(
    layer: FoldedLayer,
    x: np.ndarray,
    seen: Seen,
    number: int,
    at: Positions,
    encoder: Encoder,
    model: Model,
) -> tuple[tuple[float, float, float], float]:
    u, size = layer.norm.on_sphere(x)
    attended = heads.attend(layer, layer.norm.entering(u, size), at)
    theirs = seen.weights[number][0].double().numpy()
    clear = theirs > FAINT
    with np.errstate(divide="ignore"):
        own = np.where(clear, np.log(theirs), 0.0)
    mine = np.where(clear, attended.logits, 0.0)
    count = np.maximum(clear.sum(-1, keepdims=True), 1)
    own, mine = (np.where(clear, z - z.sum(-1, keepdims=True) / count, 0.0) for z in (own, mine))
    projection = model.get_submodule(encoder.path(encoder.family.output, number))
    matrix = projection.weight.detach().double().numpy()
    if encoder.family.layer_scale is not None:
        factor = model.get_submodule(encoder.path(encoder.family.layer_scale, number)).lambda1
        matrix = factor.detach().double().numpy()[:, None] * matrix
    split = (-1, encoder.heads, encoder.head_size)
    context = seen.contexts[number][0].double().numpy().reshape(split)
    theirs_out = np.einsum("nhk,dhk->hnd", context, matrix.reshape(split))
    update = seen.updates[number][0].double().numpy()
    off = float(np.abs(layer.norm.seen(size) - 1).max()) if layer.norm.present else 0.0
    return (
        _relative(mine, own),
        _relative(heads.outputs(layer, attended.seen), theirs_out),
        _relative(heads.update(layer, attended.seen), update),
    ), off


def _relative(mine: np.ndarray, theirs: np.ndarray) -> float:
    # What is nearly zero throughout (uniform attention) is float32 noise: it is judged against SMALL.
    size = max(float(np.linalg.norm(theirs)), SMALL * float(np.sqrt(theirs.size)))
    return float(np.linalg.norm(mine - theirs)) / size
