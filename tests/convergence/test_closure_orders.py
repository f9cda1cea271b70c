"""Orders of the closure in β at both ends, by regression of log error on log β."""

import numpy as np
import pytest
from scipy.special import logsumexp

import frostline as fl
from frostline.theory.tilting import cut
from tests.tolerances import ORDER


def slope(values, errors):
    return np.polyfit(np.log(values), np.log(errors), 1)[0]


def laws(tokens, x, betas, *, keep, B):
    """Largest error of the mean and of the log-mass over queries, for each β."""
    cloud, errors = fl.Cloud.of(tokens, keep=keep), []
    for beta in betas:
        law = fl.closure(fl.Attention.from_matrices(B, np.eye(len(B)), beta), x, cloud)
        logits = beta * x @ B @ tokens.T
        mass = logsumexp(logits, axis=1)
        mean = np.exp(logits - mass[:, None]) @ tokens
        errors.append((np.abs(law.mean - mean).max(), np.abs(law.log_mass - mass).max()))
    return np.array(errors).T


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_warm_end(seed, keep):
    """Skewed clouds (exponential, put on the sphere): the mean is right to first order in β, the log-mass to second."""
    rng = np.random.default_rng([31, seed])
    tokens = fl.sphere.normalise(rng.exponential(size=(300, 4)) - 0.7)
    betas = np.geomspace(0.003, 0.03, 5)
    mean, mass = laws(tokens, fl.sample.uniform(5, 4, seed=rng), betas, keep=keep, B=rng.standard_normal((4, 4)))
    assert slope(betas, mean) == pytest.approx(2, abs=ORDER)
    assert slope(betas, mass) == pytest.approx(3, abs=ORDER)


@pytest.mark.parametrize("seed", range(3))
def test_warm_end_of_a_symmetric_cloud(seed):
    """Without a third cumulant both gain an order."""
    rng = np.random.default_rng([32, seed])
    tokens = fl.sample.antipodal(fl.sample.uniform(150, 4, seed=rng))
    betas = np.geomspace(0.01, 0.1, 5)
    mean, mass = laws(tokens, fl.sample.uniform(5, 4, seed=rng), betas, keep=False, B=rng.standard_normal((4, 4)))
    assert slope(betas, mean) == pytest.approx(3, abs=ORDER)
    assert slope(betas, mass) == pytest.approx(4, abs=ORDER)


@pytest.mark.parametrize("seed", range(3))
def test_cold_end(seed):
    """With its best token as an atom the law tends to the arg-max like 1/σ, that is like 1/β."""
    rng = np.random.default_rng([33, seed])
    tokens = fl.sample.uniform(200, 8, seed=rng)
    betas = np.geomspace(1e3, 1e5, 5)
    mean, mass = laws(tokens, fl.sample.uniform(5, 8, seed=rng), betas, keep=True, B=rng.standard_normal((8, 8)))
    assert slope(betas, mean) == pytest.approx(-1, abs=ORDER)
    assert slope(betas, mass) == pytest.approx(-1, abs=ORDER)


def test_the_warm_end_of_17_prime_is_off():
    """The finding behind (17″): with the moments of all tokens, (17′) does not tend to the mean as β → 0. The cut takes
    away h(z) of a standard deviation, more than the best token puts back, and for clouds of bounded tokens that does
    not fall with N (d = 3, N = 1000: .05)."""
    tokens = fl.sample.uniform(1000, 3, seed=34)
    p = 1e-3 * fl.sample.uniform(1, 3, seed=35)[0]
    logits = tokens @ p
    best, sigma = logits.argmax(), logits.std()
    law = cut(np.array([sigma]), np.array([(logits[best] - logits.mean()) / sigma]), 999)
    c = (logits - logits.mean()) @ tokens / 1000
    mean = (tokens[best] + 999 * (tokens.mean(0) + law.share[0] * c)) / 1000
    assert np.linalg.norm(mean - tokens.mean(0)) > 0.04
    right = fl.closure(fl.Attention.from_matrices(np.eye(3), np.eye(3), 1e-3), p[None] / 1e-3, fl.Cloud.of(tokens))
    assert np.linalg.norm(right.mean - tokens.mean(0)) < 1e-3
