"""Retention: which events an event file forgets, by their number and by their age.

Number. Every kind has a room: each kind but "strange" a sixteenth of the events that are kept (at least one), "strange"
the rest, which is a half. A kind may use what others leave free. One event too many, and the kind that fills its room
most loses its oldest event, so the total is never above ``keep``; and as the rooms together are no more than ``keep``
(from ``keep`` = 9 on), only a kind that is above its own room ever loses one. However many strange texts arrive, the
last ``keep`` / 16 alarms stay.

Age. An event is compared with the newest events (the median time of the last few), not with the clock alone. The clock
is believed only after it has gone on evenly for a day; a step of it, or a long pause, starts that day anew. Then at
most a tenth of the events is deleted at once, and the next tenth a thirtieth of the ``days`` later, after a day at
most: a clock that is wrong for good costs a tenth of the events a day, and the log says on the first day that it
stepped.
"""

import sqlite3
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from frostline.files.plain_json import finite_number
from frostline.results import Result
from frostline.serving.event_file import read_state, write_state
from frostline.serving.event_rows import KINDS

ORDINARY = "strange"
"""The kind of event that is ordinary: its room is what the other kinds leave."""
ROOM = 16
"""Each other kind may hold one in so many of the events that are kept, whatever else arrives."""
NEWEST = 25
"""Number of events whose median time is the newest time: fewer than half of them may have a wild time."""
CLOCK = "clock"
"""Name of the record of the clock in the table of states."""
DAY = 86400.0
"""Seconds of a day."""
SETTLING = DAY
"""Seconds for which the clock has to go on evenly before events are deleted for their age."""
FORWARD = 2 * DAY
"""Seconds between two looks at the clock that are a step of the clock, or a long pause, and no even going on."""
BACK = 300.0
"""Seconds that the clock may go back without being called uneven."""
PART = 1 / 30
"""Part of the time for which events are kept that lies between two deletions for their age, up to a day."""
SHARE = 10
"""For their age at most one in so many events is deleted at once, at least one."""


class Rooms:
    """The rooms of the kinds among ``keep`` events."""

    def __init__(self, keep: int):
        self.keep = keep

    def room(self, kind: str) -> int:
        """Number of events of a kind that no other kind can push out."""
        others = max(1, self.keep // ROOM)
        return max(1, self.keep - others * (len(KINDS) - 1)) if kind == ORDINARY else others

    def too_many(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Number of the oldest events of each kind to forget, so that ``keep`` are left."""
        left, rooms = dict(counts), {kind: self.room(kind) for kind in counts}
        for _ in range(sum(counts.values()) - self.keep):
            fullest = max(left, key=lambda kind: (left[kind] / rooms[kind], kind == ORDINARY))
            left[fullest] -= 1
        return {kind: count - left[kind] for kind, count in counts.items() if count > left[kind]}


@dataclass(frozen=True, repr=False)
class ClockRecord(Result):
    """How long the clock has gone on evenly. All times are its own, in seconds since 1970.

    since  time from which it has
    seen   time of the last look at it
    acted  time when events were last deleted for their age
    """

    since: float
    seen: float
    acted: float = 0.0

    def at(self, now: float, newest: float | None) -> "ClockRecord":
        """The record after another look at the clock; ``newest`` is the time of the newest events."""
        is_even = self.seen - BACK <= now <= self.seen + FORWARD and (newest is None or newest <= now + BACK)
        return ClockRecord(self.since if is_even else now, now, min(self.acted, now))

    def allows(self, days: float) -> bool:
        """Whether events may be deleted now because they are older than these days."""
        return self.seen - self.since >= SETTLING and self.seen - self.acted >= min(days * PART, 1.0) * DAY

    def describe(self) -> str:
        """For how long the clock has gone on evenly."""
        return f"the clock has gone on evenly for {(self.seen - self.since) / 3600:.1f} hours"


def read_clock(connection: sqlite3.Connection) -> ClockRecord | None:
    """The record of the clock in an event file; None in one that has none yet."""
    state = read_state(connection, CLOCK)
    times = [state.get(name) for name in ("since", "seen", "acted")]
    numbers = [number for time in times if (number := finite_number(time)) is not None]
    return ClockRecord(*numbers) if len(numbers) == len(times) else None


def write_clock(connection: sqlite3.Connection, record: ClockRecord) -> None:
    """Write the record of the clock into an event file."""
    write_state(connection, CLOCK, record.facts())


def newest_time(connection: sqlite3.Connection) -> float | None:
    """The median time of the newest events by number; None where there are none."""
    rows = connection.execute("SELECT time FROM events ORDER BY id DESC LIMIT ?", (NEWEST,)).fetchall()
    times = [time for (time,) in rows if isinstance(time, int | float)]
    return statistics.median(times) if times else None


def forget_aged(connection: sqlite3.Connection, before: float) -> int:
    """Delete the oldest events of before a time, at most one in ``SHARE``; returns their number.

    As many events as there are with such a time are old, and they are the first by number: a time long ago on a late
    event is wild, and its event stays.
    """
    (old,) = connection.execute("SELECT count(*) FROM events WHERE time < ?", (before,)).fetchone()
    (total,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return connection.execute(
        "DELETE FROM events WHERE id IN (SELECT id FROM (SELECT id, time FROM events ORDER BY id LIMIT ?)"
        " WHERE time < ? ORDER BY id LIMIT ?)",
        (old, before, max(1, total // SHARE)),
    ).rowcount


def forget_kinds(connection: sqlite3.Connection, numbers: Mapping[str, int]) -> None:
    """Delete the oldest events of each kind, as many as ``numbers`` says."""
    for kind, number in numbers.items():
        connection.execute(
            "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE kind = ? ORDER BY id LIMIT ?)", (kind, number)
        )
