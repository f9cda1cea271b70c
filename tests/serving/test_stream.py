"""The stream: what counts as evidence, whose alarm it is, what a restart keeps, what an operator does."""

from dataclasses import replace

import numpy as np
import pytest

from frostline.errors import BadParameter
from frostline.monitoring.alarm_course import ClearRule
from frostline.monitoring.reasons import Reason, Scores
from frostline.serving.source import RECENT
from frostline.serving.source_labels import KEPT_SECONDS, LABELLED, OTHER
from frostline.serving.stream import MOST_SOURCES, Clock, Stream
from frostline.serving.stream_status import promise, status_of
from frostline.serving.submission import Submission

COUNTS = [200, 200]
RULE = ClearRule(texts=10, seconds=60.0, idle_seconds=600.0)


class Times:
    """A clock that the test sets."""

    def __init__(self):
        self.wall, self.steady = 1.7e9, 5.0

    def pass_by(self, seconds):
        self.wall += seconds
        self.steady += seconds

    @property
    def clock(self):
        return Clock(lambda: self.wall, lambda: self.steady)


@pytest.fixture
def times():
    return Times()


def scores(p_values):
    p = np.asarray(p_values, dtype=float)
    rows = np.zeros((len(p), 2))
    reasons = tuple((Reason("foreign", 3.0, "far"),) if value <= 0.05 else () for value in p)
    return Scores(-np.log(p), p, {"foreign": -np.log(p)}, rows + 0.4, rows + 0.5, reasons)


def stream(times, **settings):
    return Stream(**{"every": 100, "clouds": (0, 3), "counts": COUNTS, "rule": RULE, "clock": times.clock} | settings)


class Sender:
    """Sends texts, each of which is new, with the p-values that the test asks for."""

    def __init__(self, stream):
        self.stream, self.sent = stream, 0

    def __call__(self, p_values, source="", **names):
        texts = [
            Submission(f"text {number} of {id(self)}", source=source, **names)
            for number in range(self.sent, self.sent + len(p_values))
        ]
        self.sent += len(p_values)
        taken = self.stream.take(scores(p_values), texts)
        self.stream.remember(taken.events)
        return taken

    def kinds(self, *arguments, **names):
        return [event.kind for event in self(*arguments, **names).events]


def test_the_alarm_begins_once_and_is_over_by_evidence_and_by_time(times):
    judged = stream(times)
    send = Sender(judged)
    assert send.kinds([0.005] * 8).count("alarm") == 1 and judged.severity == "warning"
    send([0.9] * 50)
    assert judged.ringing  # texts enough, but no time has passed
    times.pass_by(61)
    assert send.kinds([0.9]) == ["clear"] and not judged.ringing
    send([0.005] * 8)
    times.pass_by(61)
    assert send.kinds([0.9] * 3) == [] and judged.ringing  # time enough, but few texts
    assert send.kinds([0.9] * 10) == ["clear"]


def test_an_idle_service_ends_its_alarm(times):
    judged = stream(times)
    Sender(judged)([0.005] * 8)
    times.pass_by(599)
    assert judged.pass_time() == []
    times.pass_by(2)
    assert [event.kind for event in judged.pass_time()] == ["clear"] and judged.severity == "none"


def test_the_first_text_after_an_idle_hour_ends_the_alarm(times):
    judged = stream(times)
    send = Sender(judged)
    send([0.005] * 8)
    times.pass_by(601)
    assert send.kinds([0.9]) == ["clear"]


def test_an_alarm_that_lasts_is_critical(times):
    judged = stream(times)
    send = Sender(judged)
    send([0.005] * 30)
    assert judged.severity == "warning"  # it rings all the time, but has not lasted
    times.pass_by(301)
    send([0.005])
    times.pass_by(301)
    assert "critical" in send.kinds([0.005] * 30) and judged.severity == "critical"


def test_repeated_texts_are_no_evidence(times):
    """The documentation's example, posted a hundred times, never rings."""
    judged = stream(times)
    text, events = Submission("some text"), []
    for number in range(100):
        taken = judged.take(scores([0.005]), [text])
        events += taken.events
        assert taken.repeated == [number > 0]
    assert [event.kind for event in events] == ["strange"] and judged.all.strange == 1
    assert judged.counted["repeated"] == 99 and judged.counted["texts"] == 100


def test_dry_runs_count_for_nothing(times):
    judged = stream(times)
    before = judged.state()
    assert Sender(judged)([0.005] * 50, dry_run=True).events == []
    assert judged.state() == before and judged.counted == {"dry_run": 50}


