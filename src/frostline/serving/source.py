"""One source of texts, or all of them together: its counts, its alarm, its last p-values and strange texts."""

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from frostline.files.plain_json import finite_number
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.alarm_course import AlarmCourse, ClearRule
from frostline.monitoring.calibration_health import CalibrationHealth, judge_calibration
from frostline.serving.events import Event
from frostline.serving.rate_meter import RateMeter

RECENT = 1000
"""Number of last p-values from which the health of the calibration is judged."""
SAMPLES = 20
"""Number of last strange texts from which a source's strangeness is explained."""
LATEST = 1e11
"""Latest time that is believed, in seconds since 1970."""
NAMED = 3
"""Number of strange texts that the status names for a source."""


class Source:
    """The stream of one source; its stream has a lock, it has none."""

    def __init__(self, name: str, alarm: Alarm, rule: ClearRule, now: float):
        self.name = name
        self.meter = RateMeter(now)
        self.course = AlarmCourse(alarm, rule)
        self.texts = self.strange = 0
        self.since: float | None = None
        """Time at which the alarm, or the quiet after it, began, in seconds since 1970."""
        self.acknowledged: dict[str, Any] | None = None
        """Who has seen the alarm, why and when; None while nobody has."""
        self.recent: deque[float] = deque(maxlen=RECENT)
        """p-values of the last texts."""
        self.samples: deque[Event] = deque(maxlen=SAMPLES)
        """Events of the last strange texts."""
        self.last_seen = 0.0
        """Time of its last text, on the clock that never steps back."""

    def turned(self, kind: str | None, wall: float) -> None:
        """Note when the alarm began or ended."""
        if kind in ("alarm", "clear", "reset"):
            self.since, self.acknowledged = wall, None

    def health(self, counts: list[int]) -> CalibrationHealth:
        """Whether the last p-values are spread as those of a calibrated baseline are."""
        return judge_calibration(np.array(self.recent), counts)

    def why(self) -> str:
        """The reasons of the last strange texts in one sentence; empty where there are none."""
        reasons = [event.details["reasons"][0] for event in self.samples if event.details.get("reasons")]
        if not reasons:
            return ""
        part, count = Counter(reason["part"] for reason in reasons).most_common(1)[0]
        latest = next(reason for reason in reversed(reasons) if reason["part"] == part)
        return f"{count} of its last {len(self.samples)} strange texts: {latest['says']}"

    def examples(self) -> list[str]:
        """Up to three of its last strange texts: the client's names for them, else their numbers as events."""
        named = [event.text_id or (f"event {event.id}" if event.id is not None else "") for event in self.samples]
        return [name for name in reversed(named) if name][:NAMED]

    def forget_samples(self, source: str) -> None:
        """Keep no strange text of this source."""
        kept = [event for event in self.samples if event.source != source]
        self.samples.clear()
        self.samples.extend(kept)

    def kept(self, now: float, *, recent: bool = False) -> dict[str, Any]:
        """Plain values from which ``resume`` goes on; ``recent`` adds the last p-values, which are long."""
        values = {"texts": self.texts, "strange": self.strange, "since": self.since, "acknowledged": self.acknowledged}
        return values | {"course": self.course.kept(now)} | ({"recent": list(self.recent)} if recent else {})

    def resume(self, kept: Mapping[str, Any], now: float) -> None:
        """Go on from kept values; those that make no sense are ignored."""
        for name in ("texts", "strange"):
            value = kept.get(name)
            if type(value) is int and 0 <= value < 2**53:
                setattr(self, name, value)
        if isinstance(kept.get("course"), Mapping):
            self.course.resume(kept["course"], now)
        self.since = moment(kept.get("since"))
        if self.course.ringing:
            self.acknowledged = operator_note(kept.get("acknowledged"), "time")
        recent = kept.get("recent")
        for p in recent if isinstance(recent, list) else ():
            if isinstance(p, list) and len(p) == 2:
                p = p[1]  # until 0.1 with their times
            if isinstance(p, float) and 0 < p <= 1:
                self.recent.append(p)

    def status(self, counts: list[int], alpha: float, now: float) -> dict[str, Any]:
        """Everything that the status says of it."""
        return {
            "source": self.name,
            "texts": self.texts,
            "strange": self.strange,
            "rate": self.meter.rate(now),
            "recent": len(self.recent),
            "recent_strange": sum(p <= alpha for p in self.recent),
            "severity": self.course.severity,
            "level": self.course.level,
            "since": self.since,
            "why": self.why(),
            "examples": self.examples(),
            "acknowledged": self.acknowledged,
            "health": self.health(counts).facts(),
        }


def is_sent_text(value: Any) -> bool:
    """Whether a value is a text that can be sent: it is not empty, and has no half characters."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def moment(value: Any) -> float | None:
    """A time in seconds since 1970 as a state has it; None for what is none, or beyond all calendars."""
    seconds = finite_number(value)
    return seconds if seconds is not None and 0 <= seconds <= LATEST else None


def operator_note(kept: Any, time: str) -> dict[str, Any] | None:
    """Who, why and a time (``time`` or ``until``) as a state has them; None where it has anything else."""
    if not isinstance(kept, dict) or not all(is_sent_text(kept.get(name)) for name in ("who", "why")):
        return None
    seconds = moment(kept.get(time))
    return None if seconds is None else {"who": kept["who"], "why": kept["why"], time: seconds}
