"""The event file: one SQLite file, its format, how it is opened, checked and read."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from frostline.errors import BadParameter
from frostline.serving.event_rows import COLUMNS, Event, columns_of, event_of, row_of
from frostline.serving.salvage import APPLICATION, is_event_file
from frostline.serving.sqlite_pages import HEADER, MAGIC, lost_transactions

FORMAT = 3
"""Number of the format of event files that this version writes."""
LOCK_SECONDS = 5
"""Seconds to wait for another process that holds the file."""
MIGRATIONS = {
    1: "ALTER TABLE events ADD COLUMN replica TEXT NOT NULL DEFAULT '';",
    2: "ALTER TABLE events ADD COLUMN source TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE events ADD COLUMN text_id TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE events ADD COLUMN baseline TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX events_by_kind ON events (kind);",
}
"""SQL that brings a file of one format to the next."""
LARGEST_PAGE = 65536
"""Bytes of the largest page of an SQLite file."""
STATES = 16
"""Number of baselines whose states are kept, those written last."""
NO_DAMAGE = {3, 5, 6, 7, 8, 9, 10, 13, 14, 15, 21, 23}
"""SQLite's codes of errors that say nothing about the file: no permission, busy, a full disk, no memory …"""
SURE_DAMAGE = {11, 26, 522}
"""SQLite's codes of errors that say that a file is damaged: corrupt, no database, a page that is cut off."""
_TABLES = """
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, texts INTEGER NOT NULL,
  p_value REAL, score REAL, level REAL, details TEXT NOT NULL, text TEXT, replica TEXT NOT NULL DEFAULT '',
  source TEXT NOT NULL DEFAULT '', text_id TEXT NOT NULL DEFAULT '', baseline TEXT NOT NULL DEFAULT ''
);
CREATE INDEX events_by_time ON events (time);
CREATE INDEX events_by_kind ON events (kind);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class DamagedEvents(BadParameter):
    """A file was an event file and can no longer be used as one."""


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Open an event file; one that is only read must exist, and may be of an older format.

    Raises
    ------
    DamagedEvents
        It was an event file. ``salvage`` reads what can be read.
    BadParameter
        It is another kind of file, or of a newer format.
    """
    if not write and not path.is_file():
        raise BadParameter(f"there is no event file {path}; frostline serve --events {path} makes one.")
    try:
        _refuse_other_bytes(path)
        connection = sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False)
        # A damaged text must not hide the sound ones around it.
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            _prepare(connection, path, write=write)
        except BaseException as error:
            damage = find_damage(connection, error) if isinstance(error, sqlite3.Error) else None
            connection.close()
            if damage and is_event_file(path):
                raise DamagedEvents(f"{path} is damaged ({damage}); frostline events shows what can be read.") from None
            raise
    except (sqlite3.Error, OSError) as error:
        raise BadParameter(f"{path} cannot be used as an event file ({error}); give another one.") from None
    return connection


def find_damage(connection: sqlite3.Connection, error: sqlite3.Error | None = None) -> str | None:
    """The damage of an event file in words, or None; ``error`` is why one looks for it."""
    code = getattr(error, "sqlite_errorcode", None)
    if code in SURE_DAMAGE or (code or 0) & 0xFF in SURE_DAMAGE:
        return str(error)
    if error is not None and (code is None or code & 0xFF in NO_DAMAGE):
        return None
    return _wrong_tables(connection) or _wrong_pages(connection)


def select(
    connection: sqlite3.Connection,
    *,
    after: int = 0,
    since: float = 0.0,
    kind: str | None = None,
    source: str | None = None,
    newest: bool = False,
    limit: int | None = None,
) -> Iterator[Event]:
    """Events with numbers above ``after``, not before ``since`` (seconds since 1970), oldest or newest first."""
    format = connection.execute("PRAGMA user_version").fetchone()[0]
    query = f"SELECT id, {', '.join(columns_of(format))} FROM events WHERE id > ? AND time >= ?"
    values: list[Any] = [after, since]
    if kind is not None:
        query, values = f"{query} AND kind = ?", [*values, kind]
    if source is not None:
        # A file of an older format knows no sources: all of them are empty there.
        column = "source" if format >= 3 else "''"
        query, values = f"{query} AND {column} = ?", [*values, source]
    query = f"{query} ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?"
    for number, *row in connection.execute(query, [*values, -1 if limit is None else limit]):
        event = event_of(number, row)
        if event is not None:  # a row that another program has written
            yield event


