"""Two tokenizers: vocabulary, merges, normaliser, pre-tokenizer, special tokens, longest text, and their settings."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from frostline.auditing.comparison.parts import Part, differences, shown, some
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import TOKENIZER_FILES, open_tokenizer
from frostline.errors import BadText

UNLIMITED = 10**9
"""Longest texts beyond this mean: no limit."""
STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
"""What a tokenizer does around its vocabulary."""
PLACES = (
    "name_or_path",
    "file",
    "_class",
    "version",
    "local",
    "backend",
    "added_tokens",
    "special_tokens",
    "chat_template",
)
"""Parts of the names of settings that say where a tokenizer comes from, or what is compared by itself."""
CALLED = {"normalizer": "normaliser", "pre_tokenizer": "pre-tokenizer", "post_processor": "post-processor"}


def compare_tokenizers(one: Encoder, other: Encoder) -> tuple[Part | None, str, dict[int, str]]:
    """The tokenizers of two folders; why they were not compared; and the token of each row of the embeddings."""
    opened, troubles = [], []
    for which, encoder in (("base", one), ("tuned", other)):
        found, trouble = _opened(encoder, which)
        opened.append(found)
        troubles += [trouble] if trouble else []
    tokens = {number: token for tokenizer in opened if tokenizer for token, number in tokenizer.get_vocab().items()}
    if opened[0] is None or opened[1] is None:
        return None, "" if one.family.reads == "images" else f"tokenizer ({' and '.join(troubles)})", tokens
    slow = not all(getattr(tokenizer, "backend_tokenizer", None) for tokenizer in opened)
    note = "rules of the tokenizer (a slow one: its vocabulary and settings were compared)" if slow else ""
    return Part.of("tokenizer", list(_between(*opened))), note, tokens


def _opened(encoder: Encoder, which: str) -> tuple[Any, str]:
    if encoder.folder is None:
        return None, f"the {which} model is in memory, without one"
    if not any((encoder.folder / name).is_file() for name in TOKENIZER_FILES):
        return None, f"none beside the {which} model"
    try:
        return open_tokenizer(encoder), ""
    except BadText as error:
        return None, f"that of the {which} model cannot be read: {shown(str(error))}"


def _between(one: Any, other: Any) -> Iterator[str]:
    yield from _vocabulary(one.get_vocab(), other.get_vocab())
    a, b = _outside(one), _outside(other)
    # Versions differ in which settings they write: only those that both have are compared.
    for mine, theirs in ((a["setting"], b["setting"]), (b["setting"], a["setting"])):
        for name in mine.keys() - theirs.keys():
            del mine[name]
    yield from differences(a, b)
    a, b = _inside(one), _inside(other)
    for what in ("merges", "scores"):
        first, second = a.pop(what, None), b.pop(what, None)
        if first != second:
            count = _count_differing(first or [], second or [])
            yield f"{what}: {count} differ; there are {len(first or [])} and {len(second or [])}"
    yield from differences(a, b)


def _vocabulary(one: Mapping[str, int], other: Mapping[str, int]) -> Iterator[str]:
    moved = sorted((token for token in one.keys() & other.keys() if one[token] != other[token]), key=one.__getitem__)
    if moved:
        named = [f"{shown(token)} {one[token]} and {other[token]}" for token in moved]
        yield f"vocabulary: {len(moved)} tokens have another number ({some(named, ', ')})"
    for which, mine, theirs in (("base", one, other), ("tuned", other, one)):
        alone = sorted(mine.keys() - theirs.keys(), key=mine.__getitem__)
        if alone:
            yield f"vocabulary: {len(alone)} tokens only in the {which} model ({some([*map(shown, alone)], ', ')})"


def _inside(tokenizer: Any) -> dict[str, Any]:
    """A fast tokenizer as its own JSON, its lists of pieces apart; of a slow one what it was made with."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {}
    told = json.loads(backend.to_str())
    model = dict(told["model"] or {})
    pieces, merges = model.pop("vocab", None), model.pop("merges", None)
    found: dict[str, Any] = {CALLED.get(step, step): told.get(step) for step in STEPS}
    flags = {one["content"]: [name for name, on in one.items() if on is True] for one in told["added_tokens"]}
    added = {token: ", ".join(on) or "plain" for token, on in flags.items()}
    # A list of pieces with scores is a unigram model; other vocabularies are compared by their numbers.
    scores = [tuple(piece) for piece in pieces] if isinstance(pieces, list) else None
    merged = None if merges is None else [" ".join(one) if isinstance(one, list) else one for one in merges]
    return found | {"model": model, "added token": added, "merges": merged, "scores": scores}


def _outside(tokenizer: Any) -> dict[str, Any]:
    """What is set around the tokenizer itself."""
    longest = tokenizer.model_max_length
    made = {
        name: value
        for name, value in tokenizer.init_kwargs.items()
        if isinstance(value, str | int | float | bool) and not any(part in name for part in PLACES)
    }
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return {
        "setting": made | {"model_max_length": longest if longest < UNLIMITED else "no limit"},
        "special token": special,
        "padding side": tokenizer.padding_side,
        "truncation side": tokenizer.truncation_side,
    }


def _count_differing(one: list[Any], other: list[Any]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=False)) + abs(len(one) - len(other))
