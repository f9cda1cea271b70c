"""The detector: how broken a text looks, how foreign, and how unusually concentrated, calibrated as one score.

broken         directions learned from broken copies of the reference, one per kind; their evidence adds up
words          probes for single words that do not belong, one per kind; their evidence adds up
foreign        mean distance of the text's passages from a codebook of the reference's passages
passage        the same distance of the most foreign passage
concentration  Mahalanobis distance of the layer-wise numbers (spread, order, ends)

Each part is turned into a standard normal on calibration texts, its tail too; the score is their soft maximum: one
strong sign counts more than several weak ones, and none can outvote another.

Everything is torch, on the device of the states: code that runs beside a model must not wake other threads or wait for
a GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from frostline.monitoring.corruption_directions import PENALTY, Directions, learn_directions
from frostline.monitoring.profile import Profile, resultants
from frostline.monitoring.token_probes import Probes

PARTS = ("broken", "words", "foreign", "passage", "concentration")
"""Names of the parts of a score, in the order of the columns."""
CODES = 300
"""Largest number of entries in the codebook."""
ROUNDS = 12
"""Rounds of k-means that make the codebook."""
SHRINKAGE = 1e-3
"""Share of the mean variance that is added to every variance before whitening."""
SHARPNESS = 1.5
"""Sharpness of the soft maximum log Σ exp(SHARPNESS · part)."""
TABLE = np.concatenate([np.linspace(0.002, 0.9, 200), [0.98]])
"""Quantiles kept of each column; beyond the 90 % one scores go on along the line to the 98 % one, or a fitted line."""
FARTHEST = 4.0
"""Distance beyond the 90 % quantile, in units of that of the 98 % one, at which a text counts when a tail is fitted."""


@dataclass(frozen=True, eq=False)
class Standards:
    """Turns columns of scores into standard normal ones, each by quantiles of calibration texts."""

    quantiles: Float[Tensor, "columns q"]

    @classmethod
    def fit(cls, scores: Float[Tensor, "n columns"]) -> "Standards":
        return cls(_table(np.quantile(scores.double().numpy(), TABLE, axis=0)))

    @classmethod
    def fit_tails(cls, scores: Float[Tensor, "n columns"]) -> "Standards":
        """The same with lines of least squares through the largest tenth, in place of those to the 98 % quantile.

        A heavier tail has a flatter line, so that the strangest of normal texts owe their scores less to the column
        with the heaviest tail; and the line hangs on more texts than a quantile does.
        """
        ordered = np.sort(scores.double().numpy(), axis=0)
        quantiles = np.quantile(ordered, TABLE, axis=0)
        begin, end = quantiles[-2:]
        first = len(ordered) - len(ordered) // 10
        normal = ndtri((np.arange(first, len(ordered)) + 0.5) / len(ordered)) - ndtri(TABLE[-2])
        # One text that is far away, a slip in the reference, must not decide.
        beyond = np.minimum(ordered[first:] - begin, FARTHEST * (end - begin))
        slopes = normal @ beyond / np.square(normal).sum()
        quantiles[-1] = begin + slopes * (ndtri(TABLE[-1]) - ndtri(TABLE[-2]))
        return cls(_table(quantiles))

    def __call__(self, scores: Float[Tensor, "n columns"]) -> Float[Tensor, "n columns"]:
        normal = _normal_quantiles(scores.device)
        columns = scores.T.contiguous()
        # The line through the last two quantiles goes on for ever; below the first quantile all values are the same.
        place = torch.searchsorted(self.quantiles, columns).clamp(1, len(normal) - 1)
        low, high = self.quantiles.gather(1, place - 1), self.quantiles.gather(1, place)
        share = ((columns - low) / (high - low).clamp_min(1e-9)).clamp_min(0)
        return torch.lerp(normal[place - 1], normal[place], share).T


def _table(quantiles: Float[np.ndarray, "q columns"]) -> Float[Tensor, "columns q"]:
    return torch.from_numpy(quantiles.T).float().contiguous()


@cache
def _normal_quantiles(device: torch.device) -> Tensor:
    return torch.from_numpy(ndtri(TABLE)).float().to(device)


@dataclass(frozen=True, eq=False)
class Detector:
    """Everything learned from reference texts; ``cosines`` are the mean cosines of two tokens of a text, per cloud."""

    directions: Directions
    probes: Probes
    codes: Float[Tensor, "c e"]
    centre: Float[Tensor, " k"]
    whitening: Float[Tensor, "k k"]
    cosines: Float[Tensor, " clouds"]
    kinds: Standards
    parts: Standards

    @classmethod
    def learn(
        cls,
        reference: Profile,
        broken: Mapping[str, Profile],
        probes: Probes,
        *,
        seed: int,
        penalty: float = PENALTY,
    ) -> "Detector":
        """Directions, codebook and density from the reference and its broken copies; standards are still to come."""
        pairs = min(len(reference), *(len(copies) for copies in broken.values()))
        directions = learn_directions(
            reference[:pairs].features, {kind: copies.features for kind, copies in broken.items()}, penalty
        )
        numbers = reference.numbers.double()
        sizes, axes = torch.linalg.eigh(torch.cov(numbers.T))
        whitening = axes / (sizes.clamp_min(0) + SHRINKAGE * sizes.mean()).sqrt()
        codes = codebook(reference.passages.flatten(0, 1), seed=seed)
        empty = Standards(torch.zeros(0, len(TABLE)))
        return cls(
            directions,
            probes,
            codes,
            numbers.mean(0).float(),
            whitening.float(),
            _cosines(reference).mean(0),
            empty,
            empty,
        )

    def standardised(self, unseen: "Sequence[tuple[Detector, Profile]]") -> "Detector":
        """The same detector with standards from detectors like it, each with texts that it has not learned from."""
        kinds = Standards.fit(torch.cat([detector.evidence(texts) for detector, texts in unseen]))
        raw = torch.cat([replace(detector, kinds=kinds).raw(texts)[0] for detector, texts in unseen])
        return replace(self, kinds=kinds, parts=Standards.fit_tails(raw))

    def evidence(self, texts: Profile) -> Float[Tensor, "n kinds"]:
        """Evidence for every kind of broken text, then for every kind of changed word."""
        return torch.cat([self.directions(texts.features), texts.words], 1)

    def raw(self, texts: Profile) -> tuple[Float[Tensor, "n 5"], Float[Tensor, "n kinds"]]:
        """Scores of the parts before they are standardised, and standard scores of every kind."""
        kinds = self.kinds(self.evidence(texts))
        surprise = -torch.special.log_ndtr(-kinds)
        broken = len(self.directions.kinds)
        distances = self.distances(texts.passages)
        numbers = (texts.numbers - self.centre) @ self.whitening
        columns = (
            surprise[:, :broken].sum(1),
            surprise[:, broken:].sum(1),
            distances.mean(1),
            distances.amax(1),
            numbers.square().sum(1).add(1e-12).log(),
        )
        return torch.stack(columns, 1), kinds

    def distances(self, passages: Float[Tensor, "n 4 e"]) -> Float[Tensor, "n 4"]:
        """Distance of every passage from the closest entry of the codebook."""
        return 1 - (passages @ self.codes.T).amax(-1)

    def __call__(self, texts: Profile) -> tuple[Float[Tensor, "n 5"], Float[Tensor, "n kinds"]]:
        """Standard normal scores of every part, and of every kind of broken text and of changed word."""
        raw, kinds = self.raw(texts)
        return self.parts(raw), kinds

    def score(self, texts: Profile) -> Float[Tensor, " n"]:
        """One score per text, larger where the text is stranger."""
        return soft_maximum(self(texts)[0])

    def expected(self, lengths: Float[Tensor, " n"]) -> Float[Tensor, "n clouds"]:
        """Resultant length of n tokens whose cosines are as in the reference: R² = 1/n + (1 − 1/n)·c."""
        share = (-lengths[:, None]).exp()
        return (share + (1 - share) * self.cosines).clamp_min(0).sqrt()


def soft_maximum(parts: Float[Tensor, "n parts"]) -> Float[Tensor, " n"]:
    """The score of a text from its parts: log Σ exp(SHARPNESS · part)."""
    return (SHARPNESS * parts).logsumexp(1)


def _cosines(texts: Profile) -> Float[Tensor, "n clouds"]:
    """Mean cosine of two different tokens of a text: the resultant length without each token's cosine to itself."""
    count = texts.lengths.exp()[:, None]
    return (count * resultants(texts.numbers).square() - 1) / (count - 1).clamp_min(1)


def codebook(rows: Float[Tensor, "n e"], *, seed: int) -> Float[Tensor, "c e"]:
    """Centres of spherical k-means: a few unit vectors that stand for many."""
    rng = np.random.default_rng([15, seed])
    count = int(min(CODES, max(1, len(rows) // 4)))
    centres = rows[torch.from_numpy(rng.choice(len(rows), count, replace=False))].clone()
    for _ in range(ROUNDS):
        nearest = torch.cat([(part @ centres.T).argmax(1) for part in torch.split(rows, 4096)])
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        sizes = sums.norm(dim=1, keepdim=True)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1e-12), centres)
    return centres
