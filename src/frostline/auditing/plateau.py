"""Plateau and terminal phase through depth: a stretch of layers that hardly move the cloud, and one that does again.

The layers of an encoder differ, so there is no common limit to be close to: the rule compares W₂ from each cloud to the
next with that of the layer that moves the cloud most.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.auditing.frost_line import FEWEST, resampled
from frostline.results import Result

QUIET = 0.25
"""A layer is quiet when it moves the cloud by less than this share of the fastest layer's movement."""
SHORTEST = 2
"""Layers that a plateau has, at least."""
AGAIN = 2.0
"""The terminal phase is seen when a later layer moves the cloud this many times faster than the plateau does."""


@dataclass(frozen=True, eq=False, repr=False)
class Plateau(Result):
    """The longest stretch of quiet layers after the one that moves the cloud most.

    Attributes
    ----------
    speed, high
        Movement per layer as a share of the fastest layer's, and the upper end of its interval (95 %).
    begin, end
        First and last layer of the plateau; None where there is none.
    leaves
        The first layer after it that moves the cloud again; None where there is none.
    """

    speed: Float[np.ndarray, " layers"]
    high: Float[np.ndarray, " layers"]
    begin: int | None
    end: int | None
    leaves: int | None

    def describe(self) -> str:
        """The plateau and the terminal phase, in words."""
        if self.begin is None or self.end is None:
            slowest = int(self.speed.argmin())
            return (
                f"No plateau through depth was seen: even layer {slowest}, the slowest, moves the cloud by "
                f"{100 * self.speed[slowest]:.0f} % of what the fastest does ({SHORTEST} layers in a row below "
                f"{100 * QUIET:g} % are asked for)."
            )
        share = 100 * self.speed[self.begin : self.end + 1].max()
        sentence = (
            f"Plateau: layers {self.begin} to {self.end} move the cloud by at most {share:.0f} % of what layer "
            f"{int(self.speed.argmax())} does"
        )
        if self.leaves is None:
            return sentence + "; no terminal phase was seen after it."
        again = 100 * self.speed[self.leaves]
        return sentence + f"; layer {self.leaves} moves it again ({again:.0f} %): a terminal phase."


def plateau(to_previous: Float[np.ndarray, "texts layers"], *, seed: int = 0) -> Plateau | None:
    """From W₂ between neighbouring clouds, text by text; None when nothing moves or texts are too few."""
    squares = to_previous**2
    if len(squares) < FEWEST or not squares.any():
        return None
    speeds = np.stack([_relative(squares[rows]) for rows in resampled(len(squares), [12, seed])])
    low, high = np.nanquantile(speeds, [0.025, 0.975], axis=0)
    speed = _relative(squares)
    first = int(speed.argmax()) + 1
    runs = _runs(high[first:] <= QUIET, first)
    if not runs:
        return Plateau(speed, high, None, None, None)
    begin, end = max(runs, key=lambda run: run[1] - run[0])
    still = float(speed[begin : end + 1].max())
    moving = np.flatnonzero(low[end + 1 :] >= AGAIN * still)
    return Plateau(speed, high, begin, end, end + 1 + int(moving[0]) if len(moving) else None)


def _relative(squares: np.ndarray) -> np.ndarray:
    mean = squares.mean(0)
    return np.asarray(np.sqrt(mean / mean.max())) if mean.max() > 0 else np.full(squares.shape[1], np.nan)


def _runs(quiet: np.ndarray, offset: int) -> list[tuple[int, int]]:
    """First and last layer of each stretch of quiet ones that is long enough."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(int)))
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(offset + begin, offset + end - 1) for begin, end in pairs if end - begin >= SHORTEST]
