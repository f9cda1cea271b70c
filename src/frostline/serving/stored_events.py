"""Stored events, read from an event file that may be damaged or in use by a service."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from frostline.errors import BadParameter
from frostline.results import Result
from frostline.serving.event_file import DamagedEvents, connect, find_damage, select
from frostline.serving.event_rows import Event
from frostline.serving.salvage import salvage


@dataclass(frozen=True, repr=False)
class StoredEvents(Result):
    """Events of a file that meet some conditions.

    damage  a sentence about what is lost where the file is damaged, else None
    """

    events: tuple[Event, ...]
    damage: str | None = None

    def describe(self) -> str:
        """How many events were read, or what is lost."""
        return self.damage or f"{len(self.events)} events"


def read_events(
    path: Path,
    *,
    kind: str | None = None,
    since: float = 0.0,
    source: str | None = None,
    newest: bool = False,
    limit: int | None = None,
) -> StoredEvents:
    """Read events, oldest or newest first; of a damaged file those that can be read.

    Raises
    ------
    BadParameter
        There is no such file, or it is of another kind or of a newer format.
    """
    try:
        connection = connect(path)
        try:
            # The whole file is checked: events that are asked for may be sound, and others lost.
            if find_damage(connection) is None:
                selected = select(connection, kind=kind, since=since, source=source, newest=newest, limit=limit)
                return StoredEvents(tuple(selected))
        except sqlite3.DatabaseError as error:
            if find_damage(connection, error) is None:
                raise BadParameter(f"{path} cannot be read ({error}); try again.") from None
        finally:
            connection.close()
    except DamagedEvents:
        pass
    saved = salvage(path)
    chosen = [
        event
        for event in saved.events
        if event.time >= since and kind in (None, event.kind) and source in (None, event.source)
    ]
    chosen = (chosen[::-1] if newest else chosen)[:limit]
    return StoredEvents(tuple(chosen), f"{path} is damaged: {saved.describe()}.")
