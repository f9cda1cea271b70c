"""Tensors and settings of a model that its class in transformers drops without a warning.

Where these belong to attention, the network that is run is not the one that was trained.
"""

import re
from collections.abc import Collection
from typing import Any

import torch

from frostline.encoders.live_model import COMPUTED, settings
from frostline.encoders.load import Encoder
from frostline.encoders.tensors import ADAPTER, ADAPTER_FILE, InMemory, renamed
from frostline.errors import BadModel
from frostline.extras import need

ATTENTION = re.compile(r"alibi|distance_emb|rel_pos|rel_emb|relative|rotary")
"""In names of tensors: how places get into attention."""
HEADS = re.compile(
    r"^(\w+\.)?(cls|\w*classifier\w*|\w*pooler|lm_head|\w*predictions?|qa_outputs|contact_head|heads?)\b"
)
"""Beginnings of the names of tensors that a task adds on top of the encoder."""
SETTINGS = re.compile(r"position_embedding_type|alibi|rotary|rope|relative_|attention_window")
"""In names of settings: attention that a class without such a setting does not have."""
ALIBI = re.compile(r"alibi")
"""In names of settings, of a family with rotary positions."""
SHOWN = 6
"""Kinds of names that a sentence lists."""


def unused(encoder: Encoder) -> tuple[str, ...]:
    """Names of the tensors that the family's class in transformers has no place for: heads of other tasks, buffers.

    Raises
    ------
    BadModel
        One belongs to attention, to a layer or to an adapter, or a setting that changes attention is not read.
    """
    known = _stock(encoder)
    rest = [name for name in sorted(encoder.tensors.names) if name not in known]
    stored = [encoder.tensors.stored[name] for name in rest]
    encoder_parts = {name.removeprefix(encoder.prefix).split(".")[0] for name in known}
    adapters = [stored[place] for place, name in enumerate(rest) if ADAPTER.search(name)]
    foreign = [stored[place] for place, name in enumerate(rest) if _of_attention(encoder, name, encoder_parts)]
    reasons = []
    if adapters:
        reasons.append(f"{counted(adapters)} of adapters ({grouped(adapters)})")
    elif encoder.folder is not None and (encoder.folder / ADAPTER_FILE).is_file():
        reasons.append(f"an adapter beside its weights ({ADAPTER_FILE})")
    if foreign := [name for name in foreign if name not in adapters]:
        reasons.append(f"{counted(foreign)} of attention or inside layers ({grouped(foreign)})")
    reasons += [f"the setting {name} = {value!r}" for name, value in _strange_settings(encoder).items()]
    if reasons:
        advice = (
            "Merge the adapter into the weights (merge_and_unload in peft) and audit the result; one that cannot be "
            "merged is not supported."
            if "adapter" in reasons[0]
            else "Such attention is not supported."
        )
        raise BadModel(
            f"{encoder.name} has {'; '.join(reasons)}: the {encoder.family.name} of transformers knows none of this. "
            "Extraction would be proved of a network without it, which is not the one that was trained. "
            f"{advice}"
        )
    return tuple(stored)


def counted(names: Collection[str]) -> str:
    """Their number, in words."""
    return f"{len(names)} tensor{'' if len(names) == 1 else 's'}"


def grouped(names: Collection[str]) -> str:
    """Names for a sentence: those that differ in a number only are listed once, with their count."""
    counts: dict[str, int] = {}
    for name in names:
        pattern = re.sub(r"\b\d+\b", "N", name)
        counts[pattern] = counts.get(pattern, 0) + 1
    # The only name of its pattern keeps its number.
    last = {re.sub(r"\b\d+\b", "N", name): name for name in names}
    shown = [last[pattern] if count == 1 else f"{pattern} × {count}" for pattern, count in counts.items()]
    more = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
    return ", ".join(shown[:SHOWN] + more)


def _strange_settings(encoder: Encoder) -> dict[str, Any]:
    """Settings that change attention, and that the family's class does not read."""
    known: Collection[str] = getattr(need("transformers"), encoder.family.model_class).config_class().to_dict()
    # The names of angles have changed between releases, and families that turn tokens read the old ones too.
    words = ALIBI if encoder.family.positions == "rotary" else SETTINGS
    return {
        name: value
        for name, value in encoder.config.items()
        if words.search(name) and name not in known and value not in (None, False, 0, "none", "absolute")
    }


def _stock(encoder: Encoder) -> frozenset[str]:
    """Names of the tensors of the family's class in transformers with these settings, without making them."""
    cls = getattr(need("transformers"), encoder.family.model_class)
    with torch.device("meta"):
        model: Any = cls(settings(encoder))
    names = renamed(encoder.name, InMemory(model.state_dict()), encoder.family).names
    return frozenset(encoder.prefix + name for name in names)


def _of_attention(encoder: Encoder, name: str, encoder_parts: Collection[str]) -> bool:
    """Whether a tensor that is not used would change attention or a layer."""
    rest = name.removeprefix(encoder.prefix)
    if name.endswith(COMPUTED) or HEADS.match(name) or HEADS.match(rest):
        return False
    if ATTENTION.search(name):
        return True
    inside = name.startswith(encoder.prefix) and rest.split(".")[0] in encoder_parts
    return inside and (rest.startswith(encoder.family.layer.split("{}")[0]) or bool(re.search("att(entio)?n", rest)))
