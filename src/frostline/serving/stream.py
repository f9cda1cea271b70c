"""The state of a stream of texts: whether there is an alarm, since when, and whether the calibration still holds.

The alarm rings when the evidence of p-values reaches its threshold (``monitoring.calibration.Alarm``). It is over when
``clear_after`` texts in a row were scored without its ringing again.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from frostline.errors import BadParameter
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.reasons import Scores
from frostline.results import Result
from frostline.serving.events import Event

RECENT = 1000
"""Number of last p-values from which the health of the calibration is judged."""
ENOUGH = 200
"""Smallest number of p-values from which the health of the calibration is judged."""
AVERAGED = 256
"""Number of last texts over which the concentration at every layer is averaged."""
CRITICAL = 1.95
"""Kolmogorov and Smirnov's distance times √n that good p-values exceed once in a thousand times."""
POINTS = 400
"""Number of last p-values that the page draws."""


@dataclass(frozen=True, repr=False)
class Health(Result):
    """Whether the p-values of the last texts are uniform, as those of a calibrated baseline are.

    verdict   good, low, high, or unknown while there are too few texts
    says      the verdict in words
    texts     number of texts that were judged
    distance  largest distance of the p-values' distribution from the uniform one
    allowed   distance that good p-values exceed once in a thousand times
    """

    verdict: str
    says: str
    texts: int
    distance: float | None = None
    allowed: float | None = None

    def describe(self) -> str:
        """The verdict in words."""
        return self.says


