"""The event file: what was acknowledged is there, whatever happens to the process or the disk."""

import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from frostline.errors import BadParameter
from frostline.serving import events as module
from frostline.serving.events import Event, Events, connect, select


def event(kind="strange", texts=1, **facts):
    return Event(kind, texts, facts.pop("time", time.time()), **facts)


def test_what_is_added_comes_back(tmp_path):
    details = {"reasons": [{"part": "words", "sigma": 2.0, "says": "β"}]}
    given = [event(p_value=0.01, score=2.5, details=details), event("alarm", 2, level=3.0), event(text="ä")]
    with Events(tmp_path / "e.db") as events:
        numbers = events.add(given, {"level": 1.5})
        assert numbers == [1, 2, 3]
    with Events(tmp_path / "e.db") as again:
        assert [one.facts() | {"id": None} for one in again.select()] == [one.facts() for one in given]
        assert again.state() == {"level": 1.5}
        assert [one.id for one in again.select(newest=True, limit=2)] == [3, 2]
        assert [one.id for one in again.select(after=1, kind="strange")] == [3]
        assert again.add([event()]) == [4]


def test_everything_that_an_event_says_is_kept(tmp_path):
    said = {"who": "ä", "why": "\ud800"}
    given = [
        event(kind, number, source="shop", text_id=f"id {number}", baseline="3fa9c10b2d44", details=said)
        for number, kind in enumerate(module.KINDS)
    ]
    with Events(tmp_path / "e.db", baseline="000000000000") as events:
        events.add([*given, event(source="other")])
        *stored, last = events.select()
        assert [one.facts() | {"id": None, "details": {}} for one in stored] == [
            one.facts() | {"details": {}} for one in given
        ]
        assert stored[0].details == {"who": "ä", "why": "?"} and last.baseline == "000000000000"
        assert [one.id for one in events.select(source="other")] == [len(given) + 1]


def test_a_state_belongs_to_a_baseline(tmp_path):
    for baseline, level in (("a", 1.0), ("b", 2.0), ("", 3.0)):
        with Events(tmp_path / "e.db", baseline=baseline) as events:
            assert events.state() == {}
            events.add([], {"level": level})
    for baseline, level in (("a", 1.0), ("b", 2.0), ("", 3.0)):
        with Events(tmp_path / "e.db", baseline=baseline) as events:
            assert events.state() == {"level": level}


def test_states_of_old_baselines_do_not_heap_up(tmp_path):
    for number in range(20):
        with Events(tmp_path / "e.db", baseline=f"{number}") as events:
            events.add([], {"number": number})
    with Events(tmp_path / "e.db", baseline="19") as events:
        assert events.state() == {"number": 19}
        assert events._connection.execute("SELECT count(*) FROM state").fetchone()[0] <= 16
    with Events(tmp_path / "e.db", baseline="0") as events:
        assert events.state() == {}


def test_a_full_disk_keeps_events_in_memory_until_there_is_room(tmp_path):
    with Events(tmp_path / "e.db") as events:
        events.add([event()])
        pages = events._connection.execute("PRAGMA page_count").fetchone()[0]
        events._connection.execute(f"PRAGMA max_page_count = {pages}")
        large = [event(details={"reasons": ["x" * 5000]}) for _ in range(3)]
        assert events.add(large) == [None] * 3
        assert "full" in events.trouble and events.pending == 3
        assert events.add([event()]) == [None] and events.pending == 4
        events._connection.execute("PRAGMA max_page_count = 1000000")
        assert events.add([event("alarm")]) == [6]
        assert events.trouble is None and events.pending == 0 and events.lost == 0
        assert [one.kind for one in events.select()] == ["strange"] * 5 + ["alarm"]


def test_what_waits_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PENDING", 5)
    with Events(tmp_path / "e.db") as events:
        events._connection.execute("PRAGMA query_only = 1")
        events.add([event(texts=number) for number in range(8)])
        assert events.pending == 5 and events.lost == 3
        events._connection.execute("PRAGMA query_only = 0")
        events.add([])
        assert [one.texts for one in events.select()] == [3, 4, 5, 6, 7]


