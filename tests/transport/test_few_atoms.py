"""Bounds against the truth to 50 digits, for a few atoms and near antipodes: no interval misses it."""

import mpmath
import numpy as np
import pytest

import frostline as fl
from tests.tolerances import EXACT_DISTANCE, ROUNDING
from tests.transport import truth
from tests.transport.few import problem


def missed(x, y, given, methods):
    """The methods whose interval does not contain the truth."""
    exact = truth.wasserstein(
        x, y, given["p"], given.get("x_weights"), given.get("y_weights"), given["metric"] == "geodesic"
    )
    found = [fl.wasserstein(x, y, method=method, **given) for method in methods]
    return [repr(one) for one in found if not mpmath.mpf(one.lower) <= exact <= mpmath.mpf(one.upper)]


def test_the_truth_is_the_truth(rng):
    """The reference against problems with known answers, and against POT."""
    import ot

    assert truth.wasserstein(np.eye(2), np.eye(2)[::-1], 2) == 0
    assert float(truth.wasserstein([[0.0]], [[1.0], [3.0]], 1, None, [3.0, 1.0])) == 1.5
    assert float(truth.wasserstein([[1.0, 0.0]], [[-1.0, 0.0]], 3, geodesic=True)) == np.pi
    for _ in range(20):
        n, m = rng.integers(1, 25, 2)
        x, y = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
        a, b = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m))
        cost = float(ot.emd2(a, b, ((x[:, None] - y) ** 2).sum(-1)))
        assert float(truth.wasserstein(x, y, 2, a, b)) ** 2 == pytest.approx(cost, rel=ROUNDING)


def test_no_interval_misses_the_truth():
    for seed in range(300):
        x, y, given = problem(seed)
        assert missed(x, y, given, ["auto", "atoms", "exact"]) == [], seed


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(5))
def test_no_interval_of_5000_misses_the_truth(part):
    for seed in range(1000 * part, 1000 * (part + 1)):
        x, y, given = problem(seed)
        assert missed(x, y, given, ["auto", "atoms", "exact", "bracket"]) == [], seed


def test_intervals_are_narrow():
    """Widths of the same problems: nearly all have thirteen digits, and what is wide says so."""
    found = [fl.wasserstein(*problem(seed)[:2], **problem(seed)[2]) for seed in range(300)]
    assert np.quantile([one.width for one in found], 0.9) < ROUNDING
    wide = [one for one in found if one.method == "exact" and one.metric == "euclidean" and one.width > 1.1e-9]
    assert wide and all(one.why.endswith("all digits") for one in wide)


@pytest.mark.parametrize("away", [0.0, 1e-12, 1e-9, 1e-8, 1e-6, 1e-3])
@pytest.mark.parametrize("p", [1.0, 2.0, 7.0])
def test_near_antipodes_angles_have_all_digits(rng, p, away):
    """The chord alone knows them to 3e-8."""
    for n in (1, 3, 12):
        x = fl.sample.uniform(n, 4, seed=rng)
        y = fl.sphere.normalise(-x[rng.permutation(n)] + away * rng.standard_normal((n, 4)))
        y = np.repeat(y[:1], n, axis=0) if n == 3 else y
        given = {"p": p, "metric": "geodesic"}
        assert missed(x, y, given, ["auto", "exact", "bracket", "atoms"]) == []
        assert fl.wasserstein(x, y, method="bracket", **given).width < 1e-10


@pytest.mark.parametrize("off", [1e-12, 1e-10, 1e-9, 1e-8, 1e-7])
def test_points_nearly_on_a_great_circle(rng, off):
    """Two collapsed clusters always are; how far off they are belongs into the bounds."""
    for m in (1, 12):
        x = fl.sphere.normalise(np.eye(4)[:1] + off * rng.standard_normal((12, 4)))
        y = fl.sphere.normalise(-np.eye(4)[:1] + off * rng.standard_normal((m, 4)))
        assert missed(x, y, {"p": 2.0, "metric": "geodesic"}, ["auto", "circle", "exact"]) == []


def test_a_tiny_mass_has_its_own_digits():
    """A solver that rounds masses in units of the whole loses those of 1e-13, which are all that is moved far."""
    x = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    a = [1.0, 7e-13, 3e-15]
    for metric in ("euclidean", "geodesic"):
        given = {"p": 4.0, "metric": metric, "x_weights": a, "y_weights": [sum(a)]}
        assert missed(x, x[:1], given, ["auto", "atoms", "exact", "bracket"]) == []


def test_many_points_against_few_atoms(rng):
    """Most of them are settled by the dual; the rest, and the slivers at the cuts, by the simplex."""
    for k in (2, 3, 6):
        x, y = fl.sample.uniform(400, 3, seed=rng), fl.sample.uniform(k, 3, seed=rng)
        a, b = rng.dirichlet(np.ones(400)), rng.dirichlet(np.ones(k))
        for metric in ("euclidean", "geodesic"):
            given = {"p": 2.0, "metric": metric, "x_weights": a, "y_weights": b}
            assert missed(x, y, given, ["atoms"]) == []
            assert fl.wasserstein(x, y, method="atoms", **given).width < EXACT_DISTANCE