class Stream:
    """Counts of scored texts, the alarm, and the health of the calibration; several threads may use it."""

    def __init__(
        self,
        alarm: Alarm,
        clouds: tuple[int, ...],
        *,
        alpha: float = 0.01,
        clear_after: int = 200,
        calibrated_by: int = 10**9,
        keep_texts: bool = False,
        replica: str = "",
    ):
        if not 0 < alpha < 1:
            raise BadParameter(f"alpha is {alpha}; texts with p-values up to it are strange: between 0 and 1.")
        if clear_after < 1:
            raise BadParameter(f"clear_after is {clear_after}; it is a number of texts, at least 1.")
        self.alarm, self.clouds, self.alpha, self.clear_after = alarm, clouds, alpha, clear_after
        self.calibrated_by, self.keep_texts, self.replica = calibrated_by, keep_texts, replica
        self.texts = self.strange = self.alarms = 0
        self.level = 0.0
        self.ringing = False
        self.rang_at: int | None = None
        """Number of texts at which the alarm rang last."""
        self.since: float | None = None
        """Time at which the alarm, or the quiet, began, in seconds since 1970."""
        self.changed = threading.Condition()
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._clouds: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=AVERAGED)

    def take(self, scores: Scores, texts: list[str] | None = None) -> tuple[list[Event], list[list[int]]]:
        """Count scored texts; returns the events, and for each text the places of those it caused."""
        now, events = time.time(), list[Event]()
        owners: list[list[int]] = [[] for _ in scores.p_values]

        def add(number: int, kind: str, **facts: Any) -> None:
            owners[number].append(len(events))
            events.append(self.event(kind, now, **facts))

        with self.changed:
            for number, p in enumerate(scores.p_values.tolist()):
                (level,), rang = self.alarm.after(self.level, scores.p_values[number : number + 1])
                level = float(level)
                self.level = 0.0 if rang else level
                self.texts += 1
                self._recent.append((now, p))
                self._clouds.append((scores.observed[number], scores.expected[number]))
                if p <= self.alpha:
                    self.strange += 1
                    reasons = [reason.facts() for reason in scores.reasons[number]]
                    kept = texts[number] if texts is not None and self.keep_texts else None
                    score = float(scores.scores[number])
                    add(number, "strange", p_value=p, score=score, details={"reasons": reasons}, text=kept)
                if rang:
                    self.alarms += 1
                    self.rang_at = self.texts
                    if not self.ringing:
                        self.ringing, self.since = True, now
                        add(number, "alarm", p_value=p, details={"threshold": self.alarm.threshold, "evidence": level})
                elif self.ringing and self.rang_at is not None and self.texts - self.rang_at >= self.clear_after:
                    self.ringing, self.since = False, now
                    add(number, "clear", details={"quiet_texts": self.clear_after})
            self.changed.notify_all()
        return events, owners

    def event(self, kind: str, now: float, **facts: Any) -> Event:
        """An event of this stream, as it stands now."""
        return Event(kind, self.texts, now, level=self.level, replica=self.replica, **facts)

    def state(self) -> dict[str, Any]:
        """The state that a restarted service needs to go on."""
        with self.changed:
            names = ("texts", "strange", "alarms", "level", "ringing", "rang_at", "since")
            return {name: getattr(self, name) for name in names} | {"recent": [list(pair) for pair in self._recent]}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``; values that make no sense are ignored."""
        with self.changed:
            for name in ("texts", "strange", "alarms"):
                value = state.get(name)
                if isinstance(value, int) and 0 <= value < 2**53:
                    setattr(self, name, value)
            level, since, rang_at = state.get("level"), state.get("since"), state.get("rang_at")
            if isinstance(level, int | float) and 0 <= level < self.alarm.threshold:
                self.level = float(level)
            self.since = float(since) if isinstance(since, int | float) else None
            self.rang_at = rang_at if isinstance(rang_at, int) else None
            self.ringing = state.get("ringing") is True and self.rang_at is not None
            with contextlib.suppress(TypeError, ValueError):
                self._recent.extend((float(when), float(p)) for when, p in state.get("recent", ()) if 0 < p <= 1)

    def health(self) -> Health:
        """Whether the last p-values are uniform (a test of Kolmogorov and Smirnov)."""
        with self.changed:
            p = np.array([p for _, p in self._recent])
        n = len(p)
        if n < ENOUGH:
            return Health("unknown", f"{_texts(n)} so far; it takes {ENOUGH} to judge the calibration.", n)
        grid, counts = np.unique(p, return_counts=True)
        # Calibration texts are a sample too.
        allowed = CRITICAL * float(np.sqrt(1 / n + 1 / self.calibrated_by))
        differences = np.cumsum(counts) / n - grid
        distance = float(np.abs(differences).max())
        if distance <= allowed:
            return Health("good", f"p-values of the last {n} texts are spread as they should be.", n, distance, allowed)
        low = float(differences.max()) >= distance
        says = (
            f"p-values of the last {n} texts run too low: they are not like the reference. If they are meant to be so, "
            "make the baseline again with some of them in it."
            if low
            else f"p-values of the last {n} texts run too high: they are more ordinary than the reference."
        )
        return Health("low" if low else "high", says, n, distance, allowed)

    def layers(self) -> list[dict[str, float | int]]:
        """Mean resultant length of the last texts' tokens at every cloud, and its value for the reference."""
        with self.changed:
            pairs = list(self._clouds)
        if not pairs:
            return []
        observed, expected = (np.mean([pair[side] for pair in pairs], axis=0).tolist() for side in (0, 1))
        return [
            {"layer": cloud, "observed": mean, "expected": usual}
            for cloud, mean, usual in zip(self.clouds, observed, expected, strict=True)
        ]

    def says(self) -> tuple[str, str, str]:
        """The state of the alarm in a word and in a sentence, and advice."""
        if self.ringing:
            quiet = self.texts - (self.rang_at or 0)
            return (
                "Alarm",
                "The texts that arrive are not like the reference. The alarm last rang "
                f"{f'{_texts(quiet)} ago' if quiet else 'just now'} and is over after {self.clear_after} texts without "
                "ringing.",
                "Look at the reasons of strange texts below. If the new text is meant to be there, make the baseline "
                "again with some of it; if not, find out who sends it.",
            )
        health = self.health()
        if health.verdict == "low":
            return "No alarm, but drift", "The texts have moved away from the reference, slowly.", health.says
        if not self.texts:
            return "Waiting", "No text has arrived yet.", "Post texts to /score."
        return "All is well", "The texts are like the reference.", "Nothing."

    def picture(self) -> dict[str, Any]:
        """Everything the live page shows of the stream."""
        with self.changed:
            headline, says, advice = self.says()
            return {
                "texts": self.texts,
                "strange": self.strange,
                "alarms": self.alarms,
                "alarm": self.ringing,
                "since": self.since,
                "level": self.level,
                "threshold": self.alarm.threshold,
                "every": self.alarm.every,
                "alpha": self.alpha,
                "clear_after": self.clear_after,
                "headline": headline,
                "says": says,
                "advice": advice,
                "health": self.health().facts(),
                "layers": self.layers(),
                "recent": [p for _, p in list(self._recent)[-POINTS:]],
                "of": len(self._recent),
                "strange_of": sum(p <= self.alpha for _, p in self._recent),
                "least": 1 / (self.calibrated_by + 1),
            }


def _texts(count: int) -> str:
    return "1 text" if count == 1 else f"{count} texts"
