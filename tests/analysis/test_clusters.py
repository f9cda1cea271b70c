"""Clusters of a run, and the cluster flow (THEORY eq. 12) against the full one."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import frostline as fl
from frostline.analysis.clusters import gather
from frostline.errors import BadParameter, BadRun

HEAD = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.diag([1.0, 0.2, 2.0]), 100.0)


@pytest.fixture(scope="module")
def run():
    # With antipodes the two clusters leave in opposite directions and never meet.
    x0 = fl.sample.antipodal(fl.sample.vmf(150, [0.3, 0.2, 0.4], 1.0, seed=0))
    return fl.simulate(HEAD, x0, until=12.0, stepper=fl.RK4(0.1), save_at=[0, 7, 8, 9, 10, 12])


def test_known_clusters_are_found(rng):
    centres = fl.sphere.normalise(np.array([[1.0, 0, 0], [0, 1, 0], [-1, 0.2, 0.1]]))
    x = np.concatenate(
        [fl.sample.caps(n, z, 0.05, seed=rng) for n, z in zip((50, 30, 120), centres, strict=True)]
        + [fl.sphere.normalise(np.array([[0.0, 0, 1]]))]
    )
    order = rng.permutation(len(x))
    found, labels = gather(x[order], np.full(len(x), 1 / len(x)))
    assert [int((labels == k).sum()) for k in range(3)] == [120, 50, 30] and (labels == -1).sum() == 1
    assert np.abs(found - centres[[2, 0, 1]]).max() < 0.02


def test_tight_clusters_follow_the_reduced_flow(run):
    """(12) agrees with the run's cluster centres to the size of its own validity number."""
    early, late = fl.clusters(run, at=8.0), fl.clusters(run, at=10.0)
    assert early.valid and len(early.masses) == len(late.masses)
    moved = early.reduced(2.0).tokens[-1]
    distance = np.linalg.norm(late.centres[:, None] - moved, axis=2).min(1)
    assert distance.max() < early.validity.max()
    # The clusters have moved by more than that meanwhile, so the agreement is not for free.
    assert np.linalg.norm(moved - early.centres, axis=1).min() > 2 * early.validity.max()


@pytest.mark.parametrize("shares", [(1, 4), (4, 1)])
def test_unequal_clusters_that_see_each_other_follow_eq_12(shares):
    """Two clusters 0.9 rad apart at β = 3: where they go depends on both masses and on the weights between them."""
    B, V = np.array([[1.0, 0.4, 0.0], [-0.2, 0.6, 0.1], [0.3, 0.0, 0.8]]), np.diag([1.0, 0.5, 0.7])
    head = fl.Attention.from_matrices(B, V, 3.0)
    z = np.array([[1.0, 0.0, 0.0], [np.cos(0.9), np.sin(0.9), 0.0]])
    x0 = np.concatenate([fl.sample.caps(20 * n, place, 0.01, seed=n) for n, place in zip(shares, z, strict=True)])
    run = fl.simulate(head, x0, until=1.0, save_at=[0, 1], stepper=fl.Adaptive(1e-9))
    found = fl.clusters(run, at=0.0)
    assert found.valid and sorted(found.masses) == pytest.approx([0.2, 0.8])

    def field(_, flat):
        centres = flat.reshape(2, 3)
        logits = np.exp(3.0 * centres @ B @ centres.T) * found.masses
        push = (logits @ centres / logits.sum(1, keepdims=True)) @ V.T
        return (push - (centres * push).sum(1, keepdims=True) * centres).ravel()

    alone = solve_ivp(field, (0, 1), found.centres.ravel(), rtol=1e-10, atol=1e-12).y[:, -1].reshape(2, 3)
    assert np.abs(found.reduced(1.0).tokens[-1] - alone).max() < 1e-5
    whole = fl.clusters(run, at=1.0).centres
    assert np.abs(whole - alone).max() < 1e-4 and np.linalg.norm(whole - found.centres, axis=1).min() > 0.04


def test_loose_clusters_say_that_the_reduction_does_not_hold(run):
    start = fl.clusters(run, at=0.0)
    assert not start.valid and (start.validity > 1).all()
    assert "does not hold here" in start.describe()


def test_numbers_add_up(run):
    found = fl.clusters(run)
    assert found.counts.sum() + found.off_cluster == 300
    assert found.masses.sum() == pytest.approx(found.counts.sum() / 300)
    assert found.regime.verdict == run.regime.verdict
    assert [fate.attends for fate in found.fates] == ["itself", "itself"]
    assert fl.clusters(run, at=0.0).fates == (None,) * len(fl.clusters(run, at=0.0).masses)


@pytest.mark.parametrize("seed", range(30))
def test_no_cluster_is_empty_or_light(seed):
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), 10.0)
    found = fl.clusters(fl.simulate(head, fl.sample.uniform(30, 2, seed=seed), until=1.0, stepper=fl.Euler(0.5)))
    assert (found.counts > 0).all() and (found.masses >= 0.02).all() and np.isfinite(found.spreads).all()
    assert (np.diff(found.masses) <= 0).all()


def test_weights_make_masses():
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), 10.0)
    x0 = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    run = fl.simulate(head, x0, until=0.01, weights=[0.2, 0.3, 0.5], save_at=[0])
    assert fl.clusters(run).masses == pytest.approx([0.8, 0.2])


def test_bad_calls_get_a_sentence(run):
    with pytest.raises(BadRun, match=r"did not keep t = 3, only 0, 7, 8, 9, 10, 12; add it"):
        fl.clusters(run, at=3.0)
    with pytest.raises(BadParameter, match="one layer"):
        fl.clusters(fl.simulate([HEAD, HEAD], np.eye(3), until=0.1))
    many = fl.simulate(
        fl.Attention.from_matrices(np.eye(9), np.eye(9), 1.0), fl.sample.uniform(200, 9, seed=0), until=0.01
    )
    assert fl.clusters(many).off_cluster == 200
    with pytest.raises(BadRun, match="no clusters to follow"):
        fl.clusters(many).reduced(1.0)