def test_the_source_that_is_strange_is_named_and_the_others_stay_quiet(times):
    """19 of 20 seeds: 20 sources, one shifted; found in all, each false ring has a chance of 1e-3 or less."""
    named = 0
    for seed in range(20):
        rng, judged = np.random.default_rng(seed), stream(times, every=1e6)
        send, shifted = Sender(judged), f"source {seed % 20}"
        for _ in range(800):
            name = f"source {rng.integers(20)}"
            p = rng.integers(1, 202) / 201
            send([1 / 201 if name == shifted and rng.random() < 0.7 else p], source=name)
        named += [source.name for source in judged.ringing] == [shifted]
    assert named >= 19


def test_a_noisy_source_does_not_hide_what_happens_to_the_rest(times, rng):
    judged = stream(times)
    send = Sender(judged)
    send([0.005] * 20, source="noisy")
    assert [source.name for source in judged.ringing] == ["noisy"]
    for _ in range(40):
        send([0.005], source="noisy")
        send([0.9])
    assert [source.name for source in judged.ringing] == ["noisy"]
    send([0.005] * 12)
    assert {source.name for source in judged.ringing} == {"", "noisy"}


def test_why_and_examples_are_said(times):
    judged = stream(times)
    Sender(judged)([0.005] * 12, source="shop", id="order 7")
    status = status_of(judged)
    (shop,) = status["sources"]
    assert shop["severity"] == "warning" and shop["examples"][0] == "order 7" and "far" in shop["why"]
    times.pass_by(60)
    assert status_of(judged)["sources"][0]["rate"] == pytest.approx(12 / 60, rel=0.02)
    times.pass_by(-60)
    assert shop["since"] == times.wall and "shop" in status["says"]


def test_a_source_that_rings_does_not_explain_the_alarm_of_the_rest(times):
    judged = stream(times)
    send = Sender(judged)
    send([0.005] * 30, source="shop", id="order")
    assert [source.name for source in judged.ringing] == ["shop"] and judged.all.examples() == []
    for number in range(30):
        send([0.005], source=f"s{number}", id="letter")
    assert judged.all.course.ringing
    assert set(judged.all.examples()) == {"letter"} and judged.sources["shop"].examples()[0] == "order"


def test_a_restart_explains_alarms_that_go_on(times):
    judged, second = stream(times, baseline="b"), stream(times, baseline="b")
    taken = Sender(judged)([0.005] * 12, source="shop", id="order")
    others = [judged.event("strange", times.wall, source="gone"), replace(taken.events[0], baseline="c", text_id="old")]
    second.resume(judged.state(), [event for event in taken.events if event.kind == "strange"] + others)
    assert "far" in second.sources["shop"].why() and second.sources["shop"].examples() == ["order"] * 3
    assert list(second.sources) == ["shop"]


def test_sources_are_bounded(times):
    judged = stream(times)
    send = Sender(judged)
    for number in range(MOST_SOURCES + 50):
        send([0.5], source=f"s{number}")
    assert len(judged.sources) <= MOST_SOURCES + 1 and judged.sources[OTHER].texts == 50
    counts = judged.labels.counts
    assert len(counts) == LABELLED + 1 and sum(c["texts"] for c in counts.values()) == MOST_SOURCES + 50
    times.pass_by(3601)
    send([0.5], source="new")
    assert "new" in judged.sources and "s0" not in judged.sources


def test_the_busiest_sources_have_metrics_of_their_own(times):
    """A busy source that comes late takes the place of the slowest after an hour, once; no count steps back."""
    judged = stream(times)
    send, counts, seen = Sender(judged), judged.labels.counts, dict[str, int]()

    def minute():
        for number in range(LABELLED):
            send([0.5] * (1 if number == 7 else 3), source=f"s{number}")
        send([0.5] * 9, source="busy")
        send([0.5], source="slow")
        times.pass_by(60.0)
        texts = {name: count["texts"] for name, count in counts.items()}
        assert all(texts[name] >= seen.get(name, 0) for name in texts)
        seen.update(texts)

    for _ in range(int(KEPT_SECONDS / 60) - 1):
        minute()
    assert "busy" not in counts and "s7" in counts and seen[OTHER] == 10 * (KEPT_SECONDS / 60 - 1)
    for _ in range(6):
        minute()
    assert "busy" in counts and "s7" not in counts and len(counts) == LABELLED + 1 and "slow" not in counts
    assert 0 < counts["busy"]["texts"] < 9 * 6 and counts["busy"]["texts"] % 9 == 0


