"""Spectra of an encoder's weights, per head and per layer, beside random weights of the same shape."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from frostline.encoders.fold import FoldedLayer
from frostline.encoders.load import Encoder
from frostline.encoders.spectra import TINY, Factors, HeadSpectra, effective_rank, spectra
from frostline.results import Result

DRAWS = 32
"""Random heads of the same shape, as a control."""
PATHS = 3
"""Random value paths of d×d matrices, as a control."""


@dataclass(frozen=True, repr=False)
class Range(Result):
    """The range of a number: its median, and the quantiles of 5 % and 95 %.

    Examples
    --------
    >>> Range.of(np.arange(101.0))
    Range(50 (5 % to 95 %: 5 to 95))
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Range":
        """Of the finite values; NaN where there is none."""
        known = values[np.isfinite(values)]
        return cls(*map(float, np.quantile(known, [0.5, 0.05, 0.95]))) if len(known) else cls(np.nan, np.nan, np.nan)

    def describe(self) -> str:
        """The median, and the interval."""
        return f"{self.median:.4g} (5 % to 95 %: {self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True, eq=False, repr=False)
class Weights(Result):
    """Spectra of every layer's heads, and those of random ones.

    Attributes
    ----------
    layers
        Spectra of the heads of each layer.
    score
        2‖sym W‖²/‖W‖² − 1 for W = W_QᵀW_K of the whole layer: 1 symmetric, 0 random, −1 antisymmetric.
    path_rank
        Effective rank of Σ_h V_h, the value path at uniform attention, per layer.
    beta_control
        β that random factors of the same norms would have: larger β are concentrated on few directions.
    control, path_control
        Spectra of random heads, and effective ranks of random value paths.
    shared
        Whether the layers are passes through one layer, and a head is the same in all.
    """

    layers: tuple[HeadSpectra, ...]
    score: Float[np.ndarray, " layers"]
    path_rank: Float[np.ndarray, " layers"]
    beta_control: Float[np.ndarray, "layers heads"]
    control: HeadSpectra
    path_control: Float[np.ndarray, " draws"]
    shared: bool = False

    def describe(self) -> str:
        """Sizes, and the range of temperatures."""
        beta = self.each("beta")
        return f"{len(beta)} layers of {beta.shape[1]} heads, β from {beta.min():.3g} to {beta.max():.3g}"

    def each(self, name: str) -> Float[np.ndarray, "layers heads"]:
        """One number of every head."""
        return np.stack([getattr(layer, name) for layer in self.layers])

    @property
    def kinds(self) -> list[str]:
        """One per head; of a shared one, the kind it has in most of its passes (their norms differ)."""
        if self.shared:
            return [
                Counter(passes).most_common(1)[0][0]
                for passes in zip(*(layer.kind for layer in self.layers), strict=True)
            ]
        return [kind for layer in self.layers for kind in layer.kind]

    def eigenvalues(self, layer: int, head: int) -> Complex[np.ndarray, " k"]:
        """Of A/‖A‖ of this head."""
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
    """Spectra of all heads; those of a shared layer once for every pass, since its norm may differ."""
    rng = np.random.default_rng([7, seed])
    d, k = encoder.dimension, encoder.head_size
    control = spectra(Factors.drawn(DRAWS, k, d, rng))
    heads, score, ranks, expected = [], [], [], []
    for number, layer in enumerate(layers):
        factors = Factors.of(layer)
        heads.append(spectra(factors))
        score.append(_score(encoder, number))
        ranks.append(_path_rank(factors))
        norms = np.linalg.norm(factors.query, axis=(1, 2)) * np.linalg.norm(factors.key, axis=(1, 2))
        expected.append(np.median(control.beta) * norms)
        tick(number + 1, len(layers))
    paths = np.array([_random_path_rank(d, rng) for _ in range(PATHS)])
    shared = encoder.family.shared
    return Weights(tuple(heads), np.array(score), np.array(ranks), np.array(expected), control, paths, shared)


def _score(encoder: Encoder, layer: int) -> float:
    # Single precision, which the weights are stored in, is enough for one number of the whole matrix, here and below.
    query, key = (encoder.weight(part, layer).astype(np.float32) for part in (encoder.family.query, encoder.family.key))
    whole = query.T @ key
    return float(np.vdot(whole, whole.T)) / max(float(np.vdot(whole, whole)), TINY)


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
