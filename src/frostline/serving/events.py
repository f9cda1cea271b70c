"""Events on disk: strange texts, alarms and their ends, in one SQLite file that survives kill -9.

An event whose number ``add`` returned is on the disk (WAL, synchronous=FULL). When the disk is full nothing is raised:
events wait in memory, up to a bound, and ``trouble`` has the error. The file belongs to one process at a time.
"""

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frostline.errors import BadParameter
from frostline.files.locks import try_lock
from frostline.log import LOG
from frostline.results import Result

FORMAT = 2
"""Number of the format of event files that this version writes."""
APPLICATION = 0x46524F53
"""SQLite's application id of event files: the letters "FROS"."""
KEPT = 100_000
"""Number of events that are kept, if nothing else is asked for."""
DAYS = 30.0
"""Days that events are kept, if nothing else is asked for."""
PENDING = 10_000
"""Largest number of events that wait in memory while they cannot be written."""
PRUNED_EVERY = 500
"""Number of written events after which old ones are deleted."""
LOCK_SECONDS = 5
"""Seconds to wait for another process that holds the file."""
KINDS = ("strange", "alarm", "clear", "start", "stop")
"""Kinds of events."""
MIGRATIONS = {1: "ALTER TABLE events ADD COLUMN replica TEXT NOT NULL DEFAULT '';"}
"""SQL that brings a file of one format to the next."""
COLUMNS = "time, kind, texts, p_value, score, level, details, text, replica"
"""Columns of an event, beside its number."""
_TABLES = """
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, texts INTEGER NOT NULL,
  p_value REAL, score REAL, level REAL, details TEXT NOT NULL, text TEXT, replica TEXT NOT NULL DEFAULT ''
);
CREATE INDEX events_by_time ON events (time);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, repr=False)
class Event(Result):
    """An event of a stream of texts.

    texts    number of texts that the stream had seen
    time     seconds since 1970
    text     the text itself, only where the service was told to store texts
    replica  name of the service, where there are several
    id       number in the event file, once it is there
    """

    kind: str
    texts: int
    time: float
    p_value: float | None = None
    score: float | None = None
    level: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    replica: str = ""
    id: int | None = None

    def describe(self) -> str:
        """The kind, and when in the stream the event was."""
        return f"{self.kind} after {self.texts} texts"


class Events:
    """An event file, opened for writing. Use as a context manager, or call ``close``."""

    def __init__(self, path: str | Path, *, keep: int = KEPT, days: float = DAYS):
        if keep < 1 or not days > 0:
            raise BadParameter(f"{keep} events and {days:g} days are to be kept; both are above zero.")
        # One file has one lock, whatever links lead to it.
        self.path, self.keep, self.days = Path(path).resolve(), keep, days
        self.trouble: str | None = None
        self.lost = 0
        """Number of events that could neither be written nor wait in memory."""
        self._pending: deque[Event] = deque()
        self._lock = threading.RLock()
        self._since_pruned = 0
        if not self.path.absolute().parent.is_dir() or self.path.is_dir():
            raise BadParameter(f"events cannot be kept in {self.path}; give a file in a folder that is there.")
        self._claim = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # held until close
        if not try_lock(self._claim):
            os.close(self._claim)
            raise BadParameter(f"{self.path} is in use by another frostline; each needs an event file of its own.")
        try:
            self._open()
        except BaseException:
            os.close(self._claim)
            raise
        self.prune()

    def add(self, events: Sequence[Event], state: Mapping[str, Any] | None = None) -> list[int | None]:
        """Write events and the state of the stream; returns their numbers, None for events that wait in memory."""
        with self._lock:
            waiting = [*self._pending, *events]
            try:
                if self._gone():
                    self._connection.close()
                    for ending in ("-wal", "-shm"):  # left of the old file: SQLite would use them for the new one
                        Path(f"{self.path}{ending}").unlink(missing_ok=True)
                    self._open()
                with self._connection as connection:
                    numbers = [_insert(connection, event) for event in waiting]
                    if state is not None:
                        _put(connection, "stream", state)
            except (sqlite3.Error, BadParameter, OSError) as error:
                if self.trouble is None:
                    LOG.error("events are not stored: %s; they wait in memory", error)
                self.trouble = f"events are not stored: {error}"
                self._pending.extend(events)
                while len(self._pending) > PENDING:
                    self._pending.popleft()
                    self.lost += 1
                return [None] * len(events)
            if self.trouble is not None:
                LOG.warning("events are stored again")
            self.trouble = None
            self._pending.clear()
            self._since_pruned += len(waiting)
            if self._since_pruned >= PRUNED_EVERY:
                self.prune()
            return list(numbers[len(waiting) - len(events) :])

    def _open(self) -> None:
        # Only the owner may read the file: it may hold texts.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._connection = connect(self.path, write=True)
        self._inode = self.path.stat().st_ino

    def _gone(self) -> bool:
        """True when the file was deleted or replaced: SQLite would go on writing into the old one."""
        return not self.path.exists() or self.path.stat().st_ino != self._inode

    @property
    def pending(self) -> int:
        """Number of events that wait in memory."""
        return len(self._pending)

    def state(self) -> dict[str, Any]:
        """The state of the stream when it was last written."""
        with self._lock:
            row = self._connection.execute("SELECT value FROM state WHERE name = 'stream'").fetchone()
        try:
            state = json.loads(row[0]) if row else {}
        except ValueError:
            return {}
        return state if isinstance(state, dict) else {}

    def select(self, **conditions: Any) -> list[Event]:
        """Events on the disk; none while the file cannot be read, and then ``trouble`` has the error."""
        with self._lock:
            try:
                return list(select(self._connection, **conditions))
            except sqlite3.Error as error:
                self.trouble = f"events cannot be read: {error}"
                return []

    def prune(self) -> None:
        """Delete events that are too old or too many."""
        with self._lock, contextlib.suppress(sqlite3.Error), self._connection as connection:
            self._since_pruned = 0
            connection.execute("DELETE FROM events WHERE time < ?", (time.time() - 86400 * self.days,))
            connection.execute(
                "DELETE FROM events WHERE id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET ?)", (self.keep,)
            )

    def close(self) -> None:
        """Close the file and let other processes use it."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._connection.close()
        os.close(self._claim)

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Open an event file; one that is only read must exist. Raises BadParameter for other kinds of files."""
    if not write and not path.is_file():
        raise BadParameter(f"there is no event file {path}; frostline serve --events {path} makes one.")
    try:
        connection = sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False)
        try:
            _prepare(connection, path, write=write)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise BadParameter(f"{path} cannot be used as an event file ({error}); give another one.") from None
    return connection


def select(
    connection: sqlite3.Connection,
    *,
    after: int = 0,
    since: float = 0.0,
    kind: str | None = None,
    newest: bool = False,
    limit: int | None = None,
) -> Iterator[Event]:
    """Events with numbers above ``after``, not before ``since`` (seconds since 1970), oldest or newest first."""
    query = f"SELECT id, {COLUMNS} FROM events WHERE id > ? AND time >= ?"
    values: list[Any] = [after, since]
    if kind is not None:
        query, values = query + " AND kind = ?", [*values, kind]
    rows = connection.execute(
        f"{query} ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?", [*values, -1 if limit is None else limit]
    )
    for number, when, kind_of_row, texts, p_value, score, level, details, text, replica in rows:
        with contextlib.suppress(ValueError):  # a row that another program has written
            yield Event(kind_of_row, texts, when, p_value, score, level, json.loads(details), text, replica, number)


def _prepare(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    format = connection.execute("PRAGMA user_version").fetchone()[0]
    ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not ours and not (empty and write):
        raise BadParameter(f"{path} is not an event file of frostline; give another one.")
    if not empty and not set(connection.execute("SELECT name FROM sqlite_master")) >= {("events",), ("state",)}:
        raise BadParameter(f"{path} is damaged: it has no table of events; give another file.")
    if format > FORMAT:
        raise BadParameter(
            f"{path} was written by a newer frostline (format {format}, this one reads {FORMAT}); update."
        )
    if not write:
        if format < FORMAT:
            raise BadParameter(f"{path} has format {format}; frostline serve --events {path} brings it to {FORMAT}.")
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # One transaction: at any time a file is either of one format or of the next.
    steps = [_TABLES] if empty else [MIGRATIONS[number] for number in range(format, FORMAT)]
    if steps:
        connection.executescript(
            f"BEGIN;{''.join(steps)}PRAGMA application_id = {APPLICATION};PRAGMA user_version = {FORMAT};COMMIT;"
        )


def _insert(connection: sqlite3.Connection, event: Event) -> int | None:
    return connection.execute(
        f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.time,
            event.kind,
            event.texts,
            event.p_value,
            event.score,
            event.level,
            json.dumps(dict(event.details), ensure_ascii=False),
            event.text,
            event.replica,
        ),
    ).lastrowid


def _put(connection: sqlite3.Connection, name: str, value: Mapping[str, Any]) -> None:
    connection.execute("INSERT OR REPLACE INTO state (name, value) VALUES (?, ?)", (name, json.dumps(dict(value))))
