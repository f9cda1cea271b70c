"""Exact transport: laws of a distance, closed forms, and agreement of two atoms by sorting with the network simplex."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter
from frostline.transport.atoms import two_atoms
from frostline.transport.exact import exact
from tests.tolerances import EXACT_DISTANCE, ROUNDING


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("metric", ["euclidean", "geodesic"])
def test_laws(rng, p, metric):
    x, y, z = (fl.sample.uniform(15, 3, seed=rng) for _ in range(3))
    w = {"p": p, "metric": metric}
    assert exact(x, x[rng.permutation(15)], **w) == 0
    assert exact(x, y, **w) == pytest.approx(exact(y, x, **w), rel=ROUNDING)
    assert exact(x, z, **w) <= exact(x, y, **w) + exact(y, z, **w) + 1e-12
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert exact(x @ Q, y @ Q, **w) == pytest.approx(exact(x, y, **w), rel=1e-10)
    assert exact(x, y, p=p, metric=metric) <= exact(x, y, p=p + 1, metric=metric) + 1e-12


def test_diracs_and_weights():
    x, y = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [-1.0, 0.0]])
    assert exact(x, y, p=1, y_weights=[0.25, 0.75]) == pytest.approx(0.25 * np.sqrt(2) + 0.75 * 2)
    assert exact(x, y, p=1, y_weights=[0.25, 0.75], metric="geodesic") == pytest.approx(0.875 * np.pi)


@pytest.mark.parametrize("p", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("seed", range(5))
def test_two_atoms_by_sorting_are_exact(seed, p):
    rng = np.random.default_rng([61, seed])
    d = int(rng.integers(2, 6))
    x, weights, share = fl.sample.uniform(60, d, seed=rng), rng.dirichlet(np.ones(60)), float(rng.uniform())
    atoms = fl.sample.uniform(2, d, seed=rng)
    assert two_atoms(x, weights, atoms, share, p=p) == pytest.approx(
        exact(x, atoms, p=p, x_weights=weights, y_weights=[share, 1 - share]), rel=EXACT_DISTANCE
    )


def test_bad_calls_get_a_sentence(rng):
    x = fl.sample.uniform(5, 3, seed=rng)
    with pytest.raises(BadArray, match="x has dimension 3, y 2"):
        exact(x, fl.sample.uniform(5, 2, seed=rng))
    with pytest.raises(BadParameter, match="metric 'cosine' is unknown"):
        exact(x, x, metric="cosine")
    with pytest.raises(BadParameter, match="p is 0"):
        exact(x, x, p=0)
