"""Rates in t against measured decay, and their laws."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadParameter, NoLimit
from frostline.theory.rates import rates
from frostline.transport.index_coupling import index_coupling
from tests.problems import head_with, similar, symmetric, turning


@pytest.mark.parametrize(("sizes", "expected"), [((1.0, 3.0), 0.083), ((3.0, 1.0), 0.161)])
def test_exact_rate_on_the_circle_against_measurement(sizes, expected):
    """THEORY section 5: g = 0.5, p = 2, |Bᵀe| = (1, 3) and (3, 1) measured 0.083 and 0.161."""
    head = head_with(np.diag([0.5, 0.0]), None, B=np.diag(sizes))
    r = rates(head, p=2)
    assert r.exact == pytest.approx(min(0.5 / sizes[0], 0.25 / sizes[1])) and r.status == "proven"
    assert r.guaranteed <= r.exact * (1 + 1e-12) <= r.at_most * (1 + 1e-9)
    # Tokens near e₂, where the late ones start, on a logarithmic grid of angles with their true weights.
    angle = np.geomspace(1e-9, np.pi / 2, 4000)
    weights = np.diff(np.concatenate([[0.0], angle]))
    x0 = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    x0 = fl.sphere.normalise(x0)
    times = np.linspace(40, 80, 5)
    path = fl.zero_temperature(head, x0, times=times)
    values = index_coupling(path.tokens, fl.limit(head)(x0), weights=weights / weights.sum())
    measured = -np.polyfit(times, np.log(values), 1)[0]
    assert measured == pytest.approx(r.exact, rel=0.02)
    assert measured == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_exponents_of_equation_nine(rng, m, p):
    head = head_with(symmetric([0.9] * m + [0.4, -0.3], rng), rng)
    r = rates(head, p=p)
    assert r.token_in_clock == pytest.approx(0.5) and r.in_clock == pytest.approx(0.5 * min(1, m / p))
    assert r.logarithm == (m == p)
    assert r.guaranteed == pytest.approx(r.in_clock / np.linalg.norm(head.B, 2)) and r.at_most >= r.guaranteed
    assert r.exact is None


def test_guaranteed_rate_is_kept_by_every_token(rng):
    """tan θ(t) ≤ e^{−(g/σ_max)t} tan θ(0) for symmetric A: eq. 8 with τ ≥ t/σ_max."""
    for _ in range(10):
        head = head_with(symmetric(rng.uniform(-1, 1, 4), rng), rng)
        r, found = rates(head), fl.limit(head)
        x0 = fl.sample.uniform(50, 4, seed=rng)
        tan = lambda x, e=found.basis[0]: np.linalg.norm(x - (x @ e)[:, None] * e, axis=1) / np.abs(x @ e)  # noqa: E731
        for t, x in zip([1.0, 4.0], fl.zero_temperature(head, x0, times=[1.0, 4.0]).tokens, strict=True):
            assert (tan(x) <= np.exp(-r.token * t) * tan(x0) * (1 + 1e-9) + 1e-13).all()


def test_rank_deficient_and_non_normal_are_said(rng):
    low = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), np.eye(3), 1.0)
    assert rates(low).at_most == np.inf
    assert rates(head_with(similar([[[1.0]], [[0.2]]], rng), rng)).status == "asymptotic"


def test_what_has_no_rate_gets_a_sentence(rng):
    with pytest.raises(NoLimit, match="rotation"):
        rates(head_with(turning(0.0, 1.0), rng))
    plain = head_with(symmetric([1.0, 0.2], rng), rng)
    with pytest.raises(BadParameter, match="several heads"):
        rates([[plain, plain]])
    for bad in (0.5, np.nan, np.inf):
        with pytest.raises(BadParameter, match="p is"):
            rates(plain, p=bad)
