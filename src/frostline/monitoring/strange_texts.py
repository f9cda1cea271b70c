"""Strange texts of a watched stream: kept as numbers while the model works, put into words when somebody reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from frostline.monitoring.judge import Assessment
from frostline.monitoring.reasons import Reason, Scores, Spell
from frostline.monitoring.surface import SurfaceReference
from frostline.results import Result

GATHERED = 512
"""Tokens, with padding, of strange texts scored together for which the gathering of a deep profile is computed."""


@dataclass(frozen=True, repr=False)
class StrangeText(Result):
    """A text of a watched stream that was strange, or at which the alarm rang.

    Parameters
    ----------
    number
        How many texts of the stream were scored before it.
    time
        When it was scored, in seconds since 1970.
    score
        How strange it is; larger is stranger.
    p_value
        Its conformal p-value.
    reasons
        Its reasons, strongest first; empty for p-values above 5 %.
    ids
        Its token ids as the model got them, padding included, in which the reasons count their places; None where the
        watch was given no tokenizer.

    Examples
    --------
    >>> from frostline.monitoring.reasons import Reason
    >>> from frostline.monitoring.strange_texts import StrangeText
    >>> StrangeText(7, 0.0, 4.2, 0.01, (Reason("foreign", 3.2, "its passages are far from those of the reference"),))
    StrangeText(text 7, p = 0.01: foreign (3.2 σ): its passages are far from those of the reference)
    """

    number: int
    time: float
    score: float
    p_value: float
    reasons: tuple[Reason, ...]
    ids: tuple[int, ...] | None = None

    def describe(self) -> str:
        """Its number, its p-value and its reasons."""
        reasons = "; ".join(map(str, self.reasons))
        return f"text {self.number}, p = {self.p_value:.2g}" + (f": {reasons}" if reasons else "")


class SeenText:
    """A text of an assessment before it is put into words, which takes longer than to score it."""

    def __init__(self, number: int, time: float, texts: Assessment, row: int):
        self.number, self.time, self.p_value = number, time, float(texts.p_values[row])
        self.device = texts.score.device
        self._texts: Assessment | None = texts
        self._row = row
        self._text: StrangeText | None = None

    def in_words(self, tokenizer: Any, usual: SurfaceReference | None) -> StrangeText:
        """The text in words; the second time the same object."""
        texts = self._texts
        if texts is not None:
            row, ids = self._row, texts.ids
            rows, named = range(row, row + 1), speller(ids, tokenizer)
            scores = Scores.of(texts, rows, named, usual=usual, tokenizer=tokenizer)
            self._text = StrangeText(
                self.number,
                self.time,
                float(scores.scores[0]),
                float(scores.p_values[0]),
                scores.reasons[0],
                None if ids is None or tokenizer is None else tuple(ids[row].tolist()),
            )
            self._texts = None
        assert self._text is not None
        return self._text


def seen_texts(texts: Assessment, rows: Sequence[int], first: int, time: float) -> list[SeenText]:
    """Copies of some texts of an assessment, whose first text has this number in the stream.

    Of a deep profile only the last know how much they gather: a shift of all texts must not slow the model.
    """
    known = max(1, GATHERED // texts.inside[0].tokens.shape[1]) if texts.inside else 0
    split = max(0, len(rows) - known)
    seen: list[SeenText] = []
    for whole, chosen in ((replace(texts, inside=()), rows[:split]), (texts, rows[split:])):
        if chosen:
            few = whole.part(chosen).gathered()
            seen += [SeenText(first + row, time, few, place) for place, row in enumerate(chosen)]
    return seen


def speller(ids: Tensor | None, tokenizer: Any) -> Spell | None:
    """Names the tokens of a batch by row and place; None where the ids or the tokenizer are not known."""
    if ids is None or tokenizer is None:
        return None
    return lambda row, place: str(tokenizer.convert_ids_to_tokens(int(ids[row, place])))
