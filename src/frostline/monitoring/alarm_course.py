"""The course of one alarm in time: quiet, ringing, lasting, over.

It begins when the evidence reaches its threshold, and becomes critical when it has gone on ringing for ten minutes. It
is over by evidence and by time: so many texts and so many seconds without ringing, and little evidence left; or when no
text has come for an hour, because nothing strange arrives then.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from frostline.errors import BadParameter
from frostline.files.plain_json import finite_number
from frostline.monitoring.alarm import Alarm

CLEAR_TEXTS = 200
"""Texts without ringing after which an alarm may be over."""
CLEAR_SECONDS = 900.0
"""Seconds without ringing after which an alarm may be over."""
CLEAR_EVIDENCE = 0.5
"""Largest evidence, as a share of the threshold, at which an alarm may be over."""
IDLE_SECONDS = 3600.0
"""Seconds without any text after which an alarm is over in any case."""
CRITICAL_SECONDS = 600.0
"""Seconds for which an alarm must have lasted to be critical when it rings again."""
CRITICAL_RINGS = 3
"""Number of times an alarm must have rung to be critical."""
SEVERITIES = ("none", "warning", "critical")
"""Severities of an alarm, from the mildest."""


@dataclass(frozen=True)
class ClearRule:
    """When an alarm is over; see the constants of this file."""

    texts: int = CLEAR_TEXTS
    seconds: float = CLEAR_SECONDS
    idle_seconds: float = IDLE_SECONDS

    def __post_init__(self) -> None:
        if self.texts < 1:
            raise BadParameter(f"clear_after is {self.texts}; it is a number of texts, at least 1.")
        if not (self.seconds >= 0 and self.idle_seconds > 0):
            raise BadParameter(
                f"an alarm cannot be over after {self.seconds} s, or {self.idle_seconds} s without texts."
            )


class AlarmCourse:
    """One alarm over one stream of texts. Times are seconds of a clock that never steps back."""

    def __init__(self, alarm: Alarm, rule: ClearRule | None = None):
        self.alarm, self.rule = alarm, rule or ClearRule()
        self.state = alarm.quiet
        self.ringing = self.critical = False
        self.rings = 0
        """How often it has rung since it began; 0 while it is quiet."""
        self.rang_in_all = 0
        """How often it has rung ever."""
        self.texts_since = 0
        """Number of texts since it rang last."""
        self._began = self._rang = self._last_text = -math.inf

    @property
    def level(self) -> float:
        """Evidence, in nats."""
        return float(self.alarm.level(self.state))

    @property
    def severity(self) -> str:
        """One of ``SEVERITIES``."""
        return SEVERITIES[self.ringing + self.critical]

    def take(self, p: float, now: float) -> str | None:
        """Count one text; returns "alarm", "critical" or "clear" where the text makes it so."""
        ended = self.pass_time(now)  # an alarm that was over before this text came
        _, rang, state = self.alarm.after(self.state, np.array([p]))
        self.state, self._last_text = state, now
        self.texts_since += 1
        if not rang:
            return ended or self.pass_time(now)
        self.rang_in_all += 1
        self.rings += 1
        self.texts_since, self._rang = 0, now
        if not self.ringing:
            self.ringing, self._began = True, now
            return "alarm"
        if not self.critical and self.rings >= CRITICAL_RINGS and now - self._began >= CRITICAL_SECONDS:
            self.critical = True
            return "critical"
        return None

    def take_together(self, p: Float[np.ndarray, " n"], now: float) -> list[int]:
        """Count texts that were scored together, between which no alarm is over; the numbers of those that rang."""
        self.pass_time(now)
        _, rang, self.state = self.alarm.after(self.state, p)
        if len(p):
            self._last_text = now
            self.texts_since += len(p)
        if not rang:
            self.pass_time(now)
            return rang
        if not self.ringing:
            self.ringing, self._began = True, now
        self.rang_in_all += len(rang)
        self.rings += len(rang)
        self.texts_since, self._rang = len(p) - 1 - rang[-1], now
        self.critical |= self.rings >= CRITICAL_RINGS and now - self._began >= CRITICAL_SECONDS
        return rang

    def pass_time(self, now: float) -> str | None:
        """End the alarm if its time is over; returns "clear" then."""
        if not self.ringing:
            return None
        rule = self.rule
        calm = (
            self.texts_since >= rule.texts
            and now - self._rang >= rule.seconds
            and self.level <= CLEAR_EVIDENCE * self.alarm.threshold
        )
        if not calm and now - self._last_text < rule.idle_seconds:
            return None
        self.reset()
        return "clear"

    def reset(self) -> None:
        """Be quiet again, and forget the evidence."""
        self.state = self.alarm.quiet
        self.ringing = self.critical = False
        self.rings = 0

    def kept(self, now: float) -> dict[str, Any]:
        """Plain values from which ``resume`` goes on in another process, whose clock may begin elsewhere."""
        return {
            "state": self.state.tolist(),
            "ringing": self.ringing,
            "critical": self.critical,
            "rings": self.rings,
            "rang_in_all": self.rang_in_all,
            "texts_since": self.texts_since,
            "began_ago": _finite(now - self._began),
            "rang_ago": _finite(now - self._rang),
        }

    def resume(self, kept: Mapping[str, Any], now: float) -> None:
        """Go on from kept values; those that make no sense are ignored."""
        state = _numbers(kept.get("state"))
        if (
            state.shape == self.state.shape
            and (state >= 0).all()
            and float(self.alarm.level(state)) < self.alarm.threshold
        ):
            self.state = state
        for name in ("rings", "rang_in_all", "texts_since"):
            value = kept.get(name)
            if type(value) is int and 0 <= value < 2**53:
                setattr(self, name, value)
        began, rang = finite_number(kept.get("began_ago")), finite_number(kept.get("rang_ago"))
        if kept.get("ringing") is True and began is not None and rang is not None and min(began, rang) >= 0:
            self.ringing, self.critical = True, kept.get("critical") is True
            self._began, self._rang, self._last_text = now - began, now - rang, now


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _numbers(values: Any) -> Float[np.ndarray, " n"]:
    try:
        numbers = np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0)
    return numbers if numbers.ndim == 1 and np.isfinite(numbers).all() else np.zeros(0)
