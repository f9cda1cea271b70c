"""The bounds on ∇F against ∇F itself: finite differences, random points, random balls."""

import numpy as np
import pytest
from scipy.optimize import minimize

import frostline as fl
from frostline.sphere import unit_rows
from frostline.theory.expansion import Derivative
from frostline.theory.expansion_supremum import TOLERANCE, rate_slope
from tests.problems import symmetric


def random_pair(rng, d, *, even):
    B = rng.standard_normal((d, d))
    A = symmetric(rng.uniform(-1, 1, d), rng) if even else rng.standard_normal((d, d))
    return Derivative(A / np.linalg.norm(A, 2), B / np.linalg.norm(B, 2))


def field(derivative, x):
    push = x @ derivative.A.T
    return (push - (x * push).sum(1, keepdims=True) * x) / np.linalg.norm(x @ derivative.B, axis=1, keepdims=True)


def points_in_balls(x, radius, rng, count):
    """count points for each token, most of them on the rim of its ball, where extremes are."""
    v = rng.standard_normal((count, *x.shape))
    v = unit_rows(v - (v * x).sum(-1, keepdims=True) * x)
    angle = radius[:, None] * np.minimum(1.0, rng.uniform(0, 2, (count, len(x), 1)))
    return (np.cos(angle) * x + np.sin(angle) * v).reshape(-1, x.shape[1])


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("d", [2, 3, 6])
def test_derivative_is_that_of_the_field(rng, d, even):
    derivative, x = random_pair(rng, d, even=even), fl.sample.uniform(20, d, seed=rng)
    v = rng.standard_normal(x.shape)
    v -= (v * x).sum(1, keepdims=True) * x
    h = 1e-6
    slope = (field(derivative, unit_rows(x + h * v)) - field(derivative, unit_rows(x - h * v))) / (2 * h)
    slope -= (slope * x).sum(1, keepdims=True) * x
    expected = np.einsum("nij,nj->ni", derivative.at(x), v)
    # Central differences lose about ε/h, and more where |Bᵀx| is small.
    assert (np.linalg.norm(slope - expected, axis=1) <= 1e-6 * (1 + np.linalg.norm(expected, axis=1))).all()


def test_rate_is_the_fastest_of_all_tangent_directions(rng):
    derivative, x = random_pair(rng, 3, even=False), fl.sample.uniform(50, 3, seed=rng)
    for token, rate in zip(x, derivative.rate(x), strict=True):
        frame = np.linalg.svd(token[None])[2][1:]
        small = frame @ derivative.at(token[None])[0] @ frame.T
        assert rate == pytest.approx(np.linalg.eigvalsh((small + small.T) / 2)[-1], abs=1e-9)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_no_point_of_the_sphere_expands_faster_than_the_largest(seed, even):
    rng = np.random.default_rng([21, seed])
    d = int(rng.integers(2, 7))
    derivative = random_pair(rng, d, even=even)
    assert derivative.rate(fl.sample.uniform(5000, d, seed=rng)).max() <= derivative.largest <= derivative.closed


def test_the_closed_bound_is_the_formula_of_the_theory_page_for_symmetric_matrices(rng):
    derivative = random_pair(rng, 4, even=True)
    values, sizes = np.linalg.eigvalsh(derivative.A), np.linalg.svd(derivative.B, compute_uv=False)
    k = sizes[0] / sizes[-1]
    expected = (values[-1] - values[0]) / sizes[-1] * (1 + (k - 1 / k) / 4)
    assert derivative.closed == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_everywhere_in_their_balls(seed, even):
    """expansion and steepness against 400 points in each of 30 balls, of radii from 1e-4 to π."""
    rng = np.random.default_rng([22, seed])
    d = int(rng.integers(2, 7))
    derivative, x = random_pair(rng, d, even=even), fl.sample.uniform(30, d, seed=rng)
    radius = np.exp(rng.uniform(np.log(1e-4), np.log(np.pi), 30))
    around = derivative.around(x)
    inside = points_in_balls(x, radius, rng, 400)
    expanding = derivative.rate(inside).reshape(400, 30).max(0)
    steep = np.linalg.norm(derivative.at(inside), 2, axis=(1, 2)).reshape(400, 30).max(0)
    # Near ker Bᵀ the derivative itself, evaluated here, is only good to a few digits.
    slack = 1e-9 * (1 + np.abs(steep))
    assert (expanding <= around.expansion(radius) + slack).all()
    assert (steep <= around.steepness(radius) + slack).all()


def test_the_example_of_the_theory_page_is_sharp():
    """B = diag(1, .5, .2), V = I: the rate is largest at e₃, (λ₁ − λ₃)/b₃ = 4; the closed bound is 8.8."""
    derivative = Derivative(np.diag([1.0, 0.5, 0.2]), np.diag([1.0, 0.5, 0.2]))
    assert derivative.rate(np.eye(3))[2] == pytest.approx(4.0)
    assert 4.0 <= derivative.largest <= 4.0 * (1 + 2 * TOLERANCE) and derivative.closed == pytest.approx(8.8)
    assert derivative.supremum.method == "branch and bound" and derivative.supremum.least <= 4.0


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_symmetric_problems_are_closed_to_the_tolerance(seed, d):
    """V = I, eigenvalues of B in [.2, 1]: the tolerance is met; a climb from the best of 2,000 points stays below."""
    rng = np.random.default_rng([23, seed])
    B = symmetric(rng.uniform(0.2, 1, d), rng)
    derivative = Derivative(B, B)
    supremum = derivative.supremum
    assert supremum.method == "branch and bound" and supremum.value <= supremum.least * (1 + TOLERANCE) * (1 + 1e-9)
    x = fl.sample.uniform(2000, d, seed=rng)
    best = x[np.argmax(derivative.rate(x))]
    climbed = minimize(lambda z: -derivative.rate(unit_rows(z[None]))[0], best, method="Nelder-Mead")
    assert supremum.least - 1e-9 <= supremum.value and -climbed.fun <= supremum.value


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_the_slope_of_the_rate_is_bounded_in_balls(seed, even):
    """R(y) ≤ R(x) + angle·slope for 200 points in each of 30 balls."""
    rng = np.random.default_rng([24, seed])
    d = int(rng.integers(2, 5))
    derivative, x = random_pair(rng, d, even=even), fl.sample.uniform(30, d, seed=rng)
    radius = np.exp(rng.uniform(np.log(1e-3), np.log(0.3), 30))
    inside = points_in_balls(x, radius, rng, 200)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = derivative.rate(x) + radius * rate_slope(derivative.around(x), x, radius)
    assert (
        derivative.rate(inside).reshape(200, 30).max(0) <= np.nan_to_num(most, nan=np.inf) + 1e-9 * np.abs(most)
    ).all()


def test_above_four_dimensions_the_closed_bound_stands(rng):
    derivative = random_pair(rng, 5, even=True)
    assert derivative.supremum.method == "closed bound" and derivative.largest == derivative.closed


def test_a_small_ball_costs_little(rng):
    """At radius zero the bound is no more than a third above the true rate, on the scale of ∇F (measured: 0.25)."""
    derivative, x = random_pair(rng, 3, even=True), fl.sample.uniform(200, 3, seed=rng)
    excess = derivative.around(x).expansion(np.zeros(200)) - derivative.rate(x)
    assert (excess >= -1e-9).all()
    assert np.median(excess / np.linalg.norm(derivative.at(x), 2, axis=(1, 2))) < 1 / 3


def test_a_rank_deficient_head_has_no_finite_rate():
    assert Derivative(np.diag([1.0, 0.0]), np.diag([1.0, 0.0])).largest == np.inf