@pytest.mark.parametrize("sizes", [[1] * 60, [7, 13, 40], [60]])
def test_how_texts_are_grouped_into_passes_does_not_matter(sizes, rng, times):
    p = rng.uniform(1e-3, 1, 60) ** 2
    judged, whole, events = stream(times), stream(times), []
    send = Sender(judged)
    for size in sizes:
        events += send(p[send.sent : send.sent + size]).events
    expected = Sender(whole)(p).events
    assert [(e.kind, e.texts, e.p_value, e.level) for e in events] == [
        (e.kind, e.texts, e.p_value, e.level) for e in expected
    ]
    assert judged.state() == whole.state()


def test_events_belong_to_the_texts_that_caused_them(times):
    events, owners, _ = Sender(stream(times))([0.5, 0.001, 0.5, 0.002])
    strange = [
        number for number, places in enumerate(owners) if any(events[place].kind == "strange" for place in places)
    ]
    assert strange == [1, 3] and sorted(place for places in owners for place in places) == list(range(len(events)))


@pytest.mark.parametrize("keep", [False, True])
def test_texts_are_kept_only_when_asked_for(times, keep):
    taken = stream(times, keep_texts=keep).take(scores([0.001]), [Submission("secret")])
    assert taken.events[0].text == ("secret" if keep else None)


def test_a_restart_goes_on_where_it_stopped(rng, times):
    p = rng.uniform(1e-3, 1, 500) ** 1.5
    whole, first, second = stream(times), stream(times), stream(times)
    texts = [Submission(str(number), source="ab"[number % 2]) for number in range(500)]
    whole.take(scores(p), texts)
    first.take(scores(p[:200]), texts[:200])
    second.resume(first.state())
    second.take(scores(p[200:]), texts[200:])
    assert second.all.kept(times.steady) == whole.all.kept(times.steady)
    assert [source.name for source in second.ringing] == [source.name for source in whole.ringing]
    assert second.health() == whole.health()


def test_counters_of_a_process_begin_at_zero(times):
    first, second = stream(times), stream(times)
    Sender(first)([0.005] * 30)
    second.resume(first.state())
    assert second.all.texts == 30 and second.counted["texts"] == 0 and second.counted["rings"] == 0


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"texts": -3, "recent": [[0, 7]], "course": {"ringing": True, "state": ["x"]}},
        {"course": {"state": [1e300] * 4}, "recent": 5, "sources": 7},
        {"course": {"state": [1e3] * 8}},
        {"texts": 10**30, "recent": [["a", 7], 2, "b"], "course": 3, "maintenance": {"until": "x"}},
        {"sources": {"a": {"course": {"rang_ago": -1, "began_ago": None, "ringing": True}}, "b": 4}},
        {"since": 10**400, "course": {"ringing": True, "rang_ago": 10**400, "began_ago": 1, "state": [10**400] * 4}},
        {"since": float("nan"), "maintenance": {"until": 1e10}},
        {"since": 1e300, "maintenance": {"until": 1e300, "who": "ada", "why": "x"}},
        {"since": float("inf"), "maintenance": {"until": 10**400, "who": "ada", "why": "x"}},
        {"maintenance": {"until": 1e10, "who": {"a": []}, "why": None}},
        {"sources": {name: {"course": {"ringing": True, "rang_ago": 1, "began_ago": 2}} for name in ("", "\ud800")}},
        {"maintenance": {"until": 1e10, "who": "\udfff", "why": "x"}},
    ],
)
def test_a_state_that_makes_no_sense_is_not_taken(state, times):
    judged = stream(times)
    judged.resume(state)
    assert (judged.all.course.level, judged.all.texts, judged.ringing) == (0.0, 0, []) and judged.health().texts == 0
    assert judged.maintenance is None and judged.all.since is None
    assert status_of(judged)["severity"] == "none"


@pytest.mark.parametrize("seen", [7, {}, {"who": 1, "why": "x", "time": 1.0}, {"who": "a", "why": "b", "time": np.nan}])
def test_an_acknowledgement_that_makes_no_sense_is_not_taken(seen, times):
    judged, second = stream(times), stream(times)
    Sender(judged)([0.005] * 12)
    second.resume(judged.state() | {"acknowledged": seen})
    assert second.ringing and second.all.acknowledged is None


