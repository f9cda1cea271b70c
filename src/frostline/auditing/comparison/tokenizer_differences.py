"""Two tokenizers compared: vocabulary, merges, normaliser, pre-tokenizer, special tokens, longest text, settings."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from frostline.auditing.comparison.parts import Part, differences, shown, some
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import TOKENIZER_FILES, open_tokenizer
from frostline.errors import BadText

UNLIMITED = 10**9
"""Tokens of a longest text from which there is no limit."""
STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
"""Parts of a tokenizer around its vocabulary."""
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
"""In names of settings: where a tokenizer comes from, or compared by themselves."""
CALLED = {"normalizer": "normaliser", "pre_tokenizer": "pre-tokenizer", "post_processor": "post-processor"}
"""Those parts as differences name them."""


def compare_tokenizers(base: Encoder, tuned: Encoder) -> tuple[Part | None, str, dict[int, str]]:
    """The tokenizers of two folders; why they were not compared; and the token of each row of the embeddings."""
    opened, troubles = [], []
    for which, encoder in (("base", base), ("tuned", tuned)):
        tokenizer, trouble = _opened(encoder, which)
        opened.append(tokenizer)
        troubles += [trouble] if trouble else []
    tokens = {number: token for tokenizer in opened if tokenizer for token, number in tokenizer.get_vocab().items()}
    if opened[0] is None or opened[1] is None:
        return None, "" if base.family.reads == "images" else f"tokenizer ({' and '.join(troubles)})", tokens
    slow = not all(getattr(tokenizer, "backend_tokenizer", None) for tokenizer in opened)
    note = "rules of the tokenizer (a slow one: its vocabulary and settings were compared)" if slow else ""
    return Part.of("tokenizer", list(_differences(*opened))), note, tokens


def _opened(encoder: Encoder, which: str) -> tuple[Any, str]:
    if encoder.folder is None:
        return None, f"the {which} model is in memory, without one"
    if not any((encoder.folder / name).is_file() for name in TOKENIZER_FILES):
        return None, f"none beside the {which} model"
    try:
        return open_tokenizer(encoder), ""
    except BadText as error:
        return None, f"that of the {which} model cannot be read: {shown(str(error))}"


def _differences(base: Any, tuned: Any) -> Iterator[str]:
    yield from _vocabulary(base.get_vocab(), tuned.get_vocab())
    before, after = _outside(base), _outside(tuned)
    # Versions differ in which settings they write: only those that both have are compared.
    common = before["setting"].keys() & after["setting"].keys()
    for table in (before, after):
        table["setting"] = {name: value for name, value in table["setting"].items() if name in common}
    yield from differences(before, after)
    before, after = _inside(base), _inside(tuned)
    for what in ("merges", "scores"):
        first, second = before.pop(what, None), after.pop(what, None)
        if first != second:
            count = _count_differing(first or [], second or [])
            yield f"{what}: {count} differ; there are {len(first or [])} and {len(second or [])}"
    yield from differences(before, after)


def _vocabulary(base: Mapping[str, int], tuned: Mapping[str, int]) -> Iterator[str]:
    both = base.keys() & tuned.keys()
    moved = sorted((token for token in both if base[token] != tuned[token]), key=base.__getitem__)
    if moved:
        named = [f"{shown(token)} {base[token]} and {tuned[token]}" for token in moved]
        yield f"vocabulary: {len(moved)} tokens have another number ({some(named, ', ')})"
    for which, vocabulary in (("base", base), ("tuned", tuned)):
        alone = sorted(vocabulary.keys() - both, key=vocabulary.__getitem__)
        if alone:
            yield f"vocabulary: {len(alone)} tokens only in the {which} model ({some([*map(shown, alone)], ', ')})"


def _inside(tokenizer: Any) -> dict[str, Any]:
    """A fast tokenizer's own JSON, with its merges and scored pieces as lists; nothing of a slow one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {}
    rules = json.loads(backend.to_str())
    model = dict(rules["model"] or {})
    pieces, merges = model.pop("vocab", None), model.pop("merges", None)
    steps: dict[str, Any] = {CALLED.get(step, step): rules.get(step) for step in STEPS}
    flags = {token["content"]: [name for name, on in token.items() if on is True] for token in rules["added_tokens"]}
    added = {token: ", ".join(on) or "plain" for token, on in flags.items()}
    # A list of pieces with scores is a unigram model; other vocabularies are compared by their numbers.
    scores = [tuple(piece) for piece in pieces] if isinstance(pieces, list) else None
    merged = None if merges is None else [" ".join(pair) if isinstance(pair, list) else pair for pair in merges]
    return steps | {"model": model, "added token": added, "merges": merged, "scores": scores}


def _outside(tokenizer: Any) -> dict[str, Any]:
    """Settings around the tokenizer itself."""
    longest = tokenizer.model_max_length
    settings = {
        name: value
        for name, value in tokenizer.init_kwargs.items()
        if isinstance(value, str | int | float | bool) and not any(part in name for part in PLACES)
    }
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return {
        "setting": settings | {"model_max_length": longest if longest < UNLIMITED else "no limit"},
        "special token": special,
        "padding side": tokenizer.padding_side,
        "truncation side": tokenizer.truncation_side,
    }


def _count_differing(base: list[Any], tuned: list[Any]) -> int:
    return sum(a != b for a, b in zip(base, tuned, strict=False)) + abs(len(base) - len(tuned))
