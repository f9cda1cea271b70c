"""Convergence order of each stepper, by regression of log error on log step."""

import numpy as np
import pytest

import frostline as fl
from tests.tolerances import ORDER


@pytest.mark.parametrize(
    ("stepper", "steps"), [(fl.Euler, [4e-3, 2e-3, 1e-3, 5e-4]), (fl.RK4, [0.1, 0.05, 0.025, 0.0125])]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_stated_order(stepper, steps, seed):
    """Two heads, one with a bias, not symmetric, d = 4, against RK4 with a step of 1/1000."""
    rng = np.random.default_rng(seed)
    heads = [
        fl.Attention.from_matrices(rng.standard_normal((4, 4)), rng.standard_normal((4, 4)) / 2, 2.0, key_bias=bias)
        for bias in (None, rng.standard_normal(4))
    ]
    x0 = fl.sample.uniform(25, 4, seed=rng)
    exact = fl.simulate([heads], x0, until=1.0, stepper=fl.RK4(1e-3)).tokens[-1]
    errors = [np.abs(fl.simulate([heads], x0, until=1.0, stepper=stepper(h)).tokens[-1] - exact).max() for h in steps]
    order = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert order == pytest.approx(stepper.order, abs=ORDER)
