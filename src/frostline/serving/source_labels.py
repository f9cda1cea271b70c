"""Sources with metrics of their own: the busiest ones; all others are counted together."""

from collections import Counter
from collections.abc import Callable

OTHER = "(other)"
"""Name under which sources without a place of their own are counted."""
LABELLED = 50
"""Number of sources with metrics of their own."""
KEPT_SECONDS = 3600.0
"""Seconds for which a source keeps its place at least: each change of places makes new series in Prometheus."""
LOOK_SECONDS = 60.0
"""Seconds between two looks for a source that is busy enough to take a place."""
BUSIER = 2.0
"""Number of times by which the rate of a source exceeds that of the one whose place it takes."""


class SourceLabels:
    """Texts and strange texts of this process by source. A source that gets a place counts from zero."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self._since: dict[str, float] = {}
        self._looked = 0.0

    def counts_of(self, name: str, now: float, rate_of: Callable[[str], float]) -> Counter[str]:
        """The counts for a text of this source: its own, or those of all that have no place.

        ``rate_of`` says how many texts a source sends per second; ``now`` is of a clock that never steps back.
        """
        if name not in self.counts and len(self._since) >= LABELLED and not self._give_place(name, now, rate_of):
            name = OTHER
        if name not in self.counts and name != OTHER:
            self._since[name] = now
        return self.counts.setdefault(name, Counter())

    def _give_place(self, name: str, now: float, rate_of: Callable[[str], float]) -> bool:
        """Free the place of the slowest source for one that is clearly busier; False where there is none."""
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        long_kept = [source for source, since in self._since.items() if now - since >= KEPT_SECONDS]
        slowest = min(long_kept, key=rate_of, default=None)
        if slowest is None or not rate_of(name) > BUSIER * rate_of(slowest):
            return False
        del self.counts[slowest], self._since[slowest]
        return True
