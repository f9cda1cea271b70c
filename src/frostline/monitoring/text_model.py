"""A model that reads text, opened together with its tokenizer; and the order of arguments that calls must keep."""

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from torch import nn

from frostline.encoders.live_model import Model, open_model, plain_copy
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import open_tokenizer
from frostline.errors import BadParameter, BadText
from frostline.extras import need

GIVE = "give it: tokenizer=transformers.AutoTokenizer.from_pretrained(FOLDER)"
"""Advice of errors about a missing tokenizer."""
P = ParamSpec("P")
R = TypeVar("R")


def open_text_model(model: "nn.Module | str | Path", tokenizer: Any) -> tuple[Encoder, Model, Any]:
    """The encoder, a model that can be run, and its tokenizer."""
    need("transformers")
    encoder = load(model)
    if encoder.family.reads != "text":
        raise BadText(f"{encoder.name} reads images ({encoder.family.name}); baselines are of models that read text.")
    tokenizer = tokenizer_of(model, encoder, tokenizer)
    # A model in training would add its dropout to the baseline, one on a GPU could not read our batches.
    live = plain_copy(model) if isinstance(model, nn.Module) else open_model(encoder)
    return encoder, live, tokenizer


def tokenizer_of(model: "nn.Module | str | Path", encoder: Encoder, tokenizer: Any) -> Any:
    """The tokenizer that was given, else the one in the model's folder.

    The folder of a live model is the one that ``config.name_or_path`` names; its tokenizer is never downloaded.
    """
    if tokenizer is not None:
        if not is_tokenizer(tokenizer):
            raise BadParameter(f"tokenizer is a {type(tokenizer).__name__}; {GIVE}")
        return tokenizer
    if isinstance(model, nn.Module):
        source = getattr(model.config, "name_or_path", None)
        if not (isinstance(source, str) and source and Path(source).expanduser().is_dir()):
            where = (
                f"config.name_or_path is {source!r}, no folder here" if source else "it does not say where it is from"
            )
            raise BadParameter(f"a tokenizer is needed, and none is beside this live {encoder.name} ({where}); {GIVE}")
        encoder = replace(encoder, folder=Path(source).expanduser())
    try:
        return open_tokenizer(encoder)
    except BadText as error:
        raise BadParameter(f"{error} Or {GIVE}") from None


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of the tokenizer's own description where it has one, of its vocabulary otherwise."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Padding and truncation are settings of a call, not of the tokenizer.
        description = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    vocabulary = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def is_tokenizer(thing: object) -> bool:
    """True for a tokenizer of transformers and for objects with the same interface."""
    return callable(thing) and not isinstance(thing, type) and hasattr(thing, "num_special_tokens_to_add")


def texts_first(call: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: refuse a tokenizer in the place of the texts, where earlier versions had it, and show ``call``."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

        @wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> R:
            if len(arguments) > places or any(map(is_tokenizer, (*arguments[places - 1 :], named.get("texts")))):
                raise BadParameter(f"texts come right after the model, and the tokenizer by its name: {call}")
            return function(*arguments, **named)

        return checked

    return around
