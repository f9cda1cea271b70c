"""What calibration promises: p-values that are valid, for short and for long texts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.monitoring.calibration import Conformal


def p_values(fitted, scores, lengths):
    return fitted.p_values(torch.from_numpy(scores).float(), torch.from_numpy(lengths).float()).numpy()


@given(st.integers(0, 1000), st.integers(20, 300), st.floats(0.1, 5))
def test_p_values_are_ranks(seed, count, scale):
    """Larger scores have smaller p-values; a score beyond all others has 1/(m + 1); a monotone map changes none."""
    rng = np.random.default_rng(seed)
    scores, lengths = rng.permutation(count) / count, np.zeros(count)
    fitted = Conformal.fit(scores, lengths)
    p = p_values(fitted, np.sort(scores), lengths)
    assert (np.diff(p) <= 0).all() and p[-1] == pytest.approx(2 / (count + 1))
    assert p_values(fitted, np.array([1e9]), np.zeros(1))[0] == pytest.approx(1 / (count + 1))
    mapped = Conformal.fit(np.exp(scale * scores), lengths)
    assert np.array_equal(p_values(mapped, np.exp(scale * np.sort(scores)), lengths), p)


def test_p_values_hold_their_level_for_short_and_long_texts():
    """Scores that grow with length: 400 resplits at α = 2 %, each group within 4 standard errors of it."""
    rng = np.random.default_rng(0)
    hits = {"short": [], "long": []}
    for _ in range(400):
        lengths = rng.uniform(1, 5, 900)
        scores = lengths**2 * rng.standard_normal(900) + 10 * lengths
        p = p_values(Conformal.fit(scores[:800], lengths[:800]), scores[800:], lengths[800:])
        short = lengths[800:] < 3
        hits["short"] += (p[short] <= 0.02).tolist()
        hits["long"] += (p[~short] <= 0.02).tolist()
    for own in hits.values():
        assert np.mean(own) == pytest.approx(0.02, abs=4 * np.sqrt(0.02 / len(own)) + 0.003)


def test_scores_that_are_no_number_are_as_strange_as_can_be():
    fitted = Conformal.fit(np.arange(50.0), np.zeros(50))
    assert p_values(fitted, np.array([np.nan]), np.zeros(1))[0] == pytest.approx(1 / 51)


def test_groups_are_large_enough_to_say_something():
    """Lengths that tie leave fewer groups, none of them too small for p-values of 1 %."""
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(820) < 0.3, rng.uniform(1, 2, 820), 2.5)
    fitted = Conformal.fit(rng.standard_normal(820), lengths)
    assert int(fitted.counts.min()) >= 400 and fitted.smallest <= 0.01
    spread = Conformal.fit(rng.standard_normal(1800), rng.uniform(1, 5, 1800))
    assert len(spread.counts) == 3 and fitted.smallest == 1 / (1 + int(fitted.counts.min()))
