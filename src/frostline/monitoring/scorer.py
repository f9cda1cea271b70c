"""Scoring texts with a model and its baseline: opened once, used as often as wanted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from frostline.encoders.forward import batches
from frostline.encoders.tokenization import Tokenized, tokenize
from frostline.errors import BadParameter, BadText
from frostline.monitoring.baseline import LONGEST, Baseline, Report, have_tokens, listed, opened
from frostline.monitoring.hooks import Taking, Tap, our_own_passes
from frostline.monitoring.profile import profile
from frostline.monitoring.reasons import Judge, Scores, Spell


class Scorer:
    """A model, its tokenizer and a judge. ``tokenized`` may run beside ``score``, which is for one thread at a time."""

    def __init__(
        self, baseline: Baseline, model: "nn.Module | str | Path", tokenizer: Any = None, *, level: str = "full"
    ):
        self.encoder, self.model, self.tokenizer = opened(model, tokenizer)
        baseline.check(self.encoder, self.tokenizer)
        if level not in baseline.judges:
            raise BadParameter(f"level is {level!r}; it is one of {', '.join(baseline.judges)}.")
        self.judge: Judge = baseline.judges[level]

    def tokenized(self, texts: Sequence[str]) -> Tokenized:
        """Token ids, cut at what is looked at; raises BadText when a text has none."""
        texts = listed(texts)
        if not texts:
            raise BadText("no text is given; give a list of texts.")
        empty = [number for number, fine in enumerate(have_tokens(texts, self.tokenizer)) if not fine]
        if empty:
            raise BadText(f"{len(empty)} of {len(texts)} texts are empty, text {empty[0]} first: they have no token.")
        return tokenize(self.encoder, self.tokenizer, texts, most=LONGEST)

    def score(self, tokenized: Tokenized, *, spelled: bool = True, report: Report | None = None) -> Scores:
        """Reasons name tokens if ``spelled``, else only their places."""
        found: list[Scores] = []

        def take(taken: Taking) -> None:
            ids = taken.ids
            assert ids is not None
            spell: Spell = lambda row, place: self.spelled(int(ids[row, place]))  # noqa: E731
            seen = self.judge(profile(taken.states, taken.present, self.judge.detector.probes))
            found.append(seen.scores(range(len(ids)), spell if spelled else None))

        order: list[int] = []
        tap = Tap(self.model, self.encoder, self.judge.clouds, take, strict=True)
        try:
            with torch.inference_mode(), our_own_passes():
                for batch in batches(tokenized):
                    self.model(**batch.inputs)
                    order += batch.numbers
                    if report is not None:
                        report("scoring", "texts", len(order), len(tokenized.ids))
        finally:
            tap.close()
        return Scores.joined(found, order)

    def spelled(self, token: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token))
