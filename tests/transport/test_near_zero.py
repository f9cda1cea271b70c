"""Distances far below the size of the clouds, large orders, tiny masses: where solvers return noise."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from tests.tolerances import EXACT_DISTANCE

SEEDS = st.integers(0, 10**6)


def circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def brute(x, y, p):
    """W_p of equally many equal masses, by trying every assignment; in units of the longest move of the best one."""
    chords = np.linalg.norm(x[:, None] - y, axis=2)
    moves = np.array([chords[np.arange(len(x)), order] for order in permutations(range(len(x)))])
    unit = moves.max(1).min()
    with np.errstate(over="ignore"):
        return unit * float(((moves / unit) ** p).mean(1).min() ** (1 / p))


@given(SEEDS, st.sampled_from([(1e-8, 2.0), (1e-8, 3.0), (1e-2, 10.0), (1e-2, 50.0), (0.3, 100.0)]))
def test_two_collapsed_clusters(seed, kind):
    spread, p = kind
    rng = np.random.default_rng(seed)
    base = np.repeat([[0.0, 0.0], [1.0, 0.0]], 3, axis=0)
    x, y = (base + spread * rng.standard_normal((6, 2)) for _ in range(2))
    true = brute(x, y, p)
    for method in ("exact", "atoms", "bracket"):
        found = fl.wasserstein(x, y, p=p, method=method)
        assert found.lower <= true * (1 + 1e-9) and true <= found.upper * (1 + 1e-9)
        assert found.width < 1e-6


@pytest.mark.parametrize("p", [2.0, 6.0, 20.0, 100.0])
@pytest.mark.parametrize("method", ["exact", "bracket"])
def test_a_small_shift_of_a_large_cloud(rng, p, method):
    """Everything moves by 0.01, whatever p is (cyclically monotone, as a translation)."""
    x = fl.sample.uniform(300, 3, seed=rng)
    found = fl.wasserstein(x, (x + np.array([0.01, 0, 0]))[rng.permutation(300)], p=p, method=method)
    assert found.lower <= 0.01 * (1 + 1e-9) and found.upper * (1 + 1e-9) >= 0.01
    assert found.value == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-20, 1e100, 1e300])
@pytest.mark.parametrize("method", ["exact", "bracket", "atoms"])
def test_any_scale(rng, scale, method):
    x, y = fl.sample.uniform(20, 3, seed=rng), fl.sample.uniform(15, 3, seed=rng)
    for p in (1.0, 3.0, 20.0):
        plain = fl.wasserstein(x, y, p=p, method=method).value
        assert fl.wasserstein(x * scale, y * scale, p=p, method=method).value == pytest.approx(
            plain * scale, rel=EXACT_DISTANCE
        )


@pytest.mark.parametrize("p", [2.0, 4.0, 10.0])
def test_a_tiny_mass_far_away_counts(rng, p):
    x = 1e-9 * rng.standard_normal((1000, 2))
    found = fl.wasserstein(x, [[0.0, 0.0], [1e3, 0.0]], p=p, y_weights=[1 - 2e-13, 2e-13])
    assert found.method == "atoms" and found.value == pytest.approx(1e3 * 2e-13 ** (1 / p), rel=1e-3)


def test_atoms_whose_rest_has_no_room(rng):
    x = np.concatenate([[[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], 2 + 0.1 * rng.standard_normal((60, 2))])
    weights = [0.5, 0.25, 0.25] + [1e-300] * 60
    assert fl.wasserstein(x, x[:3], x_weights=weights, y_weights=[0.5, 0.25, 0.25], method="atoms").value < 1e-100


@pytest.mark.parametrize("spread", [1e-5, 1e-9])
def test_a_small_cloud_is_no_circle(rng, spread):
    """Near a pole everything is close to every great circle through it."""
    x, y = (fl.sphere.normalise([0, 0, 1.0] + spread * rng.standard_normal((40, 3))) for _ in range(2))
    found = fl.wasserstein(x, y, metric="geodesic")
    assert found.method == "exact"
    by_name = fl.wasserstein(x, y, metric="geodesic", method="circle") if spread < 1e-6 else found
    assert by_name.lower <= found.value <= by_name.upper


@given(SEEDS, st.sampled_from([1.0, 1.5, 2.0, 5.0, 20.0]))
def test_the_circle_against_the_simplex(seed, p):
    """Equal masses (boundaries coincide), random ones and tiny ones; wide and narrow clouds."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 30, 2)
    wide = rng.choice([7.0, 0.3])
    if rng.random() < 0.5:
        m, a, b = n, None, None
    else:
        a, b = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m)) ** rng.choice([1, 15])
        b /= b.sum()
    x, y = circle(rng.uniform(0, wide, n)), circle(rng.uniform(0, 7, m))
    kept = {"p": p, "metric": "geodesic", "x_weights": a, "y_weights": b}
    fast, plain = (fl.wasserstein(x, y, method=method, **kept) for method in ("circle", "exact"))
    assert fast.lower <= plain.upper * (1 + 1e-9) + 1e-12 and plain.lower <= fast.upper * (1 + 1e-9) + 1e-12
    if b is None or b.min() > 1e-12:
        assert fast.value == pytest.approx(plain.value, rel=1e-7)


@pytest.mark.parametrize("p", [1.0, 2.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("angle", [1e-5, 1e-3])
def test_a_small_rotation_of_equispaced_points(p, angle):
    places = 2 * np.pi * np.arange(30) / 30
    found = fl.wasserstein(circle(places), circle(places + angle), p=p, metric="geodesic", method="circle")
    assert found.lower <= angle * (1 + 1e-9) and angle <= found.upper * (1 + 1e-9)
    if p < 100:
        assert found.value == pytest.approx(angle, rel=EXACT_DISTANCE)
    assert fl.wasserstein(circle(places), circle(places + angle), p=p, metric="geodesic").value == pytest.approx(angle)


def test_lost_masses_widen_the_bounds():
    found = fl.wasserstein(
        circle(np.array([4.45])),
        circle(np.array([1.4, 3.45])),
        y_weights=[1e-20, 1],
        p=3,
        metric="geodesic",
        method="circle",
    )
    assert found.lower < 1.0 <= found.upper and found.width < 1e-5 and "tiny masses" in found.why
