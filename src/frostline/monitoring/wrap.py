"""Watching the model inside a SentenceTransformer or a transformers pipeline."""

from pathlib import Path
from typing import Any

from torch import nn

from frostline.errors import BadModel
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.watch import Watch


def wrap(thing: Any, baseline: Baseline | str | Path, **settings: Any) -> Watch:
    """Watch the model inside a SentenceTransformer or a transformers pipeline.

    Reasons name tokens: the tokenizer inside is used, and must be the one the baseline was made with.

    Parameters
    ----------
    thing
        A SentenceTransformer or a transformers pipeline.
    baseline
        The baseline of the model inside, or its file.
    **settings
        Settings of ``frostline.watch``.

    Returns
    -------
    Watch
        The watch; use it as a context manager, or call ``close``.

    Raises
    ------
    BadModel
        There is no transformers model inside.
    BadBaseline
        The baseline is of another model or another tokenizer.

    Examples
    --------
    >>> with fl.wrap(pipeline, "enc.frost") as watch:  # doctest: +SKIP
    ...     pipeline(["The ice melts."])
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
    defaults: dict[str, Any] = {"tokenizer": getattr(thing, "tokenizer", None), "entry": entry}
    return Watch(model, baseline, **defaults | settings)
