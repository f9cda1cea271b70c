"""Salvage of a damaged event file: every event whose page can still be read."""

from dataclasses import dataclass
from pathlib import Path

from frostline.results import Result
from frostline.serving.event_rows import COLUMNS, FORMATS, KINDS, Event, columns_of, event_of
from frostline.serving.sqlite_pages import Pages

APPLICATION = 0x46524F53
"""SQLite's application id of event files: the letters "FROS"."""
LOOKED_AT = 4096
"""Largest number of pages in which events are looked for to tell whose a file is."""


@dataclass(frozen=True, repr=False)
class Salvage(Result):
    """Events of a damaged file, in the order of their numbers.

    lost  number of events that the file's indexes name and that cannot be read; more may be lost with the indexes
    """

    events: tuple[Event, ...]
    lost: int

    def describe(self) -> str:
        """How many events were read, and how many were not."""
        lost = f"at least {self.lost} are lost" if self.lost else "none is known to be lost"
        return f"{len(self.events)} events were read from it, {lost}"


def salvage(path: Path) -> Salvage:
    """Read what can be read of a damaged event file. Where its header is gone, deleted events may come back."""
    events, known = dict[int, Event](), set[int]()
    with Pages(path) as pages:
        for number, values in pages.records():
            event = None if number is None else _event(number, values)
            if event is not None and event.id is not None:
                events.setdefault(event.id, event)
            elif number is None and len(values) == 2 and isinstance(values[1], int):
                # An entry of the index by time or of that by kind; other indexes hold other words.
                by_time = isinstance(values[0], int | float)
                known.update(values[1:] if by_time or values[0] in KINDS else ())
    return Salvage(tuple(events[number] for number in sorted(events)), len(known - events.keys()))


def is_event_file(path: Path) -> bool:
    """Whether a file, however damaged, was an event file: by its application id, or by an event in it."""
    if not path.is_file():
        return False
    with Pages(path) as pages:
        if APPLICATION in pages.application_ids():
            return True
        return any(number is not None and _event(number, values) for number, values in pages.records(LOOKED_AT))


def _event(number: int, values: list) -> Event | None:
    # The first column is the number itself, which SQLite stores beside the row and not in it.
    widths = {1 + len(columns_of(format)) for format in FORMATS}
    if len(values) not in widths or values[0] is not None:
        return None
    return event_of(number, values[1 : 1 + len(COLUMNS)])
