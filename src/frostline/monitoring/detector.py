"""The detector: how broken a text looks, how foreign, and how unusually concentrated, calibrated as one score.

broken         directions learned from broken copies of the reference, one per kind; their evidence adds up
foreign        distance of the text's passages from a codebook of the reference's, in the mean
passage        the same of the most foreign passage
concentration  Mahalanobis distance of the layer-wise numbers (spread, order, motion)

Each part is turned into a standard normal on calibration texts; the score adds up fourth powers of what is positive:
one strong sign counts more than several weak ones, and none can outvote another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri

from frostline.monitoring.directions import Directions, learn
from frostline.monitoring.profiles import Profile

PARTS = ("broken", "foreign", "passage", "concentration")
CODES, NEAREST = 1000, 3
"""Entries of the codebook at most, and how many of the closest are looked at."""
ROUNDS = 12
SHRINKAGE = 1e-3
POWER = 4.0
TABLE = np.concatenate([np.linspace(0.002, 0.9, 200), [0.98]])
"""Quantiles kept of each part; beyond the 90 % quantile scores are extended along the line to the 98 % one."""


@dataclass(frozen=True, eq=False)
class Features:
    """Profiles of many texts, as numpy arrays."""

    means: Float[np.ndarray, "n m"]
    numbers: Float[np.ndarray, "n k"]
    passages: Float[np.ndarray, "n 4 e"]

    @classmethod
    def of(cls, found: Profile) -> "Features":
        means = found.means.reshape(len(found.means), -1)
        return cls(*(part.cpu().float().numpy() for part in (means, found.numbers, found.passages)))

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows: "np.ndarray | slice") -> "Features":
        return Features(self.means[rows], self.numbers[rows], self.passages[rows])

    @property
    def lengths(self) -> Float[np.ndarray, " n"]:
        return self.numbers[:, 0].astype(np.float64)

    @property
    def all(self) -> Float[np.ndarray, "n f"]:
        return np.concatenate([self.means, self.numbers], 1)


@dataclass(frozen=True, eq=False)
class Standard:
    """Turns scores of one part into standard normal ones, by quantiles of calibration texts."""

    quantiles: Float[np.ndarray, " q"]

    @classmethod
    def fit(cls, scores: Float[np.ndarray, " n"]) -> "Standard":
        return cls(np.quantile(scores, TABLE))

    def __call__(self, scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        inside = ndtri(np.interp(scores, self.quantiles, TABLE))
        edge, far = self.quantiles[-2:]
        slope = (ndtri(TABLE[-1]) - ndtri(TABLE[-2])) / max(float(far - edge), 1e-12)
        return np.asarray(np.where(scores > edge, ndtri(TABLE[-2]) + slope * (scores - edge), inside))


@dataclass(frozen=True, eq=False)
class Parts:
    """Standard normal scores of some texts, part by part, and of every kind of brokenness; ``score`` is all of it."""

    parts: Mapping[str, Float[np.ndarray, " n"]]
    kinds: Float[np.ndarray, "n kinds"]
    score: Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Detector:
    """What was learned from reference texts."""

    directions: Directions
    codes: Float[np.ndarray, "c e"]
    centre: Float[np.ndarray, " k"]
    whitening: Float[np.ndarray, "k k"]
    kinds: tuple[Standard, ...]
    standards: Mapping[str, Standard]

    @classmethod
    def learn(
        cls, reference: Features, broken: Mapping[str, Features], calibration: Features, *, seed: int
    ) -> "Detector":
        """Directions, codebook and density from the reference and its broken copies, standards from other texts."""
        pairs = min(len(reference), *(len(copies) for copies in broken.values()))
        directions = learn(
            reference[:pairs].all.astype(np.float64),
            {kind: copies.all.astype(np.float64) for kind, copies in broken.items()},
        )
        numbers = reference.numbers.astype(np.float64)
        centre = numbers.mean(0)
        sizes, axes = np.linalg.eigh(np.cov(numbers.T))
        whitening = axes / np.sqrt(np.maximum(sizes, 0) + SHRINKAGE * sizes.mean())
        codes = codebook(reference.passages.reshape(-1, reference.passages.shape[-1]), seed=seed)
        kinds = tuple(Standard.fit(column) for column in directions(calibration.all).T)
        bare = cls(directions, codes, centre, whitening, kinds, {})
        return replace(bare, standards={name: Standard.fit(raw) for name, raw in bare.raw(calibration)[0].items()})

    @cached_property
    def _ready(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        arrays = (self.codes, self.centre, self.whitening)
        return tuple(torch.from_numpy(np.ascontiguousarray(array)).float() for array in arrays)  # type: ignore[return-value]

    def raw(self, texts: Features) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Scores of the parts before they are standardised, and standard scores of every kind."""
        odds = self.directions(texts.all)
        kinds = np.stack([own(column) for own, column in zip(self.kinds, odds.T, strict=True)], 1)
        apart = self.apart(texts)
        _, centre, whitening = self._ready
        numbers = (torch.from_numpy(texts.numbers) - centre) @ whitening
        return {
            "broken": -log_ndtr(-kinds).sum(1),
            "foreign": apart.mean(1),
            "passage": apart.max(1),
            "concentration": numbers.double().square().sum(1).add(1e-12).log().numpy(),
        }, kinds

    def apart(self, texts: Features) -> Float[np.ndarray, "n 4"]:
        """Distance of every passage from the closest entries of the codebook."""
        rows = torch.from_numpy(texts.passages.reshape(-1, texts.passages.shape[-1]))
        near = (rows @ self._ready[0].T).topk(min(NEAREST, len(self.codes)), dim=1).values
        return (1 - near.mean(1)).reshape(texts.passages.shape[:2]).double().numpy()

    def __call__(self, texts: Features) -> Parts:
        raw, kinds = self.raw(texts)
        parts = {name: self.standards[name](values) for name, values in raw.items()}
        score = sum(np.maximum(values, 0) ** POWER for values in parts.values())
        # Texts without any sign are told apart by their parts all the same.
        rest = np.mean([np.minimum(values, 0) for values in parts.values()], axis=0)
        return Parts(parts, kinds, np.asarray(score + 1e-3 * rest))


def codebook(rows: Float[np.ndarray, "n e"], *, seed: int) -> Float[np.ndarray, "c e"]:
    """Centres of spherical k-means: a small picture of where unit vectors lie."""
    rng = np.random.default_rng([15, seed])
    count = int(min(CODES, max(1, len(rows) // 4)))
    x = torch.from_numpy(np.ascontiguousarray(rows))
    centres = x[torch.from_numpy(rng.choice(len(rows), count, replace=False))].clone()
    for _ in range(ROUNDS):
        nearest = torch.cat([(part @ centres.T).argmax(1) for part in torch.split(x, 4096)])
        sums = torch.zeros_like(centres).index_add_(0, nearest, x)
        sizes = sums.norm(dim=1, keepdim=True)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1e-12), centres)
    return np.asarray(centres.numpy())
