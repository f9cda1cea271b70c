"""Texts as users give them: checked, listed, and chosen as the reference of a baseline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from frostline.encoders.tokenization import is_unicode
from frostline.errors import BadText

FEWEST = 500
"""Different texts that a baseline needs: two fifths of them give p-values, down to 1/201."""
MOST = 20_000
"""Largest number of texts that a baseline is made of."""
LONGEST = 512
"""Tokens after which a text is cut."""
CHARACTERS_WITH_TOKEN = 1000
"""Characters at the beginning of a text, among which there must be a token."""


def list_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list of strings that a tokenizer can read."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise BadText(f"texts is a {type(texts).__name__}; give a list of texts.")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise BadText(f"texts must be strings; text {number} is a {type(text).__name__}.")
        if not is_unicode(text):
            raise BadText(f"text {number} holds half a character (a lone surrogate), which no tokenizer reads.")
    return [str(text) for text in listed]


def have_tokens(texts: Sequence[str], tokenizer: Any) -> list[bool]:
    """True for every text that has tokens besides the special ones."""
    if not texts:
        return []
    special = tokenizer.num_special_tokens_to_add()
    beginnings = [text[:CHARACTERS_WITH_TOKEN] for text in texts]
    ids_of_texts = tokenizer(beginnings, truncation=False, verbose=False)["input_ids"]
    return [len(ids) > special for ids in ids_of_texts]


def choose_texts(texts: Sequence[str], tokenizer: Any, seed: int) -> list[str]:
    """Different texts that have tokens, in random order, at most ``MOST``."""
    different = sorted({text for text in texts if text.strip()})
    with_tokens = have_tokens(different, tokenizer)
    different = [text for text, has in zip(different, with_tokens, strict=True) if has]
    if len(different) < FEWEST:
        raise BadText(
            f"{len(different)} different texts of {len(texts)} given; a baseline needs at least {FEWEST} (better "
            "a few thousand: the more there are, the smaller p-values can get)."
        )
    order = np.random.default_rng([16, seed]).permutation(len(different))[:MOST]
    return [different[number] for number in order]
