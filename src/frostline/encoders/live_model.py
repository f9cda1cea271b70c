"""A transformers model opened from its folder, or a live one copied: in float32, not training."""

import copy
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import nn

from frostline.encoders.load import Encoder
from frostline.errors import BadModel
from frostline.extras import need

Model: TypeAlias = Any
"""A transformers model: their own types are wider than what is used here."""
OPTIONAL = ("pooler", "contact_head")
"""Beginnings of the names of tensors that an encoder works without."""
COMPUTED = ("position_ids", "inv_freq")
"""Endings of the names of tensors that a model computes anew."""


def open_model(encoder: Encoder, *, random: int | None = None) -> Model:
    """The model in float32; with ``random`` the same architecture with fresh weights, drawn with this seed."""
    transformers = need("transformers")
    cls = getattr(transformers, encoder.family.model_class)
    config = settings(encoder)
    if random is None and encoder.folder is None:
        raise BadModel("give the model's folder, or pass the model itself.")
    missing: Collection[str] = ()
    with quiet(transformers):
        try:
            if random is not None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(random)
                    model = cls(config)
            else:
                model, loading = cls.from_pretrained(
                    encoder.folder, config=config, dtype=torch.float32, local_files_only=True, output_loading_info=True
                )
                missing = loading["missing_keys"]
        except Exception as error:  # a config can be wrong in as many ways as there are settings
            reason = reason_of(error)
            if "ignore_mismatched_sizes" in reason:
                reason = "tensors have other shapes than config.json says"
            raise BadModel(
                f"{encoder.name}: transformers cannot make it ({reason}); config.json and the weights may not fit."
            ) from None
    _check_whole(encoder, model, missing)
    return model.eval().requires_grad_(False)


def plain_copy(model: nn.Module) -> Model:
    """A live model without its head, in float32, not training; a copy wherever it is anything else."""
    base: Model = getattr(model, "base_model", model)
    is_plain = not model.training and all(
        p.dtype == torch.float32 and p.device.type == "cpu" for p in base.parameters()
    )
    return base if is_plain else copy.deepcopy(base).to("cpu", torch.float32).eval().requires_grad_(False)


def _check_whole(encoder: Encoder, model: Model, missing: Collection[str]) -> None:
    """Refuse a model whose missing tensors transformers has replaced by random numbers."""
    needed = sorted(name for name in missing if not name.startswith(OPTIONAL) and not name.endswith(COMPUTED))
    if needed:
        raise BadModel(
            f"{encoder.name}: {len(needed)} tensors are missing, {needed[0]} among them; the weights are incomplete."
        )
    for name, tensor in model.named_parameters():
        if not bool(torch.isfinite(tensor).all()):
            raise BadModel(f"{encoder.name}: tensor {name} has entries that are NaN or infinite.")


def settings(encoder: Encoder) -> Any:
    """config.json as transformers reads it, with its defaults; the family gives the class, since old folders do not."""
    transformers = need("transformers")
    cls = getattr(transformers, encoder.family.model_class)
    options = {name: value for name, value in encoder.config.items() if name not in ("model_type", "architectures")}
    try:
        with quiet(transformers):
            return cls.config_class(**options)
    except Exception as error:  # whatever their validation raises
        raise BadModel(
            f"{encoder.name}: config.json is not one of a {encoder.family.name} ({reason_of(error)})."
        ) from None


def reason_of(error: Exception) -> str:
    """The first 200 characters of another library's error, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Silence transformers' warnings and progress bars while a model is opened."""
    before = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        transformers.logging.set_verbosity(before)
        if bars:
            transformers.logging.enable_progress_bar()
