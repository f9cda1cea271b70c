"""Texts of a call that have no token: they get rows of their own in the answer, and the others are scored."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import numpy as np

from frostline.encoders.tokenization import Tokenized
from frostline.errors import EmptyTexts
from frostline.monitoring.reasons import Scores
from frostline.serving.batching import Causes
from frostline.serving.submission import Submission

Result = tuple[Scores, Causes, Tokenized]
"""Scores, events and token ids of texts."""
NOTHING: Result = (
    Scores(np.empty(0), np.empty(0), {}, np.empty((0, 0)), np.empty((0, 0)), ()),
    [],
    Tokenized((), cut=0, empty=0, padding=0),
)
"""The result for no text at all."""


async def score_readable(
    score: Callable[[list[Submission]], Awaitable[Result]], texts: Sequence[Submission]
) -> tuple[Result, frozenset[int]]:
    """The result for the texts that have tokens, and the places of those that have none.

    ``score`` is called with all texts, and again without the empty ones if it raises EmptyTexts: a call without empty
    texts pays nothing for them.
    """
    try:
        return await score(list(texts)), frozenset()
    except EmptyTexts as error:
        empty = frozenset(error.places)
    readable = [text for place, text in enumerate(texts) if place not in empty]
    return (await score(readable) if readable else NOTHING), empty


def with_empty(
    rows: Sequence[dict[str, Any]], texts: Sequence[Submission], empty: Collection[int]
) -> list[dict[str, Any]]:
    """Rows of scored texts, with a row for every empty text at its place."""
    whole = list(rows)
    for place in sorted(empty):
        whole.insert(place, empty_row(texts[place]))
    return whole


def empty_row(text: Submission) -> dict[str, Any]:
    """The row of an empty text in an answer."""
    return {
        "status": "empty",
        "score": None,
        "p_value": None,
        "strange": False,
        "parts": {},
        "observed": [],
        "expected": [],
        "spread": [],
        "reasons": [],
        "id": text.id,
        "source": text.source,
        "repeated": False,
        "events": [],
    }
