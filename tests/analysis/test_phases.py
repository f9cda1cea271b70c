"""Phases of curves whose phases are known, and of runs."""

from itertools import pairwise

import numpy as np
import pytest

import frostline as fl
from frostline.analysis.phases import phases_of_curve
from frostline.errors import BadArray, BadParameter, BadRun, NoLimit

T = np.linspace(0, 30, 400)


def curve(t, level, fall, leave, rise):
    """Exponential fall to a level, held until ``leave``, then an exponential rise to 1.4."""
    return np.minimum(np.maximum(np.maximum(np.exp(-fall * t), level), level * np.exp(rise * (t - leave))), 1.4)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize(
    "level, fall, leave, rise", [(0.05, 1.0, 18.0, 1.0), (0.2, 0.5, 20.0, 0.5), (0.01, 2.0, 12.0, 0.4)]
)
def test_boundaries_are_right(level, fall, leave, rise, noise):
    """Begin and end of the plateau within three steps, or, with noise, within a tenth of the fall's duration."""
    w = curve(T, level, fall, leave, rise) * np.exp(noise * np.random.default_rng(5).standard_normal(len(T)))
    seen = phases_of_curve(T, w)
    settles = np.log(1 / level) / fall
    slack = 3 * T[1] + (0.1 * settles + noise / rise if noise else 0.0)
    assert seen.plateau.begin == pytest.approx(settles, abs=slack)
    assert seen.plateau.end == pytest.approx(leave, abs=slack)
    assert seen.concentration.end == seen.plateau.begin and seen.terminal.begin == seen.plateau.end
    arrives = leave + np.log(1.4 / level) / rise
    assert not seen.terminal.open if arrives < 29 else seen.terminal.open
    assert not seen.plateau.open and seen.none_seen == {}


def test_a_plateau_that_outlasts_the_run_is_open():
    seen = phases_of_curve(T, np.maximum(np.exp(-T), 0.03))
    assert seen.plateau.open and seen.plateau.end == 30 and seen.terminal is None
    assert "rises by a factor 1 only" in seen.none_seen["terminal"]


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize(
    "decay",
    [
        lambda t: np.exp(-t),
        lambda t: np.exp(-0.1 * t),
        lambda t: (1 + t) ** -1.0,
        lambda t: (1 + t) ** -0.5,
        lambda t: (1 + t) ** -0.25,
        lambda t: np.sqrt(1 + t) * np.exp(-0.3 * t),
        lambda t: np.exp(-np.sqrt(t)),
    ],
    ids=["e^-t", "slow", "1/t", "t^-1/2", "t^-1/4", "with a factor", "stretched"],
)
def test_no_plateau_is_invented_in_pure_decay(decay, noise):
    for seed in range(20):
        w = decay(T) * np.exp(noise * np.random.default_rng([6, seed]).standard_normal(len(T)))
        seen = phases_of_curve(T, w)
        assert seen.plateau is None and seen.terminal is None and seen.none_seen["plateau"]


@pytest.mark.parametrize("size", [0.01, 0.1, 0.5, 1.0])
def test_nothing_is_seen_in_pure_noise(size):
    """200 curves of each size: no phase at all. The threshold is five standard deviations of the noise."""
    for seed in range(200):
        w = np.exp(size * np.random.default_rng([7, seed]).standard_normal(len(T)))
        seen = phases_of_curve(T, w)
        assert seen.concentration is None and seen.plateau is None and seen.terminal is None


def test_boundaries_are_ordered_and_inside_the_curve():
    """2,000 random smooth curves, few points and many, with and without noise."""
    for seed in range(2000):
        rng = np.random.default_rng([8, seed])
        t = np.cumsum(rng.uniform(0.1, 1.0, int(rng.integers(12, 120))))
        phase = rng.uniform(0, 7, 3)
        w = np.exp(-rng.uniform(0, 1) * t) + sum(
            0.1 * rng.uniform() * (1 + np.sin(0.3 * k * t + phase[k])) for k in range(3)
        )
        seen = phases_of_curve(t, w * np.exp(rng.choice([0.0, 0.1]) * rng.standard_normal(len(t))))
        found = [phase for phase in (seen.concentration, seen.plateau, seen.terminal) if phase is not None]
        assert all(t[0] <= phase.begin <= phase.end <= t[-1] for phase in found)
        assert all(one.end <= other.begin for one, other in pairwise(found))


def test_noise_that_changes_in_time_and_outliers_are_no_phases():
    for seed in range(50):
        rng = np.random.default_rng([9, seed])
        late = np.exp(np.where(T < 12, 1e-4, 0.6) * rng.standard_normal(len(T)))
        heavy = np.exp(0.1 * rng.standard_t(2, len(T)))
        for w in (late, heavy):
            seen = phases_of_curve(T, w)
            assert seen.concentration is None and seen.plateau is None and seen.terminal is None


