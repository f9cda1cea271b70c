"""Angles to the limit on a token's side (THEORY eq. 20): against true tokens, exact transport and an ODE solver."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import frostline as fl
from frostline.analysis.arcs import Arc
from frostline.analysis.replay import replay
from frostline.analysis.side_angles import SideAngles
from frostline.errors import BadRun
from frostline.sphere import unit_rows
from frostline.theory.expansion import Derivative
from frostline.theory.sides import Sides
from frostline.theory.spectrum import scale_of
from frostline.transport.exact import exact
from tests.problems import symmetric
from tests.runs.problems import random_run

STEPPERS = {"euler": fl.Euler(0.1), "rk4": fl.RK4(0.1), "adaptive": fl.Adaptive(1e-6)}


def with_plateau(d, rng, *, count=300, until=12.0, m=1):
    """A symmetric head that does not commute, β = 10…10⁴, whose E has dimension m."""
    B = symmetric(rng.uniform(0.3, 1, d), rng)
    A = symmetric(np.append(np.ones(m), rng.uniform(-0.5, 0.6, d - m)), rng)
    head = fl.Attention.from_matrices(B, A @ np.linalg.inv(B).T, 10 ** rng.uniform(1, 4))
    return head, fl.sample.uniform(count, d, seed=rng)


@pytest.mark.parametrize("stepper", STEPPERS)
@pytest.mark.parametrize(("d", "m"), [(2, 1), (3, 1), (3, 2), (4, 2)])
def test_no_token_is_further_from_its_limit_than_certified(rng, stepper, d, m):
    """Angles to E of every token, and W₂ by exact transport, at six times; A symmetric, B and V do not commute."""
    for _ in range(3):
        head, x0 = with_plateau(d, rng, m=m, count=60)
        run = fl.simulate(head, x0, until=6.0, stepper=STEPPERS[stepper], save_at=[0, 0.5, 1, 2, 4, 6])
        proven, goal = fl.certificate(run), fl.limit(head)(x0)
        assert not proven.no_sides
        inside = np.linalg.norm(run.tokens @ np.asarray(fl.limit(head).basis).T, axis=-1)
        true = np.arccos(np.minimum(inside, 1.0))
        assert (proven.side_angles >= true - 1e-7).all()
        for value, tokens in zip(proven.by_sides, run.tokens, strict=True):
            assert value >= exact(tokens, goal) * (1 - 1e-12)
        kept = proven.side_angles < np.pi
        if m == 1:
            assert ((run.tokens * goal).sum(-1)[kept] > 0).all()
        assert kept[0].mean() > 0.9


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_with_and_without_sides(seed):
    """A symmetric or not, d = 2…6, β = 1…10⁴: ``values`` is the smaller certificate, exact transport is below it."""
    rng = np.random.default_rng([20, seed])
    even = seed % 3 < 2
    run = random_run(rng, even=even, stepper=fl.Euler(0.1), n=50, until=3.0, save_at=(0.0, 1.0, 3.0))
    proven = fl.certificate(run)
    assert np.array_equal(proven.values, np.minimum(proven.by_path, proven.by_sides))
    ruling = ["sides" if a < b else "path" for a, b in zip(proven.by_sides, proven.by_path, strict=True)]
    assert list(proven.ruled_by) == ruling and (proven.no_sides != "") == (not even)
    if proven.target == "limit":
        goal = fl.limit(run.layers[0][0])(run.initial)
        for value, tokens in zip(proven.by_sides, run.tokens, strict=True):
            assert value >= exact(tokens, goal) * (1 - 1e-12)
        # (at t = 0 the bound of W from below is what "vacuous" compares with)
        assert proven.start <= exact(run.initial, goal) * (1 + 1e-9)


@pytest.mark.parametrize("push", [0.02, 0.1, 0.3])
def test_against_the_comparison_equation_itself(push):
    """d = 2, and a path with ẋ = F(x) + a constant push away from the limit: θ' is as large as (20) allows.

    The bound may not be below the path's own angle, and not 2 % above it; a token past the critical angle is lost.
    """
    B, A = np.array([[1.0, 0.2], [0.4, 0.6]]), np.array([[0.9, 0.1], [0.1, 0.4]])
    head = fl.Attention.from_matrices(B, A @ np.linalg.inv(B).T, 100.0)
    values, vectors = np.linalg.eigh(A)
    e, gap = vectors[:, 1], values[1] - values[0]
    across = np.array([-e[1], e[0]])

    def point(theta):
        return np.cos(theta) * e + np.sin(theta) * across

    def speed(_, theta):
        s = np.linalg.norm(point(theta[0]) @ B)
        return [-gap / s * np.sin(theta[0]) * np.cos(theta[0]) + push]

    derivative, unit = Derivative.scaled(A, B)
    for first in (0.05, 0.6, 1.5):
        times = np.linspace(0, 8, 161)
        path = solve_ivp(speed, (0, 8), [first], t_eval=times, rtol=1e-11, atol=1e-13).y[0]
        x = np.array([point(theta) for theta in path])
        slopes = np.array([speed(0, [t])[0] * (-np.sin(t) * e + np.cos(t) * across) for t in path])
        angles = SideAngles(Sides.of(head), scale_of(A), x[:1], e[None])
        for k in range(1, len(times)):
            (before, after), (leaving, arriving) = x[k - 1 : k + 1, None], slopes[k - 1 : k + 1, None] / unit
            arc = Arc.between((times[k] - times[k - 1]) * unit, before, leaving, after, arriving)
            around = derivative.around(arc.middle)
            defects, _ = arc.defects(derivative, around.steepness(arc.reach))
            angles.advance(arc, *around.scales(arc.reach), defects)
            if path[k] >= 1.45:
                break
            if angles.theta[0] == np.pi:
                assert path[k] > 1.3
                break
            assert path[k] <= angles.theta[0] <= path[k] * 1.02 + 1e-3


def test_a_limit_on_the_other_side_is_never_certified(two_clusters):
    sides = Sides.of(two_clusters)
    x = unit_rows(np.array([[0.9, 0.3, 0.1], [0.9, 0.3, 0.1]]))
    angles = SideAngles(sides, 1.0, x, np.array([[1.0, 0, 0], [-1.0, 0, 0]]))
    assert angles.chords[1] == 2.0 and angles.theta[1] == np.pi
    assert angles.chords[0] == pytest.approx(np.linalg.norm(x[0] - [1, 0, 0]), abs=1e-12)


def test_it_lasts_over_a_plateau_where_paths_do_not(rng):
    """d = 3, β = 1000: by paths nothing is known after t = 4; by sides the bound falls below half of W₂ at t = 0."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.3]), np.eye(3), 1000.0)
    x0, weights = fl.sample.uniform(600, 3, seed=rng), None
    run = fl.simulate(head, x0, weights=weights, until=40.0, save_at=[0, 1, 4, 10, 20, 40])
    proven = fl.certificate(run)
    assert (proven.by_path[3:] > proven.start).all() and not proven.vacuous[3:].any()
    assert proven.ruled_by[3:] == ("sides",) * 3 and proven.values[-1] < 0.8 * proven.start
    assert "by sides" in proven.describe() and "Certified at t = 40" in proven.describe()
    goal = fl.limit(head)(x0)
    for value, tokens in zip(proven.values, run.tokens, strict=True):
        assert value >= fl.wasserstein(tokens, goal).lower