def test_an_operator_acknowledges_and_resets(times):
    judged = stream(times)
    send = Sender(judged)
    with pytest.raises(BadParameter, match="no alarm"):
        judged.control("acknowledge", who="ada", why="nothing there")
    send([0.005] * 12, source="shop")
    event = judged.control("acknowledge", who="ada", why="new customer", source="shop")
    assert event.kind == "acknowledged" and event.details["who"] == "ada" and judged.ringing
    assert status_of(judged)["sources"][0]["acknowledged"]["why"] == "new customer"
    second = stream(times)
    second.resume(judged.state())
    assert second.sources["shop"].acknowledged["who"] == "ada"
    with pytest.raises(BadParameter, match="'other'"):
        judged.control("reset", who="ada", why="x", source="other")
    assert judged.control("reset", who="ada", why="mended").details["alarms"] == ["shop"] and not judged.ringing


def test_nothing_rings_in_a_maintenance_window(times):
    judged = stream(times)
    send = Sender(judged)
    judged.control("maintenance", who="ada", why="import", seconds=100)
    assert set(send.kinds([0.005] * 30)) == {"strange"} and status_of(judged)["headline"] == "Maintenance"
    assert "nothing rings until 2023-11-14 22:15 UTC: import (ada)" in status_of(judged)["says"]
    with pytest.raises(BadParameter, match="all sources"):
        judged.control("maintenance", who="ada", why="import", seconds=100, source="shop")
    second = stream(times)
    second.resume(judged.state())
    assert second.maintenance["who"] == "ada"
    times.pass_by(101)
    assert [event.kind for event in judged.pass_time()] == ["maintenance"]
    assert "alarm" in send.kinds([0.005] * 30)
    judged.control("maintenance", who="ada", why="import", seconds=100)
    assert judged.control("maintenance", who="ada", why="over", seconds=0) and judged.maintenance is None


def test_the_clock_of_dates_may_jump(times):
    judged = stream(times)
    send = Sender(judged)
    send([0.005] * 8)
    times.wall += 40 * 86400
    assert send.kinds([0.9] * 20) == [] and judged.ringing
    times.wall -= 80 * 86400
    times.steady += 61
    assert send.kinds([0.9] * 10) == ["clear"]


def test_the_promise_is_said_again_when_the_rate_is_another(times):
    judged = stream(times, every=864_000, rate=10)
    assert "24 hours at 10 texts/s" in promise(judged) and "last hour" not in promise(judged)
    send = Sender(judged)
    for _ in range(100):
        times.pass_by(60)
        send([0.5] * 60)
    assert "10 days at the 1 texts/s of the last hour" in promise(judged)
    judged.take(scores([0.5] * 100_000), [Submission("probe", dry_run=True)] * 100_000)
    assert "10 days at the 1 texts/s" in promise(judged)
    times.pass_by(60 * 86400)
    assert promise(judged).endswith("24 hours at 10 texts/s.")


def test_health_of_good_and_bad_p_values(rng, times):
    grid = np.arange(1, 202) / 201  # ranks among 200 calibration texts
    good, low = stream(times), stream(times)
    Sender(good)(rng.choice(grid, RECENT))
    Sender(low)(rng.choice(grid, RECENT) ** 2)
    assert (good.health().verdict, low.health().verdict) == ("good", "low") and good.health().texts == RECENT


def test_layers_are_means_of_the_last_texts(times):
    judged = stream(times)
    assert judged.layers() == []
    Sender(judged)([0.5] * 300)
    assert [row["layer"] for row in judged.layers()] == [0, 3]
    assert judged.layers()[0]["observed"] == pytest.approx(0.4)
    assert judged.layers()[0]["expected"] == pytest.approx(0.5)


def test_two_halves_keep_the_longest_promise(times):
    assert stream(times, every=1e8).alarm.every == 2e8


@pytest.mark.parametrize(
    "settings",
    [{"alpha": 0.0}, {"alpha": 1.0}, {"every": 1e9}, {"every": 1.01e8}, {"every": 9}, {"every": float("nan")}],
)
def test_bad_settings(settings, times):
    with pytest.raises(BadParameter):
        stream(times, **settings)


@pytest.mark.parametrize("rule", [{"texts": 0}, {"seconds": -1.0}, {"idle_seconds": 0.0}, {"seconds": float("nan")}])
def test_bad_rules(rule):
    with pytest.raises(BadParameter):
        ClearRule(**rule)
