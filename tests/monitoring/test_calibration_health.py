"""Health of a calibration: good p-values are hardly ever called bad, some strange texts among them are seen."""

import numpy as np
import pytest
from scipy.stats import betabinom

from frostline.monitoring import calibration_health as module
from frostline.monitoring.calibration_health import judge_calibration


def window(rng, counts, texts, *, foreign=0.0, power=32.0, shares=None):
    """P-values of a window, the calibration drawn too; foreign texts' ranks have density a·p^(a−1), a = 1/power."""
    counts = np.array(counts)
    p_values = []
    for count, size in zip(
        counts, rng.multinomial(texts, counts / counts.sum() if shares is None else shares), strict=True
    ):
        calibration = np.sort(rng.random(count))
        scores = rng.random(size)
        strange = rng.random(size) < foreign
        scores = np.where(strange, 1 - rng.random(size) ** power, scores)
        p_values.append((1 + count - np.searchsorted(calibration, scores)) / (1 + count))
    return np.concatenate(p_values)


@pytest.mark.parametrize(
    ("counts", "shares"), [([100], None), ([300, 300], None), ([150] * 4, [1, 0, 0, 0]), ([600, 200], [0.2, 0.8])]
)
@pytest.mark.parametrize("texts", [200, 1000])
def test_good_p_values_are_called_bad_once_in_a_thousand(counts, shares, texts):
    """Of 2,000 windows, each with a calibration of its own, 2 are allowed: more than 9 have a chance of 5e-5."""
    rng = np.random.default_rng(3)
    verdicts = [judge_calibration(window(rng, counts, texts, shares=shares), counts).verdict for _ in range(2000)]
    assert 2000 - verdicts.count("good") <= 9


@pytest.mark.parametrize("counts", [[100], [300, 300], [150] * 4])
def test_a_fifth_of_foreign_texts_is_seen_in_300(counts):
    """Foreign texts look stranger than a normal one with a chance of 97 %: nine windows of ten, here all but a few."""
    rng = np.random.default_rng(4)
    verdicts = [judge_calibration(window(rng, counts, 300, foreign=0.2), counts).verdict for _ in range(200)]
    assert verdicts.count("low") >= 190


def test_the_tail_is_seen_where_kolmogorov_is_blind():
    """Sixty texts of 300 at the floor move the distribution by less than its whole may be off."""
    p = np.concatenate([np.linspace(1 / 151, 1, 240), np.full(60, 1 / 151)])
    health = judge_calibration(p, [150] * 4)
    assert health.verdict == "low" and "60" not in health.says.split(":")[0]
    assert "61 are at most 0.0066, where 1.99 would be usual" in health.says
    assert health.distance > health.allowed and health.distance == pytest.approx(61 / 300 - 1 / 151)
    whole = np.abs(np.cumsum(np.unique(p, return_counts=True)[1]) / 300 - np.unique(p)).max()
    assert whole < 2.04 * np.sqrt(1 / 300 + 1 / 150)


def test_verdicts_in_words():
    good = judge_calibration(np.linspace(0.001, 1, 500), [400])
    assert good.verdict == "good" and good.distance < good.allowed and good.texts == 500
    low = judge_calibration(np.linspace(0.001, 1, 500) ** 3, [400])
    assert low.verdict == "low" and "make the baseline again" in low.describe()
    high = judge_calibration(np.linspace(0.001, 1, 500) ** 0.3, [400])
    assert high.verdict == "high" and "more ordinary" in high.says and high.distance > high.allowed
    few = judge_calibration(np.full(199, 0.001), [400])
    assert few.verdict == "unknown" and few.distance is None and "takes 200" in few.says


@pytest.mark.parametrize(("texts", "calibrated_by"), [(200, 100), (300, 150), (1000, 333)])
def test_counts_that_are_allowed_are_quantiles_of_the_beta_binomial(texts, calibrated_by):
    tails = module._most_in_tails(texts, calibrated_by)
    assert tails[0][0] == 1 / (calibrated_by + 1) and len(tails) >= 4
    ranks = [round(level * (calibrated_by + 1)) for level, _ in tails]
    for rank, (_, most) in zip(ranks, tails, strict=True):
        law = betabinom(texts, rank, calibrated_by + 1 - rank)
        allowed = module.MISTAKES / 2 / len(tails)
        assert law.sf(most) <= allowed < law.sf(most - 1)
