"""Distance: what a distance between two clouds is known to be, and how it is known."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from frostline.printable import one_line


class Coupling(NamedTuple):
    """Mass ``mass[k]`` goes from x[rows[k]] to y[columns[k]]."""

    rows: Int[np.ndarray, "k"]
    columns: Int[np.ndarray, "k"]
    mass: Float[np.ndarray, "k"]

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.mass)} pairs, mass {self.mass.sum():.6g}")


KNOWN = 1e-9
"""Bounds that differ by less than this share give one number."""


@dataclass(frozen=True, eq=False)
class Distance:
    """W_p between two discrete measures lies in [lower, upper], guaranteed; ``value`` is the best single number:
    the upper bound where both agree to nine digits, else the middle.

    method   atoms | circle | exact | bracket;  why: the reason for the method, and what ended it
    plan     (rows, columns, mass) of a coupling of the points given that costs ``upper``, when asked for and where
             there is one
    """

    value: float
    lower: float
    upper: float
    p: float
    metric: str
    method: str
    why: str
    plan: Coupling | None = None

    @property
    def width(self) -> float:
        """(upper − lower)/upper, the relative uncertainty; 0 when both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        sure = (
            f"{self.value:.6g}" if self.width < KNOWN else f"{self.value:.6g}, in [{self.lower:.6g}, {self.upper:.6g}]"
        )
        return one_line(self, f"W{self.p:g} = {sure}; {self.method}: {self.why}")
