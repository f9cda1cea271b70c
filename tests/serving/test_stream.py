"""The alarm's rule, what a restart keeps, and the judgement on the calibration."""

import numpy as np
import pytest

from frostline.errors import BadParameter
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.reasons import Reason, Scores
from frostline.serving.stream import ENOUGH, RECENT, Stream

ALARM = Alarm.once_in(100)


def scores(p_values):
    p = np.asarray(p_values, dtype=float)
    rows = np.zeros((len(p), 2))
    reasons = tuple((Reason("foreign", 3.0, "far"),) if one <= 0.05 else () for one in p)
    return Scores(-np.log(p), p, {"foreign": -np.log(p)}, rows + 0.4, rows + 0.5, reasons)


def stream(**settings):
    return Stream(ALARM, (0, 3), **{"clear_after": 10} | settings)


def kinds(found):
    return [event.kind for event in found[0]]


def test_the_alarm_rings_once_and_is_over_after_so_many_texts_without_ringing():
    own = stream()
    found = kinds(own.take(scores([0.001] * 8)))
    assert found.count("alarm") == 1 and own.ringing and own.alarms >= 2
    quiet = own.clear_after - (own.texts - own.rang_at)
    assert kinds(own.take(scores([0.9] * (quiet - 1)))) == [] and own.ringing
    assert kinds(own.take(scores([0.9]))) == ["clear"] and not own.ringing


def test_ringing_again_keeps_the_alarm_on():
    own = stream()
    own.take(scores([0.001] * 8))
    for _ in range(5):
        assert "clear" not in kinds(own.take(scores([0.9] * 5 + [0.001] * 4)))
    assert own.ringing


@pytest.mark.parametrize("sizes", [[1] * 60, [7, 13, 40], [60]])
def test_how_texts_are_grouped_into_passes_does_not_matter(sizes, rng):
    p, own, events = rng.uniform(1e-4, 1, 60) ** 2, stream(), []
    for size in sizes:
        events += own.take(scores(p[own.texts : own.texts + size]))[0]
    whole = stream()
    expected = whole.take(scores(p))[0]
    assert [(e.kind, e.texts, e.p_value, e.level) for e in events] == [
        (e.kind, e.texts, e.p_value, e.level) for e in expected
    ]
    assert (own.level, own.alarms, own.strange) == (whole.level, whole.alarms, whole.strange)
    # The level is the one that the library's alarm has.
    levels, rang = ALARM.after(0.0, p)
    assert own.level == pytest.approx(0.0 if rang and rang[-1] == 59 else levels[-1], abs=1e-12)


def test_events_belong_to_the_texts_that_caused_them():
    events, owners = stream().take(scores([0.5, 0.001, 0.5, 0.002]))
    strange = [number for number, own in enumerate(owners) if any(events[one].kind == "strange" for one in own)]
    assert strange == [1, 3] and sorted(one for own in owners for one in own) == list(range(len(events)))


def test_texts_are_kept_only_when_asked_for():
    assert stream().take(scores([0.001]), ["secret"])[0][0].text is None
    assert stream(keep_texts=True).take(scores([0.001]), ["secret"])[0][0].text == "secret"


def test_a_restart_goes_on_where_it_stopped(rng):
    p = rng.uniform(1e-3, 1, 500) ** 1.5
    whole, first, second = stream(), stream(), stream()
    whole.take(scores(p))
    first.take(scores(p[:200]))
    second.resume(first.state())
    second.take(scores(p[200:]))
    assert second.state() | {"recent": 0, "since": 0} == whole.state() | {"recent": 0, "since": 0}
    assert second.health() == whole.health()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"level": "x", "texts": -3, "recent": [[0, 7]], "ringing": True},
        {"level": 1e9, "recent": 5},
        {"texts": 10**30, "recent": [["a", 1], 1]},
    ],
)
def test_a_state_that_makes_no_sense_is_not_taken(state):
    own = stream()
    own.resume(state)
    assert (own.level, own.texts, own.ringing) == (0.0, 0, False) and own.health().texts == 0


def test_health_of_good_and_bad_p_values(rng):
    """Good p-values are called bad once in a thousand times (Kolmogorov and Smirnov); the seed is fixed."""
    grid = np.arange(1, 201) / 200  # ranks among 199 calibration texts
    good = stream(calibrated_by=199)
    good.take(scores(rng.choice(grid, ENOUGH - 1)))
    assert good.health().verdict == "unknown"
    good.take(scores(rng.choice(grid, RECENT)))
    assert good.health().verdict == "good" and good.health().texts == RECENT
    low, high = stream(calibrated_by=199), stream(calibrated_by=199)
    low.take(scores(rng.choice(grid, RECENT) ** 2))
    high.take(scores(np.sqrt(rng.choice(grid, RECENT))))
    assert (low.health().verdict, high.health().verdict) == ("low", "high")


def test_health_is_wrong_about_as_often_as_it_says(rng):
    """Of 400 streams at a level of 1/1000 more than 4 called bad have a chance of 1e-4 or less."""
    wrong = 0
    for _ in range(400):
        # Both are samples: the calibration texts' scores and the stream's.
        reference, own = np.sort(rng.random(400)), stream(calibrated_by=400)
        fresh = rng.random(300)
        own.take(scores((1 + len(reference) - np.searchsorted(reference, fresh)) / (1 + len(reference))))
        wrong += own.health().verdict != "good"
    assert wrong <= 4


def test_layers_are_means_of_the_last_texts():
    own = stream()
    assert own.layers() == []
    own.take(scores([0.5] * 300))
    assert [row["layer"] for row in own.layers()] == [0, 3]
    assert own.layers()[0]["observed"] == pytest.approx(0.4) and own.layers()[0]["expected"] == pytest.approx(0.5)


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"clear_after": 0}])
def test_bad_settings(settings):
    with pytest.raises(BadParameter):
        stream(**settings)
