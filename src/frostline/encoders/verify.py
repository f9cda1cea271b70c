"""Proof of extraction: logits and head outputs rebuilt from the folded matrices against the model's own.

They are rebuilt by the pass that audits measure with (``heads``).
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
from frostline.results import Result

ALLOWED = 1e-5
"""Relative error that an extraction may have: the model computes in float32."""
SMALL = 0.05
"""Root mean square of entries below which errors are relative to it: uniform attention is float32 noise about zero."""
FAINT = 1e-20
"""Attention weights below this are float32 noise in the model's own softmax, and their logarithms are not compared."""


@dataclass(frozen=True, repr=False)
class Proof(Result):
    """Proof that the extracted matrices reproduce the model.

    Attributes
    ----------
    logits, outputs, update
        Largest relative errors over layers and texts: of the logits, of each head's output, of the whole update.
    tokens
        Tokens that the proof was made on.
    radius
        The largest distance of a token from the sphere as heads see it, |radius − 1|.
    unused
        Tensors of the model that have no part in the proof: heads of other tasks, buffers.

    Examples
    --------
    >>> proof = Proof(logits=2e-7, outputs=3e-7, update=1e-7, tokens=384, radius=1e-6)
    >>> proof.holds
    True
    """

    logits: float
    outputs: float
    update: float
    tokens: int
    radius: float
    unused: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every error is at most ``ALLOWED``."""
        return max(self.logits, self.outputs, self.update) <= ALLOWED

    def describe(self) -> str:
        """The errors in words."""
        return (
            f"rebuilt from the extracted matrices on {self.tokens} tokens: logits to {self.logits:.1e}, head "
            f"outputs to {self.outputs:.1e}, attention updates to {self.update:.1e} (at most {ALLOWED:g} is allowed)"
        )


def prove(encoder: Encoder, layers: Sequence[FoldedLayer], model: Model, texts: Iterable[Batch]) -> Proof:
    """Compare the extraction with the model on batches of one text each.

    Raises
    ------
    BadModel
        The extraction misses the model, or the model is not the one that its file describes (``unused``).
    """
    others = unused(encoder)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    worst = np.zeros(3)
    radius, tokens = 0.0, 0
    try:
        for batch in texts:
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
    proof = Proof(logits, outputs, update, tokens, radius, others)
    if not proof.holds:
        raise BadModel(
            f"{encoder.name}: the extraction does not reproduce the model: {proof.describe()}. Either "
            f"config.json does not belong to these weights (biases switched off, other norms), or the adapter for "
            f"{encoder.family.name} does not fit them, or they are so large that float32 rounds the logits away."
        )
    return proof


def _errors(
    layer: FoldedLayer,
    x: np.ndarray,
    seen: Seen,
    number: int,
    at: Positions,
    encoder: Encoder,
    model: Model,
) -> tuple[tuple[float, float, float], float]:
    """Relative errors of logits, head outputs and update of one layer, and the largest distance from the sphere."""
    u, size = layer.norm.on_sphere(x)
    attended = heads.attend(layer, layer.norm.entering(u, size), at)
    off = float(np.abs(layer.norm.radius(size) - 1).max()) if layer.norm.present else 0.0
    return (
        _logit_error(attended.logits, seen.weights[number][0].double().numpy()),
        _relative(heads.outputs(layer, attended.mean), _head_outputs(seen, number, encoder, model)),
        _relative(heads.update(layer, attended.mean), seen.updates[number][0].double().numpy()),
    ), off


def _logit_error(logits: np.ndarray, weights: np.ndarray) -> float:
    """Error against the logarithms of the model's attention weights, each query up to a constant."""
    clear = weights > FAINT
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    count = np.maximum(clear.sum(-1, keepdims=True), 1)
    kept = (np.where(clear, values, 0.0) for values in (logits, logs))
    rebuilt, true = (np.where(clear, z - z.sum(-1, keepdims=True) / count, 0.0) for z in kept)
    return _relative(rebuilt, true)


def _head_outputs(seen: Seen, number: int, encoder: Encoder, model: Model) -> np.ndarray:
    """The model's own output of each head: its part of the output projection, and of a layer scale."""
    projection = model.get_submodule(encoder.path(encoder.family.output, number))
    matrix = projection.weight.detach().double().numpy()
    if encoder.family.layer_scale is not None:
        factor = model.get_submodule(encoder.path(encoder.family.layer_scale, number)).lambda1
        matrix = factor.detach().double().numpy()[:, None] * matrix
    split = (-1, encoder.heads, encoder.head_size)
    context = seen.contexts[number][0].double().numpy().reshape(split)
    return np.asarray(np.einsum("nhk,dhk->hnd", context, matrix.reshape(split)))


def _relative(rebuilt: np.ndarray, true: np.ndarray) -> float:
    size = max(float(np.linalg.norm(true)), SMALL * float(np.sqrt(true.size)))
    return float(np.linalg.norm(rebuilt - true)) / size
