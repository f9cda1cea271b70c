"""Backups of event files: consistent while a service writes, whole or not there, never over another file."""

import sqlite3
import threading

import pytest
from typer.testing import CliRunner

from frostline.cli import main
from frostline.errors import BadParameter
from frostline.serving import event_backup
from frostline.serving.event_backup import back_up
from frostline.serving.events import Event, Events
from frostline.serving.stored_events import read_events
from tests.serving.damage import TIME, overwrite, write_events


def test_a_backup_has_what_is_still_in_the_log(tmp_path):
    path, copy = tmp_path / "e.db", tmp_path / "copy.db"
    with Events(path, baseline="a") as events:
        events.add([Event("alarm", number, TIME) for number in range(50)], {"texts": 50})
        assert (tmp_path / "e.db-wal").stat().st_size > 4096
        assert back_up(path, copy) == 50
        assert events.add([Event("clear", 51, TIME)]) == [51]
    assert {left.name for left in tmp_path.iterdir()} == {"e.db", "copy.db"}
    assert oct(copy.stat().st_mode & 0o777) == "0o600"
    with Events(copy, baseline="a") as events:
        assert len(events.select()) == 50 and events.state() == {"texts": 50}


def test_a_backup_while_a_service_writes_is_consistent(tmp_path):
    path, stop = tmp_path / "e.db", threading.Event()
    with Events(path) as events:

        def write():
            while not stop.is_set():
                events.add([Event("strange", 1, TIME, details={"note": "x" * 2000})] * 3)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            counts = [back_up(path, tmp_path / f"{number}.db") for number in range(5)]
        finally:
            stop.set()
            writer.join()
        assert events.trouble is None
    # A transaction has three events: a copy has all of them or none.
    assert all(count % 3 == 0 for count in counts) and counts == sorted(counts)
    for number, count in enumerate(counts):
        assert [event.id for event in read_events(tmp_path / f"{number}.db").events] == list(range(1, count + 1))


def test_another_file_is_not_replaced_unless_asked_for(tmp_path):
    path, copy = tmp_path / "e.db", tmp_path / "copy.db"
    write_events(path, 20)
    copy.write_text("precious")
    with pytest.raises(BadParameter, match="--force"):
        back_up(path, copy)
    assert copy.read_text() == "precious" and {left.name for left in tmp_path.iterdir()} == {"e.db", "copy.db"}
    (tmp_path / "copy.db-wal").write_text("a log of the file that is replaced")
    assert back_up(path, copy, force=True) == 20
    assert {left.name for left in tmp_path.iterdir()} == {"e.db", "copy.db"}
    copy.unlink()
    (tmp_path / "copy.db-wal").write_text("a log of a file that is gone")
    with pytest.raises(BadParameter, match="--force"):
        back_up(path, copy)


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path, copy = tmp_path / "e.db", tmp_path / "copy.db"
    write_events(path, 20)
    monkeypatch.setattr(event_backup, "_copy", lambda *_: copy.write_text("precious"))
    with pytest.raises(BadParameter, match="--force"):
        back_up(path, copy)
    assert copy.read_text() == "precious"


def test_a_backup_that_cannot_be_made_leaves_nothing(tmp_path, rng):
    path = tmp_path / "e.db"
    write_events(path)
    (tmp_path / "link.db").symlink_to(path)
    for target in (path, tmp_path / "link.db", tmp_path, tmp_path / "no" / "copy.db"):
        with pytest.raises(BadParameter):
            back_up(path, target, force=True)
    with Events(tmp_path / "used.db"), pytest.raises(BadParameter, match="in use"):
        back_up(path, tmp_path / "used.db", force=True)
    overwrite(path, rng, 4, 3)
    with pytest.raises(BadParameter, match="cannot be copied"):
        back_up(path, tmp_path / "copy.db")
    with pytest.raises(BadParameter, match="there is no event file"):
        back_up(tmp_path / "none.db", tmp_path / "copy.db")
    assert {left.name for left in tmp_path.iterdir()} == {"e.db", "link.db", "used.db"}


def test_the_command(tmp_path):
    path, copy = tmp_path / "e.db", tmp_path / "copy.db"
    write_events(path, 20)

    def call(*words):
        return CliRunner().invoke(main, ["events", str(path), *map(str, words)])

    said = call("--backup", copy)
    assert said.exit_code == 0 and "20 events" in said.stdout
    for wrong in (("--backup", copy), ("--force",), ("--backup", tmp_path / "other.db", "--kind", "alarm")):
        assert call(*wrong).exit_code == 2, wrong
    assert '"events": 20' in call("--backup", copy, "--force", "--json").stdout
    with sqlite3.connect(copy) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
