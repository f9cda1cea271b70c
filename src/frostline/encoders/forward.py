"""A model at work: its own tokens, attention weights and head outputs, taken from the forward pass by hooks."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from frostline.encoders.live_model import Model, reason_of
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import Tokenized
from frostline.errors import BadModel

LARGEST_IMAGE = 4096
"""Pixels of an image along one side, at most."""
BATCH_TOKENS = 2048
"""Padded tokens in one forward pass, which bound its memory."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Input of one forward pass, padded token ids or pixels, and the numbers of the texts.

    ``present`` tells tokens from padding (b, n); None where there is no padding.
    """

    inputs: dict[str, Tensor]
    present: Tensor | None
    numbers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Seen:
    """One forward pass: the tokens that enter each layer and those that leave the last, (b, n, d) each.

    With ``close``: per layer what enters the output projection (the heads' outputs side by side) and what attention
    adds to the tokens.
    """

    batch: Batch
    states: tuple[Tensor, ...]
    contexts: tuple[Tensor, ...] = ()
    updates: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()


def batches(tokenized: Tokenized, *, tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
    """The texts in batches of about equal length, longest first: memory is known from the start."""
    order = sorted(range(len(tokenized.ids)), key=lambda number: -len(tokenized.ids[number]))
    start = 0
    while start < len(order):
        longest = len(tokenized.ids[order[start]])
        chosen = order[start : start + max(1, tokens // longest)]
        ids = torch.full((len(chosen), longest), tokenized.padding)
        present = torch.zeros((len(chosen), longest), dtype=torch.bool)
        for row, number in enumerate(chosen):
            length = len(tokenized.ids[number])
            ids[row, :length] = torch.tensor(tokenized.ids[number])
            present[row, :length] = True
        yield Batch({"input_ids": ids, "attention_mask": present.long()}, present, tuple(chosen))
        start += len(chosen)


def noise(encoder: Encoder, *, images: int, seed: int) -> Iterator[Batch]:
    """Images of noise, one at a time: enough to prove an extraction on, where there are no real images."""
    size, channels = encoder.config.get("image_size", 224), encoder.config.get("num_channels", 3)
    height, width = size if isinstance(size, list | tuple) and len(size) == 2 else (size, size)
    for name, value in (("image_size", height), ("image_size", width), ("num_channels", channels)):
        if not isinstance(value, int) or not 1 <= value <= LARGEST_IMAGE:
            raise BadModel(f"{encoder.name}: config.json says {name} {value!r}.")
    rng = np.random.default_rng([10, seed])
    for number in range(images):
        pixels = torch.from_numpy(rng.standard_normal((1, channels, height, width), dtype=np.float32))
        yield Batch({"pixel_values": pixels}, None, (number,))


def see(encoder: Encoder, model: Model, batch: Batch, *, close: bool = False, weights: bool = False) -> Seen:
    """Run the model once and keep what ``Seen`` names; ``weights``: the attention weights too."""
    family = encoder.family
    contexts: list[Tensor] = []
    updates: list[Tensor] = []

    def keep_input(module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        contexts.append(inputs[0])

    def keep_result(module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        updates.append(result)

    with ExitStack() as hooks, torch.inference_mode():
        if close:
            for layer in range(1 if family.shared else encoder.layers):
                for name, keep in ((family.output, keep_input), (family.layer_scale or family.output, keep_result)):
                    module = model.get_submodule(encoder.path(name, layer))
                    hooks.callback(module.register_forward_hook(keep).remove)
        options = {"output_attentions": True} if weights else {}
        try:
            output = model(**batch.inputs, output_hidden_states=True, **options)
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError, AssertionError) as error:
            raise BadModel(
                f"{encoder.name}: the model itself fails on this input ({reason_of(error)}); its settings may be wrong."
            ) from None
    last = output.last_hidden_state
    if not bool(torch.isfinite(last if batch.present is None else last[batch.present]).all()):
        raise BadModel(f"{encoder.name}: its own output is NaN or infinite; weights this large cannot be audited.")
    # Some models list the last state before its norm, and the normed one is needed.
    states = (*output.hidden_states[:-1], last)
    return Seen(batch, states, tuple(contexts), tuple(updates), tuple(output.attentions) if weights else ())


def rows(seen: Seen, state: Tensor) -> Iterator[np.ndarray]:
    """The tokens of each text, without padding, in float64."""
    for row, tokens in enumerate(state):
        kept = tokens if seen.batch.present is None else tokens[seen.batch.present[row]]
        yield kept.double().numpy()
