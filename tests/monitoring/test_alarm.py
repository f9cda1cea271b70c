"""The alarm's laws: bets that normal texts lose, rings as rare as promised for every baseline, short delays."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.monitoring import alarm as alarms
from frostline.monitoring.alarm import Alarm, texts_between_alarms
from frostline.monitoring.alarm_course import AlarmCourse
from frostline.monitoring.calibration import Conformal

QUIET = 400
"""Streams that are run until they ring."""


@given(st.integers(1, 3000), st.one_of(st.none(), st.lists(st.integers(40, 3000), min_size=1, max_size=8)))
def test_nobody_wins_a_bet_on_normal_texts(ranks, counts):
    """Over the ranks 1/m … 1 no bet has a mean above 1, for any m: also for those of no group of the baseline."""
    alarm = Alarm.once_in(1000, calibrated_by=counts)
    p = np.arange(1, ranks + 1) / ranks
    assert (alarm.bets(p).mean(0) <= 1 + 1e-9).all()


def test_a_fair_bet_is_not_thrown_away():
    """With perfect p-values as fine as an alarm tells them apart, every bet has a mean of 0.99 to 1."""
    means = Alarm.once_in(1000).bets(np.arange(1, 10**6 + 1) / 10**6).mean(0)
    assert (means > 0.99).all() and (means <= 1 + 1e-9).all()


@pytest.mark.parametrize("count", [1, 30, 300, 5000])
def test_the_density_is_that_of_ranks_by_hand(count):
    """Shares s of density c/p, c = 1/(1 + log m): over the m ranks a mean of 1 − s + s·c·(1 + 1/2 + … + 1/m)."""
    alarm, ranks = Alarm.once_in(20, calibrated_by=[count]), np.arange(1, count + 2)
    gains = alarm.bets(ranks / (count + 1)) * np.exp(alarm.costs)
    mean = (1 / ranks).sum() / (1 + np.log(count + 1))
    assert mean <= 1 and gains.mean(0) == pytest.approx(1 + alarms.SHARES * (mean - 1))
    assert (gains[1:] < gains[:-1]).all() and (alarm.bets(np.array(1e-9)) == alarm.bets(np.array(alarm.least))).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(0, 60), st.floats(0, 1))
def test_the_evidence_falls_as_p_rises(p, place, more):
    """A larger p-value anywhere never makes any later evidence larger, as long as nothing has rung."""
    alarm, p = Alarm.once_in(1e8, calibrated_by=[200, 200]), np.array(p)
    larger = p.copy()
    larger[place % len(p)] = max(p[place % len(p)], more)
    levels, rang, _ = alarm.after(alarm.quiet, p)
    others, _, _ = alarm.after(alarm.quiet, larger)
    until = rang[0] if rang else len(p)
    assert (others[:until] <= levels[:until] + 1e-9).all() and (levels >= 0).all()


@given(st.integers(0, 1000), st.integers(0, 300))
def test_a_stream_in_pieces_is_the_stream(seed, cut):
    rng, alarm = np.random.default_rng(seed), Alarm.once_in(50, calibrated_by=[100, 100])
    p = rng.random(300) ** 2
    levels, rang, state = alarm.after(alarm.quiet, p)
    first, early, between = alarm.after(alarm.quiet, p[:cut])
    second, late, end = alarm.after(between, p[cut:])
    assert np.array_equal(np.concatenate([first, second]), levels) and np.array_equal(end, state)
    assert early + [cut + number for number in late] == rang


@given(st.integers(0, 1000), st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.0, 700.0, 4000.0])), max_size=4))
def test_texts_counted_together_are_texts_counted_one_by_one(seed, batches):
    """Whatever time passes between batches: the same rings, evidence and severity.

    Below 200 texts: one by one an alarm can be over in the middle of a batch, together only at its end.
    """
    rng, alarm, now = np.random.default_rng(seed), Alarm.once_in(100, calibrated_by=[100]), 0.0
    together, alone = AlarmCourse(alarm), AlarmCourse(alarm)
    for texts, seconds in batches:
        now += seconds
        p = rng.random(texts) ** rng.integers(1, 4)
        before = alone.rang_in_all
        alone.pass_time(now)
        for value in p:
            alone.take(float(value), now)
        rang = together.take_together(p, now)
        assert len(rang) == alone.rang_in_all - before
        assert (together.ringing, together.critical, together.rings, together.texts_since) == (
            (alone.ringing, alone.critical, alone.rings, alone.texts_since)
        )
        assert np.array_equal(together.state, alone.state)


def test_after_is_step_after_step():
    """The loop by hand, with ``step`` and ``level``; after ringing it begins anew."""
    alarm, state = Alarm.once_in(100, calibrated_by=[150]), None
    p = np.random.default_rng(0).random(400) ** 1.5
    levels, rang, end = alarm.after(alarm.quiet, p)
    assert len(rang) > 3
    for number, value in enumerate(p):
        state = alarm.step(alarm.quiet if state is None else state, np.array(value))
        assert alarm.level(state) == pytest.approx(levels[number], abs=1e-12)
        assert (levels[number] >= alarm.threshold) == (number in rang)
        if number in rang:
            state = None
    assert np.allclose(end, alarm.quiet if state is None else state)


def first_rings(alarm, draw, streams, longest):
    """Number of the text at which each stream rings first; ``longest`` where it does not."""
    state, rang = np.zeros((streams, alarm.costs.size)), np.full(streams, longest)
    for number in range(1, longest):
        state = alarm.step(state, draw(streams))
        now = (alarm.level(state) >= alarm.threshold) & (rang == longest)
        rang[now] = number
        if not number % 50 and (rang < longest).all():
            break
    return rang


@pytest.mark.parametrize(("every", "seed"), [(100, 1), (1000, 2)])
def test_run_lengths_are_as_long_as_promised(every, seed):
    """Uniform p-values, 400 streams: mean at least what was asked for, less four standard errors.

    Run lengths are about exponential, so a right alarm fails this for less than one seed in 10⁴. At most four times as
    long, or the alarm would be blind without need.
    """
    alarm, rng = Alarm.once_in(every), np.random.default_rng(seed)
    lengths = first_rings(alarm, lambda n: 1 - rng.random(n), QUIET, 40 * every)
    assert every * (1 - 4 / np.sqrt(QUIET)) <= lengths.mean() <= 4 * every


def calibrated(rng, texts):
    """Calibration on scores of fresh texts that depend on their lengths."""
    lengths = rng.uniform(1, 5, texts)
    return Conformal.fit(10 * lengths + rng.random(texts), lengths)


def p_values(fitted, noise, lengths):
    scores = torch.from_numpy(10 * lengths + noise).float()
    return fitted.p_values(scores, torch.from_numpy(lengths).float()).numpy()


def test_nine_of_ten_baselines_ring_at_most_twice_as_often_as_promised():
    """40 baselines of 400 calibration texts, each with a stream of 60 times as many texts as one false alarm may take.

    Nine of ten keep the promise itself, at most 60 rings; of the rest few break it twofold at so small a promise. If
    one in 25 did, five or more of 40 would for one seed in 50; the seed is fixed, and none does. A threshold two nats
    lower makes all of them. That the bets have to cost something is not seen here but in the next test.
    """
    every, times = 300, 60
    streams, counts = [], []
    for seed in range(40):
        rng = np.random.default_rng([5, seed])
        fitted = calibrated(rng, 400)
        counts.append(sorted(fitted.counts.tolist()))
        streams.append(p_values(fitted, rng.random(every * times), rng.uniform(1, 5, every * times)))
    alarm, rings = Alarm.once_in(every, calibrated_by=counts[0]), np.zeros(40)
    assert np.ptp(counts, axis=0).max() <= 1  # one alarm for all of them
    state = np.tile(alarm.quiet, (40, 1))
    for p in np.transpose(streams):
        state = alarm.step(state, p)
        rang = alarm.level(state) >= alarm.threshold
        rings += rang
        state[rang] = 0
    assert (rings / times > 2).sum() <= 4 and 0 < np.median(rings / times) <= 1


def test_no_bet_is_won_against_nine_of_ten_baselines():
    """Mean of every bet over 20,000 normal texts, for 100 baselines: above 1 for 18 of them at most.

    For nine of ten no bet is meant to be won; 19 or more lose one for one seed in 200, and the seed is fixed. Without
    what each bet costs 27 do: bets are fair on average over baselines only.
    """
    lost = 0
    for seed in range(100):
        rng = np.random.default_rng([6, seed])
        fitted = calibrated(rng, 400)
        noise = (np.arange(20_000) + 0.5) / 20_000
        p = p_values(fitted, noise, rng.uniform(1, 5, len(noise)))
        means = Alarm.once_in(1000, calibrated_by=fitted.counts.tolist()).bets(p).mean(0)
        lost += (means > 1.001).any()
    assert lost <= 18


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_proportions_of_lengths_break_no_promise(share):
    """1,000 baselines with two groups of 300: a share of one group; at most 129 lose a bet to normal texts.

    Nine of ten are meant to lose none; if one in ten did, 130 or more would for one seed in 900, and the seed is fixed.
    With a charge for equal shares alone, 145 and 161 lose one where all texts are of one group.
    """
    rng, places = np.random.default_rng(7), 301
    bets = Alarm.once_in(1000, calibrated_by=[300, 300]).bets(np.arange(1, places + 1) / places)
    # Given the calibration texts the chances of the ranks are spacings of uniform numbers.
    chances = rng.dirichlet(np.ones(places), (1000, 2))
    means = np.tensordot(chances, bets, 1)
    assert ((share * means[:, 0] + (1 - share) * means[:, 1]) > 1).any(1).sum() <= 129


FLOORS = {None: 1e-4, 150: 1 / 151, 1000: 1 / 1001}
"""The strangest p-value of perfect p-values, and of baselines with four groups of so many calibration texts."""


@pytest.mark.parametrize("count", FLOORS)
@pytest.mark.parametrize(("every", "texts"), [(1000, 4), (1e5, 5), (texts_between_alarms("30d"), 7), (1e8, 8)])
def test_text_that_is_as_strange_as_can_be_rings_soon(count, every, texts):
    alarm = Alarm.once_in(every, calibrated_by=None if count is None else [count] * 4)
    assert alarm.after(alarm.quiet, np.full(50, FLOORS[count]))[1][0] < texts


@pytest.mark.parametrize(("share", "texts"), [(0.1, 120), (0.02, 1600)])
def test_few_strange_texts_ring_in_time(share, texts):
    """At one false alarm in 10⁵ texts, four groups of 250 calibration texts: mean of 200 streams."""
    alarm, rng = Alarm.once_in(1e5, calibrated_by=[250] * 4), np.random.default_rng(3)
    rang = first_rings(
        alarm, lambda n: np.where(rng.random(n) < share, 1, rng.integers(1, 252, n)) / 251, 200, 10 * texts
    )
    assert rang.mean() <= texts


def test_a_threshold_is_what_was_asked_for():
    for every in (10, 1000, 25_920_000.0, 1e8):
        alarm = Alarm.once_in(every)
        assert (alarm.every, alarm.threshold) == (every, pytest.approx(np.log(every)))


def test_the_smaller_the_baseline_the_more_each_bet_costs():
    """Costs are never a gain. They fall slowly: the smallest p-values hang on one calibration text, however many."""
    few, many = (Alarm.once_in(1000, calibrated_by=[count] * 4).costs for count in (50, 5000))
    assert (few > 1.5 * many).all() and (few < 2 * many).all()
    assert (many > 0).all() and (Alarm.once_in(1000).costs == 0).all()


def test_a_quiet_stream_hovers_below_a_third_of_the_threshold():
    """Median over 20,000 uniform p-values of an alarm at its default; one seed."""
    alarm = Alarm.once_in(texts_between_alarms("30d"), calibrated_by=[250] * 4)
    p = np.random.default_rng(4).integers(1, 252, 20_000) / 251
    levels, rang, _ = alarm.after(alarm.quiet, p)
    assert not rang and 0 < np.median(levels) < alarm.threshold / 3


def test_the_alarm_starts_again_after_ringing():
    alarm = Alarm.once_in(100)
    levels, rang, state = alarm.after(alarm.quiet, np.full(50, 1e-3))
    assert len(rang) > 5 and (np.diff(rang) == rang[0] + 1).all() and (levels >= 0).all()
    assert np.array_equal(alarm.after(alarm.quiet, np.full(rang[-1] + 1, 1e-3))[2], alarm.quiet)
    assert alarm.level(alarm.quiet) == 0 and np.isfinite(state).all()


def test_sums_that_were_never_reset_stay_finite():
    """Ten thousand of the strangest texts through ``step``, which resets nothing, then normal ones: still numbers."""
    alarm = Alarm.once_in(1e8)
    state = alarm.quiet
    for p in (np.full(10_000, 1e-300), np.full(10_000, 1.0)):
        for value in p:
            state = alarm.step(state, np.array(value))
        assert np.isfinite(state).all()
    assert alarm.level(state) < alarm.threshold / 3


def test_a_p_value_that_is_no_number_is_as_strange_as_can_be():
    """It neither silences the alarm for ever nor is it taken for normal."""
    alarm = Alarm.once_in(1000)
    levels, rang, state = alarm.after(alarm.quiet, np.array([np.nan, 0.5, 1e-4, 1e-4, 1e-4]))
    others = alarm.after(alarm.quiet, np.array([1e-4, 0.5, 1e-4, 1e-4, 1e-4]))
    assert np.array_equal(levels, others[0]) and rang == others[1] != [] and np.array_equal(state, others[2])


@pytest.mark.parametrize("every", [0, 9, 2.1e8, -5, np.nan, np.inf])
def test_alarms_that_cannot_be(every):
    with pytest.raises(fl.errors.BadParameter, match="one false alarm per"):
        Alarm.once_in(every)


@pytest.mark.parametrize("counts", [[], [0], [100, 0], [-3]])
def test_baselines_that_cannot_be(counts):
    with pytest.raises(fl.errors.BadParameter, match="calibration texts"):
        Alarm.once_in(1000, calibrated_by=counts)


def test_an_alarm_that_a_baseline_cannot_keep_is_refused():
    """Two calibration texts: fifty texts of nothing but the strangest say too little for one in 10⁸, enough for 20."""
    with pytest.raises(fl.errors.BadParameter, match="2 calibration texts cannot keep one false alarm in 100,000,000"):
        Alarm.once_in(1e8, calibrated_by=[1, 1])
    assert Alarm.once_in(20, calibrated_by=[1, 1]).every == 20


@pytest.mark.parametrize(
    ("every", "rate", "texts"),
    [
        ("30d", 10.0, 25_920_000),
        ("12h", 2.0, 86_400),
        (" 45 M ", 1.0, 2700),
        ("2w", 0.5, 604_800),
        ("1.5h", 10.0, 54_000),
        ("90s", 10.0, 900),
        (1000, 5.0, 1000),
        (1e7, 5.0, 1e7),
        ("1e5", 5.0, 1e5),
        ("1e+5", 5.0, 1e5),
        (np.float64(500), 5.0, 500),
        ("1000", 5.0, 1000),
    ],
)
def test_durations(every, rate, texts):
    assert texts_between_alarms(every, rate) == pytest.approx(texts)


@pytest.mark.parametrize("every", ["", "d", "30 days", "-3d", "3y", "1d12h", "None", "nan", float("inf")])
def test_durations_that_are_none(every):
    with pytest.raises(fl.errors.BadParameter, match=r"30d, 12h or 2w"):
        texts_between_alarms(every)


@pytest.mark.parametrize("rate", [0, -1, np.nan, np.inf])
def test_rates_that_are_none(rate):
    with pytest.raises(fl.errors.BadParameter, match="texts per second"):
        texts_between_alarms("30d", rate)


def test_the_default_is_a_month():
    assert texts_between_alarms(alarms.FALSE_ALARM_EVERY) == 30 * 86_400 * 10
