"""W(t) with bounds over a run: against exact transport, warm starts, targets of one's own."""

import dataclasses

import numpy as np
import pytest

import frostline as fl
from frostline.analysis.distance import DistanceRecorder, Measure, Target
from frostline.errors import BadArray, BadRun, NoLimit
from frostline.transport.exact import exact
from tests.tolerances import EXACT_DISTANCE


@pytest.fixture(scope="module")
def circle():
    """A limit that is a distribution on a circle."""
    head = fl.Attention.from_matrices(np.diag([1.0, 1.0, 0.2]), np.eye(3), 100.0)
    x0 = fl.sample.uniform(150, 3, seed=0)
    return fl.simulate(head, x0, until=4.0, stepper=fl.Euler(0.1), save_at=[0, 1, 2, 4])


def test_it_is_the_exact_distance_when_tokens_are_few(circle):
    goal = fl.limit(circle.layers[0][0])(circle.initial)
    found = fl.distance_curve(circle)
    assert found.values == pytest.approx([exact(x, goal) for x in circle.tokens], rel=EXACT_DISTANCE)
    assert set(found.methods) == {"exact"} and found.left_out == 0


@pytest.mark.parametrize("p, metric", [(1.0, "euclidean"), (2.0, "geodesic")])
def test_brackets_contain_it_and_start_from_one_another(circle, p, metric):
    goal = fl.limit(circle.layers[0][0])(circle.initial)
    seen = []
    found = fl.distance_curve(circle, p=p, metric=metric, method="bracket", tolerance=0.1, progress=seen.append)
    true = np.array([exact(x, goal, p=p, metric=metric) for x in circle.tokens])
    assert (found.lower <= true * (1 + 1e-9)).all() and (true <= found.upper * (1 + 1e-9)).all()
    assert [(each.done, each.total) for each in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_tokens_that_coincide_for_a_while(circle):
    """Repeated tokens are merged at one time and not at the next: the plan still has everyone's mass."""
    x0 = np.repeat(circle.initial[:40], 3, axis=0)
    run = fl.simulate(circle.layers[0][0], x0, until=3.0, stepper=fl.Euler(0.2), save_at=[0, 1, 3])
    run = dataclasses.replace(run, tokens=fl.sphere.normalise(run.tokens + [[[0.0]], [[1e-3]], [[0.0]]] * run.initial))
    found = fl.distance_curve(run, method="bracket")
    goal = fl.limit(circle.layers[0][0])(x0)
    assert found.values == pytest.approx([exact(x, goal) for x in run.tokens], rel=0.03)


def test_targets_of_ones_own(circle):
    goal = fl.sample.uniform(20, 3, seed=1)
    found = fl.distance_curve(circle, goal)
    assert found.values == pytest.approx([exact(x, goal) for x in circle.tokens], rel=EXACT_DISTANCE)
    limit = fl.limit(circle.layers[0][0])
    assert np.array_equal(fl.distance_curve(circle, limit).values, fl.distance_curve(circle).values)


def test_weights_and_tokens_without_a_limit():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), 30.0)
    x0 = np.concatenate([fl.sample.uniform(20, 3, seed=0), [[0, 1.0, 0]]])
    weights = np.random.default_rng(0).dirichlet(np.ones(21))
    run = fl.simulate(head, x0, until=1.0, weights=weights, save_at=[1.0])
    found = fl.distance_curve(run)
    mine = weights[:20] / weights[:20].sum()
    goal = fl.limit(head)(x0)[:20]
    assert found.left_out == 1 and found.methods == ("atoms",)
    assert found.values[0] == pytest.approx(exact(run.tokens[0][:20], goal, x_weights=mine, y_weights=mine), rel=1e-7)


def test_a_cloud_of_as_many_tokens_is_not_paired_with_them():
    """Weights of the run do not become weights of the target."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), 30.0)
    weights = np.random.default_rng(0).dirichlet(np.ones(20))
    run = fl.simulate(head, fl.sample.uniform(20, 3, seed=0), until=1.0, weights=weights)
    goal = fl.sample.uniform(20, 3, seed=1)
    assert fl.distance_curve(run, goal).values[0] == pytest.approx(
        exact(run.tokens[0], goal, x_weights=weights), rel=EXACT_DISTANCE
    )


def test_float32_runs_and_angles():
    head = fl.Attention.from_matrices(np.diag([1.0, 1.0, 0.2]), np.eye(3), 30.0)
    x0 = fl.sample.uniform(30, 3, seed=0)
    wide, narrow = (
        fl.distance_curve(fl.simulate(head, x, until=1.0, stepper=fl.Euler(0.1)), metric="geodesic").values[0]
        for x in (x0, x0.astype(np.float32))
    )
    assert abs(narrow - wide) <= 1e-4 * wide + 1e-6


def test_bad_calls_get_a_sentence(circle, two_clusters):
    with pytest.raises(NoLimit):
        turning = fl.Attention.from_matrices(np.eye(2), [[0, -1.0], [1, 0]], 1.0)
        fl.distance_curve(fl.simulate(turning, [[1.0, 0.0]], until=0.1))
    with pytest.raises(NoLimit, match="no token has one"):
        fl.distance_curve(fl.simulate(two_clusters, [[0.0, 1.0, 0.0]], until=0.1))
    with pytest.raises(BadArray, match="dimension"):
        fl.distance_curve(circle, fl.sample.uniform(5, 2, seed=0))
    with pytest.raises(BadRun, match="kept no times"):
        fl.distance_curve(fl.simulate(two_clusters, np.eye(3), until=1.0, watch=lambda step: True))


def test_a_measure_knows_the_distance_and_its_bounds(circle):
    """The one home of the distance: what a run, its recorder and the explorer's frames are measured with."""
    measure, goal = Measure.of_run(circle), fl.limit(circle.layers[0][0])(circle.initial)
    interval = measure.interval(circle.tokens[-1])
    assert interval.value == pytest.approx(exact(circle.tokens[-1], goal), rel=EXACT_DISTANCE)
    assert not measure.exact and measure.left_out == 0 and measure.distance(circle.tokens[-1]) >= interval.lower
    assert np.array_equal(measure.along(circle), [measure.distance(x) for x in circle.tokens])


def test_a_target_without_a_limit_says_why(two_clusters):
    x0 = fl.sample.uniform(5, 3, seed=0)
    stack = Target.of([[two_clusters], [two_clusters]], x0, None)
    turning = Target.of([[fl.Attention.from_matrices(np.eye(2), [[0, -1.0], [1, 0]], 1.0)]], x0[:, :2], None)
    assert stack.limit is None and stack.why_none.startswith("A stack of 2 layers")
    assert turning.limit is not None and turning.tokens is None and "rotation" in turning.why_none
    recorder = DistanceRecorder(stack, [])
    recorder.add(0.0, x0)
    assert recorder.points == [] and recorder.facts()["last"] is None
    recorder = DistanceRecorder(Target.of([[two_clusters]], x0, None), [(0.0, 0.5), (1.0, 0.2), (2.0, 0.3)])
    facts = recorder.facts()
    assert (facts["first"], facts["last"], facts["smallest"], facts["smallest_at"]) == (0.5, 0.3, 0.2, 1.0)
    assert facts["exact"] and facts["none_because"] is None


def test_facts_are_what_a_run_directory_stores(circle):
    facts = fl.distance_curve(circle).facts()
    assert list(facts) == ["times", "value", "lower", "upper", "method"] and facts["method"] == ["exact"] * 4
