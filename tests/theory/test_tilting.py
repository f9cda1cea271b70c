"""The three laws of a tilted cloud against sums over tokens, and against each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import digamma, gammaln
from scipy.stats import norm

from frostline.theory.tilting import (
    cut,
    finite_participation,
    freezing,
    frozen,
    gaussian,
    matched,
    mean_participation,
)
from tests.tolerances import DEVIATIONS, FREEZING, ROUNDING, TABLE


def sums(sigma, count, draws, rng):
    """Log-mass, mean logit (in standard deviations) and participation of clouds of independent Gaussians."""
    rows = []
    for _ in range(draws):
        g = rng.standard_normal(count)
        top = g.max()
        weights = np.exp(sigma * (g - top))
        total = weights.sum()
        rows.append((np.log(total) + sigma * top, weights @ g / total, weights @ weights / total**2))
    values = np.array(rows)
    return values.mean(0), values.std(0) / np.sqrt(draws)


@pytest.mark.parametrize(
    ("count", "draws"), [(10, 4000), (100, 2000), (1000, 1000), (10**4, 300), (10**5, 100), (10**6, 25)]
)
@pytest.mark.parametrize("warmth", [0.3, 1.0, 2.0])
def test_participation_of_a_finite_cloud_is_that_of_sampled_clouds(rng, count, draws, warmth):
    """Eighteen comparisons at five standard errors: with the heaviest tails (25 draws) a false failure in 10⁴ runs."""
    sigma = warmth * float(freezing(count))
    mean, error = sums(sigma, count, draws, rng)
    assert abs(finite_participation(sigma, count) - mean[2]) <= DEVIATIONS * error[2]


@pytest.mark.parametrize("count", [3, 23, 1000, 10**6])
def test_the_table_of_participations_is_the_integral(count):
    sigma = float(freezing(count)) * np.array([0.05, 0.3, 0.7, 1.0, 1.7, 4.0])
    exact = [finite_participation(one, count) for one in sigma]
    assert mean_participation(sigma, count) == pytest.approx(exact, rel=TABLE)
    assert mean_participation(np.array([0.0]), count) == pytest.approx(1 / count, rel=ROUNDING)


def test_one_token_has_all_the_weight():
    assert frozen(np.array([0.0, 3.0]), 1).participation == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("warmth", [1.5, 2.5])
def test_above_freezing_the_law_is_right_up_to_its_corrections_of_finite_n(rng, warmth):
    """The largest of N Gaussians are a_N + (a Poisson process with intensity e^{−u})/σ_N, so that Σe^{σg} is stable of
    index m = σ_N/σ: log-mass and share are (17) and corrections of order ln ln N/ln N that are known."""
    count = 10**5
    edge = float(freezing(count))
    sigma, m = warmth * edge, 1 / warmth
    mean, error = sums(sigma, count, 300, rng)
    top = edge - (np.log(np.log(count)) + np.log(4 * np.pi)) / (2 * edge)
    mass = sigma * top + np.euler_gamma * (1 / m - 1) + gammaln(1 - m) / m
    place = top + (np.euler_gamma + gammaln(1 - m)) / edge + digamma(1 - m) / sigma
    assert abs(mean[0] - mass) <= FREEZING * warmth + DEVIATIONS * error[0]
    assert abs(mean[1] - place) <= FREEZING / 2 + DEVIATIONS * error[1]
    law = frozen(np.array([sigma]), count)
    # The law itself leaves the corrections out.
    assert law.mass[0] + np.log(count) == pytest.approx(sigma * edge, rel=ROUNDING)
    assert law.share[0] * sigma == pytest.approx(edge, rel=ROUNDING)


@pytest.mark.parametrize(("sigma", "best"), [(0.3, 2.0), (1.0, 3.0), (3.0, 3.0), (6.0, 2.5)])
def test_a_cut_cloud_is_the_integral_of_a_cut_gaussian(sigma, best):
    """f, φ and Σw² from integrals of e^{σg} over a normal density below the cut, which has the mass Φ(z)."""
    moment = lambda power, tilt: quad(lambda g: g**power * np.exp(tilt * g) * norm.pdf(g), -np.inf, best)[0]  # noqa: E731
    law = cut(np.array([sigma]), np.array([best]), 50)
    assert law.mass[0] == pytest.approx(np.log(moment(0, sigma) / norm.cdf(best)), rel=1e-8)
    assert law.share[0] * sigma == pytest.approx(moment(1, sigma) / moment(0, sigma), rel=1e-8)
    squares = norm.cdf(best) * moment(0, 2 * sigma) / moment(0, sigma) ** 2 / 50
    assert law.participation[0] == pytest.approx(min(squares, 1.0), rel=1e-8)


@given(sigma=st.floats(0, 1e6), best=st.floats(0.1, 8.0), count=st.floats(3, 1e7))
def test_a_cut_takes_away(sigma, best, count):
    """Whatever the temperature: less mass than the Gaussian without end, the mean below the cut, Σw² in [1/N, 1]."""
    spread, height = np.array([sigma]), np.array([best])
    law, free = cut(spread, height, count), gaussian(spread, count)
    assert law.mass[0] <= free.mass[0] + ROUNDING * (1 + sigma**2)
    assert law.share[0] * sigma <= best * (1 + ROUNDING) + ROUNDING * sigma
    assert 1 / count * (1 - 1e-9) <= law.participation[0] <= 1


def test_a_cut_far_away_takes_nothing_away():
    sigma = np.array([0.0, 0.5, 2.0])
    far, free = cut(sigma, np.full(3, 40.0), 1000), gaussian(sigma, 1000)
    assert far.share == pytest.approx(free.share) and far.mass == pytest.approx(free.mass)


def test_a_cold_cut_cloud_keeps_its_digits():
    """f·σ → z − 1/(σ − z) and φ → zσ − z²/2 − log((σ − z)√(2π)Φ(z)): both are differences of large numbers."""
    sigma, z = np.array([1e3, 1e6]), 3.0
    law = cut(sigma, np.full(2, z), 1000)
    assert law.share * sigma == pytest.approx(z - 1 / (sigma - z), rel=1e-5)
    left = z * sigma - z**2 / 2 - np.log((sigma - z) * np.sqrt(2 * np.pi) * norm.cdf(z))
    assert law.mass - left == pytest.approx([0, 0], abs=1e-5)


def test_the_frozen_law_is_continuous_at_its_edge():
    edge = float(freezing(500))
    below, above = frozen(np.array([edge * (1 - 1e-9)]), 500), frozen(np.array([edge * (1 + 1e-9)]), 500)
    assert below.share == pytest.approx(above.share) and below.mass == pytest.approx(above.mass)


@pytest.mark.parametrize("place", [-3.0, 0.0, 1.0, 4.0])
@pytest.mark.parametrize("sigma", [0.3, 2.0, 20.0])
def test_a_matched_cloud_is_the_cut_gaussian_with_its_moments(place, sigma):
    """Mean, deviation, skewness, f, φ and Σw² by quadrature of a normal density below its cut."""
    moment = lambda power, tilt: quad(  # noqa: E731
        lambda g: g**power * np.exp(tilt * (g - place)) * norm.pdf(g) / norm.cdf(place), place - 12, place, epsabs=0
    )[0]
    mean = moment(1, 0)
    width = np.sqrt(moment(2, 0) - mean**2)
    height = (place - mean) / width
    law = matched(np.array([sigma]), np.array([height]), 1000)
    tilt = sigma / width
    assert law.mass[0] == pytest.approx(np.log(moment(0, tilt)) + height * sigma, rel=1e-7)
    assert law.share[0] * sigma == pytest.approx((moment(1, tilt) / moment(0, tilt) - mean) / width, rel=1e-6)
    squares = moment(0, 2 * tilt) / moment(0, tilt) ** 2 / 1000
    assert law.participation[0] == pytest.approx(min(squares, 1), rel=1e-6)
    skew = (moment(3, 0) - 3 * mean * moment(2, 0) + 2 * mean**3) / width**3
    assert law.skew[0] == pytest.approx(skew, rel=1e-6, abs=1e-6)


@given(sigma=st.floats(0, 1e6), best=st.floats(0.05, 30.0), count=st.floats(3, 1e7))
def test_a_matched_cloud_ends_at_its_best(sigma, best, count):
    """Also below one deviation, where there is no such cut Gaussian."""
    law = matched(np.array([sigma]), np.array([best]), count)
    assert np.isfinite(law.mass[0]) and law.mass[0] <= best * sigma * (1 + 1e-9) + 1e-9
    assert law.share[0] * sigma <= best * (1 + 1e-9) + 1e-9 * sigma
    assert 1 / count * (1 - 1e-9) <= law.participation[0] <= 1


def test_a_matched_cloud_at_rest_has_its_own_moments():
    """f → 1, φ → σ²/2 as σ → 0: for ``cut`` f·σ → −h(z)."""
    best = np.array([1.2, 2.0, 3.0])
    small = np.full(3, 1e-4)
    law, cut_law = matched(small, best, 100), cut(small, best, 100)
    assert law.share == pytest.approx(np.ones(3), abs=1e-3)
    assert law.mass == pytest.approx(small**2 / 2, rel=1e-3)
    assert cut_law.share * small == pytest.approx(-norm.pdf(best) / norm.cdf(best), rel=0.05)
