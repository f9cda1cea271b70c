"""Events on disk: strange texts, alarms and their ends, in one SQLite file that survives kill -9.

An event whose number ``add`` returned is on the disk (WAL, synchronous=FULL). When the disk is full nothing is raised:
events wait in memory, up to a bound, and ``trouble`` has the error. A file that is damaged is put aside, and a new one
is begun. The file belongs to one process at a time.
"""

import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from frostline.errors import BadParameter
from frostline.files.locks import remove_lock_file, take_lock_file
from frostline.log import LOG
from frostline.serving import retention
from frostline.serving.event_file import (
    DamagedEvents,
    connect,
    create_private,
    find_damage,
    forget_old_states,
    insert,
    read_state,
    select,
    write_state,
)
from frostline.serving.event_rows import KINDS, Event
from frostline.serving.quarantine import put_aside
from frostline.serving.salvage import APPLICATION

__all__ = ["APPLICATION", "DAYS", "KEPT", "KINDS", "PENDING", "Event", "Events", "connect", "select"]

KEPT = 100_000
"""Number of events that are kept, if nothing else is asked for."""
DAYS = 30.0
"""Days that events are kept, if nothing else is asked for."""
PENDING = 10_000
"""Largest number of events that wait in memory while they cannot be written."""
PRUNED_EVERY = 500
"""Number of written events after which old ones are deleted."""
PRUNED_SECONDS = 3600.0
"""Seconds after which old events are deleted, and the clock is looked at, however few were written."""

T = TypeVar("T")


