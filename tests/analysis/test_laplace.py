"""The Laplace principle against closed forms, quadrature and its own orders."""

import numpy as np
import pytest

import frostline as fl
from frostline.analysis.laplace import laplace
from frostline.errors import BadArray, BadParameter
from frostline.theory import densities
from tests.tolerances import FLOAT32_LOW_D, LARGE_LOGITS, ROUNDING


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("beta", [0.1, 3.0, 100.0])
def test_closed_form_agrees_with_quadrature(rng, d, beta):
    """The mean map of a mixture of three densities against 60,000 nodes (spectrally accurate here)."""
    parts = [
        densities.uniform(d),
        densities.vmf(rng.standard_normal(d), 4.0),
        densities.vmf(rng.standard_normal(d), 1.0),
    ]
    density = densities.mixture(parts, [0.2, 0.5, 0.3])
    head = fl.Attention.from_matrices(rng.standard_normal((d, d)), np.eye(d), beta, key_bias=rng.standard_normal(d) / 4)
    x = fl.sample.uniform(6, d, seed=rng)

    def log_density(y):
        size = np.linalg.norm(density.parameters, axis=1)
        logs = y @ density.parameters.T + np.log(density.weights) - densities.log_normaliser(size, d)
        return np.log(np.exp(logs).sum(1))

    y, w = fl.sample.nodes(60_000, d, log_density=log_density)
    assert np.abs(laplace(head, x, density).exact - fl.mean_map(head, x, sources=y, weights=w)).max() < LARGE_LOGITS


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("concentration", [0.5, 2.0, 5.0])
def test_first_order_error_falls_a_hundredfold_per_decade(d, concentration):
    """The ratio between β and 10β is within 5 % of 100 for concentration ≤ 5, κ ≥ 100."""
    rng = np.random.default_rng([d, int(10 * concentration)])
    density, x = densities.vmf(rng.standard_normal(d), concentration), fl.sample.uniform(40, d, seed=rng)
    for beta in (100.0, 1000.0):
        colder, cold = (
            laplace(fl.Attention.from_matrices(np.eye(d), np.eye(d), b), x, density).first_error
            for b in (10 * beta, beta)
        )
        assert np.sqrt((cold**2).mean() / (colder**2).mean()) == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("beta", [0.5, 5.0, 200.0])
def test_uniform_on_the_sphere_is_the_langevin_function(beta):
    """S², uniform: m = (coth κ − 1/κ)y*, so the first-order value 1 − 1/κ is off by exactly coth κ − 1."""
    found = laplace(fl.Attention.from_matrices(np.eye(3), np.eye(3), beta), [[0.6, 0.0, 0.8]], densities.uniform(3))
    assert np.allclose(found.exact, (1 / np.tanh(beta) - 1 / beta) * found.zeroth, atol=1e-13)
    assert found.first_error[0] == pytest.approx(1 / np.tanh(beta) - 1, abs=1e-13)


