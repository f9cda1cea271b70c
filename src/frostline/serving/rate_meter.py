"""The rate of texts that is seen: a mean over about the last hour, in which older texts count less and less."""

import math

MEMORY_SECONDS = 3600.0
"""Seconds after which a text counts a third."""
SHORTEST_SECONDS = 60.0
"""Seconds that must have passed before a rate is said."""


class RateMeter:
    """Counts texts over time; times are seconds of a clock that never steps back."""

    def __init__(self, now: float):
        self._began = self._last = now
        self._weight = 0.0

    def count(self, texts: int, now: float) -> None:
        """Count texts that have come now."""
        self._weight = self._weight * math.exp(-(now - self._last) / MEMORY_SECONDS) + texts
        self._last = now

    def rate(self, now: float) -> float | None:
        """Texts per second; None before there is enough to say."""
        age = now - self._began
        if age < SHORTEST_SECONDS:
            return None
        seconds = MEMORY_SECONDS * -math.expm1(-age / MEMORY_SECONDS)
        return self._weight * math.exp(-(now - self._last) / MEMORY_SECONDS) / seconds
