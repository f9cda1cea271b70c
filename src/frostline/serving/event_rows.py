"""Events of a stream of texts, and the rows of a table that they are stored as."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frostline.files.plain_json import finite_number, plain
from frostline.results import Result

KINDS = ("strange", "alarm", "critical", "clear", "acknowledged", "reset", "maintenance", "start", "stop")
"""Kinds of events."""
FORMATS = {
    1: ("time", "kind", "texts", "p_value", "score", "level", "details", "text"),
    2: ("replica",),
    3: ("source", "text_id", "baseline"),
}
"""Columns that each format of event files added, beside the number of an event."""
COLUMNS = tuple(name for names in FORMATS.values() for name in names)
"""Columns of the newest format, in their order."""


@dataclass(frozen=True, repr=False)
class Event(Result):
    """An event of a stream of texts.

    texts     number of texts that the stream had seen
    time      seconds since 1970
    text      the text itself, only where the service was told to store texts
    replica   name of the service, where there are several
    source    who sent the text, as its sender says
    text_id   the sender's id of the text
    baseline  the first 12 digits of the hash of the baseline that the text was compared with
    id        number in the event file, once it is there
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
    source: str = ""
    text_id: str = ""
    baseline: str = ""
    id: int | None = None

    def describe(self) -> str:
        """The kind, and when in the stream the event was."""
        return f"{self.kind} after {self.texts} texts"


def columns_of(format: int) -> tuple[str, ...]:
    """Columns of an event in a file of this format."""
    return tuple(name for number, names in FORMATS.items() if number <= format for name in names)


def row_of(event: Event) -> tuple[Any, ...]:
    """Values of an event in the order of ``COLUMNS``; half characters, which no file holds, become question marks."""
    details = json.dumps(dict(event.details), ensure_ascii=False)
    values = (details if name == "details" else getattr(event, name) for name in COLUMNS)
    return tuple(value.encode(errors="replace").decode() if isinstance(value, str) else value for value in values)


def event_of(number: int, values: Sequence[Any]) -> Event | None:
    """The event of a row; None for a row that no frostline has written.

    Rows of older formats have fewer columns. Bytes of a damaged file may be anything, so every type is checked.
    """
    row: dict[str, Any] = dict(zip(COLUMNS, values, strict=False))
    numbers = [row[name] for name in ("p_value", "score", "level") if row.get(name) is not None]
    words = [row[name] for name in COLUMNS[8:] if name in row] + [row.get("text") or ""]
    sound = (
        row.get("kind") in KINDS
        and isinstance(row.get("time"), int | float)
        and isinstance(row.get("texts"), int)
        and all(isinstance(value, int | float) for value in numbers)
        and all(isinstance(word, str) for word in words)
    )
    if not sound:
        return None
    try:
        details = plain(json.loads(row["details"]))
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(details, dict):
        return None
    if "reasons" in details:
        reasons = details["reasons"] if isinstance(details["reasons"], list) else []
        details["reasons"] = [reason for reason in reasons if _is_reason(reason)]
    return Event(**(row | {"details": details}), id=number)


def _is_reason(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in ("part", "says"))
        and finite_number(value.get("sigma")) is not None
    )
