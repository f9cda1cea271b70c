"""Learning of a baseline: probes, directions and calibration from a reference and from broken copies of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import Tokenized, tokenize
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruptions import LOCAL, Corruption, corrupted, corruptions
from frostline.monitoring.detector import Detector
from frostline.monitoring.judge import Judge
from frostline.monitoring.profile import LEVELS, Profile, clouds_of
from frostline.monitoring.reference_cloud import MomentSums, ReferenceCloud, layers_of
from frostline.monitoring.reference_states import ReferenceStates, read_reference
from frostline.monitoring.reference_texts import LONGEST, have_tokens
from frostline.monitoring.token_probes import Probes, changed_tokens, learn_probe
from frostline.progress import ProgressFunction, telling

COPIES = 4000
"""Largest number of reference texts that broken copies are made of."""
PROBED = 10**8
"""Largest number of numbers in the token states that one probe is learned from."""
LearnedProbe: TypeAlias = tuple[Tensor, Tensor]
"""Weights and offset of the probe of one kind."""


class Learning:
    """Profiles of the reference and of its broken copies, and the judges learned from them.

    Every kind of broken copy is read once and then forgotten. Standards and p-values come from different texts: a score
    must not have seen the texts that calibrate it.
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
        kinds = corruptions(reference, tokenizer, model.get_input_embeddings().weight)
        total = len(kinds) + 2
        known = self._tokenized(reference)
        tell("reading", "reference", 0, total)
        self.reference = self._read(known, moments=moments).profiles
        self.broken: dict[str, dict[str, Profile]] = {level: {} for level in LEVELS}
        learned: dict[str, dict[str, LearnedProbe | None]] = {level: {} for level in LEVELS}
        for number, (kind, corruption) in enumerate(kinds.items()):
            tell("reading", f"{kind} copies", number + 1, total)
            copies = self._broken_copies(reference[:COPIES], corruption)
            states = self._read(copies, sampled=self._texts_for_probes(known) if kind in LOCAL else 0)
            for level in LEVELS:
                self.broken[level][kind] = states.profiles[level]
            if kind in LOCAL:
                for level, probe in self._learned_probes(known, copies, states).items():
                    learned[level][kind] = probe
        self.probes = {level: self._probes(learned[level], clouds) for level, clouds in self.levels.items()}
        tell("reading", "calibration", total - 1, total)
        cloud = None if moments is None else moments.cloud().bound(encoder)
        others = self._read(self._tokenized(held_out), probes=self.probes, reference_cloud=cloud)
        half = len(held_out) // 2
        self.standards = {level: texts[:half] for level, texts in others.profiles.items()}
        self.judging = {level: texts[half:] for level, texts in others.profiles.items()}
        self.reference_cloud: ReferenceCloud | None = None
        if cloud is not None and others.gathering is not None:
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
        detector = Detector.learn(
            self.reference[level], self.broken[level], self.probes[level], self.standards[level], seed=self.seed
        )
        judging = self.judging[level]
        conformal = Conformal.fit(detector.score(judging).numpy(), judging.lengths.numpy())
        return Judge(self.levels[level], detector, conformal)

    def _tokenized(self, texts: Sequence[str]) -> Tokenized:
        return tokenize(self._encoder, self._tokenizer, texts, most=LONGEST)

    def _read(self, tokenized: Tokenized, **settings: Any) -> ReferenceStates:
        return read_reference(self._encoder, self._model, tokenized, self.levels, **settings)

    def _broken_copies(self, originals: Sequence[str], corruption: Corruption) -> Tokenized:
        """Broken copies; a text whose copy has no token at all stays as it is."""
        copies = corrupted(originals, corruption, seed=self.seed)
        checked = zip(copies, originals, have_tokens(copies, self._tokenizer), strict=True)
        return self._tokenized([copy if readable else original for copy, original, readable in checked])

    def _texts_for_probes(self, known: Tokenized) -> int:
        """Number of texts whose token states fit into the memory that a probe may take."""
        most = PROBED // (len(self.levels["full"]) * self._encoder.dimension)
        return int(np.searchsorted(np.cumsum([len(ids) for ids in known.ids]), most))

    def _learned_probes(
        self, known: Tokenized, copies: Tokenized, states: ReferenceStates
    ) -> dict[str, LearnedProbe | None]:
        """The probe of one kind for every level, None where too few tokens were changed."""
        pairs = zip(known.ids, copies.ids[: len(states.tokens)], strict=False)
        changed = torch.from_numpy(np.concatenate([changed_tokens(*pair) for pair in pairs]))
        tokens = torch.cat(states.tokens)
        # The light level reads the last clouds, which are last in the token states too.
        return {
            level: learn_probe(tokens[:, -len(clouds) * self._encoder.dimension :], changed)
            for level, clouds in self.levels.items()
        }

    def _probes(self, learned: Mapping[str, LearnedProbe | None], clouds: tuple[int, ...]) -> Probes:
        """The probes of all kinds that could be learned, as one."""
        dimension = self._encoder.dimension
        probes = {kind: probe for kind, probe in learned.items() if probe is not None}
        if not probes:
            return Probes((), torch.zeros(len(clouds), 0, dimension), torch.zeros(0))
        weights = [weights.reshape(len(clouds), dimension) for weights, _ in probes.values()]
        offsets = [offset for _, offset in probes.values()]
        return Probes(tuple(probes), torch.stack(weights, 1).contiguous(), torch.stack(offsets))
