"""Panels of a label: a smooth, increasing function of the label on Gauss nodes, panels split and joined as it bends.

A flow on a line or circle keeps tokens in order, so the place of the token that began at a label is an increasing
function of the label, and an integral over tokens is one over labels. Where the flow tears labels apart a panel is
split and its function interpolated; where it presses them together two panels are joined.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

NODES = 8
"""Nodes of a panel: Gauss–Legendre, exact for polynomials of degree 15."""
SAME = 1e-9
"""Two panels whose widths agree to this are of one size."""
NARROWEST = 1e-11
"""Panels narrower than this are not split: their labels could not be told apart. They hold less mass than this."""

_Z, _WEIGHT = np.polynomial.legendre.leggauss(NODES)
_BARYCENTRIC = np.array([1 / np.prod(_Z[i] - np.delete(_Z, i)) for i in range(NODES)])


def _interpolation(z: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k nodes"]:
    """The matrix from values at the nodes to values at z in [−1, 1], by the barycentric formula."""
    apart = z[:, None] - _Z
    at_node = np.abs(apart) < 1e-15
    matrix = _BARYCENTRIC / np.where(at_node, 1.0, apart)
    matrix = matrix / matrix.sum(1, keepdims=True)
    hit = at_node.any(1)
    matrix[hit] = at_node[hit]
    return matrix


_HALVES = _interpolation(np.concatenate([(_Z - 1) / 2, (_Z + 1) / 2])).reshape(2, NODES, NODES)
_ENDS = _interpolation(np.array([-1.0, 1.0]))
_LEFT = _Z < 0
_JOIN = np.zeros((NODES, 2 * NODES))
_JOIN[_LEFT, :NODES] = _interpolation(2 * _Z[_LEFT] + 1)
_JOIN[~_LEFT, NODES:] = _interpolation(2 * _Z[~_LEFT] - 1)
_COEFFICIENTS = np.linalg.inv(np.polynomial.legendre.legvander(_Z, NODES - 1))
_SLOPES = (
    np.stack([np.polynomial.legendre.legval(_Z, np.polynomial.legendre.legder(row)) for row in np.eye(NODES)], axis=1)
    @ _COEFFICIENTS
)


@dataclass(frozen=True, eq=False)
class Panels:
    """A function of the label: ``edges`` (k, 2) of neighbouring panels and ``values`` (k, NODES) at their nodes.

    ``widest`` is the width no joined panel exceeds, ``origin`` the label from which halves are counted.

    >>> panels = Panels.uniform(0.0, 1.0, 2)
    >>> labels, weights = panels.labels(), panels.weights()
    >>> print(round((weights * labels**15).sum() * 16, 12))
    1.0
    """

    edges: Float[np.ndarray, "k 2"]
    values: Float[np.ndarray, "k nodes"]
    widest: float
    origin: float

    @classmethod
    def uniform(cls, low: float, high: float, count: int) -> "Panels":
        """``count`` equal panels from ``low`` to ``high`` whose function is the label itself."""
        corners = np.linspace(low, high, count + 1)
        edges = np.stack([corners[:-1], corners[1:]], axis=1)
        panels = cls(edges, np.empty((count, NODES)), (high - low) / count, low)
        return replace(panels, values=panels.labels())

    def labels(self) -> Float[np.ndarray, "k nodes"]:
        """The labels of the nodes."""
        return self.edges.mean(1, keepdims=True) + self._half() * _Z

    def weights(self) -> Float[np.ndarray, "k nodes"]:
        """Gauss weights: Σ weights·g(labels) = ∫ g."""
        return self._half() * _WEIGHT

    def slopes(self) -> Float[np.ndarray, "k nodes"]:
        """The derivative of the function at the nodes."""
        return (self.values @ _SLOPES.T) / self._half()

    def with_values(self, values: Float[np.ndarray, "k nodes"]) -> "Panels":
        """The same panels with other values."""
        return replace(self, values=values)

    def with_ends(self) -> Float[np.ndarray, "k nodes_and_two"]:
        """The values at the left end, the nodes and the right end of each panel."""
        ends = self.values @ _ENDS.T
        return np.concatenate([ends[:, :1], self.values, ends[:, 1:]], axis=1)

    def tails(self) -> Float[np.ndarray, "k"]:
        """The larger of the last two Legendre coefficients of each panel: about its error of interpolation."""
        return np.abs(self.values @ _COEFFICIENTS[-2:].T).max(1)

    def split(self, chosen: np.ndarray) -> "Panels":
        """The chosen panels halved; those too narrow stay."""
        chosen = chosen & (np.diff(self.edges, axis=1)[:, 0] > NARROWEST)
        copies = np.repeat(np.arange(len(chosen)), 1 + chosen)
        second = np.r_[False, copies[1:] == copies[:-1]]
        halved = chosen[copies]
        edges, values = self.edges[copies], self.values[copies]
        middle = edges.mean(1)
        for side, mine in enumerate((halved & ~second, halved & second)):
            edges[mine, 1 - side] = middle[mine]
            values[mine] = values[mine] @ _HALVES[side].T
        return replace(self, edges=edges, values=values)

    def join(self, fits: Callable[["Panels", Float[np.ndarray, "k"]], np.ndarray]) -> "Panels":
        """Pairs of halves joined where ``fits`` says so of the joined panels and the error that joining makes."""
        width = np.diff(self.edges, axis=1)[:, 0]
        place = np.rint((self.edges[:-1, 0] - self.origin) / width[:-1])
        # Two neighbours of one size are halves of one panel only if the left one begins at an even place.
        pair = (np.abs(width[:-1] / width[1:] - 1) < SAME) & (place % 2 == 0) & (2 * width[:-1] <= self.widest * 1.001)
        left = np.flatnonzero(pair)
        if not len(left):
            return self
        both = np.concatenate([self.values[left], self.values[left + 1]], axis=1)
        edges = np.stack([self.edges[left, 0], self.edges[left + 1, 1]], axis=1)
        joined = replace(self, edges=edges, values=both @ _JOIN.T)
        again = joined.values @ _HALVES.reshape(2 * NODES, NODES).T
        good = (np.diff(joined.values, axis=1) > 0).all(1) & fits(joined, np.abs(again - both).max(1))
        left = left[good]
        if not len(left):
            return self
        edges, values = self.edges.copy(), self.values.copy()
        edges[left], values[left] = joined.edges[good], joined.values[good]
        kept = np.ones(len(edges), bool)
        kept[left + 1] = False
        return replace(self, edges=edges[kept], values=values[kept])

    def _half(self) -> Float[np.ndarray, "k 1"]:
        return np.diff(self.edges, axis=1) / 2
