"""Is a run inside the theory? Every check answers yes, no and unknown where it should."""

from math import gamma

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter
from frostline.theory.regime import freezing
from frostline.theory.von_mises_fisher import log_normaliser

CHECKS = (
    "one head",
    "symmetry",
    "low temperature",
    "full support",
    "freezing",
    "limit",
    "resolved gap",
    "away from the kernel",
    "before the terminal phase",
)


def head(beta=100.0, B=(1.0, 0.5, 0.2), V=None):
    return fl.Attention.from_matrices(np.diag(B), np.eye(len(B)) if V is None else V, beta)


@pytest.fixture
def tokens():
    return fl.sample.uniform(1000, 3, seed=0)


def test_a_textbook_run_is_inside(tokens):
    found = fl.regime(head(), tokens, until=12.0)
    assert tuple(check.name for check in found.checks) == CHECKS
    assert found.verdict == "yes" and "every assumption holds" in found.describe()


@pytest.mark.parametrize(
    "n, d, kappa", [(1000, 2, 3.2e5), (1000, 3, 1e3), (1000, 5, 77), (1000, 10, 26), (128, 384, 44)]
)
def test_freezing_temperatures_of_the_theory_page(n, d, kappa):
    assert freezing(n, d) == pytest.approx(kappa, rel=0.02)
    once, twice = log_normaliser(np.array([freezing(n, d), 2 * freezing(n, d)]), d)
    assert twice - 2 * once == pytest.approx(np.log(n), abs=1e-9)


@pytest.mark.parametrize("n, d", [(1e6, 2), (1e9, 3), (1e12, 2)])
def test_freezing_of_many_tokens_follows_the_asymptotics(n, d):
    expected = 4 * (n * gamma(d / 2) / (2 * np.sqrt(np.pi))) ** (2 / (d - 1))
    assert freezing(n, d) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "name, verdict, change",
    [
        ("low temperature", "no", {"heads": head(beta=0.5)}),
        ("low temperature", "unknown", {"heads": head(beta=10.0)}),
        ("freezing", "no", {"heads": head(beta=1e5)}),
        ("freezing", "unknown", {"heads": head(beta=1200.0)}),
        ("symmetry", "no", {"heads": head(V=np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1.0]]))}),
        ("full support", "no", {"x0": fl.sample.caps(500, [1, 0, 0], 0.1, seed=0)}),
        ("full support", "no", {"x0": np.tile([[0.0, 0.6, 0.8]], (200, 1))}),
        ("limit", "no", {"x0": np.concatenate([fl.sample.uniform(500, 3, seed=0), [[0, 0, 1.0]]])}),
        ("full support", "unknown", {"x0": fl.sample.uniform(25, 3, seed=0)}),
        ("resolved gap", "no", {"until": 0.1}),
        ("limit", "no", {"heads": head(V=np.array([[0, -1, 0], [2, 0, 0], [0, 0, -1.0]]))}),
        ("before the terminal phase", "no", {"heads": head(V=np.diag([1.0, 0.2, 2.0])), "until": 20.0}),
        ("before the terminal phase", "unknown", {"heads": head(V=np.diag([1.0, 0.2, 2.0])), "until": 8.0}),
        ("before the terminal phase", "no", {"heads": head(V=-np.eye(3))}),
        ("resolved gap", "unknown", {"until": None}),
        ("one head", "no", {"heads": [[head(), head()]]}),
        ("one head", "no", {"heads": [head(), head()]}),
        ("away from the kernel", "no", {"heads": head(B=(1.0, 0.5, 0.0), V=-np.eye(3)), "until": 5.0}),
        ("away from the kernel", "unknown", {"heads": head(B=(1.0, 0.5, 0.0))}),
        ("away from the kernel", "unknown", {"heads": head(B=(1.0, 0.5, 1e-5), V=-np.eye(3)), "until": 5.0}),
    ],
)
def test_each_check_can_fail(tokens, name, verdict, change):
    given = {"heads": head(), "x0": tokens, "until": 12.0} | change
    found = fl.regime(given["heads"], given["x0"], until=given["until"])
    assert found[name].verdict == verdict
    assert found.verdict == ("no" if any(check.verdict == "no" for check in found.checks) else "unknown")
    assert found[name].sentence in found.describe() or found.verdict != verdict


def test_the_example_of_a_path_into_the_kernel_is_seen():
    """THEORY section 3: B = diag(1, .5, 0), V = −I, from (1,1,1)/√3 the path ends at t = 1.196."""
    x, low_rank = np.ones((1, 3)) / np.sqrt(3), head(B=(1.0, 0.5, 0.0), V=-np.eye(3))
    assert fl.regime(low_rank, x, until=1.3)["away from the kernel"].verdict == "no"
    assert fl.regime(low_rank, x, until=1.0)["away from the kernel"].verdict == "unknown"


def test_weights_count_as_fewer_tokens(tokens):
    weights = np.full(1000, 1e-7)
    weights[:10] = (1 - 990e-7) / 10
    assert fl.regime(head(), tokens, weights=weights)["freezing"].threshold == pytest.approx(freezing(10, 3), rel=0.01)


def test_a_dominant_plane_that_rests_under_V(tokens):
    plane = fl.regime(head(B=(1.0, 1.0, 0.3)), tokens, until=8.0)
    assert plane["before the terminal phase"].verdict == "yes" and plane.verdict == "yes"
    leaving = fl.regime(head(B=(1.0, 1.0, 0.1), V=np.diag([1.0, 1.0, 2.0])), tokens, until=8.0)
    assert leaving["before the terminal phase"].verdict == "unknown"


def test_tokens_without_mass_are_not_there(tokens):
    weights = np.where(tokens[:, 0] > 0.95, 1.0, 0.0)
    assert fl.regime(head(), tokens, weights=weights / weights.sum())["full support"].verdict == "no"


def test_one_token_into_the_kernel_is_enough(tokens):
    x = tokens[:400].copy()
    x[1] = [0, 0, 1]
    assert fl.regime(head(B=(1.0, 0.5, 0.0)), x, until=4.0)["away from the kernel"].verdict == "no"


def test_a_run_stopped_early_is_judged_by_the_time_it_reached(two_clusters, tokens):
    run = fl.simulate(
        two_clusters, tokens, until=12.0, stepper=fl.Euler(0.1), save_at=[0.5, 12], watch=lambda step: step.time >= 1
    )
    assert run.status == "interrupted"
    assert run.regime["resolved gap"].value == fl.regime(two_clusters, tokens, until=0.5)["resolved gap"].value


def test_every_run_carries_its_regime(two_clusters, tokens):
    run = fl.simulate(two_clusters, tokens, until=12.0, stepper=fl.Euler(0.5))
    assert run.regime == fl.regime(two_clusters, tokens, until=12.0)
    assert run.regime.verdict == "yes"
    assert set(run.regime.facts()["checks"]) == set(CHECKS)


def test_bad_calls_get_a_sentence(tokens):
    with pytest.raises(BadArray, match="must agree"):
        fl.regime(head(), fl.sample.uniform(5, 2, seed=0))
    with pytest.raises(BadParameter, match="member by member"):
        fl.regime(head(), np.stack([tokens, tokens]))
    with pytest.raises(BadParameter, match="until is -1"):
        fl.regime(head(), tokens, until=-1.0)
