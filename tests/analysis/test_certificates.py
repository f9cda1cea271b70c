"""A certificate is a bound: token by token, and against exact transport."""

import dataclasses

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.errors import BadParameter, BadRun
from frostline.transport.exact import exact
from tests.problems import turning
from tests.runs.problems import random_run, true_targets

STEPPERS = {"euler": fl.Euler(0.05), "rk4": fl.RK4(0.05), "adaptive": fl.Adaptive(1e-6), "long steps": fl.Euler(0.5)}


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("stepper", STEPPERS)
@pytest.mark.parametrize("seed", range(6))
def test_no_angle_and_no_distance_is_missed(seed, stepper, even):
    """θ_i against the true angle of every token at t = 0.5, 1, 4; the value against the exact W₂ to the target."""
    rng = np.random.default_rng([31, seed, even])
    run = random_run(rng, even=even, stepper=STEPPERS[stepper], n=60, until=4.0, save_at=(0.5, 1.0, 4.0))
    found = fl.certificate(run)
    path = fl.zero_temperature(run.layers[0][0], run.initial, times=run.times).tokens
    true = np.where(np.isfinite(path).all(-1), fl.sphere.geodesic(run.tokens, np.nan_to_num(path)), 0.0)
    assert (found.angles >= true - 1e-9).all()
    targets = true_targets(run, found.target)
    # Of these runs no zero-temperature path ends: every time is looked at.
    assert np.isfinite(targets).all()
    for value, x, y in zip(found.values, run.tokens, targets, strict=True):
        assert value >= exact(x, y)


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_weights_and_orders(p):
    rng = np.random.default_rng(32)
    head = fl.Attention.from_matrices(np.diag([1.0, 0.6, 0.3]), np.eye(3), 50.0)
    x0, weights = fl.sample.uniform(80, 3, seed=rng), rng.dirichlet(np.ones(80))
    run = fl.simulate(head, x0, until=2.0, weights=weights, save_at=[1.0, 2.0])
    found = fl.certificate(run, p=p)
    for value, x in zip(found.values, run.tokens, strict=True):
        assert value >= exact(x, fl.limit(head)(x0), p=p, x_weights=weights, y_weights=weights)


def test_it_is_useful_where_the_theory_page_says_so():
    """d = 2, β = 1000, weighted nodes: within a factor 5 of the truth."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), 1000.0)
    x0, weights = fl.sample.nodes(1000, 2)
    run = fl.simulate(head, x0, weights=weights, until=1.0)
    found = fl.certificate(run)
    path = fl.zero_temperature(head, x0, times=run.times).tokens[0]
    true = float(np.sqrt(weights @ np.linalg.norm(run.tokens[0] - path, axis=1) ** 2))
    assert true <= found.temperature[0] <= 5 * true


def test_shorter_steps_certify_more():
    """The certificate of an Euler run falls with the step, towards what temperature alone leaves."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), 1e4)
    x0, weights = fl.sample.nodes(2000, 2)
    parts = [
        fl.certificate(fl.simulate(head, x0, weights=weights, until=2.0, stepper=fl.Euler(h))).temperature[0]
        for h in (0.2, 0.1, 0.05)
    ]
    assert parts[0] > 1.5 * parts[1] > 1.5**2 * parts[2]


def test_without_a_limit_the_path_is_certified():
    rng = np.random.default_rng(33)
    head = fl.Attention.from_matrices(np.eye(2), turning(0.1, 1.0), 1000.0)
    run = fl.simulate(head, fl.sample.uniform(100, 2, seed=rng), until=1.0, stepper=fl.RK4(0.05))
    found = fl.certificate(run)
    assert found.target == "zero-temperature path" and not found.approach.any() and not found.vacuous[0]
    assert found.values[0] >= exact(run.tokens[0], true_targets(run, found.target)[0])
    assert "zero-temperature path of the same tokens" in found.describe()


def test_a_path_that_ends_is_counted_as_lost():
    """B = diag(1, .5, 0), V = −I: from (1,1,1)/√3 the zero-temperature path ends at t = 1.196."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), -np.eye(3), 100.0)
    x0 = np.concatenate([np.ones((1, 3)) / np.sqrt(3), fl.sample.uniform(50, 3, seed=0)])
    found = fl.certificate(fl.simulate(head, x0, until=1.5, stepper=fl.Euler(0.05)))
    assert found.angles[0, 0] == np.pi
    assert "could not be followed" in found.describe()


@pytest.mark.parametrize("size", [1e-120, 1e-30, 1e30, 1e120])
def test_the_unit_of_the_matrices_does_not_matter(size):
    """B and β in other units are the same run; the bounds' products of four entries of B must not underflow."""
    V, x0, times = np.array([[0.3, 1.0], [-1.0, 0.5]]), fl.sample.uniform(20, 2, seed=0), np.linspace(0, 3, 4)

    def made(b):
        head = fl.Attention.from_matrices(b * np.diag([1.0, 0.3]), V, 30 / b)
        return fl.certificate(fl.simulate(head, x0, until=3.0, stepper=fl.Euler(0.05), save_at=times))

    assert np.allclose(made(size).angles, made(1.0).angles, rtol=1e-6)


