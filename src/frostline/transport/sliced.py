"""Sliced distance on the sphere: circular transport of shadows on random great circles, averaged. A cheap statistic.

It is not a Wasserstein distance: it says whether two clouds differ and roughly how much, in O(n log n) for any d, with
the standard error of its average.
"""

from dataclasses import dataclass

import numpy as np

from frostline.arrays import Array, as_count
from frostline.errors import BadArray, BadParameter
from frostline.sample import Seed, generator
from frostline.transport.circle import circular
from frostline.transport.problem import Problem


@dataclass(frozen=True)
class Sliced:
    """``value`` with its ``standard_error`` over ``projections`` random great circles."""

    value: float
    standard_error: float
    projections: int
    p: float

    def __repr__(self) -> str:
        return f"Sliced({self.value:.4g} ± {self.standard_error:.2g}; p = {self.p:g}, {self.projections} circles)"


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
    """The mean of W_p^p over the shadows on random great circles, to the power 1/p.

    A point's shadow on a great circle is the point of it that is nearest; the standard error is carried through the
    root.
    """
    problem = Problem.of(x, y, p, x_weights, y_weights, "geodesic")
    if as_count(projections, "projections") < 2:
        raise BadParameter("one projection has no standard error; take at least 2.")
    rng, d = generator(seed), problem.x.shape[1]
    if d < 2:
        raise BadArray("points in d = 1 have no great circles to cast shadows on; d ≥ 2 is needed.")
    found = np.empty(projections)
    for k in range(projections):
        plane = np.linalg.qr(rng.standard_normal((d, 2)))[0]
        shadows = [
            np.arctan2(cloud @ plane[:, 1], cloud @ plane[:, 0]) % (2 * np.pi) for cloud in (problem.x, problem.y)
        ]
        found[k], _ = circular(shadows[0], problem.a, shadows[1], problem.b, problem.p)
    largest = float(found.max())
    if not largest > 0:
        return Sliced(0.0, 0.0, projections, problem.p)
    powers = (found / largest) ** problem.p
    mean, error = float(powers.mean()), float(powers.std(ddof=1) / np.sqrt(projections))
    value = largest * mean ** (1 / problem.p)
    return Sliced(value, value * error / (problem.p * mean), projections, problem.p)
