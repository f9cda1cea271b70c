"""fit recovers what made the curves, as often as it says, and refuses what cannot be fitted."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadArray, BadParameter
from frostline.theory.bounds import Bound

BETAS, TIMES = np.array([1.0, 10.0, 100.0, 1e3, 1e4]), np.linspace(0, 6, 25)


def made(rng, *, noise, betas=BETAS, times=TIMES):
    """Constants, and curves of (11) made from them with multiplicative noise."""
    M, C, c = rng.uniform(0.5, 3), rng.uniform(0.1, 1), rng.uniform(0.2, 1)
    true = Bound(M, C, c, origin="fitted")
    clean = np.stack([true(times, beta) for beta in betas])
    return (M, C, c), clean * np.exp(noise * rng.standard_normal(clean.shape))


@pytest.mark.parametrize(
    "noise, betas, times",
    [(0.05, BETAS, TIMES), pytest.param(0.3, BETAS[[0, 2, 4]], TIMES[::3], marks=pytest.mark.slow)],
)
def test_intervals_cover_as_often_as_they_say(noise, betas, times):
    """400 fits of 95 % intervals, little noise and much: each constant inside 90–98 % of the time.

    With true coverage 95 % a count outside that band has probability 0.4 % per constant; the seed is fixed.
    """
    inside = np.zeros(3)
    for seed in range(400):
        truth, curves = made(np.random.default_rng([41, seed]), noise=noise, betas=betas, times=times)
        found = fl.fit(betas, times, curves)
        inside += [
            low <= value <= high for (_, low, high), value in zip((found.M, found.C, found.c), truth, strict=True)
        ]
    assert ((inside >= 0.90 * 400) & (inside <= 0.98 * 400)).all(), inside / 400


def test_without_noise_the_constants_come_back():
    truth, curves = made(np.random.default_rng(42), noise=0.0)
    found = fl.fit(BETAS, TIMES, curves)
    assert np.allclose([found.M.value, found.C.value, found.c.value], truth, rtol=1e-6)
    assert found.r_squared == pytest.approx(1, abs=1e-9)


def test_units_of_time_and_distance_do_not_matter():
    _, curves = made(np.random.default_rng(43), noise=0.1)
    one, other = fl.fit(BETAS, TIMES, curves), fl.fit(BETAS, 1000 * TIMES, 7 * curves)
    assert other.C.value == pytest.approx(one.C.value / 1000, rel=1e-4)
    assert other.M.high == pytest.approx(7 * one.M.high, rel=1e-4)


def test_the_ceiling_lies_above_every_point_and_touches_one():
    _, curves = made(np.random.default_rng(44), noise=0.2)
    found = fl.fit(BETAS, TIMES, curves)
    above = np.stack([found.ceiling(TIMES, beta) for beta in BETAS]) / curves
    assert above.min() == pytest.approx(1, abs=1e-9) and (above >= 1).all()
    assert found.bound.origin == found.ceiling.origin == "fitted"


def test_noise_is_adequate_and_another_shape_is_not():
    _, curves = made(np.random.default_rng(45), noise=0.05)
    assert fl.fit(BETAS, TIMES, curves).adequate
    steps = np.stack([np.where(TIMES < 3, 1.0, 0.01 * beta**0.1) for beta in BETAS])
    found = fl.fit(BETAS, TIMES, steps)
    assert not found.adequate and "too narrow" in found.describe()
    waves = np.tile(1.1 + np.sin(5 * TIMES), (5, 1))
    assert not fl.fit(BETAS, TIMES, waves).adequate
    fast, shown = Bound(1.0, 50.0, 1.0, origin="fitted"), np.linspace(0, 1, 20)
    assert fl.fit(BETAS, shown, np.stack([fast(shown, beta) for beta in BETAS])).adequate


def test_a_constant_that_the_curves_do_not_show_has_a_wide_interval():
    """Curves that only fall say nothing about C."""
    rng = np.random.default_rng(46)
    curves = np.exp(-0.5 * TIMES) * np.exp(0.02 * rng.standard_normal((5, 25)))
    colder = 1e12 * BETAS
    found = fl.fit(colder, TIMES, curves)
    assert found.c.low <= 0.5 <= found.c.high
    assert found.C.low == 0.0 and 0.5 < found.C.high < 10


@pytest.mark.parametrize("seed", range(10))
def test_an_end_that_the_curves_exclude_is_not_infinite(seed):
    """C = 0: however small the best C comes out, large ones are excluded by the curves."""
    rng = np.random.default_rng([48, seed])
    true = Bound(1.0, 0.0, 0.5, origin="fitted")
    curves = np.stack([true(TIMES, beta) for beta in BETAS]) * np.exp(0.05 * rng.standard_normal((5, 25)))
    found = fl.fit(BETAS, TIMES, curves)
    assert found.C.low < 1e-2 and found.C.high < 0.1


def test_a_steep_decay_is_fitted():
    times = np.linspace(0, 1, 20)
    curves = np.tile(np.exp(-100 * times), (5, 1))
    assert fl.fit(1e300 * BETAS, times, curves).r_squared > 0.99


def test_what_cannot_be_fitted_is_refused():
    _, curves = made(np.random.default_rng(47), noise=0.1)
    with pytest.raises(BadParameter, match="2 betas from 1 to 10 is too small"):
        fl.fit(BETAS[:2], TIMES, curves[:2])
    with pytest.raises(BadParameter, match="over a factor of 10"):
        fl.fit([1.0, 2.0, 3.0], TIMES, curves[:3])
    with pytest.raises(BadParameter, match="3 times are too few"):
        fl.fit(BETAS, TIMES[:3], curves[:, :3])
    broken = curves.copy()
    broken[1, 2] = np.nan
    with pytest.raises(BadArray, match=r"1 NaN or infinite entries, the first at index \(1, 2\)"):
        fl.fit(BETAS, TIMES, broken)
    broken[1, 2] = 0.0
    with pytest.raises(BadArray, match=r"beta = 10, t = 0.5"):
        fl.fit(BETAS, TIMES, broken)
    with pytest.raises(BadArray, match="distances has shape"):
        fl.fit(BETAS, TIMES, curves.T)
    with pytest.raises(BadParameter, match="confidence"):
        fl.fit(BETAS, TIMES, curves, confidence=95)
    with pytest.raises(BadParameter, match="betas must be > 0"):
        fl.fit(-BETAS, TIMES, curves)
