"""Two clouds at zero temperature drift apart no faster than e^{ℓt}."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter
from tests.runs.problems import random_head


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_the_bound_holds(seed, even):
    rng = np.random.default_rng([51, seed])
    head = random_head(rng, even=even)
    x = fl.sample.uniform(40, head.dimension, seed=rng)
    near = fl.sphere.normalise(x + 1e-3 * rng.standard_normal(x.shape))
    found = fl.stability(head, x, near, times=[0.0, 0.1, 0.3], p=1 + seed % 3)
    assert found.holds and found.seen <= found.ell and found.measured[0] == found.bound[0]


def test_it_is_sharp_for_a_pair_that_leaves_the_equator():
    """d = 2, B = I, A = diag(1, 0): near e₂ the angle to it grows like e^t, and ℓ = 1."""
    head = fl.Attention.from_matrices(np.eye(2), np.diag([1.0, 0.0]), 1.0)
    one, other = np.array([[1e-6, 1.0]]), np.array([[-1e-6, 1.0]])
    found = fl.stability(head, fl.sphere.normalise(one), fl.sphere.normalise(other), times=[5.0])
    assert found.ell == pytest.approx(1.0) and found.observed == pytest.approx(1.0, abs=1e-3)
    assert found.bound[0] == pytest.approx(2e-6 * np.exp(5), rel=1e-6)
    assert found.measured[0] == pytest.approx(found.bound[0], rel=1e-3)


def test_what_holds_for_the_geodesic_cost_holds_for_the_chord():
    """sin λx ≤ λ sin x for λ ≥ 1, 0 ≤ x, λx ≤ π/2: a chord grows no faster than the angle it subtends, and ℓ ≥ 0."""
    rng = np.random.default_rng(52)
    for _ in range(10):
        head = random_head(rng, even=True)
        x = fl.sample.uniform(40, head.dimension, seed=rng)
        near = fl.sphere.normalise(x + 1e-2 * rng.standard_normal(x.shape))
        found = fl.stability(head, x, near, times=[0.3])
        assert found.ell >= 0
        one, other = (fl.zero_temperature(head, cloud, times=[0.0, 0.3]).tokens for cloud in (x, near))
        before, after = (fl.wasserstein(a, b).value for a, b in zip(one, other, strict=True))
        assert after <= np.exp(0.3 * found.ell) * before * (1 + 1e-9)


def test_different_numbers_of_tokens_and_weights():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), 1.0)
    x, y = fl.sample.uniform(20, 2, seed=0), fl.sample.uniform(7, 2, seed=1)
    found = fl.stability(head, x, y, other_weights=np.full(7, 1 / 7))
    assert found.holds and found.times.tolist() == [0, 0.5, 1, 2]


def test_a_rank_deficient_head_is_vacuous_and_says_so():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), np.eye(3), 1.0)
    x = fl.sample.uniform(10, 3, seed=0)
    found = fl.stability(head, x, x[::-1], times=[0.1])
    assert found.vacuous.all() and "vacuous" in found.describe() and found.holds


def test_bad_calls_get_a_sentence(two_clusters):
    x = fl.sample.uniform(5, 3, seed=0)
    with pytest.raises(BadParameter, match="one head"):
        fl.stability([[two_clusters, two_clusters]], x, x)
    with pytest.raises(BadArray, match="two clouds"):
        fl.stability(two_clusters, x[None], x)
    with pytest.raises(BadParameter, match="run into ker"):
        lost = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), -np.eye(3), 1.0)
        fl.stability(lost, np.ones((1, 3)) / np.sqrt(3), x, times=[2.0])
