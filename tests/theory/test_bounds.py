"""THEORY eq. 11 as a function: its minimum, its window, its asymptotics, the labels of its constants."""

from math import exp, log, sqrt

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadParameter, NoLimit
from frostline.theory.bounds import Bound
from tests.tolerances import ROUNDING, SLOPE


@pytest.fixture
def made():
    return Bound(2.0, 0.4, 0.7, origin="fitted", beta=1e4)


@pytest.mark.parametrize("beta", [0.5, 30.0, 1e4])
def test_the_right_hand_side_of_eq_11(made, beta):
    """M(√(log(β+1)/β)·e^{Ct} + e^{−ct}), by hand, at one time and at many."""
    times = [0.0, 0.3, 2.0, 9.0]
    plain = [2.0 * (sqrt(log(beta + 1) / beta) * exp(0.4 * t) + exp(-0.7 * t)) for t in times]
    assert made(np.array(times), beta) == pytest.approx(plain, rel=ROUNDING)
    assert [made(t, beta) for t in times] == pytest.approx(plain, rel=ROUNDING)


def test_best_time_minimises(made):
    t = np.linspace(0, 20, 20001)
    values = made(t)
    assert made.best_time() == pytest.approx(t[values.argmin()], abs=2e-3)
    assert made.best() == pytest.approx(values.min(), rel=1e-6)


def test_best_time_is_zero_when_the_bound_only_grows():
    assert Bound(1.0, 5.0, 0.1, origin="fitted").best_time(2.0) == 0.0


def test_times_and_values_scale_with_beta_as_the_theory_page_says(made):
    """t* ~ log β/(2(C+c)), and the bound there like (log β/β)^{c/(2(C+c))}."""
    cold, colder = 1e20, 1e24
    slope = (made.best_time(colder) - made.best_time(cold)) / np.log(colder / cold)
    assert slope == pytest.approx(1 / (2 * 1.1), rel=SLOPE)
    falls = np.log(made.best(colder) / made.best(cold))
    ratio = np.log((np.log(colder) / colder) / (np.log(cold) / cold))
    assert falls / ratio == pytest.approx(0.7 / (2 * 1.1), rel=1e-3)


def test_inside_the_window_both_terms_are_small(made):
    begin, end = made.window(0.2)
    assert (made(np.linspace(begin, end, 50)) <= 2 * made.M * 0.2 * (1 + 1e-12)).all()
    assert made.M * made.amplitude() * np.exp(made.C * (end + 0.01)) > made.M * 0.2
    assert made.M * np.exp(-made.c * (begin - 0.01)) > made.M * 0.2
    # It exists exactly for δ ≥ a^{c/(C+c)}.
    edge = made.amplitude() ** (0.7 / 1.1)
    assert made.window(edge * 1.001) is not None and made.window(edge * 0.999) is None


def test_a_priori_constants_come_from_the_matrices(two_clusters):
    found = fl.bound(two_clusters, p=2)
    assert found.origin == "order of magnitude" and found.M == 1
    assert found.c == fl.rates(two_clusters, p=2).guaranteed == 0.25
    # The rate is largest at e₃, where it is (λ₁ − λ₃)/b₃; branch and bound comes as near as 1 %.
    assert 4.0 <= found.C <= 4.04
    assert "never as a guarantee" in found.describe()
    assert found.regime["one head"].verdict == "yes" and found.regime.verdict == "unknown"


def test_emptiness_is_said():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.01]), np.eye(2), beta=2.0)
    assert fl.bound(head).empty()  # at t = 0 it is 1 + a, and the distance from a uniform start is √(2 − 4/π) = .853
    assert "W at t = 0" in fl.bound(head).describe()
    tame = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=1e4)
    assert tame.beta and fl.bound(tame).empty()  # 1.018, just above W₂ = 1 at the start
    assert not fl.bound(tame).empty(1e6)
    assert Bound(3.0, 1.0, 1.0, origin="fitted").empty(1.0)
    assert "numerically empty" in Bound(3.0, 1.0, 1.0, origin="fitted").describe(1.0)
    low_rank = fl.bound(fl.Attention.from_matrices(np.diag([1.0, 0.0]), np.eye(2), beta=2.0))
    assert low_rank(0.0) == pytest.approx(1 + low_rank.amplitude()) and low_rank(1.0) == np.inf
    assert (
        low_rank.empty()
        and not np.isfinite(low_rank.C)
        and "rank-deficient" in low_rank.describe()
        and low_rank.window(0.1) is None
    )


def test_without_expansion_the_bound_falls_for_ever():
    """B = V = I: nothing moves, C = 0 and c is infinite."""
    still = fl.bound(fl.Attention.from_matrices(np.eye(2), np.eye(2), 10.0))
    assert still.C == 0 and still.best_time() == 0 and still(1.0) == pytest.approx(still.amplitude())
    flat = Bound(1.0, 0.0, 0.5, origin="fitted")
    assert flat.best_time(10.0) == np.inf and flat.best(10.0) == pytest.approx(flat.amplitude(10.0))
    assert flat.window(0.6, 10.0) == (pytest.approx(np.log(1 / 0.6) / 0.5), np.inf)


def test_bad_calls_get_a_sentence(made, two_clusters):
    with pytest.raises(BadParameter, match="delta is 2"):
        made.window(2)
    with pytest.raises(BadParameter, match="say which beta"):
        Bound(1.0, 1.0, 1.0, origin="fitted").best_time()
    with pytest.raises(BadParameter, match="of one origin"):
        Bound(1.0, 1.0, 1.0, origin="guessed")
    with pytest.raises(BadParameter, match="one layer"):
        fl.bound([two_clusters, two_clusters])
    with pytest.raises(NoLimit, match="rotation"):
        fl.bound(fl.Attention.from_matrices(np.eye(2), [[0.0, -1.0], [1.0, 0.0]], 1.0))


@pytest.mark.parametrize(("d", "m", "p"), [(2, 1, 2.0), (3, 1, 2.0), (3, 2, 1.0), (6, 2, 3.0)])
def test_the_distance_at_the_start_is_that_of_nodes(d, m, p, rng):
    """The mean of (2 sin(θ/2))^p over 4·10⁵ uniform tokens: farther than 5 standard errors once in 10⁶ runs."""
    values = np.concatenate([np.ones(m), 0.2 * np.ones(d - m)])
    head = fl.Attention.from_matrices(np.eye(d), np.diag(values), beta=10.0)
    x = fl.sample.uniform(400_000, d, seed=rng)
    costs = np.linalg.norm(x - fl.limit(head)(x), axis=1) ** p
    error = costs.std() / np.sqrt(len(x))
    assert fl.bound(head, p=p).initial ** p == pytest.approx(costs.mean(), abs=5 * error)


def test_an_initial_distance_beyond_the_sphere_is_refused():
    for initial in (-0.1, 2.1, np.nan):
        with pytest.raises(BadParameter, match="between 0 and 2"):
            Bound(1.0, 1.0, 1.0, origin="fitted", initial=initial)