def test_vacuous_is_measured_from_the_start():
    """A bound below 2 and above W₂ at t = 0 says nothing: the tokens were closer before anything moved."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.9, 0.8]), np.eye(3), 3.0)
    x0 = fl.sample.uniform(100, 3, seed=0)
    proven = fl.certificate(fl.simulate(head, x0, until=1.0, stepper=fl.RK4(0.05)))
    assert proven.start == pytest.approx(exact(x0, fl.limit(head)(x0)), rel=1e-9)
    assert proven.start < proven.values[-1] < 2 and proven.vacuous[-1]
    assert f"W2 at t = 0 is {proven.start:.4g}" in proven.describe()


def test_the_start_of_a_subspace_is_the_distance_to_it():
    """m = 2, symmetric A: coupling by index is optimal at t = 0, and no limit is nearer than E."""
    head, x0 = with_plateau(3, np.random.default_rng(3), m=2, count=40)
    proven = fl.certificate(fl.simulate(head, x0, until=0.5))
    assert proven.start == pytest.approx(exact(x0, fl.limit(head)(x0)), rel=1e-9)


@pytest.mark.parametrize(
    ("A", "words"),
    [
        (np.array([[1.0, 0.8], [0.0, 0.5]]), "does not reduce"),
        (np.array([[1.0, -1.0], [1.0, 1.0]]), "not every token has a limit"),
        (np.eye(2), "nothing lies below"),
    ],
)
def test_without_sides_the_reason_is_said(A, words):
    run = fl.simulate(fl.Attention.from_matrices(np.eye(2), A, 100.0), fl.sample.uniform(30, 2, seed=0), until=1.0)
    proven = fl.certificate(run)
    assert words in proven.no_sides and np.isinf(proven.by_sides).all()
    assert np.array_equal(proven.values, proven.by_path) and set(proven.ruled_by) == {"path"}
    assert (proven.side_angles == np.pi).all()


def test_normal_matrices_have_sides(rng):
    """A normal, with a complex pair below its two leading real eigenvalues: θ and the turn within E hold."""
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    A = np.zeros((4, 4))
    A[0, 0] = A[1, 1] = 1.0
    A[2:, 2:] = [[0.2, -0.7], [0.7, 0.2]]
    head = fl.Attention.from_matrices(np.eye(4), turn @ A @ turn.T, 2000.0)
    x0 = fl.sample.uniform(80, 4, seed=rng)
    run = fl.simulate(head, x0, until=5.0, stepper=fl.RK4(0.05), save_at=[1, 3, 5])
    proven, goal = fl.certificate(run), fl.limit(head)(x0)
    assert not proven.no_sides
    for value, tokens in zip(proven.by_sides, run.tokens, strict=True):
        assert value >= exact(tokens, goal)


@pytest.mark.parametrize("stepper", [fl.Adaptive(1e-6), fl.Euler(0.1), fl.RK4(0.1)])
def test_remembered_steps_are_those_of_a_replay(stepper, two_clusters):
    """A run in memory and the same run without its memory: the same nodes, and the same certificate."""
    run = fl.simulate(two_clusters, fl.sample.uniform(30, 3, seed=0), until=2.0, stepper=stepper, save_at=[0.5, 2.0])
    bare = dataclasses.replace(run, _memory=None)
    for node, again in zip(replay(run), replay(bare), strict=True):
        assert node.time == again.time and np.array_equal(node.tokens, again.tokens)
    assert np.array_equal(fl.certificate(run).values, fl.certificate(bare).values)


def test_steps_of_another_run_are_not_remembered(two_clusters):
    x0 = fl.sample.uniform(20, 3, seed=0)
    run = fl.simulate(two_clusters, x0, until=1.0)
    with pytest.raises(BadRun, match="did not lead to the tokens"):
        fl.certificate(dataclasses.replace(run, initial=-x0[::-1].copy()))


def test_dense_output_knows_its_velocity(two_clusters):
    """The slope of a node against central differences of the dense output around it."""
    run = fl.simulate(two_clusters, fl.sample.uniform(10, 3, seed=0), until=1.0)
    step = run._memory.steps[len(run._memory.steps) // 2]
    start, h = run._memory.steps[len(run._memory.steps) // 2 - 1].time, 1e-5
    time = start + 0.4 * (step.time - start)
    expected = (step.at(time + h) - step.at(time - h)) / (2 * h)
    assert np.abs(np.asarray(step.slope_at(time) - expected)).max() < 1e-7
