"""Scoring of texts with a model and its baseline, which are opened once and used often."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from frostline.encoders.forward import batches
from frostline.encoders.tokenization import Tokenized, tokenize
from frostline.errors import BadText, EmptyTexts
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.hooks import HiddenStates, Tap, unwatched_passes
from frostline.monitoring.judge import Judge
from frostline.monitoring.reasons import Scores, Spell
from frostline.monitoring.reference_texts import LONGEST, have_tokens, list_texts
from frostline.monitoring.surface import SurfaceReference
from frostline.monitoring.text_model import open_text_model
from frostline.progress import ProgressFunction, telling


class Scorer:
    """A model, its tokenizer and a judge; ``Baseline.score`` makes one.

    ``tokenized`` may run in another thread beside ``score``, which is for one thread at a time.
    """

    def __init__(
        self, baseline: Baseline, model: "nn.Module | str | Path", tokenizer: Any = None, *, profile: str = "full"
    ):
        self.encoder, self.model, self.tokenizer = open_text_model(model, tokenizer)
        baseline.check(self.encoder, self.tokenizer)
        self.judge: Judge = baseline.judge(profile).bound(self.encoder)
        self.usual = SurfaceReference.of(baseline.about)

    def tokenized(self, texts: Sequence[str]) -> Tokenized:
        """Token ids, cut to the length that is scored; raises EmptyTexts when a text has none."""
        texts = list_texts(texts)
        if not texts:
            raise BadText("no text is given; give a list of texts.")
        empty = [number for number, readable in enumerate(have_tokens(texts, self.tokenizer)) if not readable]
        if empty:
            raise EmptyTexts.among(len(texts), empty)
        return tokenize(self.encoder, self.tokenizer, texts, most=LONGEST)

    def score(self, tokenized: Tokenized, *, spelled: bool = True, progress: ProgressFunction | None = None) -> Scores:
        """Scores of texts; their reasons name tokens if ``spelled``, else only places."""
        tell = telling(progress)
        pieces: list[Scores] = []

        def keep(hidden: HiddenStates) -> None:
            ids = hidden.ids
            assert ids is not None
            spell: Spell = lambda row, place: self.spelled(int(ids[row, place]))  # noqa: E731
            rows, named = range(len(ids)), spell if spelled else None
            pieces.append(Scores.of(self.judge(hidden), rows, named, usual=self.usual, tokenizer=self.tokenizer))

        order: list[int] = []
        tap = Tap(self.model, self.encoder, self.judge.clouds, keep, inside=self.judge.inside, strict=True)
        try:
            with torch.inference_mode(), unwatched_passes():
                for batch in batches(tokenized):
                    self.model(**batch.inputs)
                    order += batch.numbers
                    tell("scoring", "texts", len(order), len(tokenized.ids))
        finally:
            tap.close()
        return Scores.joined(pieces, order)

    def spelled(self, token: int) -> str:
        """The token with this id, as text."""
        return str(self.tokenizer.convert_ids_to_tokens(token))
