"""What a reader must know of a model before believing its audit: what it brings and was not looked at, what is zero."""

from collections.abc import Sequence
from pathlib import Path

from frostline.encoders.fold import FoldedLayer
from frostline.encoders.load import Encoder
from frostline.encoders.model_folders import described
from frostline.encoders.unused_tensors import grouped
from frostline.encoders.verify import Proof

ZERO = "attention weights that are zero"


def cautions_of(encoder: Encoder, layers: Sequence[FoldedLayer], proof: Proof) -> list[str]:
    found, given = [], Path(encoder.name).expanduser()
    if zero := zero_layers(layers):
        where = "all layers" if len(zero) == len(layers) else "layer " + ", ".join(map(str, zero))
        found.append(f"{where}: {ZERO}; heads look nowhere and write nothing, and their numbers mean nothing")
    if proof.unused:
        count = len(proof.unused)
        found.append(
            f"{count} tensor{'' if count == 1 else 's'} that the encoder does not use, such as the head of a task: "
            f"{grouped(proof.unused)}"
        )
    if encoder.config.get("auto_map"):
        found.append(
            f"code of its own that config.json names (auto_map): it was not run, and what was audited is the "
            f"{encoder.family.name} of transformers"
        )
    if encoder.folder is not None and encoder.folder != given and given.is_dir():
        found.append(f"everything in {encoder.name} but {encoder.folder.name}, the encoder, which was read")
    others = described(given) if given.is_dir() else ""
    if others:
        found.append(f"other models: {encoder.name} was read; {others}")
    return found


def zero_layers(layers: Sequence[FoldedLayer]) -> list[int]:
    """Layers whose queries, keys, values and outputs are zero."""
    return [one.number for one in layers if not any(part.any() for part in (one.query, one.key, one.value, one.output))]
