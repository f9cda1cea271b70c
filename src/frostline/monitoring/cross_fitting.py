"""Cross-fitting: every text that is learned from is scored by a detector that has learned without it.

The texts are parted into folds. A broken copy belongs to the fold of its original, and the words that it takes from
elsewhere are of that fold too. For each fold a detector is learned from all other texts and their copies; what it says
of the fold's own texts is what the detector of all texts would say of new ones, nearly, so that no text has to be held
out for the standards.

Probes of words are learned in each fold by itself: their mean is the probe of all texts, and the mean of the others is
the one that has not seen a fold. So they cost no more than a single probe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from frostline.monitoring.corruption_directions import PENALTY
from frostline.monitoring.corruptions import corrupted, corruptions
from frostline.monitoring.detector import Detector
from frostline.monitoring.profile import Profile
from frostline.monitoring.reference_texts import have_tokens
from frostline.monitoring.token_probes import Probes

FOLDS = 4
"""Number of folds."""
COPIES = 4000
"""Largest number of reference texts that broken copies are made of."""
LearnedProbe: TypeAlias = tuple[Tensor, Tensor]
"""Weights and offset of the probe of one kind."""


def in_fold(count: int, fold: int) -> Bool[Tensor, " n"]:
    """True for the texts of a fold: every fourth one, as texts are in random order and only the first have copies."""
    return torch.arange(count) % FOLDS == fold


class BrokenCopies:
    """Broken copies of the first reference texts, made within each fold: words from elsewhere are of the same fold."""

    def __init__(self, reference: Sequence[str], tokenizer: Any, table: Float[Tensor, "v d"], *, seed: int):
        self._corruptions = [corruptions(reference[fold::FOLDS], tokenizer, table) for fold in range(FOLDS)]
        self._originals, self._tokenizer, self._seed = list(reference[:COPIES]), tokenizer, seed
        self.kinds = tuple(self._corruptions[0])

    def __call__(self, kind: str) -> list[str]:
        """Copies of one kind; a text whose copy has no token at all stays as it is."""
        copies = list(self._originals)
        for fold, kinds in enumerate(self._corruptions):
            numbers = range(fold, len(copies), FOLDS)
            copies[fold::FOLDS] = corrupted(copies[fold::FOLDS], kinds[kind], seed=self._seed, numbers=numbers)
        checked = zip(copies, self._originals, have_tokens(copies, self._tokenizer), strict=True)
        return [copy if readable else original for copy, original, readable in checked]


def probes_of_folds(learned: Mapping[str, Sequence[LearnedProbe | None]], clouds: int, dimension: int) -> list[Probes]:
    """The probes that were learned in every fold, of the kinds that could be learned in all of them."""
    kinds = tuple(kind for kind, of_folds in learned.items() if all(probe is not None for probe in of_folds))
    folds = []
    for fold in range(FOLDS):
        probes = [probe for kind in kinds if (probe := learned[kind][fold]) is not None]
        weights = [weights.reshape(clouds, dimension) for weights, _ in probes]
        folds.append(
            Probes(kinds, torch.stack(weights, 1).contiguous(), torch.stack([offset for _, offset in probes]))
            if probes
            else Probes((), torch.zeros(clouds, 0, dimension), torch.zeros(0))
        )
    return folds


def mean_probes(folds: Sequence[Probes]) -> Probes:
    """The mean of the probes of several folds."""
    weights = torch.stack([probes.weights for probes in folds]).mean(0)
    return Probes(folds[0].kinds, weights.contiguous(), torch.stack([probes.offsets for probes in folds]).mean(0))


def probes_without_fold(folds: Sequence[Probes]) -> list[Probes]:
    """For every fold the mean of the probes of all others."""
    return [mean_probes([probes for other, probes in enumerate(folds) if other != fold]) for fold in range(len(folds))]


def side_by_side(folds: Sequence[Probes]) -> Probes:
    """The probes for all folds as one, to read texts with all of them in one pass."""
    kinds = tuple(kind for probes in folds for kind in probes.kinds)
    weights = torch.cat([probes.weights for probes in folds], 1)
    return Probes(kinds, weights.contiguous(), torch.cat([probes.offsets for probes in folds]))


def with_words_of_fold(texts: Profile) -> Profile:
    """The profile with the evidence of the probes for each text's own fold, of all that were read side by side."""
    columns = texts.words.reshape(len(texts), FOLDS, -1)
    return replace(texts.without_tokens(), words=columns[torch.arange(len(texts)), torch.arange(len(texts)) % FOLDS])


def cross_fit(
    reference: Profile, broken: Mapping[str, Profile], probes: Sequence[Probes], *, seed: int
) -> list[tuple[Detector, Profile]]:
    """For each fold a detector that has learned without it, and its texts; words are those of ``with_words_of_fold``.

    Texts and broken copies are in the same order: the copy of a text has the same number. ``probes`` are those that
    have learned without each fold.
    """
    pairs = []
    for fold, without in enumerate(probes):
        inside = in_fold(len(reference), fold)
        others = {kind: copies[~in_fold(len(copies), fold)] for kind, copies in broken.items()}
        # The penalty is the same for each text that is learned from.
        penalty = PENALTY * (FOLDS - 1) / FOLDS
        pairs.append(
            (Detector.learn(reference[~inside], others, without, seed=seed, penalty=penalty), reference[inside])
        )
    return pairs
