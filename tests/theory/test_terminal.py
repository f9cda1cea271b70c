"""The terminal phase: every case of THEORY section 9."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter, NoLimit
from frostline.theory.terminal import hand_over_time, validity

B = np.diag([1.0, 0.5, 0.2])


def head(V, B=B, beta=100.0):
    return fl.Attention.from_matrices(B, V, beta)


def test_a_self_attending_cluster_leaves_for_the_largest_eigenvalue_of_V():
    found = fl.terminal(head(np.diag([1.0, 0.2, 2.0])))
    assert (found.attends, found.tightens, found.drift) == ("itself", True, 0.0)
    assert found.end.kind == "points" and np.allclose(np.abs(found.end.basis), [[0, 0, 1]])
    assert np.allclose(found.direction, [0, 0, 1])
    assert found.contraction == pytest.approx(0.6) and found.growth == pytest.approx(1.0)
    # It rests until something pushes it, so which of ±e₃ is open.
    assert found.goes_to is None and found.hand_over is None


def test_an_antipode_attending_cluster_leaves_for_the_smallest():
    """−B and −V give the same A, hence the same clusters, but now zᵀBz < 0."""
    found = fl.terminal(head(-np.diag([1.0, 0.2, 2.0]), -B))
    assert (found.attends, found.tightens) == ("antipode", True)
    assert np.allclose(np.abs(found.end.basis), [[0, 0, 1]]) and "smallest real part" in found.case


def test_the_identity_persists():
    found = fl.terminal(head(np.eye(3)))
    assert found.direction is None and np.array_equal(found.goes_to, found.centre) and "persists" in found.case


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_spread_that_stalls(sign):
    """zᵀVz of the wrong sign: the cluster never tightens."""
    found = fl.terminal(head(-sign * np.eye(3), sign * B), centre=[0, 0, 1])
    assert not found.tightens and found.end is None and "stalls" in found.case


def test_a_complex_pair_rotates_for_ever():
    V = np.array([[0.5, 0, 0], [0, 0.6, -1], [0, 1, 0.6]])
    found = fl.terminal(head(V))
    assert found.end.kind == "rotation" and found.goes_to is None and "rotates" in found.case


@pytest.mark.parametrize("V", [[[1, 1, 0], [0, 1, 0], [0, 0, 0.5]], [[1, 0, 0.5], [0, 1, 0], [0, 0, 1]]])
def test_a_jordan_block_of_V_does_not_persist(V):
    found = fl.terminal(head(np.array(V, dtype=float)), centre=[1, 0, 0])
    assert found.direction is None and found.goes_to is None and "Jordan block" in found.case


def test_a_centre_that_does_not_rest_drifts_to_the_leading_vector_of_V():
    """The second example of THEORY section 9: V's leading vector is ±(.967, −.254, .006)."""
    coupled = np.array([[1, 0.3, 0.1], [0.3, 0.8, 0.2], [0.1, 0.2, 0.6]])
    found = fl.terminal(head(np.diag([1, 0.4, 0.1]) @ np.linalg.inv(coupled), coupled))
    assert found.drift > 0.1 and "drifts" in found.case
    assert np.allclose(np.abs(found.goes_to), [0.967, 0.254, 0.006], atol=1e-3)


def test_float32_heads():
    coupled = np.array([[1, 0.3, 0.1], [0.3, 0.8, 0.2], [0.1, 0.2, 0.6]], dtype=np.float32)
    V = (np.diag([1, 0.4, 0.1]) @ np.linalg.inv(coupled)).astype(np.float32)
    found = fl.terminal(
        fl.Attention.from_matrices(coupled, V, 100.0), fl.sample.uniform(50, 3, seed=0).astype(np.float32)
    )
    assert np.allclose(np.abs(found.goes_to), [0.967, 0.254, 0.006], atol=1e-3)


def test_hand_over_grows_with_log_beta_as_eq_13_says():
    """Three more per factor of ten in β for g_A = 0.6, g_V = 1: ½ log 10 (1/0.6 + 1)."""
    times = [hand_over_time(beta, 0.6, 1.0, 0.01) for beta in (10.0, 100.0, 1000.0)]
    assert np.diff(times) == pytest.approx(0.5 * np.log(10) * (1 / 0.6 + 1))
    assert hand_over_time(100.0, 0.6, 1.0, 0.1) == pytest.approx(0.5 * np.log(100) / 0.6 + np.log(10 / 0.1))
    assert hand_over_time(100.0, 0.6, 0.4, 0.1) == pytest.approx(
        0.5 * np.log(100) * (1 / 0.6 + 1 / 0.4) + np.log(1 / 0.1) / 0.4
    )
    assert hand_over_time(100.0, 0.6, 1.0, 0.1, drift=0.5) < hand_over_time(100.0, 0.6, 1.0, 0.1)


def test_the_asymmetry_of_the_start_is_weighted():
    V = np.diag([1.0, 0.2, 2.0])
    x0 = fl.sphere.normalise(np.array([[1, 0, 0.2], [1, 0, -0.1], [-1, 0, 0.4]]))
    even, odd = fl.terminal(head(V), x0), fl.terminal(head(V), x0, weights=[0.8, 0.1, 0.1])
    a = abs(x0[:2, 2].mean()), abs((0.8 * x0[0, 2] + 0.1 * x0[1, 2]) / 0.9)
    assert even.hand_over - odd.hand_over == pytest.approx(np.log(a[1] / a[0]))


def test_validity_is_the_number_of_the_theory_page():
    assert validity(head(np.eye(3)), [1, 0, 0], 0.05) == pytest.approx(100 * 0.05**2)
    tilted = validity(head(np.eye(3)), [1, 1, 0], 0.05)
    across = np.linalg.norm((np.diag([1, 0.5]) - 0.75 * np.eye(2)) @ np.array([1, 1]) / np.sqrt(2))
    assert tilted == pytest.approx(100 * (across * 0.05 + 0.05**2))


def test_bad_calls_get_a_sentence():
    with pytest.raises(NoLimit, match="no two points"):
        fl.terminal(head(np.eye(3), np.eye(3)))
    with pytest.raises(BadParameter, match="neither to itself"):
        fl.terminal(head(np.eye(3), np.diag([1.0, 0.0, 0.0])), centre=[0, 1, 0])
    with pytest.raises(BadArray, match="centre has shape"):
        fl.terminal(head(np.eye(3)), centre=[0, 1])
    with pytest.raises(BadParameter, match="one head"):
        fl.terminal([[head(np.eye(3)), head(np.eye(3))]])
    with pytest.raises(BadParameter, match="asymmetry is 0"):
        hand_over_time(10.0, 1.0, 1.0, 0.0)
