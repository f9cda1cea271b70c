"""Merging of baselines that kept their texts into one baseline of all their texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from frostline.errors import BadBaseline
from frostline.monitoring.baseline import Baseline, baseline, check_name
from frostline.monitoring.baseline_file import load_baseline
from frostline.monitoring.text_model import open_text_model
from frostline.progress import ProgressFunction


def merge(
    model: "nn.Module | str | Path",
    baselines: "Sequence[Baseline | str | Path]",
    tokenizer: Any = None,
    *,
    name: str | None = None,
    seed: int = 0,
    progress: ProgressFunction | None = None,
) -> Baseline:
    """Make one baseline from several that kept their texts: the same as a baseline of all their texts.

    Parameters
    ----------
    model
        The model that all of them are of: a live transformers model, a folder, or an id on the model hub.
    baselines
        Two or more baselines, or their files.
    tokenizer
        The model's tokenizer; needed where none is beside the model.
    name
        A short name for people; the last part of the model's name by default.
    seed
        Seed of the split into reference and calibration texts, and of the broken copies.
    progress
        Called with a ``Progress`` as the work goes on.

    Returns
    -------
    Baseline
        A baseline of all texts, which it keeps.

    Raises
    ------
    BadBaseline
        There are fewer than two, one of them did not keep its texts, or one is of another model or tokenizer.
    BadParameter
        The name is none.

    Examples
    --------
    >>> fl.merge("path/to/model", ["monday.frost", "tuesday.frost"]).save("both.frost")  # doctest: +SKIP
    """
    check_name(name)
    if len(baselines) < 2:
        raise BadBaseline(f"{len(baselines)} baselines were given; merging takes two or more.")
    encoder, live, tokenizer = open_text_model(model, tokenizer)
    pooled: list[str] = []
    for number, source in enumerate(baselines):
        base = source if isinstance(source, Baseline) else load_baseline(source)
        if not base.texts:
            name = f"baseline {number + 1}" if isinstance(source, Baseline) else str(source)
            raise BadBaseline(f"{name} did not keep its texts; make it anew with keep_texts (--keep-texts).")
        base.check(encoder, tokenizer)
        pooled += base.texts
    return baseline(
        live if isinstance(model, nn.Module) else model,
        pooled,
        tokenizer=tokenizer,
        name=name,
        keep_texts=True,
        seed=seed,
        progress=progress,
    )