def test_the_unit_of_time_does_not_matter():
    def made(v):
        head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), v * np.eye(2), 1000.0)
        run = fl.simulate(head, fl.sample.uniform(30, 2, seed=0), until=4 / v, stepper=fl.Euler(0.05 / v))
        return fl.certificate(run)

    assert made(1e-14).values == pytest.approx(made(1.0).values, rel=1e-6)


def test_large_orders_do_not_underflow():
    rng = np.random.default_rng(0)
    x = fl.sphere.normalise(np.array([1.0, 0, 0]) + 0.05 * rng.standard_normal((50, 3)))
    head = fl.Attention.from_matrices(np.eye(3), np.diag([1.0, 0.5, 0.2]), 1000.0)
    run = fl.simulate(head, x, until=1.0)
    chords = np.linalg.norm(run.tokens[0] - fl.limit(head)(x), axis=1)
    found = fl.certificate(run, p=100)
    # W_p lies between max·n^{-1/p} and max; here one atom takes all the mass.
    assert chords.max() * 50 ** (-1 / 100) <= found.values[0] < 2
    assert exact(run.tokens[0], fl.limit(head)(x), p=100) == pytest.approx(chords.max(), rel=0.05)


def test_a_start_that_was_changed_is_refused(two_clusters):
    x0 = fl.sample.uniform(20, 3, seed=0)
    run = fl.simulate(two_clusters, x0, until=0.5, stepper=fl.Euler(0.1), save_at=[0, 0.1, 0.2, 0.3, 0.4, 0.5])
    with pytest.raises(BadRun, match="not those the run started from"):
        fl.certificate(dataclasses.replace(run, initial=x0[::-1].copy()), replayed=False)


def test_vacuous_is_said():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.01]), np.eye(2), 1.0)
    found = fl.certificate(fl.simulate(head, fl.sample.uniform(40, 2, seed=0), until=30.0, stepper=fl.Euler(0.05)))
    assert found.vacuous[-1] and found.describe().startswith("Vacuous at t = 30")


def test_the_words_say_where_the_bound_is_smallest():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.diag([1.0, 1.5]), 100.0)
    cloud = fl.sample.nodes(100, 2, log_density=lambda x: x @ [0.36, 0.48])
    run = fl.simulate(head, cloud.tokens, weights=cloud.weights, until=20.0, save_at=[0.0, 4.0, 8.0, 20.0])
    found = fl.certificate(run)
    best = int(np.argmin(found.values))
    assert not found.vacuous[best] and found.vacuous[-1]
    smallest = f"The smallest value is {found.values[best]:.4g}, at t = {found.times[best]:g}."
    assert found.describe().startswith("Vacuous at t = 20") and smallest in found.describe()


def test_kept_steps_give_what_a_replay_gives():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.3]), np.eye(3), 200.0)
    times = np.linspace(0, 2, 41)
    run = fl.simulate(head, fl.sample.uniform(50, 3, seed=0), until=2.0, stepper=fl.Euler(0.05), save_at=times)
    assert np.array_equal(fl.certificate(run).values, fl.certificate(run, replayed=False).values)


def test_float32_and_torch_runs():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.3]), np.eye(3), 200.0)
    x0 = torch.from_numpy(fl.sample.uniform(50, 3, seed=0)).float()
    run = fl.simulate(head, x0, until=1.0, stepper=fl.RK4(0.1))
    found = fl.certificate(run)
    assert found.values[0] >= exact(run.tokens[0], fl.limit(head)(x0))


def test_too_few_kept_steps_are_refused_with_numbers(two_clusters):
    run = fl.simulate(two_clusters, fl.sample.uniform(20, 3, seed=0), until=12.0, save_at=[0, 6, 12])
    with pytest.raises(BadRun, match=r"kept too few steps .* 3 times, up to 6 apart, .* at least 13"):
        fl.certificate(run, replayed=False)


def test_runs_that_cannot_be_certified_are_refused(two_clusters):
    x0 = fl.sample.uniform(20, 3, seed=0)
    run = fl.simulate(two_clusters, x0, until=1.0)
    with pytest.raises(BadRun, match="did not lead to the tokens"):
        fl.certificate(dataclasses.replace(run, tokens=run.tokens[:, ::-1]))
    with pytest.raises(BadRun, match="kept no times"):
        fl.certificate(fl.simulate(two_clusters, x0, until=1.0, watch=lambda progress: True))
    with pytest.raises(BadParameter, match="2 layers"):
        fl.certificate(fl.simulate([two_clusters, two_clusters], x0, until=1.0))
    with pytest.raises(BadParameter, match="member by member"):
        fl.certificate(fl.simulate(two_clusters, np.stack([x0, x0]), until=1.0))
    with pytest.raises(BadParameter, match=r"p is 0\.5"):
        fl.certificate(run, p=0.5)


def test_tokens_that_never_move_have_come_no_closer():
    """With B = 0 every token is its own limit: no distance, and no rounding that pretends one."""
    head = fl.Attention.from_matrices(np.zeros((2, 2)), np.eye(2), beta=10.0)
    run = fl.simulate(head, fl.sample.uniform(30, 2, seed=1), until=1.0)
    proven = fl.certificate(run)
    assert proven.target == "limit" and proven.start == 0 and proven.vacuous.all()
