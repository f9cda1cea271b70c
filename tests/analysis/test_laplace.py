"""The Laplace principle against closed forms, quadrature and its own orders."""

import numpy as np
import pytest

import frostline as fl
from frostline.analysis.laplace import laplace
from frostline.errors import BadArray, BadParameter
from frostline.theory import densities


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
    assert np.abs(laplace(head, x, density).exact - fl.mean_map(head, x, sources=y, weights=w)).max() < 1e-10


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


@pytest.mark.parametrize("d", [2, 3, 10, 384, 1000])
@pytest.mark.parametrize("kappa", [1e-8, 1e-2, 1.0, 20.0, 300.0, 1e5])
def test_bessel_functions_neither_over_nor_underflow(d, kappa):
    import mpmath

    with mpmath.workdps(40):
        low, high = mpmath.besseli(d / 2 - 1, kappa), mpmath.besseli(mpmath.mpf(d) / 2, kappa)
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


def test_bad_calls_get_a_sentence():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.0]), np.eye(2), 1.0)
    with pytest.raises(BadParameter, match="no y"):
        laplace(head, [[0.0, 1.0]], densities.uniform(2))
    with pytest.raises(BadArray, match="must agree"):
        laplace(head, [[1.0, 0.0]], densities.uniform(3))
    with pytest.raises(BadParameter, match="concentration"):
        densities.vmf([1, 0], -1.0)
    with pytest.raises(BadArray, match="zero"):
        densities.vmf([0, 0], 1.0)
    with pytest.raises(BadArray, match="dimensions"):
        densities.mixture([densities.uniform(2), densities.uniform(3)], [0.5, 0.5])