def create_private(path: Path) -> None:
    """Make the file if it is not there. Only the owner may read it: it may hold texts."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def insert(connection: sqlite3.Connection, event: Event, baseline: str = "") -> int | None:
    """Write one event, of this baseline if it names none; returns its number."""
    row = row_of(event if event.baseline else replace(event, baseline=baseline))
    places = ", ".join("?" * len(COLUMNS))
    return connection.execute(f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({places})", row).lastrowid


def write_state(connection: sqlite3.Connection, name: str, state: Mapping[str, Any]) -> None:
    """Write what goes under a name in the table of states; it becomes the newest of them."""
    connection.execute("INSERT OR REPLACE INTO state (name, value) VALUES (?, ?)", (name, json.dumps(dict(state))))


def read_state(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    """The values written under a name in the table of states; none if that is no table of values."""
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        state = json.loads(row[0]) if row else {}
        return state if isinstance(state, dict) else {}
    return {}


def forget_old_states(connection: sqlite3.Connection) -> None:
    """Delete states of baselines that were last written long ago."""
    connection.execute(
        "DELETE FROM state WHERE rowid NOT IN (SELECT rowid FROM state ORDER BY rowid DESC LIMIT ?)", (STATES,)
    )


def _refuse_other_bytes(path: Path) -> None:
    """Refuse what is no event file before SQLite looks at it, which may remove a log, or copy one into its file."""
    if path.exists() and not path.is_file():
        raise BadParameter(f"events cannot be kept in {path}; give a file in a folder that is there.")
    with open(path, "rb") as file:
        begin, size = file.read(HEADER), path.stat().st_size
    is_database = begin[: len(MAGIC)] == MAGIC and len(begin) == HEADER
    log, says = Path(f"{path}-wal"), None
    if begin and not is_database:
        says = "its first page is gone"
    elif log.is_file() and log.stat().st_size:
        lost = lost_transactions(path)
        says = f"{lost} transactions in its log cannot be used" if lost else None
        says = says if begin else "it is empty, but its log is not"
    # What has more than one page was once begun by a program, which wrote its application id.
    if (says or size > LARGEST_PAGE) and not is_event_file(path):
        if begin and not is_database:
            raise BadParameter(f"{path} cannot be used as an event file (file is not a database); give another one.")
        if size:
            raise BadParameter(f"{path} is not an event file of frostline; give another one.")
    elif says:
        raise DamagedEvents(f"{path} is damaged ({says}); frostline events shows what can be read.")


def _wrong_tables(connection: sqlite3.Connection) -> str | None:
    """Which table or column an event file has not, in words."""
    try:
        format = connection.execute("PRAGMA user_version").fetchone()[0]
        if format < 1:
            return f"it has format {format}"
        for table, columns in (("events", ("id", *columns_of(format))), ("state", ("name", "value"))):
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            if not there.issuperset(columns):
                return f"it has no table of {table}" if not there else f"its table of {table} lacks columns"
    except sqlite3.DatabaseError as error:
        return find_damage(connection, error)
    return None


def _wrong_pages(connection: sqlite3.Connection) -> str | None:
    """The first page of an SQLite file that is damaged, in SQLite's words."""
    try:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        return None if code & 0xFF in NO_DAMAGE and code not in SURE_DAMAGE else str(error)
    return None if verdict == "ok" else " ".join(str(verdict).split())


def _prepare(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    format = connection.execute("PRAGMA user_version").fetchone()[0]
    is_ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    is_empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    damage = None
    if not is_ours and not (is_empty and write):
        # A sound file of another program is never ours, whatever is in it.
        damage = _wrong_pages(connection)
        if not damage or not is_event_file(path):
            raise BadParameter(f"{path} is not an event file of frostline; give another one.")
    elif format > FORMAT:
        raise BadParameter(
            f"{path} was written by a newer frostline (format {format}, this one reads {FORMAT}); update."
        )
    elif not (is_empty and write):
        damage = find_damage(connection) if write else _wrong_tables(connection)
    if damage:
        raise DamagedEvents(f"{path} is damaged ({damage}); frostline events shows what can be read.")
    if not write:
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # One transaction: at any time a file is either of one format or of the next.
    steps: Sequence[str] = [_TABLES] if is_empty else [MIGRATIONS[number] for number in range(format, FORMAT)]
    if steps:
        connection.executescript(
            f"BEGIN;{''.join(steps)}PRAGMA application_id = {APPLICATION};PRAGMA user_version = {FORMAT};COMMIT;"
        )
