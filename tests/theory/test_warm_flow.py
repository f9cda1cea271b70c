"""fl.warm_limit: rest points against integration of the flow, two methods against each other, and the limit of VΣBᵀ."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import frostline as fl
from frostline.errors import BadArray, BadParameter
from frostline.theory.warm_flow import Push, _by_eigenvalues, _secular, warm_push
from tests.problems import symmetric


def head_and_cloud(a, M, *, beta=2.0):
    """A head and a cloud whose warm flow has this a and M: Σ = I/2, V = 1, B = 2Mᵀ/β, μ = a."""
    d = len(a)
    return fl.Attention.from_matrices(2 * np.transpose(M) / beta, np.eye(d), beta), fl.Cloud(100, a, np.eye(d) / 2)


def flow(a, M, x, time):
    """The flow of each token by an ODE solver, from the formula as it is written."""

    def velocity(_, flat):
        # Normalised: off the sphere the flow leads away from it where λ < 0.
        y = fl.sphere.normalise(flat.reshape(x.shape))
        push = a + y @ M.T
        return (push - (y * push).sum(1, keepdims=True) * y).ravel()

    end = solve_ivp(velocity, (0, time), x.ravel(), rtol=1e-10, atol=1e-12).y[:, -1].reshape(x.shape)
    return end / np.linalg.norm(end, axis=1, keepdims=True)


def random_problem(seed):
    """Symmetric M of several sizes against a; every fifth with equal eigenvalues, every seventh with a hard case."""
    rng = np.random.default_rng([41, seed])
    d = int(rng.integers(2, 7))
    values, a = rng.standard_normal(d), rng.standard_normal(d) * rng.choice([0.01, 0.3, 1.0, 3.0])
    M = symmetric(np.round(values) if seed % 5 == 0 else values, rng)
    if seed % 7 == 0:
        e = np.linalg.eigh(M)[1][:, -1]
        a = a - (e @ a) * e
    return Push(a, M)


@pytest.mark.parametrize("seed", range(60))
def test_the_secular_equation_and_the_eigenvalue_problem_find_the_same_points(seed):
    push = random_problem(seed)
    one, other = _secular(push), _by_eigenvalues(push)
    assert np.abs(push.velocity(one)).max() < 1e-8 and np.abs(push.velocity(other)).max() < 1e-8
    assert np.abs(np.linalg.norm(one, axis=1) - 1).max() < 1e-9
    # Where an eigenvalue repeats there are spheres of rest points, of which both take some.
    if seed % 5:
        assert len(one) == len(other)
        assert np.linalg.norm(one[:, None] - other[None], axis=2).min(1).max() < 1e-5
        # Critical points of a function on the sphere: with signs of their index they add up to its Euler number.
        frames = [np.linalg.svd(x[None])[2][1:] for x in one]
        bent = [f @ push.M @ f.T - x @ (push.a + push.M @ x) * np.eye(len(f)) for f, x in zip(frames, one, strict=True)]
        signs = [np.sign(np.linalg.det(-matrix)) for matrix in bent]
        assert sum(signs) == (2 if len(push.a) % 2 else 0) or seed % 7 == 0


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_tokens_end_where_it_says(seed, even):
    """40 random tokens by an ODE solver: each ends at a point that attracts, and all of these are rest points."""
    rng = np.random.default_rng([42, seed])
    d = int(rng.integers(2, 6))
    a, M = rng.standard_normal(d) / 2, rng.standard_normal((d, d)) / 3
    M = M + M.T if even else M
    found = fl.warm_limit(*head_and_cloud(a, M))
    if found.kind == "rotation":
        pytest.skip("nothing attracts: the next test has one")
    ends = flow(a, M, fl.sample.uniform(40, d, seed=rng), 40 / found.rate)
    assert np.linalg.norm(ends[:, None] - found.points[found.stable][None], axis=2).min(1).max() < 1e-6
    if even:
        assert found.values[0] > np.linalg.eigvalsh(M)[-1]


def test_rates_are_those_of_approach_and_escape(rng):
    """A token 1e-4 from each rest point: along the slowest direction its distance grows or shrinks like e^{−rate·t}."""
    a, M = rng.standard_normal(4) / 3, symmetric([1.0, 0.4, -0.2, -0.8], rng)
    found = fl.warm_limit(*head_and_cloud(a, M))
    assert found.stable.any() and not found.stable.all()
    for x, rate in zip(found.points, found.rates, strict=True):
        frame = np.linalg.svd(x[None])[2][1:]
        slowest = frame.T @ np.linalg.eigh(frame @ M @ frame.T)[1][:, -1]
        time = 2 / abs(rate)
        end = flow(a, M, fl.sphere.normalise(x + 1e-4 * slowest)[None], time)[0]
        assert np.log(np.linalg.norm(end - x) / 1e-4) == pytest.approx(-rate * time, abs=0.01)


def test_a_cloud_without_a_mean_has_the_limit_of_VSigmaBt(rng):
    B, V = rng.standard_normal((2, 4, 4))
    sigma = symmetric([0.1, 0.2, 0.3, 0.4], rng)
    found = fl.warm_limit(fl.Attention.from_matrices(B, V, 3.0), fl.Cloud(100, np.zeros(4), sigma))
    expected = fl.limit(fl.Attention.from_matrices(B @ sigma, V, 3.0))
    assert found.kind == "limit" and found.end.kind == expected.kind
    assert found.end.leading == pytest.approx(expected.leading) and found.end.gap == pytest.approx(expected.gap)
    assert "VΣBᵀ" in found.describe()


def test_a_small_mean_reduces_to_the_limit(rng):
    """μ → 0: the attractor goes to one of the two points ±e of the limit, at its rate βg."""
    M = symmetric([1.0, 0.4, -0.3], rng)
    a = rng.standard_normal(3)
    none = fl.warm_limit(*head_and_cloud(0 * a, M))
    assert none.kind == "limit" and none.points.shape == (2, 3)
    for size, bound in ((1e-3, 1e-2), (1e-6, 1e-5)):
        found = fl.warm_limit(*head_and_cloud(size * a, M))
        assert found.kind == "points" and found.stable.sum() == 2
        near = np.linalg.norm(found.points[:2, None] - none.points[None], axis=2).min(1)
        assert near.max() < bound and found.rate == pytest.approx(none.rate, abs=3 * bound)


def test_a_strong_mean_leaves_one_point_that_attracts(rng):
    M = symmetric([0.3, 0.1, -0.2], rng)
    found = fl.warm_limit(*head_and_cloud(5 * np.eye(3)[0], M))
    assert found.kind == "point" and len(found.points) == 2 and found.stable.tolist() == [True, False]


def test_the_hard_case():
    """a ⟂ the leading vector and short: the two attractors are mirror images. With an eigenvalue of multiplicity two
    they are a circle."""
    found = fl.warm_limit(*head_and_cloud(np.array([0.0, 0.3, 0.0]), np.diag([1.0, 0.0, -1.0])))
    assert found.kind == "points"
    assert np.allclose(np.sort(found.points[:2, 0]), [-np.sqrt(1 - 0.09), np.sqrt(1 - 0.09)])
    assert np.allclose(found.points[:2, 1:], [[0.3, 0.0]] * 2)
    circle = fl.warm_limit(*head_and_cloud(np.array([0.0, 0.0, 0.3]), np.diag([1.0, 1.0, 0.0])))
    assert circle.kind == "subspace" and np.allclose(circle.points[circle.stable][:, 2], 0.3)
    ends = flow(np.array([0.0, 0.0, 0.3]), np.diag([1.0, 1.0, 0.0]), fl.sample.uniform(20, 3, seed=0), 40.0)
    assert np.allclose(ends[:, 2], 0.3, atol=1e-6)


def test_where_nothing_attracts_tokens_turn():
    M = np.array([[0.5, -2.0, 0.0], [2.0, 0.5, 0.0], [0.0, 0.0, -1.0]])
    found = fl.warm_limit(*head_and_cloud(np.array([0.0, 0.0, 0.2]), M))
    assert found.kind == "rotation" and found.rate is None and "keep moving" in found.describe()
    one, other = (flow(np.array([0.0, 0.0, 0.2]), M, fl.sample.uniform(5, 3, seed=1), t) for t in (40.0, 40.5))
    assert np.linalg.norm(one - other, axis=1).min() > 0.3


@pytest.mark.parametrize("bias", [False, True])
def test_the_velocity_is_that_of_the_closure(rng, bias):
    """P_xV(μ + Σp) for warm queries, with dense covariance and with the factors of a head."""
    query, key, V = rng.standard_normal((2, 5)), rng.standard_normal((2, 5)), rng.standard_normal((5, 5))
    head = fl.Attention(query, key, V, 0.7, key_bias=rng.standard_normal(5) if bias else None)
    cloud = fl.Cloud(10**5, rng.standard_normal(5) / 4, symmetric([0.1, 0.1, 0.2, 0.3, 0.4], rng))
    x = fl.sample.uniform(9, 5, seed=rng)
    law = fl.closure(head, x, cloud)
    assert not law.frozen.any()
    for seen in (cloud, cloud.seen_by(head)):
        velocity = warm_push(head, seen, "a test").velocity(x)
        assert np.allclose(velocity, fl.sphere.tangent(x, law.mean @ V.T), atol=1e-12)
        assert fl.warm_limit(head, seen).points.shape[1] == 5


def test_it_says_where_the_cloud_freezes():
    head = fl.Attention.from_matrices(np.eye(3), np.eye(3), 50.0)
    found = fl.warm_limit(head, fl.Cloud(100, [0.1, 0.0, 0.0], np.diag([0.5, 0.3, 0.2])))
    assert found.sigma.max() > found.freezing and "frozen cloud" in found.describe()


def test_bad_calls_get_a_sentence(rng):
    head, cloud = fl.Attention.from_matrices(np.eye(3), np.eye(3), 1.0), fl.Cloud(5, np.zeros(3), np.eye(3))
    with pytest.raises(BadParameter, match="warm_limit takes one head, this layer has 2"):
        fl.warm_limit([[head, head]], cloud)
    with pytest.raises(BadParameter, match="the cloud has 1 atoms"):
        fl.warm_limit(head, fl.Cloud(5, np.zeros(3), np.eye(3), atoms=np.eye(3)[:1]))
    with pytest.raises(BadArray, match="the head has dimension 3, the cloud 2"):
        fl.warm_limit(head, fl.Cloud(5, np.zeros(2), np.eye(2)))
    with pytest.raises(BadArray, match="seen by a head with 3 keys, this head has 1"):
        fl.warm_limit(fl.Attention(np.ones((1, 3)), np.ones((1, 3)), np.eye(3), 1.0), cloud.seen_by(head))


def test_a_cloud_without_rest_points_turns():
    """V turns and the mean is too short to stop it: no point rests."""
    turning = fl.Attention.from_matrices([[0.0, -1.0], [1.0, 0.0]], np.eye(2), beta=1.0)
    found = fl.warm_limit(turning, fl.Cloud(100, mean=[0.01, 0.0], covariance=np.diag([0.4, 0.2])))
    assert found.kind == "rotation" and len(found.points) == 0 and found.rate is None and found.describe()
