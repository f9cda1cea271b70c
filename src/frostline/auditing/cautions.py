"""Cautions of an audit: parts of a model that were not looked at, weights that are zero, texts that are too few."""

from collections.abc import Sequence
from pathlib import Path

from frostline.auditing.frost_line import FEWEST
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.load import Encoder
from frostline.encoders.model_folders import described
from frostline.encoders.tokenization import Tokenized
from frostline.encoders.unused_tensors import counted, grouped
from frostline.encoders.verify import Proof


def model_cautions(encoder: Encoder, layers: Sequence[FoldedLayer], proof: Proof) -> list[str]:
    """Parts of the model, and models beside it, that were not looked at."""
    cautions, folder = [], Path(encoder.name).expanduser()
    if zero := zero_layers(layers):
        cautions.append(
            f"{_layers_in_words(zero, layers)}: attention weights that are zero; heads look nowhere and write nothing, "
            "and their numbers mean nothing"
        )
    if proof.unused:
        names = grouped(proof.unused)
        cautions.append(f"{counted(proof.unused)} that the encoder does not use, such as the head of a task: {names}")
    if encoder.config.get("auto_map"):
        cautions.append(
            f"code of its own that config.json names (auto_map): it was not run, and what was audited is the "
            f"{encoder.family.name} of transformers"
        )
    if encoder.folder is not None and encoder.folder != folder and folder.is_dir():
        cautions.append(f"everything in {encoder.name} but {encoder.folder.name}, the encoder, which was read")
    others = described(folder) if folder.is_dir() else ""
    if others:
        cautions.append(f"other models: {encoder.name} was read; {others}")
    return cautions


def zero_layers(layers: Sequence[FoldedLayer]) -> list[int]:
    """Layers whose queries, keys, values and outputs are zero."""
    return [
        layer.number
        for layer in layers
        if not any(part.any() for part in (layer.query, layer.key, layer.value, layer.output))
    ]


def zeros_warning(layers: Sequence[FoldedLayer]) -> str:
    """The first sentence of an audit of weights that are all zero; "" of others."""
    zero = len(zero_layers(layers)) == len(layers)
    return "All attention weights of this model are zero: nothing below says anything about its heads. " if zero else ""


def unfolded_parts(layers: Sequence[FoldedLayer]) -> list[str]:
    """Each part of a layer that its matrices do not hold, once, with its layers."""
    numbers_of: dict[str, list[int]] = {}
    for layer in layers:
        for part in layer.unfolded:
            numbers_of.setdefault(part, []).append(layer.number)
    return [f"{_layers_in_words(numbers, layers)}: {part}" for part, numbers in numbers_of.items()]


def few_texts(tokenized: Tokenized) -> list[str]:
    """A caution about texts that are too few to resample."""
    if len(set(tokenized.ids)) >= FEWEST:
        return []
    return [f"fewer than {FEWEST} different texts: intervals mean nothing, and no finding is drawn from text"]


def _layers_in_words(numbers: Sequence[int], layers: Sequence[FoldedLayer]) -> str:
    return "all layers" if len(numbers) == len(layers) else "layer " + ", ".join(map(str, numbers))
