"""Results of a distance between two clouds: the interval that contains it, and the coupling that attains its end."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from frostline.results import Result, plain_value

KNOWN = 1e-9
"""Bounds whose relative difference is smaller than this count as one number."""


class _Pieces(NamedTuple):
    rows: Int[np.ndarray, "k"]
    columns: Int[np.ndarray, "k"]
    mass: Float[np.ndarray, "k"]


class Coupling(Result, _Pieces):
    """A transport plan as a list of pieces: the mass ``mass[k]`` moves from x[rows[k]] to y[columns[k]].

    It is a tuple of three arrays of one length.

    Parameters
    ----------
    rows, columns : integer arrays (k,)
        Indices of the points of x and of y that each piece joins.
    mass : float array (k,)
        The mass of each piece.

    Examples
    --------
    >>> Coupling(np.array([0, 1]), np.array([1, 0]), np.array([0.5, 0.5]))
    Coupling(2 pairs, mass 1)
    """

    def describe(self) -> str:
        """The number of pairs and their mass."""
        return f"{len(self.mass)} pairs, mass {self.mass.sum():.6g}"

    def facts(self) -> dict[str, Any]:
        """The three lists as plain values."""
        return {name: plain_value(value) for name, value in self._asdict().items()}


@dataclass(frozen=True, eq=False, repr=False)
class Distance(Result):
    """W_p between two discrete measures lies in [lower, upper], guaranteed.

    Attributes
    ----------
    value : float
        The best single number: ``upper`` where both bounds agree to nine digits, else their middle.
    lower, upper : float
        The guaranteed bounds.
    p : float
        The order.
    metric : str
        The cost: "euclidean" or "geodesic".
    method : str
        atoms | circle | exact | bracket.
    why : str
        The reason for this method, and what ended it.
    plan : Coupling or None
        A Coupling of the given points that costs ``upper``, when it was requested and exists.
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

    def describe(self) -> str:
        """The value, its bounds where they differ, the method and its reason."""
        bounds = "" if self.width < KNOWN else f", in [{self.lower:.6g}, {self.upper:.6g}]"
        return f"W{self.p:g} = {self.value:.6g}{bounds}; {self.method}: {self.why}"
