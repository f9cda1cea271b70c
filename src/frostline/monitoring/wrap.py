"""Watching what people call: sentence-transformers models and transformers pipelines hold a model inside."""

from pathlib import Path
from typing import Any

from torch import nn

from frostline.errors import BadModel
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.watch import Watch


def wrap(thing: Any, baseline: Baseline | str | Path, **settings: Any) -> Watch:
    """Watch the model inside a SentenceTransformer or a pipeline; ``settings`` are those of ``watch``.

    Reasons name tokens: its own tokenizer is used, and must be the one the baseline was made with.
    """
    model, entry = getattr(thing, "model", None), None
    if isinstance(thing, nn.Sequential) and len(thing):
        # A SentenceTransformer: the encoder, then pooling. It may call the model's forward, past hooks on the model.
        entry = thing[0]
        model = getattr(entry, "auto_model", None)
    if not isinstance(model, nn.Module):
        raise BadModel(
            f"{type(thing).__name__} is neither a SentenceTransformer nor a transformers pipeline; "
            "use frostline.watch with the transformers model itself."
        )
    given: dict[str, Any] = {"tokenizer": getattr(thing, "tokenizer", None), "entry": entry} | settings
    return Watch(model, baseline, **given)
