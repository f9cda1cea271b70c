"""Plans of baselines: spreads against simulated calibrations, delays against the alarm itself, what is missing."""

import json

import numpy as np
import pytest

from frostline.errors import BadParameter
from frostline.monitoring import baseline_plan as module
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.baseline_plan import SHARES, plan_baseline, plan_baselines, spread_of_rates
from frostline.monitoring.calibration import check_alpha


@pytest.mark.parametrize(
    ("counts", "alpha"), [((100,), 0.01), ((300, 300), 0.01), ((334, 333, 333), 0.05), ((120, 480), 0.02)]
)
def test_spreads_are_those_of_simulated_calibrations(counts, alpha):
    """Quantiles of 20,000 drawn calibrations, to 3 % of themselves (their standard errors are below 1 %) or 1e-5."""
    rng = np.random.default_rng(0)
    rates = np.zeros(20_000)
    for count in counts:
        rank = int(alpha * (count + 1) + 1e-9)
        # A score beyond the rank-th largest of the calibration has such a p-value: its chance given the calibration.
        calibration = rng.random((len(rates), count))
        rates += np.partition(calibration, rank - 1, axis=1)[:, rank - 1] * count / sum(counts)
    drawn = np.quantile(rates, module.OF_BASELINES)
    assert spread_of_rates(counts, alpha) == pytest.approx(drawn.tolist(), rel=0.03, abs=1e-5)


def test_spreads_at_the_ends():
    assert spread_of_rates((100,), 0.005) == (0, 0, 0) and spread_of_rates((100, 100), 1.0) == (1, 1, 1)
    # A group too small for alpha flags none of its texts.
    half = spread_of_rates((50, 950), 0.01)
    assert half == pytest.approx([0.95 * rate for rate in spread_of_rates((950,), 0.01)], rel=1e-3)


def test_delays_are_those_of_the_alarm():
    """The median over 80 streams run one by one through ``Alarm.after``, within four standard errors of it."""
    counts = (300, 300)
    alarm = Alarm.once_in(1e5, calibrated_by=counts)
    rng, delays = np.random.default_rng(1), []
    for _ in range(80):
        p = module._ranks(rng, np.full(200, 300), 0.1)
        _, rang, _ = alarm.after(alarm.quiet, p)
        delays.append(rang[0] if rang else 200)
    error = np.std([np.median(rng.choice(delays, 80)) for _ in range(200)])
    assert 40 < np.median(delays) < 150
    assert module._median_delay(alarm, counts, 0.1) == pytest.approx(np.median(delays), abs=4 * error + 1)


def test_strange_texts_look_as_strange_as_said():
    p = module._ranks(np.random.default_rng(2), np.full(20_000, 10**6), 1.0)
    assert 1 - p.mean() == pytest.approx(module.SEPARATION, abs=0.003)
    assert module._ranks(np.random.default_rng(2), np.full(1000, 99), 0.0).min() >= 0.01


def test_bounds_are_those_of_the_density_that_delays_are_drawn_from():
    """Density a·p^(a−1), a = 3/97, on ranks: masses (k/m)^a − ((k−1)/m)^a, beside normal texts with 1/m each."""
    row, a = plan_baselines([3000], every=1e5).baselines[0], (1 - module.SEPARATION) / module.SEPARATION
    edges = (np.arange(602) / 601) ** a
    for share, bound in row.bounds.items():
        densities = 1 - share + share * 601 * np.diff(edges)
        assert bound == pytest.approx(np.log(1e5) / (densities * np.log(densities)).mean(), rel=0.01)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Shares that are not noticed take long to be sure of."""
    monkeypatch.setattr(module, "LONGEST_DELAY", 5000)
    monkeypatch.setattr(module, "RUNS", 100)


def test_a_plan_of_several_sizes():
    plan = plan_baselines([500, 3000, 20_000], every=2.6e7)
    small, usual, large = plan.baselines
    assert [sum(row.calibrated_by) for row in plan.baselines] == [200, 1200, 8000]
    assert small.smallest == 1 / 201 and usual.smallest == 1 / 601 and large.smallest == 1 / 2001
    widths = [row.flagged[2] - row.flagged[0] for row in plan.baselines]
    assert widths[0] > widths[1] > widths[2] and all(row.flagged[0] < 0.01 < row.flagged[2] for row in plan.baselines)
    assert usual.delays[1.0] <= 12 and usual.delays[0.1] < small.delays[0.1] and small.delays[0.02] is None
    assert large.delays[0.02] < usual.delays[0.02]
    for row in plan.baselines:
        assert all(row.bounds[share] < delay for share, delay in row.delays.items() if delay is not None)
        assert row.bounds[1.0] < row.bounds[0.1] < row.bounds[0.02] < np.inf
    assert f"{usual.delays[0.1]:,} ({usual.bounds[0.1]:,.0f})" in plan.describe()
    assert plan.missing == ("Missing with 500 texts: 2% strange texts to be noticed takes about 1,000 texts.",)
    words = plan.describe()
    assert (
        "not noticed" in words
        and "20,000" in words
        and "ten baselines ring falsely at most once in 26,000,000" in words
    )
    assert set(small.delays) == set(SHARES) and "not noticed" in small.describe()
    json.dumps(plan.facts(), allow_nan=False)
    assert plan.facts()["baselines"][0]["delays"]["0.02"] is None


def test_an_alpha_below_the_floor_and_what_it_takes():
    plan = plan_baselines([1000], alpha=0.001, every=1000)
    assert plan.baselines[0].flagged is None and "never" in plan.describe()
    assert "an alpha of 0.001 takes about 10,000 texts" in plan.missing[0]
    assert "more than 20,000 texts" in plan_baselines([1000], alpha=1e-4, every=1000).missing[0]


def test_an_alarm_that_cannot_be_kept(monkeypatch):
    """The reason stands in the row, and the size from which on it can be."""
    once_in = Alarm.once_in

    def only_many(every, *, calibrated_by=None):
        if calibrated_by is not None and sum(calibrated_by) < 300:
            raise BadParameter("too few texts.")
        return once_in(every, calibrated_by=calibrated_by)

    monkeypatch.setattr(Alarm, "once_in", only_many)
    plan = plan_baselines([500], every=1e5)
    assert plan.baselines[0].refused == "too few texts." and plan.baselines[0].delays == {}
    assert plan.describe().splitlines()[1].count("refused") == 3 and "too few" in plan.baselines[0].describe()
    assert "one false alarm in 100,000 texts takes about 1,000 texts" in plan.missing[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sizes": [499]}, "499 texts; it is made of 500 to 20,000"),
        ({"sizes": [20_001]}, "20,001 texts"),
        ({"sizes": [500], "alpha": 0.0}, "alpha is 0"),
        ({"sizes": [500], "alpha": np.nan}, "alpha is nan"),
        ({"sizes": [500], "every": 1e12}, "one false alarm per"),
    ],
)
def test_plans_that_cannot_be(settings, words):
    with pytest.raises(BadParameter, match=words):
        plan_baselines(**settings)


def test_the_plan_of_a_baseline_is_that_of_its_groups(base):
    counts = base.judges["full"].conformal.counts.tolist()
    plan = plan_baseline(base, every=1e5)
    assert plan.baselines[0].texts == 900 and list(plan.baselines[0].calibrated_by) == counts == [360]
    check_alpha(base.judges["full"].conformal, plan.baselines[0].smallest)
    assert len(repr(plan)) < 200 and repr(plan).startswith("BaselinePlan(900 texts")
