"""Large clouds against themselves, and against themselves moved by little: nearest points say it all."""

import numpy as np
import pytest

import frostline as fl
from frostline.transport import nearest
from frostline.transport.problem import TransportProblem
from tests.tolerances import ROUNDING

METRICS = pytest.mark.parametrize("metric", ["euclidean", "geodesic"])


def moved(x, by, rng, metric):
    """The cloud in another order, every token moved by about so much; and how far W_p is at most for p = 1, 2."""
    order = rng.permutation(len(x))
    y = fl.sphere.normalise(x[order] + by * rng.standard_normal(x.shape) / np.sqrt(x.shape[1]))
    chords = np.linalg.norm(y - x[order], axis=1)
    moves = chords if metric == "euclidean" else 2 * np.arcsin(chords / 2)
    return order, y, {p: float((moves**p).mean() ** (1 / p)) for p in (1, 2)}


@METRICS
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_cloud_against_itself_is_at_zero(rng, p, weighted, metric):
    """In another order, with repeated tokens, weighted the same way: 0, not nearly."""
    x = fl.sample.uniform(20_000, 3, seed=rng)
    x[:500] = x[500:1000]
    order = rng.permutation(len(x))
    a = rng.dirichlet(np.ones(len(x))) if weighted else None
    kept = {"x_weights": a, "y_weights": a[order]} if weighted else {}
    found = fl.wasserstein(x, x[order], p=p, metric=metric, **kept)
    assert found.method == "bracket" and found.lower == found.value == found.upper == 0


@METRICS
@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize("by", [1e-6, 1e-4])
def test_a_cloud_moved_by_little_is_known(rng, d, by, metric):
    x = fl.sample.uniform(20_000, d, seed=rng)
    _, y, most = moved(x, by, rng, metric)
    for p in (1, 2):
        found = fl.wasserstein(x, y, p=p, metric=metric)
        assert found.width <= 0.01
        # Everybody's own move is a coupling; it is the best one but for a few tokens closer than the moves.
        assert found.lower <= most[p] * (1 + 1e-9) and found.upper >= 0.99 * most[p]


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@METRICS
def test_bounds_contain_the_exact_value_where_nearest_points_are_shared(rng, p, metric):
    """Moves as long as the spacing, other weights: many tokens have the same nearest one."""
    for trial in range(4):
        x = fl.sample.uniform(250, 3, seed=rng)
        a = rng.dirichlet(100 * np.ones(250)) if trial % 2 else None
        order, y, _ = moved(x, 0.15, rng, metric)
        b = None if a is None else a[order] if trial == 1 else rng.dirichlet(100 * np.ones(250))
        kept = {"p": p, "metric": metric, "x_weights": a, "y_weights": b}
        true = fl.wasserstein(x, y, method="exact", **kept)
        problem = TransportProblem.of(x, y, p, a, b, metric)
        trees = nearest.Tree.of(problem.x), nearest.Tree.of(problem.y)
        lower, coupling = nearest.nearest(problem, *trees)
        shared = 250 - len(np.unique(nearest.in_order(trees[1], trees[0], np.zeros(250), 1.0, problem.geodesic)[1]))
        assert shared > 5
        assert 0 < lower <= true.upper
        for masses, places in ((problem.a, coupling.rows), (problem.b, coupling.columns)):
            assert np.abs(np.bincount(places, weights=coupling.mass) - masses).max() < ROUNDING
        moves = problem.distances(problem.x[coupling.rows], problem.y[coupling.columns])
        assert float((coupling.mass @ moves**p) ** (1 / p)) >= true.lower


def test_far_clouds_are_not_asked_for_nearest_points(rng):
    """It would take longer than everything else in high dimensions."""
    x, y = fl.sample.uniform(2000, 32, seed=rng), fl.sample.uniform(2000, 32, seed=rng)
    assert not nearest.nearly_coincide(TransportProblem.of(x, y, 2.0, None, None, "euclidean"))
    # Nor where only one of the two is near all of the other.
    few = TransportProblem.of(x, np.concatenate([x, y]), 2.0, None, None, "euclidean")
    assert not nearest.nearly_coincide(few)
    assert nearest.nearly_coincide(TransportProblem.of(x, x + 1e-3, 2.0, None, None, "euclidean"))


@pytest.mark.slow
@METRICS
@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize("by", [0.0, 1e-6, 1e-4])
def test_a_hundred_thousand_tokens(rng, d, by, metric):
    x = fl.sample.uniform(100_000, d, seed=rng)
    order, y, most = moved(x, by, rng, metric)
    y = y if by else x[order]
    for p in (1, 2):
        found = fl.wasserstein(x, y, p=p, metric=metric)
        assert found.width <= 0.01 and found.lower <= most[p] * (1 + 1e-9)
        assert by or found.upper == 0
