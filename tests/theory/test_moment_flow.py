"""fl.moment_flow against tokens, and the moments of projected Gaussians against samples."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter
from frostline.theory.projected_gaussian import ProjectedGaussian, projected_gaussian
from tests.problems import symmetric
from tests.tolerances import DEVIATIONS, FLOW_ERROR


def problem(kind, d, warmth, count, *, seed=7):
    """Tokens of a Gaussian about a mean, put on the sphere; a head whose logits have this standard deviation."""
    rng = np.random.default_rng(seed)
    if kind == "symmetric":
        B, V = np.diag(np.linspace(1, 0.2, d)), np.eye(d)
    else:
        B, V = rng.standard_normal((2, d, d)) / np.sqrt(d)
    mean = rng.standard_normal(d)
    spread = symmetric(np.linspace(0.3, 1.7, d) / d, rng)
    z = mean / (2 * np.linalg.norm(mean)) + rng.standard_normal((count, d)) @ np.linalg.cholesky(spread).T
    x = fl.sphere.normalise(z)
    p = x @ B
    sigma = np.sqrt(np.einsum("ni,ij,nj->n", p, np.cov(x.T, bias=True), p).mean())
    return fl.Attention.from_matrices(B, V, warmth / sigma), x


def distances(head, x, flow, step):
    """The error of the moment flow, in the metric of its estimate, against a simulation of the tokens."""
    run = fl.simulate(head, x, until=flow.times[-1], stepper=fl.RK4(step), save_at=flow.times)
    off = []
    for tokens, mean, covariance in zip(run.tokens, flow.mean, flow.covariance, strict=True):
        away = np.cov(tokens.T, bias=True) - covariance
        off.append(np.hypot(np.linalg.norm(tokens.mean(0) - mean), np.linalg.norm(away)))
    return np.array(off)


@pytest.mark.parametrize("kind", ["symmetric", "random"])
@pytest.mark.parametrize(("d", "warmth"), [(3, 0.5), (3, 1.0), (16, 0.5), (16, 1.0)])
def test_the_error_against_1000_tokens_is_within_the_estimate(kind, d, warmth):
    """Within the factor, and what 1,000 tokens scatter by: 1/√n of their third moments and of their pushes."""
    count, times = 1000, np.array([0.0, 0.5, 1.0, 2.0, 3.0])
    head, x = problem(kind, d, warmth, count)
    flow = fl.moment_flow(head, fl.Cloud.of(x), times)
    off = distances(head, x, flow, 0.25)
    assert (off <= FLOW_ERROR * flow.error + 1 / np.sqrt(count)).all()
    # And far from empty: gathering moves mean and covariance by more than it.
    assert off[-1] < 0.5 * np.linalg.norm(flow.mean[-1] - flow.mean[0])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["symmetric", "random"])
@pytest.mark.parametrize(
    ("d", "warmth", "count"), [(3, 1.0, 100_000), (3, 2.0, 5000), (16, 2.0, 5000), (64, 2.0, 5000)]
)
def test_the_error_against_many_tokens_is_within_the_estimate(kind, d, warmth, count):
    """Also where it stops holding, and where tokens weigh on themselves (d = 64)."""
    times = np.array([0.0, 0.4, 0.8, 1.6, 2.4])
    head, x = problem(kind, d, warmth, count)
    flow = fl.moment_flow(head, fl.Cloud.of(x), times)
    assert (distances(head, x, flow, 0.2) <= FLOW_ERROR * flow.error + 1 / np.sqrt(count)).all()


def test_it_says_when_it_stops_holding():
    """β = 6, d = 3: tokens split, and a Gaussian cannot follow. At t = 1 it is off by more than .3, and so is
    the estimate."""
    head, x = problem("symmetric", 3, 2.0, 1000)
    flow = fl.moment_flow(head, fl.Cloud.of(x), [0.0, 0.1, 1.0])
    assert flow.holds_until < 1 and "after that its error is above 0.1" in flow.describe()
    assert distances(head, x, flow, 0.1)[-1] > 0.3 and flow.error[-1] > 0.3


def test_tokens_that_weigh_on_themselves_are_slower():
    """d = 64, 500 tokens: a token's own weight is not small, though the cloud is warm, and the flow
    takes it into account."""
    head, x = problem("symmetric", 64, 1.5, 500)
    few, many = (fl.moment_flow(head, fl.Cloud(n, *moments(x)), [0.0, 0.5]) for n in (500, 10**9))
    assert few.self_weight.max() > 0.1 and many.self_weight.max() < 1e-3
    assert np.linalg.norm(few.mean[-1]) < np.linalg.norm(many.mean[-1]) - 0.03
    assert distances(head, x, few, 0.1)[-1] < 0.1 * distances(head, x, many, 0.1)[-1] + 0.05


def moments(x):
    return x.mean(0), np.cov(x.T, bias=True)


@pytest.mark.parametrize("d", [2, 3, 20])
def test_moments_of_projected_gaussians_are_those_of_samples(d):
    """10⁵ draws: every entry, some hundreds for d = 20, within five standard errors; one false failure in
    10³ seeds."""
    rng = np.random.default_rng([51, d])
    mean, spread = rng.standard_normal(d) / np.sqrt(2 * d), symmetric(np.linspace(0.1, 1.5, d) / d, rng)
    law = ProjectedGaussian(mean, spread)
    z = mean + rng.standard_normal((10**5, d)) @ np.linalg.cholesky(spread).T
    size = np.linalg.norm(z, axis=1)
    x = z / size[:, None]
    error = DEVIATIONS / np.sqrt(len(x))
    assert abs(law.length - size.mean()) < error * size.std()
    assert (np.abs(law.mean - x.mean(0)) < error * x.std(0)).all()
    products = x[:, :, None] * x[:, None, :]
    assert (np.abs(law.second - products.mean(0)) < error * products.std(0)).all()
    p = rng.standard_normal((3, d))
    for row, third in zip(p, law.third(p), strict=True):
        terms = ((x - x.mean(0)) @ row)[:, None] ** 2 * (x - x.mean(0))
        assert (np.abs(third - terms.mean(0)) < 2 * error * terms.std(0)).all()


def test_a_projected_gaussian_of_one_point_and_of_the_whole_sphere():
    point = ProjectedGaussian(np.array([0.0, 3.0, 0.0]), np.zeros((3, 3)))
    assert np.allclose(point.mean, [0, 1, 0], atol=1e-8) and point.length == pytest.approx(3)
    sphere = ProjectedGaussian(np.zeros(3), np.eye(3))
    assert np.allclose(sphere.mean, 0) and np.allclose(sphere.covariance, np.eye(3) / 3)


@pytest.mark.parametrize("d", [3, 16])
def test_a_projected_gaussian_is_found_from_its_moments(rng, d):
    law = ProjectedGaussian(rng.standard_normal(d) / np.sqrt(d), symmetric(np.linspace(0.1, 1.5, d) / d, rng))
    found = projected_gaussian(law.mean, law.covariance)
    # Two thirds of the tokens at one pole, one third at the other, is one too.
    assert np.allclose(projected_gaussian(np.eye(3)[0] / 3, np.diag([8 / 9, 0, 0])).mean, [1 / 3, 0, 0], atol=1e-7)
    assert np.allclose(found.mean, law.mean, atol=1e-7) and np.allclose(found.covariance, law.covariance, atol=1e-7)


def test_a_rotation_turns_the_flow(rng):
    head, x = problem("random", 4, 0.7, 200)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    B, V, _, _ = head.matrices
    turned = fl.Attention.from_matrices(turn @ B @ turn.T, turn @ V @ turn.T, head.beta)
    one = fl.moment_flow(head, fl.Cloud.of(x), [0.0, 2.0])
    other = fl.moment_flow(turned, fl.Cloud.of(x @ turn.T), [0.0, 2.0])
    # The next terms are averaged at points that do not turn.
    assert np.linalg.norm(one.mean @ turn.T - other.mean, axis=1).max() < 0.1 * one.error.max() + 1e-3


def test_a_key_bias_pushes(rng):
    head, x = problem("random", 4, 0.5, 1000)
    B, V, _, _ = head.matrices
    biased = fl.Attention.from_matrices(B, V, head.beta, key_bias=rng.standard_normal(4) / 2)
    flow = fl.moment_flow(biased, fl.Cloud.of(x), [0.0, 1.0])
    assert distances(biased, x, flow, 0.25)[-1] < FLOW_ERROR * flow.error[-1] + 1 / np.sqrt(1000)
    assert distances(head, x, flow, 0.25)[-1] > 0.1


def test_bad_calls_get_a_sentence():
    head = fl.Attention.from_matrices(np.eye(3), np.eye(3), 1.0)
    with pytest.raises(BadParameter, match=r"\|μ\|² \+ tr Σ is 0\.55"):
        fl.moment_flow(head, fl.Cloud(9, [0.5, 0, 0], 0.1 * np.eye(3)), [0.0, 1.0])
    with pytest.raises(BadParameter, match="the cloud has 1 atoms"):
        fl.moment_flow(head, fl.Cloud(9, [0.5, 0, 0], 0.25 * np.eye(3), atoms=[[1.0, 0, 0]]), [0.0, 1.0])
    with pytest.raises(BadArray, match="seen by a head"):
        fl.moment_flow(head, fl.Cloud(9, [0.5, 0, 0], 0.25 * np.eye(3)).seen_by(head), [0.0, 1.0])
    with pytest.raises(BadParameter, match="ascending times"):
        fl.moment_flow(head, fl.Cloud(9, [0.5, 0, 0], 0.25 * np.eye(3)), [1.0, 0.0])
    assert fl.moment_flow(head, fl.Cloud(9, [0.5, 0, 0], 0.25 * np.eye(3)), 0.0).error.tolist() == [0.0]
