"""Convergence order of each stepper, by regression of log error on log step."""

import numpy as np
import pytest
import torch
from scipy.integrate import RK45

import frostline as fl
from frostline.dynamics.mean_map.base import token_velocity
from frostline.dynamics.mean_map.select import engine_named
from tests.tolerances import ORDER, SLOPE


@pytest.mark.parametrize(
    ("stepper", "steps"), [(fl.Euler, [4e-3, 2e-3, 1e-3, 5e-4]), (fl.RK4, [0.1, 0.05, 0.025, 0.0125])]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_stated_order(stepper, steps, seed):
    """Two heads, one with a bias, not symmetric, d = 4, against RK4 with a step of 1/1000."""
    rng = np.random.default_rng(seed)
    heads = [
        fl.Attention.from_matrices(rng.standard_normal((4, 4)), rng.standard_normal((4, 4)) / 2, 2.0, key_bias=bias)
        for bias in (None, rng.standard_normal(4))
    ]
    x0 = fl.sample.uniform(25, 4, seed=rng)
    exact = fl.simulate([heads], x0, until=1.0, stepper=fl.RK4(1e-3)).tokens[-1]
    errors = [np.abs(fl.simulate([heads], x0, until=1.0, stepper=stepper(h)).tokens[-1] - exact).max() for h in steps]
    order = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert order == pytest.approx(stepper.order, abs=ORDER)


def field_of(seed, d=3, n=12):
    """A random velocity field of one biased head and a cloud, as tensors."""
    rng = np.random.default_rng([5, seed])
    B, V = rng.standard_normal((2, d, d))
    head = fl.Attention.from_matrices(B, V / np.linalg.norm(V, 2), 2.0, key_bias=rng.standard_normal(d))
    x = torch.from_numpy(fl.sample.uniform(n, d, seed=rng))
    return (lambda y: token_velocity((head,), y, None, engine_named("auto"))), x


def exact_flow(field, x, h, pieces=64):
    for _ in range(pieces):
        x = fl.RK4().advance(field, x, h / pieces)
    return x


@pytest.mark.parametrize("seed", range(3))
def test_order_of_the_adaptive_method_and_of_its_dense_output(seed):
    """Local errors: sixth order for the step, fifth for the dense output and for the embedded solution."""
    field, x = field_of(seed)
    steps = np.array([0.4, 0.2, 0.1])
    ends, middles, estimates = [], [], []
    for h in steps:
        trial = fl.Adaptive().trial(field, x, float(h), field(x))
        ends.append(float((trial.moved - exact_flow(field, x, h)).norm()))
        middles.append(float((trial.at(0.4) - exact_flow(field, x, 0.4 * h)).norm()))
        estimates.append(float(trial.error.norm()))
        assert torch.allclose(trial.at(1.0), trial.moved, atol=1e-14) and torch.allclose(trial.at(0.0), x, atol=1e-14)
    slope = lambda errors: np.polyfit(np.log(steps), np.log(errors), 1)[0]  # noqa: E731
    assert slope(ends) > 6 - 0.5 and slope(middles) > 5 - 0.5
    assert slope(estimates) == pytest.approx(5, abs=0.5)


def test_the_error_estimate_is_honest_on_100_problems():
    """Within a factor 3 of the true local error of the fourth-order solution it estimates."""
    ratios = []
    for seed in range(100):
        field, x = field_of(seed)
        h = 0.1
        trial = fl.Adaptive().trial(field, x, h, field(x))
        # The embedded solution is the propagated one minus what E adds up to.
        weights = torch.as_tensor(np.append(RK45.B, 0.0) - RK45.E)
        fourth = x + h * torch.tensordot(weights, trial.slopes, dims=1)
        fourth = fourth / fourth.norm(dim=-1, keepdim=True)
        true = (fourth - exact_flow(field, x, h)).norm(dim=-1)
        ratios.append(float(trial.error.square().mean().sqrt() / true.square().mean().sqrt()))
    assert min(ratios) > 1 / 3 and max(ratios) < 3


def test_steps_scale_with_the_tolerance_as_the_order_says():
    """h ~ tol^{1/5}: a thousand times tighter, four times as many steps. V is scaled so that the longest step allowed
    does not bind."""
    rng = np.random.default_rng(7)
    B, V = rng.standard_normal((2, 3, 3))
    head = fl.Attention.from_matrices(3 * B, 3 * V / np.linalg.norm(V, 2), 5.0)
    x0 = fl.sample.uniform(30, 3, seed=1)
    tolerances = np.array([1e-8, 1e-10, 1e-12])
    counts = [fl.simulate(head, x0, until=1.0, stepper=fl.Adaptive(t)).steps for t in tolerances]
    assert np.polyfit(np.log(tolerances), np.log(counts), 1)[0] == pytest.approx(-1 / 5, abs=SLOPE)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8, 1e-10])
def test_the_global_error_follows_the_tolerance(two_clusters, tolerance):
    x0 = fl.sample.uniform(100, 3, seed=2)
    times = [0.37, 2.0, 5.0]
    exact = fl.simulate(two_clusters, x0, until=5.0, stepper=fl.RK4(0.002), save_at=times).tokens
    run = fl.simulate(two_clusters, x0, until=5.0, stepper=fl.Adaptive(tolerance), save_at=times)
    # Steps accumulate and the flow stretches: a factor 100 covers both over t = 5 (measured: below 10).
    assert np.sqrt((np.linalg.norm(run.tokens - exact, axis=2) ** 2).mean(1)).max() < 100 * tolerance
