"""Sliced distance: the average of circular transport between the projections of two clouds on random great circles.

It is not a Wasserstein distance but a cheap statistic: it says whether two clouds differ and roughly how much, in
O(n log n) for any d, with the standard error of its average.
"""

from dataclasses import dataclass

import numpy as np

from frostline.arrays import Array, as_count
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.sample import Seed, generator
from frostline.transport.circle import circular
from frostline.transport.problem import TransportProblem


@dataclass(frozen=True, repr=False)
class Sliced(Result):
    """The sliced distance of two clouds, with the error that random great circles leave.

    Attributes
    ----------
    value : float
        The sliced distance.
    standard_error : float
        Its standard error over the projections.
    projections : int
        The number of random great circles.
    p : float
        The order of the distance.
    """

    value: float
    standard_error: float
    projections: int
    p: float

    def describe(self) -> str:
        """The value with its standard error."""
        return f"{self.value:.4g} ± {self.standard_error:.2g}; p = {self.p:g}, {self.projections} circles"


def sliced(
    x: Array,
    y: Array,
    *,
    p: float = 2.0,
    x_weights: Array | None = None,
    y_weights: Array | None = None,
    projections: int = 64,
    seed: Seed = 0,
) -> Sliced:
    """The mean of W_p^p between the projections on random great circles, to the power 1/p.

    The projection of a point on a great circle is the nearest point of that circle.

    Parameters
    ----------
    x, y : arrays (n, d) and (m, d)
        Two clouds of unit vectors, d ≥ 2.
    p : float
        Order of the distance on each circle, 1 ≤ p ≤ 100.
    x_weights, y_weights : arrays (n,) and (m,), optional
        Masses with equal sums; all points of a cloud weigh the same by default.
    projections : int
        Number of random great circles, at least 2.
    seed : int or numpy Generator
        Seed of the circles.

    Returns
    -------
    Sliced
        The value, and the standard error of its average.

    Raises
    ------
    BadArray
        A cloud has no points, or d is 1.
    OffSphere
        A point is not a unit vector.
    BadParameter
        ``projections`` or ``p`` is out of range.

    Examples
    --------
    >>> sliced([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]], projections=2)
    Sliced(1.571 ± 0; p = 2, 2 circles)
    """
    problem = TransportProblem.of(x, y, p, x_weights, y_weights, "geodesic")
    if as_count(projections, "projections") < 2:
        raise BadParameter("one projection has no standard error; take at least 2.")
    rng, d = generator(seed), problem.x.shape[1]
    if d < 2:
        raise BadArray("points in d = 1 cannot be projected on great circles; d ≥ 2 is needed.")
    distances = np.empty(projections)
    for k in range(projections):
        plane = np.linalg.qr(rng.standard_normal((d, 2)))[0]
        angles = [
            np.arctan2(cloud @ plane[:, 1], cloud @ plane[:, 0]) % (2 * np.pi) for cloud in (problem.x, problem.y)
        ]
        distances[k], _ = circular(angles[0], problem.a, angles[1], problem.b, problem.p)
    largest = float(distances.max())
    if not largest > 0:
        return Sliced(0.0, 0.0, projections, problem.p)
    powers = (distances / largest) ** problem.p
    mean, error = float(powers.mean()), float(powers.std(ddof=1) / np.sqrt(projections))
    value = largest * mean ** (1 / problem.p)
    return Sliced(value, value * error / (problem.p * mean), projections, problem.p)
