"""tube against W itself, measured in runs of weighted nodes; its figures; and what it refuses."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter, NoLimit
from tests.problems import head_with, similar, symmetric, turning


def tame(beta):
    return fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=beta)


def measured_distance(head, tube, cloud, p=2.0, frames=5):
    """W_p to the limits of the nodes at a few times of the tube, and the tube there."""
    place = np.unique(np.linspace(1, len(tube.times) - 1, frames).astype(int))
    run = fl.simulate(
        head,
        cloud.tokens,
        weights=cloud.weights,
        until=float(tube.times[-1]),
        save_at=tube.times[place],
        stepper=fl.Adaptive(1e-5),
    )
    goal = fl.limit(head)(cloud.tokens)
    values = [
        fl.wasserstein(frame, goal, p=p, x_weights=cloud.weights, y_weights=cloud.weights).value for frame in run.tokens
    ]
    return np.array(values), tube.values[place]


@pytest.mark.parametrize(("beta", "today"), [(1e3, 1.00), (1e4, 0.998), (1e5, 0.97), (1e6, 0.93)])
def test_the_tame_example_falls_below_what_one_bound_for_the_sphere_gives(beta, today):
    value, time = fl.tube(tame(beta)).best()
    assert value < min(today, fl.bound(tame(beta)).best()) and 0 < time < 5


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_the_distance_itself_is_below_the_tube_on_the_circle(rng, p):
    density = fl.densities.vmf([0.6, 0.8], 0.7)
    for head, start, log in (
        (fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e4), "uniform", None),
        (head_with(symmetric([0.9, -0.3], rng), rng, beta=1e4), "uniform", None),
        (fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=3e4), density, density.log_density),
    ):
        tube = fl.tube(head, start=start, p=p)
        values, bound = measured_distance(head, tube, fl.sample.nodes(1200, 2, log_density=log), p)
        assert (values <= bound).all() and bound.min() < tube.initial


@pytest.mark.slow
def test_the_distance_itself_is_below_the_tube_on_the_sphere():
    head = tame(3e3)
    tube = fl.tube(head)
    values, bound = measured_distance(head, tube, fl.sample.nodes(2000, 3), frames=3)
    assert (values <= bound).all() and not tube.empty
    plane = fl.Attention.from_matrices(np.diag([1.0, 1.0, 0.4]), np.eye(3), beta=3e3)
    tube = fl.tube(plane)
    values, bound = measured_distance(plane, tube, fl.sample.nodes(2000, 3), frames=3)
    assert (values <= bound).all() and not tube.empty


@pytest.mark.slow
def test_measured_growth_lasts_longer_than_what_is_proven():
    head = tame(1e4)
    tube = fl.tube(head, growth="measured")
    assert tube.best()[0] <= 0.60 < fl.tube(head).best()[0]
    assert tube.growth == "measured" and "half as many change" in tube.refinement


def test_a_measured_tube_of_the_circle_is_above_the_distance_itself():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e3)
    cloud = fl.sample.nodes(600, 2)
    tube = fl.tube(head, start=cloud, growth="measured", until=3.0)
    values, bound = measured_distance(head, tube, cloud)
    assert (values <= bound).all() and "given and not refined" in tube.refinement
    assert tube.best()[0] < fl.tube(head).best()[0] < tube.initial


def test_a_subspace_and_a_normal_matrix_have_tubes():
    subspace = fl.tube(fl.Attention.from_matrices(np.diag([1.0, 1.0, 0.2]), np.eye(3), beta=1e5))
    assert subspace.best()[0] < 0.5 * subspace.initial
    normal = np.zeros((3, 3))
    normal[0, 0], normal[1:, 1:] = 1.0, turning(0.2, 0.4)
    assert not fl.tube(fl.Attention.from_matrices(np.eye(3), normal, beta=1e5)).empty


def test_the_words_say_where_it_is_smallest_and_why_it_ends():
    tube = fl.tube(tame(1e5))
    assert "W2 ≤" in tube.describe() and "uniform density" in tube.describe() and tube.ended in tube.describe()
    assert tube.facts()["values"][0] >= tube.initial == pytest.approx(1.0)
    short = fl.tube(tame(1e5), until=0.5)
    assert short.times[-1] == pytest.approx(0.5) and "time asked for" in short.ended
    assert short.values[-1] == pytest.approx(np.interp(0.5, tube.times, tube.values), rel=0.01)
    # Without a plane of symmetry a token that is lost counts with all it may do.
    tilted = fl.tube(tame(1e5), start=fl.densities.vmf([0.3, 0.5, 0.5], 0.1))
    assert tilted.best()[0] > tube.best()[0]


def test_a_tube_that_never_opens_says_which_beta_it_needs():
    tube = fl.tube(tame(20.0))
    assert tube.empty and "never opens" in tube.describe()
    needed = float(tube.ended.split("β = ")[1])
    assert 20 < needed < 1e3
    # Necessary, not sufficient: a little colder the drift wins at first, and the tube is still shut.
    colder = fl.tube(tame(1.2 * needed))
    assert colder.empty and "wins at first" in colder.ended
    assert "to open it needs" in fl.tube(tame(0.8 * needed)).ended


def test_what_is_not_covered_is_refused_with_a_sentence(rng):
    head, nodes = tame(1e4), fl.sample.nodes(100, 3)
    smooth = fl.densities.from_function(lambda y: 1 + 0 * y[:, 0], np.zeros_like, 3)
    biased = fl.Attention.from_matrices(np.eye(3), np.eye(3), 10.0, key_bias=[0.1, 0.0, 0.0])
    for settings, error, words in (
        ({"until": 0.0}, BadParameter, "until is 0"),
        ({"until": np.nan}, BadParameter, "until is nan"),
        ({"p": 0.5}, BadParameter, "p is 0.5"),
        ({"p": np.nan}, BadParameter, "p is nan"),
        ({"growth": "hoped"}, BadParameter, "hoped"),
        ({"start": "cap"}, BadParameter, "cap"),
        ({"start": 0.0}, BadParameter, "smallest value"),
        ({"start": np.nan}, BadParameter, "smallest value"),
        ({"start": 1.5}, BadParameter, "smallest value"),
        ({"start": smooth}, BadParameter, "no lower bound"),
        ({"start": nodes}, BadParameter, "nodes have no density"),
        ({"start": fl.densities.uniform(4)}, BadParameter, "dimension 4"),
        ({"start": 0.5, "growth": "measured"}, BadParameter, "cannot be run"),
        ({"start": np.ones((2, 2, 3)) / np.sqrt(3), "growth": "measured"}, BadArray, "one cloud"),
    ):
        with pytest.raises(error, match=words):
            fl.tube(head, **settings)
    for heads, error, words in (
        ([[head, head]], BadParameter, "one head"),
        (biased, BadParameter, "key bias"),
        (head_with(similar([np.diag([1.0, 0.3, 0.1])], rng), rng), NoLimit, "does not reduce"),
        (fl.Attention.from_matrices(np.eye(3), np.eye(3), 10.0), NoLimit, "no gap"),
    ):
        with pytest.raises(error, match=words):
            fl.tube(heads)


def test_a_measured_tube_of_almost_no_temperature_stays_above_the_start():
    """Nothing moves at β = 1e-17; Λ is smaller there than the rounding of its logarithm."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e-17)
    tube = fl.tube(head, growth="measured", until=0.5)
    assert tube.best()[0] >= 0.99 * tube.initial
