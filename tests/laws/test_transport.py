"""Transport on many problems, and eq. 9 measured with W itself: run by `make verify`."""

import numpy as np
import pytest

import frostline as fl
from frostline.theory.flow import at_clocks
from frostline.theory.rates import rates
from tests.problems import head_with, symmetric

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("part", range(4))
def test_brackets_contain_the_exact_value_in_1000_problems(part):
    """n and m to 900 with at most 512 cells, d = 2…8, p = 1…4, both costs, weights or none, clusters: none missed."""
    for number in range(250):
        rng = np.random.default_rng([81, part, number])
        d, p = int(rng.integers(2, 9)), float(rng.choice([1.0, 1.5, 2.0, 4.0]))
        n, m = (int(k) for k in rng.integers(2, 900 if number % 5 == 0 else 120, 2))
        x, y = fl.sample.uniform(n, d, seed=rng), fl.sample.vmf(m, rng.standard_normal(d), rng.uniform(0, 20), seed=rng)
        if rng.random() < 0.3:
            x[: n // 2] = fl.sphere.normalise(x[0] + 1e-6 * rng.standard_normal((n // 2, d)))
        given = {"p": p, "metric": str(rng.choice(["euclidean", "geodesic"]))}
        if rng.random() < 0.5:
            given |= {"x_weights": rng.dirichlet(np.ones(n)), "y_weights": rng.dirichlet(np.ones(m))}
        true = fl.wasserstein(x, y, method="exact", **given).value
        found = fl.wasserstein(x, y, method="bracket", tolerance=0.3, **given)
        assert found.lower <= true * (1 + 1e-9) and true <= found.upper * (1 + 1e-9), (part, number)


@pytest.mark.parametrize("m, p", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_exponents_of_eq_9_measured_with_the_distance_itself(m, p):
    """W_p(ρ_τ, Π♯ρ₀) ~ e^{−g·min(1, m/p)·τ}, times τ^{1/p} at m = p: the slope of log W between τ = 3 and 5."""
    rng = np.random.default_rng([82, m, p])
    values = [1.0] * m + [0.0] * (4 - m)
    head = head_with(symmetric(values, rng), rng)
    x0 = fl.sample.uniform(4000, 4, seed=rng)
    goal = fl.limit(head)(x0)
    taus = np.array([3.0, 5.0])
    found = [
        fl.wasserstein(x, goal.round(10), p=p, coupling="index", tolerance=0.02).value
        for x in at_clocks(head, x0, taus)
    ]
    predicted = rates(head, p=p)
    factor = np.log(5 / 3) / p if predicted.logarithm else 0.0
    assert (np.log(found[0] / found[1]) + factor) / 2 == pytest.approx(predicted.in_clock, rel=0.15)
