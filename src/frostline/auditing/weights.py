"""What the weights alone say: a row per head, a row per layer, each beside random weights of the same shape."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.encoders.fold import FoldedLayer
from frostline.encoders.load import Encoder
from frostline.encoders.spectra import Factors, HeadSpectra, effective_rank, spectra

DRAWS = 32
"""Random heads of the same shape that stand beside the real ones."""
PATHS = 3
"""Random value paths, d×d each."""


@dataclass(frozen=True)
class Range:
    """What random weights of the same shape give: median, and where the middle 90 % lie."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Range":
        known = values[np.isfinite(values)]
        return cls(*map(float, np.quantile(known, [0.5, 0.05, 0.95]))) if len(known) else cls(np.nan, np.nan, np.nan)


@dataclass(frozen=True, eq=False)
class Weights:
    """Spectra of every layer's heads, and per layer the score of the whole query-key matrix and the value path's rank.

    score         2‖sym W‖²/‖W‖² − 1 for W = W_QᵀW_K of the whole layer: 1 symmetric, 0 random, −1 antisymmetric
    path_rank     effective rank of Σ_h V_h, the value path at uniform attention
    beta_control  β that random factors of the same norms would have: larger β are concentrated on few directions
    """

    layers: tuple[HeadSpectra, ...]
    score: Float[np.ndarray, " layers"]
    path_rank: Float[np.ndarray, " layers"]
    beta_control: Float[np.ndarray, "layers heads"]
    control: HeadSpectra
    path_control: Float[np.ndarray, " draws"]
    shared: bool = False
    """Whether the layers are passes through one layer, and a head is the same in all."""

    def each(self, name: str) -> Float[np.ndarray, "layers heads"]:
        """One number of every head."""
        return np.stack([getattr(layer, name) for layer in self.layers])

    @property
    def kinds(self) -> list[str]:
        """One per head; of a shared one, the kind it has in most of its passes (their norms differ)."""
        if self.shared:
            return [
                Counter(passes).most_common(1)[0][0] for passes in zip(*(one.kind for one in self.layers), strict=True)
            ]
        return [kind for layer in self.layers for kind in layer.kind]

    def eigenvalues(self, layer: int, head: int) -> Complex[np.ndarray, " k"]:
        return self.layers[layer].eigenvalues[head]

    def reference(self, name: str) -> Range:
        """The range of a scale-free number for random weights of the same shape."""
        return Range.of(getattr(self.control, name))


def read(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    *,
    seed: int,
    tick: Callable[[int, int], None] = lambda done, of: None,
) -> Weights:
    """Spectra of all heads; a shared layer is taken apart once for every pass, since its norm may differ."""
    rng = np.random.default_rng([7, seed])
    d, k = encoder.dimension, encoder.head_size
    control = spectra(Factors.drawn(DRAWS, k, d, rng))
    found, score, ranks, expected = [], [], [], []
    for number, layer in enumerate(layers):
        factors = Factors.of(layer)
        found.append(spectra(factors))
        score.append(_score(encoder, number))
        ranks.append(_path_rank(factors))
        norms = np.linalg.norm(factors.query, axis=(1, 2)) * np.linalg.norm(factors.key, axis=(1, 2))
        expected.append(np.median(control.beta) * norms)
        tick(number + 1, len(layers))
    paths = np.array([_random_path_rank(d, rng) for _ in range(PATHS)])
    shared = encoder.family.shared
    return Weights(tuple(found), np.array(score), np.array(ranks), np.array(expected), control, paths, shared)


def _score(encoder: Encoder, layer: int) -> float:
    # Single precision, which the weights are stored in, is enough for one number of the whole matrix, here and below.
    query, key = (encoder.weight(part, layer).astype(np.float32) for part in (encoder.family.query, encoder.family.key))
    whole = query.T @ key
    return float(np.vdot(whole, whole.T)) / max(float(np.vdot(whole, whole)), 1e-300)


def _path_rank(factors: Factors) -> float:
    h, d, k = factors.output.shape
    output = factors.output.transpose(1, 0, 2).reshape(d, h * k).astype(np.float32)
    return _rank_of(output @ factors.value.reshape(h * k, d).astype(np.float32))


def _random_path_rank(d: int, rng: np.random.Generator) -> float:
    return _rank_of(rng.standard_normal((d, d), dtype=np.float32) @ rng.standard_normal((d, d), dtype=np.float32))


def _rank_of(matrix: np.ndarray) -> float:
    """Effective rank from the eigenvalues of the Gram matrix: small ones do not count."""
    squares = np.linalg.eigvalsh(matrix.T @ matrix).astype(np.float64)
    return float(effective_rank(np.sqrt(np.maximum(squares, 0.0))))
