"""The status of a stream: its alarms in words and in numbers, for people and for machines."""

import time
from typing import Any

from frostline.serving.stream import Stream

POINTS = 400
"""Number of last p-values that the page draws."""
LISTED = 20
"""Number of sources in the status: those that ring, then those with the most texts."""
SLOWEST_SAID = 1 / 3600
"""Smallest rate, in texts per second, at which it is said what the promise means: one text in an hour."""


def promise(stream: Stream) -> str:
    """How often there may be a false alarm, at the rate that was given and at the rate that is seen."""
    seen = stream.all.meter.rate(stream.clock.steady())
    promised = f"{_duration(stream.every / stream.rate)} at {stream.rate:g} texts/s"
    says = f"At most one false alarm in {stream.every:,.0f} texts: {promised}"
    if seen and seen >= SLOWEST_SAID and not 0.8 < seen / stream.rate < 1.25:
        says += f", {_duration(stream.every / seen)} at the {seen:.2g} texts/s of the last hour"
    return f"{says}."


def words(stream: Stream) -> tuple[str, str, str]:
    """The state of the alarms in a word and in a sentence, and advice."""
    ringing = stream.ringing
    if stream.maintenance is not None:
        return (
            "Maintenance",
            f"Texts are scored and nothing rings until {_moment(stream.maintenance['until'])}: "
            f"{stream.maintenance['why']} ({stream.maintenance['who']}).",
            "Wait, or end the window.",
        )
    if ringing:
        names = [source.name or "all texts together" for source in ringing]
        whose = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        course = ringing[0].course
        quiet = _texts(course.texts_since)
        rule = stream.rule
        return (
            "Critical alarm" if stream.severity == "critical" else "Alarm",
            f"Texts are not like the reference. Source: {whose}. It last rang "
            f"{f'{quiet} ago' if course.texts_since else 'just now'} and is over after {rule.texts} texts and "
            f"{_duration(rule.seconds)} without ringing.",
            "Look at the reasons below, then acknowledge the alarm. If the new text is meant to be there, make the "
            "baseline again with some of it; if not, find out who sends it.",
        )
    health = stream.health()
    if health.verdict == "low":
        return "No alarm, but drift", "The texts have moved away from the reference, slowly.", health.says
    if not stream.all.texts:
        return "Waiting", "No text has arrived yet.", "Post texts to /score."
    return "All is well", "The texts are like the reference.", "Nothing."


def status_of(stream: Stream) -> dict[str, Any]:
    """Everything that GET /status says of the stream."""
    with stream.changed:
        now = stream.clock.steady()
        headline, says, advice = words(stream)
        ranked = sorted(stream.sources.values(), key=lambda s: (not s.course.ringing, -s.texts))
        return {
            "headline": headline,
            "says": says,
            "advice": advice,
            "promise": promise(stream),
            "severity": stream.severity,
            "alarm": bool(stream.ringing),
            "level": stream.all.course.level,
            "threshold": stream.alarm.threshold,
            "rate": stream.all.meter.rate(now),
            "repeated": stream.counted["repeated"],
            "maintenance": stream.maintenance,
            "all": stream.all.status(stream.counts, stream.alpha, now),
            "sources": [source.status(stream.counts, stream.alpha, now) for source in ranked[:LISTED]],
            "sources_known": len(stream.sources),
        }


def picture_of(stream: Stream) -> dict[str, Any]:
    """Everything the live page shows of the stream."""
    with stream.changed:
        recent = list(stream.all.recent)
        return status_of(stream) | {
            "texts": stream.all.texts,
            "every": stream.every,
            "alpha": stream.alpha,
            "clear_after": stream.rule.texts,
            "health": stream.health().facts(),
            "layers": stream.layers(),
            "points": recent[-POINTS:],
            "of": len(recent),
            "strange_of": sum(p <= stream.alpha for p in recent),
            "least": 1 / (min(stream.counts) + 1),
        }


def _moment(seconds: float) -> str:
    """A time as 2026-05-11 09:30 UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _texts(count: int) -> str:
    return "1 text" if count == 1 else f"{count} texts"


def _duration(seconds: float) -> str:
    """A duration in the largest unit that makes it at least two."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"
