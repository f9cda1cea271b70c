"""The tokenizer of a model: given, or found beside it; and calls that give it where texts belong, answered."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from torch import nn

from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import open_tokenizer
from frostline.errors import BadParameter, BadText

GIVE = "give it: tokenizer=transformers.AutoTokenizer.from_pretrained(FOLDER)"
P = ParamSpec("P")
R = TypeVar("R")


def tokenizer_of(model: "nn.Module | str | Path", encoder: Encoder, given: Any) -> Any:
    """The one given, else the one in the model's folder; a live model's is where ``config.name_or_path`` says, if that
    is a folder. A live model's tokenizer is never fetched."""
    if given is not None:
        if not is_tokenizer(given):
            raise BadParameter(f"tokenizer is a {type(given).__name__}; {GIVE}")
        return given
    if isinstance(model, nn.Module):
        told = getattr(model.config, "name_or_path", None)
        if not (isinstance(told, str) and told and Path(told).expanduser().is_dir()):
            where = f"config.name_or_path is {told!r}, no folder here" if told else "it does not say where it is from"
            raise BadParameter(f"a tokenizer is needed, and none is beside this live {encoder.name} ({where}); {GIVE}")
        encoder = replace(encoder, folder=Path(told).expanduser())
    try:
        return open_tokenizer(encoder)
    except BadText as error:
        raise BadParameter(f"{error} Or {GIVE}") from None


def is_tokenizer(thing: object) -> bool:
    """Whether it is one, of transformers or of the same make."""
    return callable(thing) and not isinstance(thing, type) and hasattr(thing, "num_special_tokens_to_add")


def texts_first(call: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Tokenizers came before texts once. A call in that order is answered with ``call``, the one of today."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

        @wraps(function)
        def answering(*given: P.args, **named: P.kwargs) -> R:
            if len(given) > places or any(map(is_tokenizer, (*given[places - 1 :], named.get("texts")))):
                raise BadParameter(f"texts come right after the model, and the tokenizer by its name: {call}")
            return function(*given, **named)

        return answering

    return around