def test_the_shape_of_the_theorem_is_a_plateau_only_where_it_rises_slowly():
    """Eq. 11 has a minimum. Where C ≤ 0.25 c W stays there eight times as long as its fall would take: a plateau by the
    rule, and by any that looks at the curve alone. From 0.3 c on it is a valley. 300 curves, seen to their end."""
    rng = np.random.default_rng(11)
    slow, steep = 0, 0
    for _ in range(300):
        a, c, ratio = 10 ** rng.uniform(-4, -1.5), np.exp(rng.uniform(-2, 1)), np.exp(rng.uniform(np.log(0.03), 1))
        C = ratio * c
        t = np.linspace(0, np.log(c / (a * C)) / (C + c) + 3 / C, 1000)
        seen = phases_of_curve(t, a * np.exp(C * t) + np.exp(-c * t))
        # Where C is much larger than c, W hardly falls before it rises.
        if seen.concentration is None:
            assert ratio > 1 and seen.plateau is None
        elif ratio < 0.25:
            assert seen.plateau is not None and seen.terminal is not None
            slow += 1
        elif ratio >= 0.3:
            assert seen.plateau is None and seen.terminal is not None
            steep += 1
    assert min(slow, steep) > 100


def test_units_do_not_matter():
    w = curve(T, 0.05, 1.0, 18.0, 1.0)
    one, other = phases_of_curve(T, w), phases_of_curve(1000 * T, w / 7)
    assert other.plateau.begin == pytest.approx(1000 * one.plateau.begin)
    assert other.plateau.end == pytest.approx(1000 * one.plateau.end)


@pytest.mark.parametrize("w", [np.where(T < 5, np.exp(-T), 0.0), np.exp(-2 * T), 1e-12 + np.exp(-T)])
def test_rounding_is_no_plateau(w):
    seen = phases_of_curve(T, w)
    assert seen.plateau is None and "rounding" in seen.none_seen["plateau"] and seen.concentration is not None


def test_levelling_off_too_late_to_call_is_said_with_the_time_it_would_take():
    seen = phases_of_curve(T, np.maximum(np.exp(-0.1 * T), np.exp(-2.6)))
    assert seen.plateau is None and "for the last" in seen.none_seen["plateau"]


def test_a_metastable_run_and_its_terminal_phase():
    """V prefers e₃ while A prefers e₁ (THEORY section 9): W falls, then climbs to √2."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.diag([1.0, 0.2, 2.0]), 100.0)
    x0 = fl.sample.uniform(300, 3, seed=1)
    seen = fl.phases(fl.simulate(head, x0, until=20.0, stepper=fl.Euler(0.1)))
    assert seen.curve.method == "two atoms"
    assert seen.regime.verdict == "no" and seen.regime["before the terminal phase"].verdict == "no"
    assert seen.concentration.end < seen.terminal.end < 18
    assert seen.curve.distance[-1] == pytest.approx(np.sqrt(2), abs=0.05)
    assert seen.imbalance is not None and seen.off_mass == pytest.approx(seen.off_cluster / 300)


def test_two_effects_of_finite_n_are_told_apart():
    """Frozen stragglers are off-cluster and not imbalance; a swapped cluster is imbalance and not off-cluster."""
    from frostline.analysis.distance import Measure

    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), 10.0)
    start = np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.1], [-1.0, 0.0]])
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    measure = Measure.of(fl.limit(head), start, np.full(4, 0.25))
    straggler = np.array([[1.0, 0.0], [np.cos(1), np.sin(1)], [-1.0, 0.0], [-1.0, 0.0]])
    swapped = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert measure.off_cluster(straggler).sum() == 1 and measure.imbalance(straggler) == 0
    assert measure.off_cluster(swapped).sum() == 0 and measure.imbalance(swapped) == 0.25


def test_a_limit_that_is_a_distribution():
    head = fl.Attention.from_matrices(np.diag([1.0, 1.0, 0.3]), np.eye(3), 300.0)
    seen = fl.phases(fl.simulate(head, fl.sample.uniform(300, 3, seed=0), until=10.0))
    assert seen.curve.method == "index coupling" and seen.imbalance is None
    assert seen.concentration is not None and seen.terminal is None


def test_bad_calls_get_a_sentence(two_clusters):
    x0 = fl.sample.uniform(10, 3, seed=0)
    with pytest.raises(BadArray, match="NaN"):
        phases_of_curve(T, np.full(400, np.nan))
    with pytest.raises(BadArray, match="at least 12"):
        phases_of_curve(T[:5], T[:5])
    with pytest.raises(BadArray, match="at least 12"):
        phases_of_curve(T, -T)
    with pytest.raises(BadRun, match="at least 12 steps"):
        fl.phases(fl.simulate(two_clusters, x0, until=1.0, stepper=fl.Euler(0.5)))
    with pytest.raises(BadRun, match="only its start"):
        fl.phases(fl.simulate(two_clusters, x0, until=1.0, save_at=[0.0], stepper=fl.Euler(0.1)))
    with pytest.raises(BadParameter, match="phases takes a run of one layer; a stack of 2"):
        fl.phases(fl.simulate([two_clusters, two_clusters], x0, until=1.0))
    with pytest.raises(NoLimit, match="rotation"):
        fl.phases(
            fl.simulate(
                fl.Attention.from_matrices(np.eye(2), [[0, -1.0], [1, 0]], 1.0),
                x0[:, :2] / np.linalg.norm(x0[:, :2], axis=1)[:, None],
                until=1.0,
            )
        )
