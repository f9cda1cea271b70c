"""Delays of detection against simulation by hand, and the likelihood-ratio bound against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.monitoring import detection_delay as delays
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.detection_delay import detection_delay


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("counts", [[200], [100, 300]])
def test_the_bound_of_texts_at_the_floor_is_a_closed_form(share, counts):
    """The rank 1 of m has mass (1 − s)/m + s, each other one (1 − s)/m; groups weigh as many texts as they have."""
    information = 0.0
    for count in counts:
        places = count + 1
        masses = np.full(places, (1 - share) / places)
        masses[0] += share
        some = masses[masses > 0]
        information += count / sum(counts) * (some * np.log(places * some)).sum()
    bound = detection_delay(Alarm.once_in(1e5), share, counts=counts, streams=1).bound
    assert bound == pytest.approx(np.log(1e5) / information, rel=1e-9)


@given(st.integers(0, 10_000), st.floats(0.05, 1), st.integers(1, 30))
def test_no_falling_bet_gains_more_than_the_bound_allows(seed, share, texts):
    """Random falling bets of mean 1 over the ranks, against p-values drawn from those of strange texts."""
    rng, places = np.random.default_rng(seed), 21
    strange = np.ceil(places * rng.random(texts) ** rng.uniform(0.5, 4)) / places
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delays, "LONGEST_WAIT", 1)
        bound = detection_delay(Alarm.once_in(1e5), share, strange, counts=[places - 1], streams=1).bound
    masses = np.full(places, (1 - share) / places)
    np.add.at(masses, np.rint(strange * places).astype(int) - 1, share / texts)
    bets = np.sort(rng.standard_gamma(0.5, (200, places)) + 1e-9)[:, ::-1]
    gains = np.log(bets / bets.mean(1, keepdims=True)) @ masses
    assert gains.max() <= np.log(1e5) / bound + 1e-9


def test_the_bound_is_reached_by_the_bet_on_a_falling_density():
    """p-values with the density ½ p^(−½): information log ½ + ½ (mean of −log p is 2), less what ranks blur."""
    strange = (np.arange(1, 4001) / 4000) ** 2
    bound = detection_delay(Alarm.once_in(1e5), 1.0, strange, counts=[2000], streams=1).bound
    assert bound == pytest.approx(np.log(1e5) / (np.log(0.5) + 1), rel=0.05)


@pytest.mark.parametrize("strange", [None, [0.001, 0.05, 0.2]])
def test_the_delay_is_that_of_streams_drawn_by_hand(strange):
    """One stream after the other, text by text, with ``Alarm.after``; 400 streams, within four standard errors."""
    counts, share, rng = [100, 250], 0.3, np.random.default_rng(7)
    alarm, by_hand = Alarm.once_in(1000, calibrated_by=counts), []
    for _ in range(400):
        p = []
        for _ in range(600):
            count = 100 if rng.random() < 100 / 350 else 250
            normal = rng.integers(1, count + 2) / (count + 1)
            odd = 1 / (count + 1) if strange is None else rng.choice(strange)
            p.append(odd if rng.random() < share else normal)
        by_hand.append(alarm.after(alarm.quiet, np.array(p))[1][0] + 1)
    result = detection_delay(alarm, share, strange, counts=counts, streams=400)
    error = np.std(by_hand) * np.sqrt(2 / 400)
    assert result.noticed == 1 and result.delay == pytest.approx(np.mean(by_hand), abs=4 * error)
    assert result.delay > result.bound


def test_a_stream_of_nothing_else_rings_at_the_same_text_each_time():
    alarm = Alarm.once_in(1e6, calibrated_by=[300])
    rang = alarm.after(alarm.quiet, np.full(50, 1 / 301))[1]
    assert detection_delay(alarm, 1.0, counts=[300], streams=7).delay == rang[0] + 1
    assert detection_delay(alarm, 1.0, [1 / 301] * 3, streams=7) == detection_delay(alarm, 1.0, streams=7)


def test_what_cannot_be_seen_is_not_noticed(monkeypatch):
    """Normal p-values called strange hold no information; texts in the upper half calm the alarm."""
    monkeypatch.setattr(delays, "LONGEST_WAIT", 2000)
    alarm = Alarm.once_in(1e8, calibrated_by=[200])
    for strange in (np.arange(1, 202) / 201, [0.5, 0.8, 1.0]):
        result = detection_delay(alarm, 1.0, strange, counts=[200], streams=5)
        assert result.delay == np.inf and result.noticed == 0 and "not noticed within 2,000" in result.describe()
        assert result.bound == np.inf and "nothing to see" in result.describe()


def test_few_streams_that_ring_are_said(monkeypatch):
    monkeypatch.setattr(delays, "LONGEST_WAIT", 500)
    result = detection_delay(Alarm.once_in(1e4, calibrated_by=[300]), 0.03, counts=[300])
    assert 0 < result.noticed < 1 and result.delay == np.inf and "of the streams ring within 500" in result.describe()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"share": 0.0}, "share is 0.0"),
        ({"share": 1.1}, "share is 1.1"),
        ({"share": float("nan")}, "share is nan"),
        ({"strange": []}, "strange are p-values"),
        ({"strange": [0.5, 0.0]}, "strange are p-values"),
        ({"strange": [float("nan")]}, "strange are p-values"),
        ({"streams": 0}, "streams is 0"),
        ({"counts": []}, "counts is"),
        ({"counts": [0, 5]}, "counts is"),
    ],
)
def test_refusals(settings, says):
    with pytest.raises(fl.errors.BadParameter, match=says):
        detection_delay(Alarm.once_in(1000), **{"share": 0.5} | settings)
