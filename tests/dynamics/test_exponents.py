"""Λ(x) = −log ∫ e^{−κ|y−u|²/2} dρ(y) (THEORY eq. 19) against its definition, and the inequality that it is for."""

import mpmath
import numpy as np
import pytest
import torch

import frostline as fl
from frostline.dynamics.mean_map.base import mean_map_and_exponent
from frostline.errors import BadParameter
from tests.tolerances import MEAN_MAP

KAPPA_ROUNDING = 2e-14
"""Λ is a difference of two numbers of size κ that are sums of d products, each right to 1e-16: about κ·1e-16·d."""


def problem(rng, n, d, beta):
    B, V = rng.standard_normal((2, d, d))
    return fl.Attention.from_matrices(B, V, beta), fl.sample.uniform(n, d, seed=rng)


def by_hand(head, x, y, weights):
    """(Λ, κ, u) by an explicit loop over queries and sources, squared distances from differences."""
    exponents, kappas, directions = [], [], []
    for query in x:
        key = head.beta * (query @ head.matrices.B)
        kappa = np.sqrt(key @ key)
        terms = [
            np.log(w) - kappa * ((source - key / kappa) ** 2).sum() / 2 for source, w in zip(y, weights, strict=True)
        ]
        exponents.append(-np.logaddexp.reduce(terms))
        kappas.append(kappa)
        directions.append(key / kappa)
    return np.array(exponents), np.array(kappas), np.array(directions)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "beta"), [(50, 2, 1e4), (800, 3, 30.0), (800, 4, 1e5), (120, 6, 300.0), (40, 9, 1.0)]
)
def test_it_is_the_integral_of_its_definition(rng, n, d, beta, weighted):
    """Every engine that sums densely: blocks, and the compiled loop from 2^19 pairs on."""
    head, y = problem(rng, n, d, beta)
    weights = rng.dirichlet(np.ones(n)) if weighted else np.full(n, 1 / n)
    x = y if n * n >= 1 << 19 else y[:7]
    means, exponents = mean_map_and_exponent(head, x, sources=y, weights=weights if weighted else None)
    expected, kappas, _ = by_hand(head, x[:20], y, weights)
    assert (np.abs(exponents[:20] - expected) <= KAPPA_ROUNDING * (1 + kappas)).all()
    assert np.abs(means - fl.mean_map(head, x, sources=y, weights=weights if weighted else None)).max() <= MEAN_MAP


def test_against_fifty_digits(rng):
    """mpmath, in the form −log Σ w e^{−κ|y−u|²/2} that no logit appears in."""
    head, y = problem(rng, 30, 3, 1e4)
    weights = rng.dirichlet(np.ones(30))
    _, exponents = mean_map_and_exponent(head, y[:4], sources=y, weights=weights)
    with mpmath.workdps(50):
        B = mpmath.matrix(head.matrices.B.tolist())
        for query, exponent in zip(y[:4], exponents, strict=True):
            key = head.beta * (B.T * mpmath.matrix(query.tolist()))
            kappa = mpmath.norm(key)
            total = mpmath.mpf(0)
            for source, weight in zip(y, weights, strict=True):
                # The token of unit length that the floats stand for.
                point = mpmath.matrix(source.tolist())
                gap = mpmath.norm(point / mpmath.norm(point) - key / kappa)
                total += mpmath.mpf(float(weight)) * mpmath.exp(-kappa * gap**2 / 2)
            assert abs(float(-mpmath.log(total)) - exponent) <= KAPPA_ROUNDING * float(kappa)


@pytest.mark.parametrize(("d", "weighted"), [(2, False), (3, True)])
def test_a_tree_agrees_with_the_dense_sums(rng, d, weighted):
    """n = 10⁴: the masses to the tolerance of the mean map (measured: 4e-11, which is rounding at κ = 10⁴)."""
    head = fl.Attention.from_matrices(np.diag(np.linspace(1, 0.4, d)), np.eye(d), 1e4)
    x = fl.sample.uniform(10_000, d, seed=rng)
    weights = rng.dirichlet(np.ones(len(x))) if weighted else None
    dense, tree = (mean_map_and_exponent(head, x, weights=weights, engine=name) for name in ("dense", "tree"))
    assert np.abs(dense[1] - tree[1]).max() <= MEAN_MAP
    assert np.abs(dense[0] - tree[0]).max() <= MEAN_MAP


@pytest.mark.parametrize("seed", range(10))
def test_the_mean_map_is_as_close_as_19_says(seed):
    """|m − u|² ≤ 2Λ/κ for 10 × 200 random queries, weights and temperatures; 1e-9 is the mean map's own error."""
    rng = np.random.default_rng([19, seed])
    d, n = int(rng.integers(2, 7)), int(rng.integers(2, 60))
    head, y = problem(rng, n, d, 10 ** rng.uniform(-1, 5))
    weights = rng.dirichlet(np.full(n, 10 ** rng.uniform(-1, 1)))
    x = fl.sample.uniform(200, d, seed=rng)
    means, exponents = mean_map_and_exponent(head, x, sources=y, weights=weights)
    key = head.beta * (x @ head.matrices.B)
    kappa = np.linalg.norm(key, axis=1)
    assert (
        np.linalg.norm(means - key / kappa[:, None], axis=1) ** 2 <= 2 * exponents / kappa * (1 + 1e-9) + 1e-9
    ).all()


def test_19_is_sharp():
    """One cold atom at an angle: |m − u|² = |y − u|² = 2Λ/κ, so that nothing smaller than Λ would do."""
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), 1e3)
    y = np.array([[np.cos(0.3), np.sin(0.3)]])
    means, exponents = mean_map_and_exponent(head, np.array([[1.0, 0.0]]), sources=y)
    error = ((means[0] - [1, 0]) ** 2).sum()
    assert error == pytest.approx(2 * exponents[0] / 1e3, rel=1e-9)


def test_kinds_and_refusals(two_clusters):
    x = torch.eye(3, dtype=torch.float32)
    means, exponents = mean_map_and_exponent(two_clusters, x)
    assert means.dtype == exponents.dtype == torch.float32 and exponents.shape == (3,)
    batch = mean_map_and_exponent(two_clusters, np.stack([np.eye(3), np.eye(3)]))
    assert batch[1].shape == (2, 3) and np.array_equal(batch[1][0], batch[1][1])
    with pytest.raises(BadParameter, match="2, 3 and 4 dimensions"):
        mean_map_and_exponent(fl.Attention.from_matrices(np.eye(5), np.eye(5), 1.0), np.eye(5), engine="tree")
