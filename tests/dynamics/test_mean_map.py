"""The mean map (THEORY eq. 1) against plain loops, closed forms, and itself in another precision."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

import frostline as fl
from frostline.dynamics.mean_map import ENGINES, choose
from frostline.errors import BadArray, BadParameter, BadWeights
from tests.tolerances import FLOAT32_ANSWER, FLOAT32_LOW_D, FLOAT32_MIDDLE_D, LARGE_LOGITS, ROUNDING

engines = pytest.mark.parametrize("engine", [name for name in ENGINES if name != "cuda"])


def random_head(rng, d, beta, bias=False):
    B, V = rng.standard_normal((2, d, d))
    return fl.Attention.from_matrices(
        B / np.linalg.norm(B, 2), V, beta, key_bias=rng.standard_normal(d) / 3 if bias else None
    )


def by_loops(head, x, y, w):
    B, _, _, g = head.matrices
    means = []
    for query in x:
        logits = np.array([head.beta * (query @ B @ source + (0 if g is None else g @ source)) for source in y])
        shares = w * np.exp(logits - logits.max())
        means.append(sum(s * source for s, source in zip(shares, y, strict=True)) / shares.sum())
    return np.array(means)


@engines
@pytest.mark.parametrize("d", [2, 3, 8, 9, 40])
@pytest.mark.parametrize("beta", [1e-3, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("bias", [False, True])
def test_agrees_with_plain_loops(engine, d, beta, bias):
    rng = np.random.default_rng(d)
    if engine == "tree" and d > 4:
        pytest.skip("the tree is for d ≤ 4, and says so in a test of its own")
    head = random_head(rng, d, beta, bias)
    x, y = fl.sample.uniform(7, d, seed=rng), fl.sample.uniform(23, d, seed=rng)
    w = rng.dirichlet(np.ones(23))
    m = fl.mean_map(head, x, sources=y, weights=w, engine=engine, tolerance=1e-12)
    # Logits of size β carry β·1e-16; ties turn that into weights, no worse.
    assert np.abs(m - by_loops(head, x, y, w)).max() < ROUNDING + 20 * beta * 2e-16


@engines
def test_beta_to_zero_is_the_plain_mean(engine, rng):
    x = fl.sample.uniform(50, 3, seed=0)
    m = fl.mean_map(random_head(rng, 3, 1e-13), x, engine=engine)
    assert np.abs(m - x.mean(0)).max() < ROUNDING


@engines
def test_beta_to_infinity_is_the_best_matching_token(engine, rng):
    d = 4 if engine == "tree" else 5
    head = random_head(rng, d, 1e6)
    x = fl.sample.uniform(50, d, seed=1)
    best = (x @ head.B @ x.T).argmax(1)
    assert np.abs(fl.mean_map(head, x, engine=engine) - x[best]).max() < 1e-6


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("beta", [0.5, 10.0, 200.0])
def test_uniform_density_gives_the_bessel_ratio(d, beta):
    """For the uniform law and B = I, m(x) = (I_{d/2}/I_{d/2−1})(β)·x; nodes make it exact to rounding."""
    y, w = fl.sample.nodes(20_000, d)
    x = fl.sample.uniform(20, d, seed=2)
    head = fl.Attention.from_matrices(np.eye(d), np.eye(d), beta)
    ratio = special.ive(d / 2, beta) / special.ive(d / 2 - 1, beta)
    assert np.abs(fl.mean_map(head, x, sources=y, weights=w) - ratio * x).max() < LARGE_LOGITS


def test_laplace_principle_first_order():
    """THEORY eq. 10 for a von Mises–Fisher density on S²: the first-order error falls a hundredfold per decade of β."""
    mean, concentration = np.array([0.0, 0.6, 0.8]), 2.0
    y, w = fl.sample.nodes(60_000, 3, log_density=lambda z: concentration * z @ mean)
    x = fl.sample.uniform(5, 3, seed=3)
    error = {}
    for kappa in (100.0, 1000.0):
        m = fl.mean_map(fl.Attention.from_matrices(np.eye(3), np.eye(3), kappa), x, sources=y, weights=w)
        gradient = concentration * fl.sphere.tangent(x, np.broadcast_to(mean, x.shape).copy())
        error[kappa] = np.linalg.norm(m - ((1 - 1 / kappa) * x + gradient / kappa), axis=1)
    assert error[100.0] / error[1000.0] == pytest.approx(np.full(5, 100.0), rel=0.05)


@pytest.mark.parametrize("d", range(2, 9))
@pytest.mark.parametrize("n", [20, 300, 2000])
def test_float32_agrees_with_float64_at_beta_1e5(d, n):
    """Including sparse clouds in d = 8, where far tokens tie and float32 logits, in either form, are off by 1e-3."""
    for seed in range(3):
        rng = np.random.default_rng([d, n, seed])
        head = random_head(rng, d, 1e5)
        x = fl.sample.uniform(n, d, seed=rng).astype(np.float32)
        low = fl.mean_map(head, x)
        # The same directions in float64: lengths that are wrong by 6e-8 would change logits by 6e-3.
        wide = fl.sphere.normalise(x.astype(np.float64))
        logits = 1e5 * (wide @ head.B @ wide.T)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        exact = shares @ wide / shares.sum(1, keepdims=True)
        assert low.dtype == np.float32
        assert np.linalg.norm(low - exact, axis=1).max() <= (FLOAT32_LOW_D if d <= 4 else FLOAT32_MIDDLE_D)


def test_blocks_split_over_many_blocks_agree(rng, monkeypatch):
    from frostline.dynamics.mean_map import dense

    head, x = random_head(rng, 3, 50.0), fl.sample.uniform(101, 3, seed=4)
    whole = fl.mean_map(head, x, engine="blocks")
    monkeypatch.setattr(dense, "BLOCK", 700)
    assert np.abs(fl.mean_map(head, x, engine="blocks") - whole).max() < ROUNDING


@engines
def test_batches_are_independent(engine, rng):
    head = random_head(rng, 4, 30.0)
    x = fl.sample.uniform(60, 4, seed=5).reshape(2, 3, 10, 4)
    w = rng.dirichlet(np.ones(10))
    together = fl.mean_map(head, x, weights=w, engine=engine)
    assert together.shape == x.shape
    for i in range(2):
        for j in range(3):
            assert np.abs(together[i, j] - fl.mean_map(head, x[i, j], weights=w, engine=engine)).max() < ROUNDING


@given(st.integers(2, 6), st.integers(1, 12), st.floats(1e-3, 1e4), st.integers(0, 2**31), st.floats(0.1, 0.9))
def test_splitting_a_weight_changes_nothing(d, n, beta, seed, share):
    rng = np.random.default_rng(seed)
    head, x = random_head(rng, d, beta), fl.sample.uniform(n, d, seed=rng)
    w = rng.dirichlet(np.ones(n))
    doubled = np.concatenate([x, x[:1]])
    split = np.concatenate([[share * w[0]], w[1:], [(1 - share) * w[0]]])
    whole = fl.mean_map(head, x, weights=w)
    assert np.abs(fl.mean_map(head, x, sources=doubled, weights=split) - whole).max() < LARGE_LOGITS


@given(st.integers(2, 6), st.integers(1, 12), st.floats(1e-3, 1e4), st.integers(0, 2**31))
def test_the_mean_lies_in_the_ball_and_weight_zero_does_not_count(d, n, beta, seed):
    rng = np.random.default_rng(seed)
    head, x = random_head(rng, d, beta), fl.sample.uniform(n, d, seed=rng)
    m = fl.mean_map(head, x)
    assert (np.linalg.norm(m, axis=1) <= 1 + ROUNDING).all()
    ghost = np.concatenate([x, fl.sample.uniform(1, d, seed=rng)])
    weights = np.append(np.full(n, 1 / n), 0.0)
    assert np.abs(fl.mean_map(head, x, sources=ghost, weights=weights) - m).max() < LARGE_LOGITS


def two_poles(d, massless=500, rng=0):
    """Massless tokens around one pole, 600 weighted ones around the other: what counts is far from most queries."""
    rng, pole = np.random.default_rng(rng), np.eye(d)[0]
    around = [side * pole + 0.1 * rng.standard_normal((n, d)) for side, n in ((1, massless), (-1, 600))]
    weights = np.append(np.zeros(massless), rng.dirichlet(np.ones(600)))
    return fl.sphere.normalise(np.concatenate(around)), weights


def weighted_mean(beta, x, w):
    """Eq. 1 for B = I in log space, over the tokens that have mass."""
    y, logs = x[w > 0], np.log(w[w > 0])
    logits = beta * (x @ y.T) + logs
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return shares @ y / shares.sum(1, keepdims=True)


@engines
@pytest.mark.parametrize("d", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("beta", [3e3, 1e4, 1e5])
def test_massless_sources_do_not_count_however_large_their_logits(engine, d, beta):
    """Their logits are up to 2β above those of the tokens that count: e^{2β} overflows."""
    if engine == "tree" and d > 4:
        pytest.skip("the tree is for d ≤ 4, and says so in a test of its own")
    x, w = two_poles(d)
    head = fl.Attention.from_matrices(np.eye(d), np.eye(d), beta)
    m = fl.mean_map(head, x, weights=w, engine=engine, tolerance=1e-12)
    # As in test_agrees_with_plain_loops: logits of size β carry β·1e-16.
    assert np.abs(m - weighted_mean(beta, x, w)).max() < ROUNDING + 20 * beta * 2e-16
    batch = fl.mean_map(head, np.stack([x, x[::-1]]), weights=w, engine=engine, tolerance=1e-12)
    assert np.abs(batch[0] - m).max() < ROUNDING + 20 * beta * 2e-16


def test_the_choice_of_an_engine_does_not_count_massless_sources():
    x, w = two_poles(3, massless=20_000)
    head = fl.Attention.from_matrices(np.eye(3), np.eye(3), 1e4)
    assert "600 pairs" in choose(head, x, weights=w).reason


def test_logits_that_overflow_are_refused():
    head = fl.Attention.from_matrices(10 * np.eye(3), np.eye(3), beta=1e308)
    with pytest.raises(BadParameter, match="overflow"):
        fl.mean_map(head, np.eye(3))


@pytest.mark.parametrize("d", [3, 16])
def test_sources_keep_their_precision_when_queries_have_less(rng, d):
    """At β = 1e6 sources rounded to float32 would move the mean by 1e-4; what is left is the answer's own rounding."""
    head = random_head(rng, d, 1e6)
    x, y = fl.sample.uniform(20, d, seed=1).astype(np.float32), fl.sample.uniform(50, d, seed=2)
    x = x if d <= 8 else (np.eye(d)[:20] * 1.0).astype(np.float32)
    exact = fl.mean_map(head, fl.sphere.normalise(x.astype(np.float64)), sources=y)
    found = fl.mean_map(head, x, sources=y)
    assert found.dtype == np.float32 and np.abs(found - exact).max() <= FLOAT32_ANSWER


