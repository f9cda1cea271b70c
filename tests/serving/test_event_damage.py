"""Damaged event files: put aside and kept, read as far as they can be; files of others stay where they are."""

import os
import sqlite3
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from frostline.cli import main
from frostline.errors import BadParameter
from frostline.serving import quarantine
from frostline.serving.event_file import connect
from frostline.serving.events import Event, Events
from frostline.serving.salvage import salvage
from frostline.serving.stored_events import read_events
from tests.serving.conftest import serving
from tests.serving.damage import PAGE, TIME, overwrite, write_events
from tests.serving.process import RUN, process
from tests.serving.test_process import serve_each

ALL = set(range(1, 401))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "e.db"
    write_events(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A main file and a write-ahead log with all the events, as a killed process leaves them."""
    path = tmp_path_factory.mktemp("logged") / "e.db"
    write_events(path, killed=True)
    return path.read_bytes(), (path.parent / "e.db-wal").read_bytes()


def check_put_aside(path, *, before):
    """A service starts on a damaged file: it keeps the file as it is, begins a new one and says so."""
    with Events(path) as events:
        assert "damaged" in events.damage and f"{path.name}.damaged-1" in events.damage and events.trouble is None
        assert events.select() == [] and events.state() == {}
        assert events.add([Event("start", 1, TIME)]) == [1]
    kept = {name[len("e.db.damaged-1") :]: content for name, content in contents(path.parent).items() if "-1" in name}
    assert kept == {name[len("e.db") :]: content for name, content in before.items()}
    assert path.exists() and not path.with_name("e.db.lock").exists()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_any_page_may_be_damaged(tmp_path, sound, rng):
    pages = len(sound) // PAGE
    for number in (*range(4), *rng.choice(pages, 12, replace=False)):
        folder = tmp_path / f"{number}"
        folder.mkdir(exist_ok=True)
        path = folder / "e.db"
        path.write_bytes(sound)
        overwrite(path, rng, number)
        before = contents(folder)
        stored = read_events(path)
        assert {event.id for event in stored.events} <= ALL and len(stored.events) > 300
        check_put_aside(path, before=before)
        again = read_events(folder / "e.db.damaged-1")
        assert again.events == stored.events
        for old in folder.iterdir():
            old.unlink()


@pytest.mark.parametrize("size", [100, 5000, 3 * PAGE, -PAGE])
def test_a_file_that_is_cut_off(tmp_path, sound, size):
    path = tmp_path / "e.db"
    path.write_bytes(sound[:size])
    check_put_aside(path, before=contents(tmp_path))


def test_what_is_lost_is_counted(tmp_path, sound, rng):
    path = tmp_path / "e.db"
    lost = []
    for number in range(5, len(sound) // PAGE, 17):
        path.write_bytes(sound)
        overwrite(path, rng, number)
        saved = salvage(path)
        read = {event.id for event in saved.events}
        lost.append(len(ALL - read))
        # Two indexes name the events: one damaged page cannot hide any.
        assert saved.lost == lost[-1]
        assert all(event.details["note"].strip("x") == "" and event.texts == event.id - 1 for event in saved.events)
    assert max(lost) > 3


def test_a_damaged_log(tmp_path, logged, rng):
    main_file, log = logged
    path, beside = tmp_path / "e.db", tmp_path / "e.db-wal"
    for place in (0, 5, len(log) // PAGE // 2):
        for old in tmp_path.iterdir():
            old.unlink()
        path.write_bytes(main_file)
        beside.write_bytes(log)
        overwrite(beside, rng, place)
        before = contents(tmp_path)
        stored = read_events(path)
        assert len(stored.events) > 350 and "damaged" in stored.damage
        check_put_aside(path, before=before)


def test_an_empty_file_with_events_in_its_log(tmp_path, logged):
    path = tmp_path / "e.db"
    path.write_bytes(b"")
    (tmp_path / "e.db-wal").write_bytes(logged[1])
    before = contents(tmp_path)
    assert {event.id for event in read_events(path).events} == ALL
    assert contents(tmp_path) == before
    check_put_aside(path, before=before)


def test_a_log_whose_last_transaction_is_torn_is_no_damage(tmp_path, logged):
    """Where power failed, nobody was told that the last transaction is on the disk."""
    path = tmp_path / "e.db"
    path.write_bytes(logged[0])
    (tmp_path / "e.db-wal").write_bytes(logged[1][:-100] + b"\0" * 100)
    with Events(path) as events:
        assert events.damage is None and len(events.select()) >= 380


def test_files_put_aside_do_not_replace_each_other(tmp_path, sound, rng):
    path = tmp_path / "e.db"
    for number in (1, 2, 3):
        path.write_bytes(sound)
        overwrite(path, rng, number)
        with Events(path) as events:
            assert f"e.db.damaged-{number}" in events.damage
    assert len(list(tmp_path.glob("e.db.damaged-?"))) == 3


def test_a_file_without_its_tables_is_put_aside(tmp_path, sound):
    path = tmp_path / "e.db"
    for sql in ("DROP TABLE events", "DROP TABLE state", "ALTER TABLE events RENAME COLUMN source TO sender"):
        path.write_bytes(sound)
        with sqlite3.connect(path) as connection:
            connection.execute(sql)
        connection.close()
        with Events(path) as events:
            assert "table of" in events.damage and events.add([Event("start", 1, TIME)]) == [1]


@pytest.mark.parametrize("version", [0, -5])
def test_a_file_of_no_format_is_put_aside(tmp_path, sound, version):
    path = tmp_path / "e.db"
    path.write_bytes(sound)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with Events(path) as events:
        assert events.damage and events.add([Event("start", 1, TIME)]) == [1]


def test_where_it_cannot_be_put_aside_it_is_refused(tmp_path, sound, rng, monkeypatch):
    path = tmp_path / "e.db"
    path.write_bytes(sound)
    overwrite(path, rng, 1)
    before = contents(tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Read-only file system")

    monkeypatch.setattr(quarantine.os, "rename", refuse)
    with pytest.raises(BadParameter, match="cannot be put aside"):
        Events(path)
    assert contents(tmp_path) == before


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Read-only file system")

    monkeypatch.setattr("frostline.serving.events.take_lock_file", refuse)
    with pytest.raises(BadParameter, match="cannot be kept in"):
        Events(tmp_path / "e.db")


def check_goes_on(path, events):
    """After damage that is met while it runs, a service writes into a new file."""
    assert "damaged-1" in events.damage and events.trouble is None and events.pending == 0
    assert events.add([Event("alarm", 1, TIME)], {"texts": 5})[0] is not None
    assert [event.kind for event in events.select()][-1] == "alarm" and events.state() == {"texts": 5}
    assert path.with_name("e.db.damaged-1").exists()


@pytest.mark.parametrize("meet", ["add", "select", "prune"])
def test_damage_while_a_service_runs(tmp_path, rng, meet, caplog):
    path = tmp_path / "e.db"
    write_events(path)
    with Events(path) as events:
        events._connection.execute("PRAGMA shrink_memory")  # or SQLite would not look at the pages again
        overwrite(path, rng, 1, path.stat().st_size // PAGE - 1)
        if meet == "add":
            for number in range(3):
                assert None not in events.add([Event("strange", number, TIME)] * 20, {"texts": 5})
        else:
            getattr(events, meet)()
        check_goes_on(path, events)
    assert "damaged" in caplog.text


def test_a_damaged_file_that_cannot_be_put_aside_while_a_service_runs(tmp_path, rng, monkeypatch):
    path = tmp_path / "e.db"
    write_events(path)
    with Events(path) as events:
        events._connection.execute("PRAGMA shrink_memory")  # or SQLite would not look at the pages again
        overwrite(path, rng, 1, path.stat().st_size // PAGE - 1)

        def refuse(*_):
            raise PermissionError(13, "Read-only file system")

        monkeypatch.setattr(quarantine.os, "rename", refuse)
        assert events.select() == [] and "cannot be put aside" in events.trouble
        assert events.add([Event("alarm", 1, TIME)]) == [None] and events.pending == 1
        monkeypatch.undo()
        assert events.add([Event("clear", 2, TIME)]) == [2]
        assert [event.kind for event in events.select()] == ["alarm", "clear"] and events.trouble is None
        check_goes_on(path, events)


def test_a_wrong_event_is_no_damage(tmp_path):
    with Events(tmp_path / "e.db") as events:
        events.add([Event("start", 1, TIME)])
        assert events.add([Event("strange", 1, float("nan"))]) == [None]
        assert events.damage is None and "NOT NULL" in events.trouble


OTHERS = {
    "text": b"not a database at all, but long enough to be taken for one\n" * 400,
    "begin": b"SQLite format 3\0",
    "zeros": bytes(3 * PAGE),
    "random": None,
    "short": b"x",
}


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_others_stay_where_they_are(tmp_path, rng, name):
    path = tmp_path / "e.db"
    path.write_bytes(rng.bytes(5 * PAGE) if OTHERS[name] is None else OTHERS[name])
    (tmp_path / "e.db-wal").write_bytes(b"a log of somebody else")
    before = contents(tmp_path)
    for use in (Events, connect, read_events):
        with pytest.raises(BadParameter):
            use(path)
    assert contents(tmp_path) == before


def test_a_damaged_database_of_others_stays_where_it_is(tmp_path, rng):
    path = tmp_path / "e.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE precious (x)")
        connection.executemany("INSERT INTO precious VALUES (?)", [("x" * 500,) for _ in range(100)])
    connection.close()
    sound = path.read_bytes()
    (tmp_path / "e.db-wal").write_bytes(b"a log of somebody else" * 1000)
    for place in (0, 1, 5):
        path.write_bytes(sound)
        overwrite(path, rng, place)
        before = contents(tmp_path)
        with pytest.raises(BadParameter):
            Events(path)
        assert contents(tmp_path) == before


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        for use in (Events, read_events):
            with pytest.raises(BadParameter):
                use(path)


def test_the_command_reads_what_can_be_read(tmp_path, sound, rng):
    path = tmp_path / "e.db"
    path.write_bytes(sound)
    overwrite(path, rng, 6, 3)
    for flags in ((), ("--json",), ("--csv",)):
        done = CliRunner().invoke(main, ["events", str(path), *flags])
        assert done.exit_code == 0 and done.stdout
        (said,) = done.stderr.splitlines()
        assert "is damaged" in said and "are lost" in said
    sources = CliRunner().invoke(main, ["events", str(path), "--csv", "--source", "source 3", "--kind", "strange"])
    assert 30 < len(sources.stdout.splitlines()) < 60


def test_a_service_scores_with_a_new_file(base, folder, tmp_path, sound, rng):
    path = tmp_path / "e.db"
    path.write_bytes(sound)
    overwrite(path, rng, 2, 2)
    with serving(base, folder, path) as client:
        client.score(["some text"])
        assert "damaged-1" in client.service.events.damage
        assert client.metrics()[("frostline_event_store_up",)] == 1


@pytest.mark.slow
def test_a_service_starts_on_a_damaged_file(frost, folder, tmp_path, sound, rng):
    path = tmp_path / "e.db"
    path.write_bytes(sound)
    overwrite(path, rng, 2, 2)
    with process(frost, folder, path) as client:
        client.score(["some text"])
        client.process.terminate()
        assert client.process.wait(60) == 0
        assert "kept as e.db.damaged-1" in client.process.stderr.readline()
    assert {left.name for left in tmp_path.iterdir()} == {"e.db", "e.db.damaged-1"}
    # Names that are too long to be made longer stand for a folder that cannot be written to.
    long = tmp_path / ("e" * 248)
    long.write_bytes((tmp_path / "e.db.damaged-1").read_bytes())
    ((code, lines),) = serve_each([(frost, "--model", folder, "--events", long)])
    assert code == 2 and len(lines) == 1 and "cannot be put aside" in lines[0]


def test_the_command_as_a_process(tmp_path, sound, rng):
    """No traceback, and exit code 2 where a file of others was given by mistake."""
    path = tmp_path / "e.db"
    path.write_bytes(sound)
    overwrite(path, rng, 0, 2)
    command = [sys.executable, "-c", RUN, "events", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr and "damaged" in done.stderr
    path.write_text("notes\n" * 4000)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