@pytest.mark.parametrize("d", [2, 3, 10, 90, 110, 384, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kappa", [1e-8, 1e-2, 1.0, 20.0, 300.0, 3000.0, 1e5, 2e6, 1e10, 1e15])
def test_bessel_functions_neither_over_nor_underflow(d, kappa):
    import mpmath

    with mpmath.workdps(40):
        low, high = (
            mpmath.besseli(order, kappa, maxterms=10**7) for order in (mpmath.mpf(d) / 2 - 1, mpmath.mpf(d) / 2)
        )
        ratio = float(high / low)
        logz = float(
            mpmath.loggamma(mpmath.mpf(d) / 2)
            + (mpmath.mpf(d) / 2 - 1) * mpmath.log(2 / mpmath.mpf(kappa))
            + mpmath.log(low)
        )
    assert float(densities.resultant(np.array([kappa]), d)[0]) == pytest.approx(ratio, rel=1e-11)
    assert float(densities.log_normaliser(np.array([kappa]), d)[0]) == pytest.approx(logz, rel=1e-11, abs=1e-13)


def test_gradient_is_the_derivative_of_the_log_density(rng):
    density = densities.mixture([densities.vmf([1, 2, 0], 3.0), densities.uniform(3)], [0.6, 0.4])
    y = fl.sample.uniform(5, 3, seed=rng)
    v = fl.sphere.tangent(y, rng.standard_normal((5, 3)))

    def log_density(z):
        size = np.linalg.norm(density.parameters, axis=1)
        logs = z @ density.parameters.T + np.log(density.weights) - densities.log_normaliser(size, 3)
        return np.log(np.exp(logs).sum(1))

    h = 1e-5
    slope = (log_density(fl.sphere.retract(y, h * v)) - log_density(fl.sphere.retract(y, -h * v))) / (2 * h)
    assert np.abs(slope - (density.log_gradient(y) * v).sum(1)).max() < 1e-8


def smooth_pair(d, seed=0):
    """The same density as a mixture with a closed form and as a plain function with its gradient."""
    rng = np.random.default_rng([9, d, seed])
    parts = [densities.vmf(rng.standard_normal(d), 2.0), densities.vmf(rng.standard_normal(d), 1.0)]
    mixture = densities.mixture(parts, [0.4, 0.6])
    size = np.linalg.norm(mixture.parameters, axis=1)

    def weights(y):
        return np.exp(y @ mixture.parameters.T + np.log(mixture.weights) - densities.log_normaliser(size, d))

    return mixture, densities.from_function(lambda y: weights(y).sum(1), lambda y: weights(y) @ mixture.parameters, d)


@pytest.mark.parametrize("beta", [0.1, 3.0, 100.0, 1e6])
@pytest.mark.parametrize("d, tolerance", [(2, 1e-10), (3, 1e-10), (4, 2e-6)])
def test_a_callable_agrees_with_the_closed_form(d, tolerance, beta):
    closed, smooth = smooth_pair(d)
    head, x = fl.Attention.from_matrices(np.eye(d), np.eye(d), beta), fl.sample.uniform(4, d, seed=1)
    one, other = laplace(head, x, closed), laplace(head, x, smooth)
    assert np.abs(one.exact - other.exact).max() < tolerance
    assert np.abs(one.first - other.first).max() < ROUNDING


@pytest.mark.parametrize("d", [6, 20])
def test_in_high_dimension_a_callable_is_good_to_a_few_percent_of_the_error(d):
    closed, smooth = smooth_pair(d)
    for beta in (10.0, 1000.0):
        head, x = fl.Attention.from_matrices(np.eye(d), np.eye(d), beta), fl.sample.uniform(4, d, seed=1)
        one, other = laplace(head, x, closed), laplace(head, x, smooth)
        assert (np.linalg.norm(one.exact - other.exact, axis=1) < 0.03 * one.zeroth_error).all()


def test_a_cloud_is_its_own_mean_map(rng):
    x, weights = fl.sample.uniform(30, 3, seed=rng), rng.dirichlet(np.ones(30))
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.3]), np.eye(3), 20.0, key_bias=[0.1, 0, 0])
    found = laplace(head, x[:5], x, weights=weights)
    assert np.abs(found.exact - fl.mean_map(head, x[:5], sources=x, weights=weights)).max() < 1e-14
    single = laplace(head, x[:5].astype(np.float32), x.astype(np.float32), weights=weights)
    assert np.abs(single.exact - found.exact).max() < FLOAT32_LOW_D
    assert found.first is None and found.first_error is None
    # Many tokens are nearly their density.
    y, w = fl.sample.nodes(20_000, 3)
    assert (
        np.abs(laplace(head, x, y, weights=w).exact - laplace(head, x, densities.uniform(3)).exact).max() < LARGE_LOGITS
    )


def test_the_error_grows_along_a_run_to_the_worst_case():
    """THEORY section 6: from (d−1)/2κ to about √(log β/β), both falling with β (d = 2, B = diag(1, .5), V = I)."""
    x0, weights = fl.sample.nodes(1000, 2)
    grown = []
    for beta in (100.0, 1000.0):
        head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta)
        found = fl.laplace_growth(fl.simulate(head, x0, weights=weights, until=14.0, stepper=fl.Euler(0.1)))
        assert found.largest[0] == pytest.approx(1 / beta, rel=0.05)
        assert 0.5 < found.largest.max() / found.worst_case < 2
        assert (found.typical <= found.largest).all() and found.regime.verdict == "yes"
        grown.append(found.largest.max() / found.largest[0])
    assert grown[1] > 2 * grown[0] > 20


