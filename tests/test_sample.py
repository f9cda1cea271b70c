"""Distributions against their moments. Statistical tests fix their seed; each bound is 5 standard errors, a false
failure rate below 1e-6 per number if the seed were drawn afresh."""

import numpy as np
import pytest
from scipy import special

from frostline import sample
from frostline.errors import BadArray, BadParameter, BadWeights
from tests.tolerances import ROUNDING

N = 40_000


def unit(x):
    return np.abs(np.linalg.norm(x, axis=1) - 1).max() < ROUNDING


@pytest.mark.parametrize("d", [2, 3, 10, 100])
def test_uniform_has_mean_zero_and_covariance_identity_over_d(d):
    x = sample.uniform(N, d, seed=1)
    assert unit(x)
    assert np.abs(x.mean(0)).max() < 5 / np.sqrt(N * d)
    assert np.abs(x.T @ x / N - np.eye(d) / d).max() < 5 * np.sqrt(2) / d / np.sqrt(N)


@pytest.mark.parametrize("d", [2, 3, 10, 64])
@pytest.mark.parametrize("concentration", [0.0, 1.0, 20.0])
def test_vmf_mean_resultant_is_a_bessel_ratio(d, concentration):
    mean = np.ones(d) / np.sqrt(d)
    x = sample.vmf(N, mean, concentration, seed=2)
    ratio = special.ive(d / 2, concentration) / special.ive(d / 2 - 1, concentration) if concentration else 0.0
    assert unit(x)
    assert np.mean(x @ mean) == pytest.approx(ratio, abs=5 / np.sqrt(N))
    assert np.linalg.norm(x.mean(0) - ratio * mean) < 5 / np.sqrt(N)


@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.parametrize("angle", [1e-6, 0.5, 2.0, np.pi])
def test_caps_fill_their_caps_uniformly(d, angle):
    x = sample.caps(N, np.eye(d)[0], angle, seed=3)
    theta = 2 * np.arcsin(np.minimum(1, np.linalg.norm(x - np.eye(d)[0], axis=1) / 2))
    assert unit(x) and theta.max() <= angle * (1 + 1e-9)
    # The angle's distribution function, from the area of a cap, is uniform under the law.
    share = special.betainc((d - 1) / 2, (d - 1) / 2, np.sin(theta / 2) ** 2)
    share /= special.betainc((d - 1) / 2, (d - 1) / 2, np.sin(angle / 2) ** 2)
    assert np.mean(share) == pytest.approx(0.5, abs=5 / np.sqrt(12 * N))


@pytest.mark.parametrize(("d", "angle"), [(384, 0.1), (300, 0.05), (64, 1e-6)])
def test_caps_too_small_for_their_share_to_be_a_number(d, angle):
    """Tokens of a tiny cap in high d gather at its rim: E[sin²(θ/2)] = sin²(angle/2)·(d−1)/(d+1) to leading order."""
    x = sample.caps(5000, np.eye(d)[0], angle, seed=3)
    theta = 2 * np.arcsin(np.linalg.norm(x - np.eye(d)[0], axis=1) / 2)
    assert len(np.unique(x, axis=0)) == 5000 and theta.max() <= angle * (1 + 1e-9)
    share = np.mean(np.sin(theta / 2) ** 2) / np.sin(angle / 2) ** 2
    assert share == pytest.approx((d - 1) / (d + 1), abs=0.01)


def test_several_caps_share_the_tokens():
    x = sample.caps(N, np.eye(3), 0.2, seed=4)
    nearest = (x @ np.eye(3)).argmax(1)
    assert np.bincount(nearest) == pytest.approx(np.full(3, N / 3), abs=5 * np.sqrt(N))


def test_mixture_keeps_its_proportions():
    parts = [
        lambda n, rng: sample.caps(n, [0, 0, 1], 0.1, seed=rng),
        lambda n, rng: sample.caps(n, [0, 0, -1], 0.1, seed=rng),
    ]
    x = sample.mixture(N, parts, [0.3, 0.7], seed=5)
    assert np.mean(x[:, 2] > 0) == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / N))


def test_antipodal_has_exact_mean_zero():
    x = sample.antipodal(sample.uniform(50, 4, seed=0))
    assert len(x) == 100 and np.array_equal(x[50:], -x[:50])


def test_same_seed_same_bytes_and_another_seed_differs():
    for make in (lambda s: sample.uniform(9, 3, seed=s), lambda s: sample.vmf(9, [0, 1, 0], 5, seed=s)):
        assert np.array_equal(make(7), make(7)) and not np.array_equal(make(7), make(8))


@pytest.mark.parametrize("d", [2, 3])
def test_nodes_integrate_vmf_to_rounding(d):
    """Spectral accuracy: ∫⟨e,x⟩ under a von Mises–Fisher density is a Bessel ratio."""
    mean = np.ones(d) / np.sqrt(d)
    x, w = sample.nodes(2000, d, log_density=lambda y: 10 * y @ mean)
    assert unit(x) and w.sum() == pytest.approx(1, abs=ROUNDING) and (w >= 0).all()
    ratio = special.ive(d / 2, 10) / special.ive(d / 2 - 1, 10)
    assert np.abs(w @ x - ratio * mean).max() < ROUNDING


@pytest.mark.parametrize("d", [4, 6, 10])
def test_nodes_in_high_dimension_beat_random_tokens(d):
    x, w = sample.nodes(4096, d)
    random = sample.uniform(4096, d, seed=0)
    assert np.abs(w @ x).max() < ROUNDING  # odd moments vanish with the antipodes
    error = lambda y, v: np.linalg.norm((y.T * v) @ y - np.eye(d) / d)  # noqa: E731
    assert error(x, w) < 0.4 * error(random, np.full(4096, 1 / 4096))


@pytest.mark.parametrize(("n", "d"), [(1, 2), (5, 2), (1, 3), (7, 3), (200, 3), (5, 4)])
def test_nodes_come_in_about_the_number_asked_for(n, d):
    x, w = sample.nodes(n, d)
    assert len(x) == len(w) and abs(len(x) - n) <= max(2, np.sqrt(8 * n))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sample.uniform(0, 3, seed=0), BadParameter, "at least 1"),
        (lambda: sample.uniform(5, 1, seed=0), BadParameter, "d ≥ 2"),
        (lambda: sample.vmf(5, [0, 0, 0], 1, seed=0), BadArray, "zero"),
        (lambda: sample.vmf(5, [0, 0, 1], -1, seed=0), BadParameter, "concentration"),
        (lambda: sample.vmf(5, [0, 0, 1], np.nan, seed=0), BadParameter, "concentration"),
        (lambda: sample.vmf(5, np.eye(3), 1, seed=0), BadArray, "one vector"),
        (lambda: sample.caps(5, [0, 0, 1], 4.0, seed=0), BadParameter, "half-angle"),
        (lambda: sample.nodes(5, 2, log_density=lambda x: x), BadArray, "log_density"),
        (lambda: sample.as_weights([0.5, 0.6], 2), BadWeights, "sum to 1.1"),
        (lambda: sample.as_weights([1.5, -0.5], 2), BadWeights, "negative"),
        (lambda: sample.as_weights([], 0), BadWeights, "shape"),
        (lambda: sample.as_weights([1.0], 2), BadWeights, "shape"),
    ],
)
def test_bad_requests_get_a_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()
