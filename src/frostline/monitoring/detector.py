"""The detector: how broken a text looks, how foreign, and how unusually concentrated, calibrated as one score.

broken         directions learned from broken copies of the reference, one per kind; their evidence adds up
words          probes for single words that do not belong, one per kind; their evidence adds up
foreign        distance of the text's passages from a codebook of the reference's, in the mean
passage        the same of the most foreign passage
concentration  Mahalanobis distance of the layer-wise numbers (spread, order, ends)

Each part is turned into a standard normal on calibration texts; the score is their soft maximum: one strong sign counts
more than several weak ones, and none can outvote another.

All of it is torch, on the device of the states: what runs beside a model must not wake other threads or wait for a GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from frostline.monitoring.directions import Directions, learn
from frostline.monitoring.profile import Profile, resultants
from frostline.monitoring.word_probes import Probes

PARTS = ("broken", "words", "foreign", "passage", "concentration")
CODES = 300
"""Entries of the codebook at most."""
ROUNDS = 12
SHRINKAGE = 1e-3
SHARPNESS = 1.5
"""Of the soft maximum: log Σ exp(SHARPNESS · part)."""
TABLE = np.concatenate([np.linspace(0.002, 0.9, 200), [0.98]])
"""Quantiles kept of each part; beyond the 90 % quantile scores are extended along the line to the 98 % one."""


@dataclass(frozen=True, eq=False)
class Features:
    """Profiles of many texts, without what is said of single tokens."""

    means: Float[Tensor, "n m"]
    numbers: Float[Tensor, "n k"]
    passages: Float[Tensor, "n 4 e"]
    words: Float[Tensor, "n kinds"]

    @classmethod
    def of(cls, found: Profile) -> "Features":
        return cls(found.means, found.numbers, found.passages, found.words)

    @classmethod
    def joined(cls, parts: Sequence["Features"]) -> "Features":
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows: "Tensor | slice") -> "Features":
        return Features(self.means[rows], self.numbers[rows], self.passages[rows], self.words[rows])

    @property
    def lengths(self) -> Float[Tensor, " n"]:
        """Logarithms of the numbers of tokens."""
        return self.numbers[:, 0]

    @property
    def all(self) -> Float[Tensor, "n f"]:
        return torch.cat([self.means, self.numbers], 1)


@dataclass(frozen=True, eq=False)
class Standards:
    """Turns columns of scores into standard normal ones, each by quantiles of calibration texts."""

    quantiles: Float[Tensor, "columns q"]

    @classmethod
    def fit(cls, scores: Float[Tensor, "n columns"]) -> "Standards":
        return cls(torch.from_numpy(np.quantile(scores.double().numpy(), TABLE, axis=0).T).float().contiguous())

    def __call__(self, scores: Float[Tensor, "n columns"]) -> Float[Tensor, "n columns"]:
        normal = _normal(scores.device)
        columns = scores.T.contiguous()
        # The last two quantiles are the line that goes on for ever; below the first all is the same.
        place = torch.searchsorted(self.quantiles, columns).clamp(1, len(normal) - 1)
        low, high = self.quantiles.gather(1, place - 1), self.quantiles.gather(1, place)
        share = ((columns - low) / (high - low).clamp_min(1e-9)).clamp_min(0)
        return torch.lerp(normal[place - 1], normal[place], share).T


def _normal(device: torch.device, kept: dict[torch.device, Tensor] = {}) -> Tensor:  # noqa: B006 (a cache)
    if device not in kept:
        kept[device] = torch.from_numpy(ndtri(TABLE)).float().to(device)
    return kept[device]


@dataclass(frozen=True, eq=False)
class Parts:
    """Standard normal scores of some texts: of every part, and of every kind of broken text and of changed word."""

    parts: Float[Tensor, "n 5"]
    kinds: Float[Tensor, "n kinds"]
    score: Float[Tensor, " n"]


@dataclass(frozen=True, eq=False)
class Detector:
    """What was learned from reference texts. ``cosines``: of two tokens of a text, in the mean, at every cloud."""

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
        cls, reference: Features, broken: Mapping[str, Features], probes: Probes, calibration: Features, *, seed: int
    ) -> "Detector":
        """Directions, codebook and density from the reference and its broken copies, standards from other texts."""
        pairs = min(len(reference), *(len(copies) for copies in broken.values()))
        directions = learn(reference[:pairs].all, {kind: copies.all for kind, copies in broken.items()})
        numbers = reference.numbers.double()
        sizes, axes = torch.linalg.eigh(torch.cov(numbers.T))
        whitening = axes / (sizes.clamp_min(0) + SHRINKAGE * sizes.mean()).sqrt()
        codes = codebook(reference.passages.flatten(0, 1), seed=seed)
        empty = Standards(torch.zeros(0, len(TABLE)))
        bare = cls(
            directions,
            probes,
            codes,
            numbers.mean(0).float(),
            whitening.float(),
            _cosines(reference).mean(0),
            empty,
            empty,
        )
        return bare.standardised(calibration)

    def standardised(self, calibration: Features) -> "Detector":
        """The same with standards from these texts."""
        ready = replace(self, kinds=Standards.fit(self.evidence(calibration)))
        return replace(ready, parts=Standards.fit(ready.raw(calibration)[0]))

    def evidence(self, texts: Features) -> Float[Tensor, "n kinds"]:
        """Of every kind of broken text, then of every kind of changed word."""
        return torch.cat([self.directions(texts.all), texts.words], 1)

    def raw(self, texts: Features) -> tuple[Float[Tensor, "n 5"], Float[Tensor, "n kinds"]]:
        """Scores of the parts before they are standardised, and standard scores of every kind."""
        kinds = self.kinds(self.evidence(texts))
        surprise = -torch.special.log_ndtr(-kinds)
        own = len(self.directions.kinds)
        apart = self.apart(texts.passages)
        numbers = (texts.numbers - self.centre) @ self.whitening
        columns = (
            surprise[:, :own].sum(1),
            surprise[:, own:].sum(1),
            apart.mean(1),
            apart.amax(1),
            numbers.square().sum(1).add(1e-12).log(),
        )
        return torch.stack(columns, 1), kinds

    def apart(self, passages: Float[Tensor, "n 4 e"]) -> Float[Tensor, "n 4"]:
        """Distance of every passage from the closest entry of the codebook."""
        return 1 - (passages @ self.codes.T).amax(-1)

    def __call__(self, texts: Features) -> Parts:
        raw, kinds = self.raw(texts)
        parts = self.parts(raw)
        return Parts(parts, kinds, (SHARPNESS * parts).logsumexp(1))

    def expected(self, lengths: Float[Tensor, " n"]) -> Float[Tensor, "n clouds"]:
        """Resultant length of n tokens whose cosines are as in the reference: R² = 1/n + (1 − 1/n)·c."""
        share = (-lengths[:, None]).exp()
        return (share + (1 - share) * self.cosines).clamp_min(0).sqrt()

    def to(self, device: torch.device) -> "Detector":
        """The same on another device."""
        told = self.directions
        return Detector(
            directions=Directions(told.kinds, told.weights.to(device), told.offsets.to(device)),
            probes=self.probes.to(device),
            codes=self.codes.to(device),
            centre=self.centre.to(device),
            whitening=self.whitening.to(device),
            cosines=self.cosines.to(device),
            kinds=Standards(self.kinds.quantiles.to(device)),
            parts=Standards(self.parts.quantiles.to(device)),
        )


def _cosines(texts: Features) -> Float[Tensor, "n clouds"]:
    """Of two different tokens of a text, in the mean: the resultant length without what tokens owe themselves."""
    count = texts.lengths.exp()[:, None]
    return (count * resultants(texts.numbers).square() - 1) / (count - 1).clamp_min(1)


def codebook(rows: Float[Tensor, "n e"], *, seed: int) -> Float[Tensor, "c e"]:
    """Centres of spherical k-means: a small picture of where unit vectors lie."""
    rng = np.random.default_rng([15, seed])
    count = int(min(CODES, max(1, len(rows) // 4)))
    centres = rows[torch.from_numpy(rng.choice(len(rows), count, replace=False))].clone()
    for _ in range(ROUNDS):
        nearest = torch.cat([(part @ centres.T).argmax(1) for part in torch.split(rows, 4096)])
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        sizes = sums.norm(dim=1, keepdim=True)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1e-12), centres)
    return centres