WRITER = """
import sys, time
from frostline.serving.events import Event, Events
events = Events(sys.argv[1])
while True:
    for number in events.add([Event("strange", 1, time.time(), details={"reasons": ["x" * 300]})] * 3):
        print(number, flush=True)
"""


@pytest.mark.parametrize("after", [0.05, 0.2, 0.4])
def test_no_acknowledged_event_is_lost_by_kill_9(tmp_path, after):
    writing = [sys.executable, "-c", WRITER, tmp_path / "e.db"]
    with subprocess.Popen(writing, stdout=subprocess.PIPE, text=True) as writer:
        writer.stdout.readline()
        time.sleep(after)
        writer.send_signal(signal.SIGKILL)
        said = {1} | {int(line) for line in writer.stdout.read().splitlines() if line}
    with Events(tmp_path / "e.db") as events:
        stored = {one.id for one in events.select()}
    assert len(said) > 2 and said <= stored


def test_one_process_at_a_time_but_anybody_may_read(tmp_path):
    with Events(tmp_path / "e.db") as events:
        events.add([event()])
        with pytest.raises(BadParameter, match="in use by another"):
            Events(tmp_path / "e.db")
        reader = connect(tmp_path / "e.db")
        assert [one.id for one in select(reader)] == [1]
        reader.close()


def test_files_that_are_not_ours_are_refused_and_not_touched(tmp_path):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE precious (x)")
    connection.close()
    other = tmp_path / "other.db"
    with Events(other) as events:
        events.add([event()])
    with sqlite3.connect(other) as connection:  # sound, and with a table like ours, but of another program
        connection.execute("PRAGMA application_id = 7")
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to be taken for one" * 20)
    newer = tmp_path / "newer.db"
    Events(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    refused = {
        foreign: "not an event file",
        other: "not an event file",
        text: "cannot be used",
        newer: "newer",
    }
    names = sorted(tmp_path.iterdir())
    for path, said in refused.items():
        before = path.read_bytes()
        with pytest.raises(BadParameter, match=said):
            Events(path)
        assert path.read_bytes() == before and sorted(tmp_path.iterdir()) == names
    for path in (tmp_path, tmp_path / "no" / "e.db"):
        with pytest.raises(BadParameter, match="give a file"):
            Events(path)
    with pytest.raises(BadParameter, match="there is no event file"):
        connect(tmp_path / "none.db")
    for settings in ({"keep": 0}, {"days": 0.0}, {"days": float("nan")}):
        with pytest.raises(BadParameter, match="above zero"):
            Events(tmp_path / "e.db", **settings)


def test_a_file_that_is_deleted_or_replaced_is_opened_anew(tmp_path):
    path = tmp_path / "e.db"
    with Events(path) as events:
        assert events.add([event()]) == [1]
        for left in tmp_path.glob("e.db*"):
            if not left.name.endswith("lock"):
                left.unlink()
        assert events.add([event("alarm")]) == [1] and events.trouble is None
        assert [one.kind for one in events.select()] == ["alarm"]
        (tmp_path / "text").write_text("not a database at all" * 100)
        (tmp_path / "text").rename(path)
        assert events.add([event()]) == [None] and "cannot be used" in events.trouble
        assert events.select() == [] and events.trouble
        path.unlink()
        assert events.add([event("clear")]) == [2] and [one.kind for one in events.select()] == ["strange", "clear"]
        assert oct((tmp_path / "e.db.lock").stat().st_mode & 0o777) == "0o600"
    assert {left.name for left in tmp_path.iterdir()} == {"e.db"}


def test_links_lead_to_the_same_lock(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "e.db")
    with Events(tmp_path / "e.db"), pytest.raises(BadParameter, match="in use by another"):
        Events(tmp_path / "link.db")
    assert oct((tmp_path / "e.db").stat().st_mode & 0o777) == "0o600"
