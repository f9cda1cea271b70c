"""Learning of a baseline: probes, directions and calibration from a reference and from broken copies of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import Tokenized, tokenize
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruption_directions import PENALTY
from frostline.monitoring.corruptions import LOCAL
from frostline.monitoring.cross_fitting import (
    FOLDS,
    BrokenCopies,
    LearnedProbe,
    cross_fit,
    mean_probes,
    probes_of_folds,
    probes_without_fold,
    side_by_side,
    with_words_of_fold,
)
from frostline.monitoring.detector import Detector
from frostline.monitoring.judge import Judge
from frostline.monitoring.profile import LEVELS, Profile, clouds_of
from frostline.monitoring.reference_cloud import MomentSums, ReferenceCloud, layers_of
from frostline.monitoring.reference_states import ReferenceStates, read_reference
from frostline.monitoring.reference_texts import LONGEST
from frostline.monitoring.token_probes import changed_tokens, learn_probe
from frostline.progress import ProgressFunction, telling

PROBED = 10**8
"""Largest number of numbers in the token states that one probe is learned from."""


class Learning:
    """Profiles of the reference and of its broken copies, and the judges learned from them.

    Every kind of broken copy is read once and then forgotten. Standards come from the reference itself, by
    cross-fitting. No score depends on the held-out texts: these and a new text of the same source are exchangeable, so
    that a p-value is at most α with probability at most α, however good or bad directions and standards are. (The line
    and the spread of a reference cloud come from held-out texts too; they are no part of a score.)
    """

    def __init__(
        self,
        encoder: Encoder,
        model: Model,
        tokenizer: Any,
        reference: Sequence[str],
        held_out: Sequence[str],
        *,
        seed: int,
        progress: ProgressFunction | None = None,
    ):
        tell = telling(progress)
        self.levels = {level: clouds_of(encoder.layers, level) for level in LEVELS}
        inside = layers_of(encoder, self.levels["full"])
        moments = MomentSums(inside) if inside else None
        self.seed = seed
        self._encoder, self._model, self._tokenizer = encoder, model, tokenizer
        self.broken_copies = BrokenCopies(reference, tokenizer, model.get_input_embeddings().weight, seed=seed)
        total = len(self.broken_copies.kinds) + 2
        known = self._tokenized(reference)
        self.broken: dict[str, dict[str, Profile]] = {level: {} for level in LEVELS}
        learned: dict[str, dict[str, list[LearnedProbe | None]]] = {level: {} for level in LEVELS}
        for number, kind in enumerate(self.broken_copies.kinds):
            tell("reading", f"{kind} copies", number, total)
            copies = self._tokenized(self.broken_copies(kind))
            states = self._read(copies, sampled=self._texts_for_probes(known) if kind in LOCAL else 0)
            for level in LEVELS:
                self.broken[level][kind] = states.profiles[level]
            if kind in LOCAL:
                for level, probes in self._learned_probes(known, copies, states).items():
                    learned[level][kind] = probes
        of_folds = {
            level: probes_of_folds(learned[level], len(clouds), encoder.dimension)
            for level, clouds in self.levels.items()
        }
        self.probes = {level: mean_probes(folds) for level, folds in of_folds.items()}
        self.probes_without_fold = {level: probes_without_fold(folds) for level, folds in of_folds.items()}
        tell("reading", "reference", total - 2, total)
        # Read after its copies: every text with the probes that have learned without it.
        together = {level: side_by_side(folds) for level, folds in self.probes_without_fold.items()}
        profiles = self._read(known, probes=together, moments=moments).profiles
        self.reference = {level: with_words_of_fold(texts) for level, texts in profiles.items()}
        tell("reading", "calibration", total - 1, total)
        cloud = None if moments is None else moments.cloud().bound(encoder)
        others = self._read(self._tokenized(held_out), probes=self.probes, reference_cloud=cloud)
        self.judging = others.profiles
        self.reference_cloud: ReferenceCloud | None = None
        if cloud is not None and others.gathering is not None:
            half = len(held_out) // 2
            self.reference_cloud = cloud.calibrated(others.gathering, others.profiles["full"].lengths, half)
        tell("learning", "directions, codebook, density", 1, 1)

    def judges(self) -> dict[str, Judge]:
        """The judges of all levels; the deep one is the full one with a reference cloud, where there is one."""
        judges = {level: self.judge(level) for level in LEVELS}
        return (
            judges
            if self.reference_cloud is None
            else judges | {"deep": replace(judges["full"], reference_cloud=self.reference_cloud)}
        )

    def judge(self, level: str) -> Judge:
        """The judge of one level: a detector learned from the reference, calibrated on texts it has not seen."""
        detector = Detector.learn(self.reference[level], self.broken[level], self.probes[level], seed=self.seed)
        detector = detector.standardised(self.unseen(level))
        judging = self.judging[level]
        conformal = Conformal.fit(detector.score(judging).numpy(), judging.lengths.numpy())
        return Judge(self.levels[level], detector, conformal)

    def unseen(self, level: str) -> list[tuple[Detector, Profile]]:
        """The texts of each fold of the reference, and a detector that has learned without them."""
        return cross_fit(self.reference[level], self.broken[level], self.probes_without_fold[level], seed=self.seed)

    def _tokenized(self, texts: Sequence[str]) -> Tokenized:
        return tokenize(self._encoder, self._tokenizer, texts, most=LONGEST)

    def _read(self, tokenized: Tokenized, **settings: Any) -> ReferenceStates:
        return read_reference(self._encoder, self._model, tokenized, self.levels, **settings)

    def _texts_for_probes(self, known: Tokenized) -> int:
        """Number of texts whose token states fit into the memory that a probe may take."""
        most = PROBED // (len(self.levels["full"]) * self._encoder.dimension)
        return int(np.searchsorted(np.cumsum([len(ids) for ids in known.ids]), most))

    def _learned_probes(
        self, known: Tokenized, copies: Tokenized, states: ReferenceStates
    ) -> dict[str, list[LearnedProbe | None]]:
        """The probes of one kind for every level and fold, None where too few tokens were changed."""
        learned: dict[str, list[LearnedProbe | None]] = {level: [] for level in self.levels}
        for fold in range(FOLDS):
            numbers = range(fold, len(states.tokens), FOLDS)
            changed = [changed_tokens(known.ids[number], copies.ids[number]) for number in numbers]
            tokens = torch.cat([states.tokens[number] for number in numbers])
            for level, clouds in self.levels.items():
                # The light level reads the last clouds, which are last in the token states too.
                columns = tokens[:, -len(clouds) * self._encoder.dimension :]
                probe = learn_probe(columns, torch.from_numpy(np.concatenate(changed)), PENALTY / FOLDS)
                learned[level].append(probe)
        return learned
