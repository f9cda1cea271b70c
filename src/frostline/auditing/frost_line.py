"""The frost line: the depth from which the token cloud no longer changes beyond a stated fraction."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from frostline.results import Result

FRACTION = 0.1
"""Share of the whole way below which a cloud counts as frozen."""
RESAMPLED = 400
"""Times that the texts are resampled for an interval."""
FEWEST = 8
"""Texts below which resampling them says nothing."""


@dataclass(frozen=True, eq=False, repr=False)
class FrostLine(Result):
    """W₂ to the last cloud as a share of that of the first, and where it stays below ``fraction``.

    Attributes
    ----------
    fraction
        The share below which a cloud counts as frozen.
    share, low, high
        Per cloud, root mean square over the texts; and its interval (95 %, texts resampled).
    depth
        The first cloud from which all shares are below the fraction: 0 is the input, L the last output. L says that
        nothing froze before the end.
    interval
        95 % of the depths found when texts are resampled.
    texts
        The number of texts.
    way
        W₂ from the first cloud to the last, root mean square over the texts.
    """

    fraction: float
    share: Float[np.ndarray, " clouds"]
    low: Float[np.ndarray, " clouds"]
    high: Float[np.ndarray, " clouds"]
    depth: int
    interval: tuple[int, int]
    texts: int
    way: float

    @property
    def frozen(self) -> bool:
        """Whether the cloud is still before the last layer, in nearly all resamplings."""
        return self.texts >= FEWEST and self.interval[1] < len(self.share) - 1

    def describe(self) -> str:
        """The depth with its interval, in words."""
        last = len(self.share) - 1
        if last == 1:
            return "With one layer there is no depth at which the cloud could freeze."
        if self.depth == last:
            return (
                f"The cloud changes up to the last layer: after {last - 1} of {last} layers "
                f"{100 * self.share[-2]:.0f} % of the way to its last shape (W₂ {self.way:.2g}) is still to come."
            )
        low, high = self.interval
        return (
            f"After {self.depth} of {last} layers (95 %: {low} to {high}) the cloud stays within "
            f"{100 * self.fraction:g} % of the whole way (W₂ {self.way:.2g}) from its last shape."
        )


def frost_line(
    to_last: Float[np.ndarray, "texts clouds"], *, fraction: float = FRACTION, seed: int = 0
) -> FrostLine | None:
    """From W₂ of every cloud to the last one, text by text; None when nothing moves at all."""
    squares = to_last**2
    if not squares[:, 0].any():
        return None
    shares = np.sqrt(np.stack([_share(squares[rows]) for rows in resampled(len(squares), [8, seed])]))
    depths = np.array([_depth(share, fraction) for share in shares])
    share = np.sqrt(_share(squares))
    low, high = np.nanquantile(shares, [0.025, 0.975], axis=0)
    first, last = np.quantile(depths, [0.025, 0.975], method="nearest")
    way = float(np.sqrt(squares[:, 0].mean()))
    return FrostLine(fraction, share, low, high, _depth(share, fraction), (int(first), int(last)), len(squares), way)


def resampled(texts: int, seed: list[int]) -> Int[np.ndarray, "times texts"]:
    """Numbers of texts, drawn with replacement; a row each time."""
    return np.random.default_rng(seed).integers(texts, size=(RESAMPLED, texts))


def _share(squares: np.ndarray) -> np.ndarray:
    mean = squares.mean(0)
    return np.asarray(mean / mean[0]) if mean[0] > 0 else np.full(len(mean), np.nan)


def _depth(share: np.ndarray, fraction: float) -> int:
    above = np.flatnonzero(~(share <= fraction))
    return int(above[-1]) + 1 if len(above) else 0