class Events:
    """An event file, opened for writing. Use as a context manager, or call ``close``.

    Parameters
    ----------
    path:
        The file. It is made if it is not there; one of an older format is brought up to date, one that is damaged is
        put aside.
    keep:
        Number of events that are kept; ``retention`` says how kinds share it. It holds after every ``add``.
    days:
        Days, counted back from the newest events, for which events are kept.
    baseline:
        First digits of the hash of the baseline whose state is read and written: an alarm of another baseline is never
        gone on with. Events without a baseline get this one.
    clock:
        Seconds since 1970.

    Raises
    ------
    BadParameter
        The file is of another kind, in use, or of a newer format; or it is damaged and cannot be put aside.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        keep: int = KEPT,
        days: float = DAYS,
        baseline: str = "",
        clock: Callable[[], float] = time.time,
    ):
        if keep < 1 or not days > 0:
            raise BadParameter(f"{keep} events and {days:g} days are to be kept; both are above zero.")
        # One file has one lock, whatever links lead to it.
        self.path, self.keep, self.days, self.baseline = Path(path).resolve(), keep, days, baseline
        self.trouble: str | None = None
        """Why events cannot be stored or read, while that lasts."""
        self.damage: str | None = None
        """The damage of a file that was put aside, and where it is kept."""
        self.lost = 0
        """Number of events that could neither be written nor wait in memory."""
        self._clock, self._rooms = clock, retention.Rooms(keep)
        self._pending: deque[Event] = deque()
        self._lock = threading.RLock()
        self._since_pruned, self._pruned_at = 0, 0.0
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._counts = Counter[str]()
        if not self.path.absolute().parent.is_dir() or (self.path.exists() and not self.path.is_file()):
            raise BadParameter(f"events cannot be kept in {self.path}; give a file in a folder that is there.")
        self._claim = self._take_claim()
        try:
            self._open()
            self._prune()
        except BaseException:
            self.close()
            raise

    def add(self, events: Sequence[Event], state: Mapping[str, Any] | None = None) -> list[int | None]:
        """Write events and the state of the stream; returns their numbers, None for events that wait in memory."""
        with self._lock:
            waiting = [*self._pending, *events]
            try:
                numbers = self._mending(lambda connection: self._write(connection, waiting, state))
            except (sqlite3.Error, BadParameter, OSError) as error:
                if self.trouble is None:
                    LOG.error("events are not stored: %s; they wait in memory", error)
                self.trouble = f"events are not stored: {error}"
                self._wait(waiting)
                return [None] * len(events)
            if self.trouble is not None:
                LOG.warning("events are stored again")
            self.trouble = None
            self._pending.clear()
            self._since_pruned += len(waiting)
            if self._since_pruned >= PRUNED_EVERY or abs(self._clock() - self._pruned_at) >= PRUNED_SECONDS:
                self.prune()
            return list(numbers[len(waiting) - len(events) :])

    @property
    def pending(self) -> int:
        """Number of events that wait in memory."""
        return len(self._pending)

    def state(self) -> dict[str, Any]:
        """The state of the stream, as it was last written for this baseline; empty if it never was."""
        with self._lock:
            return self._reading(lambda connection: read_state(connection, self._state_name()), {})

    def select(self, **conditions: Any) -> list[Event]:
        """Events on the disk; none while the file cannot be read, and then ``trouble`` has the error."""
        with self._lock:
            return self._reading(lambda connection: list(select(connection, **conditions)), [])

    def prune(self) -> None:
        """Delete events that are too old or too many, and states of baselines that were last used long ago."""
        with self._lock:
            try:
                self._prune()
            except (sqlite3.Error, BadParameter, OSError) as error:
                self.trouble = f"old events cannot be deleted: {error}"

    def close(self) -> None:
        """Close the file and let other processes use it."""
        with self._lock:
            self._disconnect()
            if self._claim is not None:
                remove_lock_file(Path(f"{self.path}.lock"), self._claim)
            self._claim = None

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_claim(self) -> int | None:
        try:
            claim = take_lock_file(Path(f"{self.path}.lock"))
        except OSError as error:
            raise BadParameter(f"events cannot be kept in {self.path} ({error.strerror}); give another file.") from None
        if claim is None:
            raise BadParameter(f"{self.path} is in use by another frostline; each needs an event file of its own.")
        return claim

    def _open(self) -> sqlite3.Connection:
        """Open the file; put it aside first if it is damaged."""
        self._disconnect()
        try:
            create_private(self.path)
            self._connection = connect(self.path, write=True)
        except DamagedEvents as damaged:
            self._put_aside(str(damaged))
            create_private(self.path)
            self._connection = connect(self.path, write=True)
        self._inode = self.path.stat().st_ino
        self._count()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                LOG.warning("the event file could not be closed: %s", error)

    def _opened(self) -> sqlite3.Connection:
        """The connection; a new one after the file was deleted or replaced, or could not be opened."""
        if self._claim is None:
            raise BadParameter(f"{self.path} is closed.")
        if self._connection is None:
            return self._open()
        if not self.path.exists() or self.path.stat().st_ino != self._inode:
            # SQLite would go on writing into the old file, and would use what is left of its log for the new one.
            self._disconnect()
            for ending in ("-wal", "-shm"):
                Path(f"{self.path}{ending}").unlink(missing_ok=True)
            return self._open()
        return self._connection

    def _mending(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Do something with the file; if the file turns out to be damaged, put it aside and do it with a new one."""
        connection = self._opened()
        try:
            return action(connection)
        except sqlite3.DatabaseError as error:
            damage = find_damage(connection, error)
            if damage is None:
                raise
            self._disconnect()
            self._put_aside(f"{self.path} is damaged ({damage})")
            return action(self._open())

    def _reading(self, action: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            return self._mending(action)
        except (sqlite3.Error, BadParameter, OSError) as error:
            self.trouble = f"events cannot be read: {error}"
            return otherwise

    def _put_aside(self, damage: str) -> None:
        aside = put_aside(self.path)
        self.damage = f"{damage.partition(';')[0].rstrip('.')}; it is kept as {aside.name}, and a new one was begun"
        LOG.error("%s", self.damage)

    def _write(
        self, connection: sqlite3.Connection, events: Sequence[Event], state: Mapping[str, Any] | None
    ) -> list[int | None]:
        counts = self._counts + Counter(event.kind for event in events)
        with connection:
            numbers = [insert(connection, event, self.baseline) for event in events]
            too_many = self._rooms.too_many(counts)
            retention.forget_kinds(connection, too_many)
            if state is not None:
                write_state(connection, self._state_name(), state)
        self._counts = counts - Counter(too_many)
        return numbers

    def _wait(self, events: Sequence[Event]) -> None:
        """Let events wait in memory; of too many the oldest are lost, kind by kind as on the disk."""
        too_many = retention.Rooms(PENDING).too_many(Counter(event.kind for event in events))
        self.lost += sum(too_many.values())
        self._pending.clear()
        for event in events:
            if too_many.get(event.kind, 0):
                too_many[event.kind] -= 1
            else:
                self._pending.append(event)

    def _prune(self) -> None:
        now = self._clock()
        self._since_pruned, self._pruned_at = 0, now

        def forget(connection: sqlite3.Connection) -> None:
            with connection:
                self._forget_aged(connection, now)
                forget_old_states(connection)
            self._count()
            too_many = self._rooms.too_many(self._counts)
            with connection:
                retention.forget_kinds(connection, too_many)
            self._counts -= Counter(too_many)

        self._mending(forget)

    def _forget_aged(self, connection: sqlite3.Connection, now: float) -> None:
        newest = retention.newest_time(connection)
        before = retention.read_clock(connection) or retention.ClockRecord(now, now)
        record = before.at(now, newest)
        if record.since > before.since:
            LOG.warning("the clock stepped or rested; for a day no event is deleted for its age")
        if newest is not None and record.allows(self.days):
            retention.forget_aged(connection, min(now, newest) - self.days * retention.DAY)
            record = replace(record, acted=now)
        retention.write_clock(connection, record)

    def _count(self) -> None:
        if self._connection is not None:
            self._counts = Counter(dict(self._connection.execute("SELECT kind, count(*) FROM events GROUP BY kind")))

    def _state_name(self) -> str:
        # Files up to format 2 had one state for all baselines; whoever names none goes on with it.
        return f"stream of {self.baseline}" if self.baseline else "stream"