def test_kinds_come_back(rng):
    head = random_head(rng, 3, 5.0)
    x = torch.from_numpy(fl.sample.uniform(5, 3, seed=6)).float()
    assert fl.mean_map(head, x).dtype == torch.float32


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"engine": "warp"}, BadParameter, "engine 'warp' is unknown"),
        ({"tolerance": 0.0}, BadParameter, "tolerance"),
        ({"tolerance": 1e-17}, BadParameter, "below float64's precision"),
        ({"tolerance": 1e-15, "engine": "tree"}, BadParameter, "promises errors down to 1e-13"),
        ({"engine": "cuda"}, BadParameter, "the cuda engine needs"),
        ({"sources": np.eye(2)}, BadArray, "do not fit"),
        ({"weights": [1.0]}, BadWeights, "shape"),
        ({"weights": [0.5, 0.5, np.nan]}, BadArray, "NaN"),
    ],
)
def test_bad_calls_get_a_sentence(two_clusters, keywords, error, words):
    with pytest.raises(error, match=words):
        fl.mean_map(two_clusters, np.eye(3), **keywords)


def test_compiling_is_announced_and_happens_once(tmp_path):
    """In a process of its own with nothing on disk yet; the next one finds it there and says nothing."""
    code = """
import frostline as fl, torch
x = fl.sample.uniform(800, 3, seed=0)
fl.mean_map(fl.Attention.from_matrices(torch.eye(3).tolist(), torch.eye(3).tolist(), 10.0), x)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stderr
        for _ in range(2)
    ]
    assert "compiling loops" in said[0] and "compiling" not in said[1]