@pytest.mark.parametrize(
    "density, gradient, words",
    [
        (lambda y: np.full(len(y), 2.0), np.zeros_like, "integrates to 2 "),
        (lambda y: 1 + 2 * y[:, 0], lambda y: np.tile([2.0, 0, 0], (len(y), 1)), "positive everywhere"),
        (lambda y: np.ones(len(y)), lambda y: 10 * np.cross(y, np.roll(y, 1, axis=1)), "does not belong"),
        (lambda y: "one", np.zeros_like, "NaN or infinite|shape"),
        (lambda y: np.ones(len(y)) + 0j, np.zeros_like, "NaN or infinite"),
        (lambda y: 1 + 0.5 * y[:, 0], lambda y: np.tile([0.4, 0, 0], (len(y), 1)), "does not belong to the density"),
        (lambda y: y, lambda y: y, "returned shape"),
        (lambda y: np.full(len(y), np.nan), lambda y: y, "NaN or infinite"),
    ],
)
def test_densities_that_are_none_are_refused(density, gradient, words):
    with pytest.raises(ValueError, match=words):
        densities.from_function(density, gradient, 3)


@pytest.mark.parametrize("beta", [1e-300, 1e10, 1e300])
def test_the_mean_map_of_a_density_at_any_temperature(beta):
    """Uniform on S²: coth κ − 1/κ, about κ/3 when warm and 1 − 1/κ when cold."""
    found = laplace(fl.Attention.from_matrices(np.eye(3), np.eye(3), beta), [[0.6, 0.0, 0.8]], densities.uniform(3))
    assert np.linalg.norm(found.exact) == pytest.approx(beta / 3 if beta < 1 else 1.0, rel=1e-9)


def test_bad_calls_get_a_sentence():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.0]), np.eye(2), 1.0)
    with pytest.raises(BadParameter, match="no y"):
        laplace(head, [[0.0, 1.0]], densities.uniform(2))
    with pytest.raises(BadArray, match="must agree"):
        laplace(head, [[1.0, 0.0]], densities.uniform(3))
    with pytest.raises(BadParameter, match="weights belong to a cloud"):
        laplace(head, [[1.0, 0.0]], densities.uniform(2), weights=[1.0])
    with pytest.raises(BadParameter, match="one layer with one head"):
        fl.laplace_growth(fl.simulate([head, head], [[1.0, 0.0]], until=0.1))
    with pytest.raises(BadParameter, match="concentration"):
        densities.vmf([1, 0], -1.0)
    with pytest.raises(BadArray, match="zero"):
        densities.vmf([0, 0], 1.0)
    with pytest.raises(BadArray, match="dimensions"):
        densities.mixture([densities.uniform(2), densities.uniform(3)], [0.5, 0.5])


def test_a_cloud_comes_with_the_error_that_19_allows(rng):
    """Λ by its definition for every query, and |m − y*| below √(2Λ/κ); a density has none."""
    head = fl.Attention.from_matrices(rng.standard_normal((3, 3)), np.eye(3), 200.0)
    y, weights = fl.sample.uniform(40, 3, seed=rng), rng.dirichlet(np.ones(40))
    found = fl.laplace(head, y, y, weights=weights)
    gaps = ((found.zeroth[:, None] - y) ** 2).sum(-1)
    assert found.exponent == pytest.approx(-np.log(np.exp(-found.kappa[:, None] * gaps / 2) @ weights), rel=1e-9)
    assert (found.zeroth_error <= found.proven_error).all() and "eq. 19 allows" in found.describe()
    assert fl.laplace(head, y, fl.densities.uniform(3)).exponent is None


@pytest.mark.parametrize("beta", [1e-300, 1e-15, 1e-6])
def test_what_19_allows_holds_for_warm_tokens_too(beta):
    """There Λ is smaller than its rounding."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=beta)
    found = fl.laplace(head, fl.sample.uniform(6, 2, seed=0), fl.sample.uniform(30, 2, seed=1))
    assert (found.zeroth_error <= found.proven_error).all() and (found.proven_error <= 2).all()


@pytest.mark.parametrize("angle", [1e-6, 1e-7, 1e-8])
def test_what_19_allows_holds_beside_one_source(angle):
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), beta=1e4)
    found = fl.laplace(head, np.array([[1.0, 0.0]]), np.array([[np.cos(angle), np.sin(angle)]]))
    assert (found.zeroth_error <= found.proven_error).all()
