"""The stream of scored texts: what counts, whose alarm it is, and whether the calibration still holds.

Every source of texts has an alarm of its own, and all texts together have one. While a source rings, its texts do not
count for all: a noisy client is named, it neither rings for the rest nor hides it. Half of the promised false alarms
belong to single sources, half to all texts together. A text that was just seen, a dry run, and a text that comes in a
maintenance window are scored but are no evidence.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from frostline.errors import BadParameter
from frostline.monitoring.alarm import LONGEST_RUN, RATE, SHORTEST_RUN, Alarm
from frostline.monitoring.alarm_course import SEVERITIES, ClearRule
from frostline.monitoring.calibration_health import CalibrationHealth
from frostline.monitoring.reasons import Scores
from frostline.monitoring.repeats import Repeats
from frostline.serving.events import Event
from frostline.serving.source import Source, is_sent_text, operator_note
from frostline.serving.source_labels import OTHER, SourceLabels
from frostline.serving.submission import Submission

AVERAGED = 256
"""Number of last texts over which the concentration at every layer is averaged."""
MOST_SOURCES = 200
"""Number of sources that are told apart; the texts of others count as those of one more."""
FORGOTTEN_AFTER = 3600.0
"""Seconds without a text after which a quiet source may give its place to another one."""
LONGEST_MAINTENANCE = 7 * 86400.0
"""Longest maintenance window, in seconds."""


class Taken(NamedTuple):
    """Events that texts caused, for each text the places of its events, and whether it was a repeat."""

    events: list[Event]
    owners: list[list[int]]
    repeated: list[bool]


@dataclass(frozen=True)
class Clock:
    """Two clocks: one of dates, which may be set, and one of durations, which never steps back."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class Stream:
    """Counts of scored texts, the alarms, and the health of the calibration; several threads may use it."""

    def __init__(
        self,
        every: float,
        clouds: tuple[int, ...],
        *,
        counts: Sequence[int],
        rate: float = RATE,
        alpha: float = 0.01,
        rule: ClearRule | None = None,
        keep_texts: bool = False,
        replica: str = "",
        baseline: str = "",
        spread: Sequence[float] = (),
        clock: Clock | None = None,
    ):
        if not 0 < alpha < 1:
            raise BadParameter(f"alpha is {alpha}; texts with p-values up to it are strange: between 0 and 1.")
        if not SHORTEST_RUN <= every <= LONGEST_RUN:
            raise BadParameter(
                f"one false alarm in {every:.3g} texts, at {rate:g} texts/s; one in 10 to one in 100,000,000 can be "
                "promised: give another false_alarm_every."
            )
        self.every, self.rate = every, rate
        self.alarm = Alarm.once_in(2 * every, calibrated_by=counts)
        self.rule = rule or ClearRule()
        self.clouds, self.spread, self.alpha, self.counts = clouds, tuple(spread), alpha, list(counts)
        self.keep_texts, self.replica, self.baseline = keep_texts, replica, baseline
        self.clock = clock or Clock()
        self.all = Source("", self.alarm, self.rule, self.clock.steady())
        self.sources: dict[str, Source] = {}
        self.maintenance: dict[str, Any] | None = None
        """Who asked for the maintenance window, why, and until when (seconds since 1970); None outside of one."""
        self.counted = Counter[str]()
        """Texts of this process by what became of them: texts, strange, repeated, dry_run, rings."""
        self.labels = SourceLabels()
        self.changed = threading.Condition()
        self._repeats = Repeats()
        self._maintained_until = 0.0
        self._clouds: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=AVERAGED)

    @property
    def ringing(self) -> list[Source]:
        """Sources whose alarm is on; the first one may be all texts together."""
        return [source for source in (self.all, *self.sources.values()) if source.course.ringing]

    @property
    def severity(self) -> str:
        """The worst severity of all alarms."""
        return SEVERITIES[
            max(SEVERITIES.index(source.course.severity) for source in (self.all, *self.sources.values()))
        ]

    def take(self, scores: Scores, submissions: Sequence[Submission]) -> Taken:
        """Count scored texts; returns what they caused."""
        wall, now = self.clock.wall(), self.clock.steady()
        taken = Taken([], [[] for _ in submissions], [False] * len(submissions))
        with self.changed:
            for number, text in enumerate(submissions):
                if text.dry_run:
                    self.counted["dry_run"] += 1
                    continue
                for event in self._take_one(scores, number, text, taken.repeated, wall, now):
                    taken.owners[number].append(len(taken.events))
                    taken.events.append(event)
            self.changed.notify_all()
        return taken

    def _take_one(
        self, scores: Scores, number: int, text: Submission, repeated: list[bool], wall: float, now: float
    ) -> list[Event]:
        """Count one text; returns its events."""
        source = self._source(text.source, now) if text.source else None
        label = self.labels.counts_of(text.source, now, lambda name: self._rate_of(name, now)) if text.source else None
        self.counted["texts"] += 1
        for counts in (self.all, source):
            if counts is not None:
                counts.texts += 1
                counts.meter.count(1, now)
        if label is not None:
            label["texts"] += 1
        if self._repeats.seen(text.text):
            self.counted["repeated"] += 1
            repeated[number] = True
            return []
        p = float(scores.p_values[number])
        self._clouds.append((scores.observed[number], scores.expected[number]))
        events = list[Event]()
        reasons = [reason.facts() for reason in scores.reasons[number]]
        facts: dict[str, Any] = {"p_value": p, "source": text.source, "text_id": text.id}
        if p <= self.alpha:
            self.counted["strange"] += 1
            if label is not None:
                label["strange"] += 1
            kept = text.text if self.keep_texts else None
            score = float(scores.scores[number])
            events.append(self.event("strange", wall, score=score, details={"reasons": reasons}, text=kept, **facts))
        for counts in (self.all, source):
            if counts is not None:
                counts.recent.append(p)
                counts.strange += p <= self.alpha
        if self._in_maintenance(now):
            return events
        for judged in (source, self.all):
            if judged is None:
                continue
            if judged is self.all and source is not None and source.course.ringing:
                break  # it is named already, and the rest is heard without it
            rings, level = judged.course.rang_in_all, judged.course.level
            kind = judged.course.take(p, now)
            judged.turned(kind, wall)
            if judged.course.rang_in_all > rings:
                self.counted["rings"] += 1
            if kind is not None:
                details = self._details(judged, kind, level) | ({"reasons": reasons} if kind == "alarm" else {})
                events.append(self.event(kind, wall, **(facts | {"details": details, "source": judged.name})))
            if kind == "alarm" and judged is source and not self.all.course.ringing:
                # What it has added to the evidence of all is its own, and explains nothing of the rest.
                self.all.course.reset()
                self.all.forget_samples(source.name)
        return events

    def _details(self, source: Source, kind: str, level: float) -> dict[str, Any]:
        details: dict[str, Any] = {"threshold": self.alarm.threshold, "evidence_before": level}
        if kind == "clear":
            details |= {"quiet_texts": source.course.texts_since}
        return details | {"why": source.why(), "examples": source.examples()}

    def remember(self, events: Sequence[Event]) -> None:
        """Keep the events of strange texts, with the numbers they got, to explain alarms by."""
        with self.changed:
            for event in events:
                if event.kind == "strange":
                    self._keep_sample(event, self._source(event.source, self.clock.steady()) if event.source else None)

    def _keep_sample(self, event: Event, source: Source | None) -> None:
        if source is not None:
            source.samples.append(event)
        if source is None or not source.course.ringing:
            self.all.samples.append(event)

    def pass_time(self) -> list[Event]:
        """End what is over although no text comes: alarms of an idle service, and the maintenance window."""
        wall, now = self.clock.wall(), self.clock.steady()
        events = list[Event]()
        with self.changed:
            for source in self.ringing:
                kind = source.course.pass_time(now)
                if kind is not None:
                    source.turned(kind, wall)
                    details = {"quiet_texts": source.course.texts_since, "says": "no text came, or none was strange"}
                    events.append(self.event(kind, wall, source=source.name, details=details))
            if self.maintenance is not None and not self._in_maintenance(now):
                self.maintenance = None
                events.append(self.event("maintenance", wall, details={"ended": True}))
            if events:
                self.changed.notify_all()
        return events

    def control(self, action: str, *, who: str, why: str, source: str | None = None, seconds: float = 0.0) -> Event:
        """An action of an operator: acknowledge or reset alarms (of one source, or all of them), or begin maintenance.

        Raises BadParameter where there is nothing to do it to.
        """
        wall, now = self.clock.wall(), self.clock.steady()
        details: dict[str, Any] = {"who": who, "why": why}
        with self.changed:
            if action == "maintenance":
                if source is not None:
                    raise BadParameter("a maintenance window is one of all sources; leave the source out.")
                if not 0 <= seconds <= LONGEST_MAINTENANCE:
                    raise BadParameter(f"a maintenance window of {seconds:g} s; it lasts 0 s (ends) to 7 days.")
                self._maintained_until = now + seconds
                self.maintenance = details | {"until": wall + seconds} if seconds else None
                details |= {"seconds": seconds}
                self.changed.notify_all()
                return self.event("maintenance", wall, details=details)
            chosen = self.ringing if source is None else [s for s in self.ringing if s.name == source]
            if not chosen:
                whose = "" if source is None else f" of {source!r}" if source else " of all texts together"
                raise BadParameter(f"there is no alarm{whose} to {action}; GET /status lists those there are.")
            for judged in chosen:
                if action == "reset":
                    judged.course.reset()
                    judged.turned("reset", wall)
                else:
                    judged.acknowledged = details | {"time": wall}
            self.changed.notify_all()
            kind = "reset" if action == "reset" else "acknowledged"
            names = [judged.name for judged in chosen]
            return self.event(kind, wall, source=source or "", details=details | {"alarms": names})

    def event(self, kind: str, wall: float, **facts: Any) -> Event:
        """An event of this stream, as it stands now."""
        level = self.all.course.level
        return Event(kind, self.all.texts, wall, level=level, replica=self.replica, baseline=self.baseline, **facts)

    def _source(self, name: str, now: float) -> Source:
        """The source of this name; where there is no place for it, the one of all others."""
        if name not in self.sources and len(self.sources) >= MOST_SOURCES:
            quiet = [s for s in self.sources.values() if not s.course.ringing and s.name != OTHER]
            oldest = min(quiet, key=lambda s: s.last_seen, default=None)
            if oldest is None or now - oldest.last_seen < FORGOTTEN_AFTER:
                name = OTHER
            else:
                del self.sources[oldest.name]
        if name not in self.sources:
            self.sources[name] = Source(name, self.alarm, self.rule, now)
        self.sources[name].last_seen = now
        return self.sources[name]

    def _rate_of(self, name: str, now: float) -> float:
        """Texts per second of a source; 0 where it has no place among the sources, or has just come."""
        return (self.sources[name].meter.rate(now) or 0.0) if name in self.sources else 0.0

    def _in_maintenance(self, now: float) -> bool:
        return self.maintenance is not None and now < self._maintained_until

    def state(self) -> dict[str, Any]:
        """The state that a restarted service needs to go on."""
        wall, now = self.clock.wall(), self.clock.steady()
        with self.changed:
            # Of sources whose evidence is next to nothing, nothing is lost.
            kept = {s.name: s.kept(now) for s in self.sources.values() if s.course.ringing or s.course.level > 1}
            left = max(0.0, self._maintained_until - now)
            window = self.maintenance and (self.maintenance | {"until": wall + left})
            return self.all.kept(now, recent=True) | {"sources": kept, "maintenance": window}

    def resume(self, state: Mapping[str, Any], strange: Sequence[Event] = ()) -> None:
        """Go on from a ``state``; values that make no sense are ignored.

        ``strange`` are the last events of strange texts, oldest first: alarms that go on are explained by them.
        """
        wall, now = self.clock.wall(), self.clock.steady()
        with self.changed:
            self.all.resume(state, now)
            sources, window = state.get("sources"), operator_note(state.get("maintenance"), "until")
            for name, kept in sources.items() if isinstance(sources, dict) else ():
                if len(self.sources) < MOST_SOURCES and isinstance(kept, dict) and is_sent_text(name):
                    self._source(name, now).resume(kept, now)
            if window is not None:
                left = min(window["until"] - wall, LONGEST_MAINTENANCE)
                if left > 0:
                    self.maintenance, self._maintained_until = window | {"until": wall + left}, now + left
            for event in strange:
                if event.baseline == self.baseline:
                    self._keep_sample(event, self.sources.get(event.source))

    def health(self) -> CalibrationHealth:
        """Whether the last p-values are spread as those of a calibrated baseline are."""
        with self.changed:
            return self.all.health(self.counts)

    def layers(self) -> list[dict[str, float | int]]:
        """Mean resultant length of the last texts' tokens at every layer looked at, and the one that is expected.

        Of a deep profile the spread for one text too.
        """
        with self.changed:
            pairs = list(self._clouds)
        if not pairs:
            return []
        observed, expected = (np.mean([pair[side] for pair in pairs], axis=0).tolist() for side in (0, 1))
        rows = [
            {"layer": cloud, "observed": mean, "expected": usual}
            for cloud, mean, usual in zip(self.clouds, observed, expected, strict=True)
        ]
        return [row | {"spread": one} for row, one in zip(rows, self.spread, strict=True)] if self.spread else rows
