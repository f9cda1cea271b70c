"""Which events are forgotten: rooms of the kinds, and ages that one wrong clock does not decide."""

import itertools
import sqlite3

import pytest

from frostline.serving.events import Event, Events
from frostline.serving.retention import CLOCK, Rooms, read_clock

DAY = 86400.0
START = 1.8e9


class Clock:
    """A clock that the test sets."""

    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


def strange(clock, count=1):
    return [Event("strange", 1, clock.now) for _ in range(count)]


def kinds(events):
    return [event.kind for event in events.select()]


def pass_days(events, clock, days, every=0.25):
    """Time goes by, and the service saves its state meanwhile."""
    for _ in range(round(days / every)):
        clock.now += every * DAY
        events.add([])


@pytest.mark.parametrize("keep", [1, 5, 9, 16, 50, 148, 1000])
def test_never_more_than_asked_for_and_all_of_them(tmp_path, keep):
    with Events(tmp_path / "e.db", keep=keep) as events:
        for number in range(40):
            events.add([Event(("strange", "alarm", "start")[number % 3], number, START)] * (number % 7))
            added = sum(each % 7 for each in range(number + 1))
            assert len(events.select()) == min(keep, added)
        numbers = [event.id for event in events.select()]
    with Events(tmp_path / "e.db", keep=max(1, keep // 2)) as events:
        assert len(events.select()) == min(len(numbers), max(1, keep // 2))
        assert events.add([Event("stop", 1, START)]) == [added + 1]


def test_ordinary_texts_push_out_no_alarms(tmp_path):
    with Events(tmp_path / "e.db", keep=50) as events:
        rare = ["start", "alarm", "acknowledged", "clear", "critical", "reset", "maintenance", "stop"]
        events.add([Event(kind, 1, START) for kind in rare for _ in range(3)])
        for _ in range(30):
            events.add([Event("strange", 1, START)] * 20)
        assert kinds(events) == [kind for kind in rare for _ in range(3)] + ["strange"] * 26
        # Nor does a service that starts over and over.
        events.add([Event("start", 2, START)] * 500)
        assert kinds(events).count("alarm") == 3 and kinds(events).count("strange") >= 20


def test_no_kind_loses_what_is_in_its_room():
    for keep in (9, 15, 16, 50, 100_000):
        rooms = Rooms(keep)
        assert sum(rooms.room(kind) for kind in ("strange", *"abcdefgh")) <= keep
        counts = {"strange": 3 * keep, "alarm": rooms.room("alarm"), "start": 2 * rooms.room("start")}
        assert "alarm" not in rooms.too_many(counts)


def test_what_waits_in_memory_has_rooms_too(tmp_path, monkeypatch):
    monkeypatch.setattr("frostline.serving.events.PENDING", 32)
    with Events(tmp_path / "e.db") as events:
        events._connection.execute("PRAGMA query_only = 1")
        events.add([Event("alarm", 1, START)])
        for _ in range(10):
            events.add([Event("strange", 1, START)] * 10)
        assert events.pending == 32 and events.lost == 69
        events._connection.execute("PRAGMA query_only = 0")
        events.add([])
        assert kinds(events) == ["alarm"] + ["strange"] * 31


def test_old_events_are_forgotten_bit_by_bit(tmp_path):
    clock = Clock()
    with Events(tmp_path / "e.db", days=2, clock=clock) as events:
        events.add(strange(clock, 100))
        pass_days(events, clock, 2.5)
        events.add(strange(clock, 25))  # without newer events none is old
        assert len(events.select()) == 125
        pass_days(events, clock, 0.25)
        assert len(events.select()) == 125 - 12
        pass_days(events, clock, 10, every=1 / 16)
        assert [event.id for event in events.select()] == list(range(101, 126))
        assert events.add(strange(clock)) == [126]


def test_a_clock_behind_its_events_deletes_nothing(tmp_path):
    clock = Clock()
    with Events(tmp_path / "e.db", days=2, clock=clock) as events:
        events.add(strange(clock, 100))
        pass_days(events, clock, 2.5)
        events.add([Event("strange", 1, clock.now + DAY)] * 25)
        pass_days(events, clock, 0.75)
        assert len(events.select()) == 125
        pass_days(events, clock, 1.5)
        assert len(events.select()) < 125


def test_a_steady_stream_keeps_its_days(tmp_path):
    for days in (1, 30):
        clock = Clock()
        with Events(tmp_path / f"{days}.db", days=days, clock=clock) as events:
            for _ in range(2 * days * 4 + 8):
                events.add(strange(clock, 5))
                clock.now += DAY / 4
            ages = [(clock.now - event.time) / DAY for event in events.select()]
            assert days * 0.95 < max(ages) <= days * 1.1 + 1.5


@pytest.mark.parametrize("days_ahead", [40, 4000])
def test_a_clock_ahead_deletes_nothing(tmp_path, days_ahead):
    clock = Clock()
    with Events(tmp_path / "e.db", clock=clock) as events:
        for _ in range(69):
            events.add(strange(clock))
            pass_days(events, clock, 0.1, every=0.1)
    clock.now += days_ahead * DAY
    for _ in range(3):  # a service that is started again and again, and writes all the time
        with Events(tmp_path / "e.db", clock=clock) as events:
            events.add(strange(clock, 200))
            pass_days(events, clock, 0.25, every=1 / 24)
            events.prune()
            assert len(events.select(since=0, limit=69)) == 69 and events.select()[0].id == 1
    clock.now -= days_ahead * DAY
    with Events(tmp_path / "e.db", clock=clock) as events:
        pass_days(events, clock, 5)
        assert events.select()[0].id == 1


def test_a_clock_that_stays_ahead_costs_a_tenth_a_day(tmp_path):
    clock = Clock()
    with Events(tmp_path / "e.db", clock=clock) as events:
        events.add(strange(clock, 1000))
        pass_days(events, clock, 2)
    clock.now += 40 * DAY
    with Events(tmp_path / "e.db", clock=clock) as events:
        counts = []
        for _ in range(4):
            events.add(strange(clock, 10))
            pass_days(events, clock, 1, every=1 / 24)
            counts.append(len([event for event in events.select() if event.time < START + DAY]))
        assert counts[0] == 1000 and counts[-1] < 1000
        assert all(after >= before * 0.89 for before, after in itertools.pairwise(counts))


def test_single_wild_times_decide_nothing(tmp_path):
    clock = Clock()
    with Events(tmp_path / "e.db", clock=clock) as events:
        for hour in range(24 * 5):
            wild = {30: 0.0, 60: START + 400 * DAY, 110: 1e18}.get(hour, clock.now)
            events.add([Event("strange", hour, wild)])
            clock.now += DAY / 24
        assert [event.texts for event in events.select()] == list(range(24 * 5))


def test_a_long_pause_waits_a_day_and_is_said_once(tmp_path, caplog):
    clock = Clock()
    with Events(tmp_path / "e.db", days=30, clock=clock) as events:
        events.add(strange(clock, 50))
        pass_days(events, clock, 2)
    clock.now += 60 * DAY
    with Events(tmp_path / "e.db", days=30, clock=clock) as events:
        events.add(strange(clock, 50))
        pass_days(events, clock, 0.75)
        assert len(events.select()) == 100
        pass_days(events, clock, 0.5)
        assert len(events.select()) == 90
    assert caplog.text.count("the clock stepped or rested") == 1


@pytest.mark.parametrize("wild", ["1" + "0" * 400, "NaN", "Infinity", '"soon"', "[1]"])
def test_a_record_of_the_clock_that_makes_no_sense_is_not_taken(wild, tmp_path):
    clock, path = Clock(), tmp_path / "e.db"
    Events(path, clock=clock).close()
    with sqlite3.connect(path) as file:
        record = f'{{"since": 1.0, "seen": {clock.now}, "acted": {wild}}}'
        assert file.execute("UPDATE state SET value = ? WHERE name = ?", (record, CLOCK)).rowcount == 1
    Events(path, clock=clock).close()
    with sqlite3.connect(path) as file:
        assert read_clock(file).since == clock.now
