"""Failed log-ins: calls with a wrong token, logged by address in few lines."""

import asyncio
import ipaddress
from collections import Counter

from frostline.log import LOG

EVERY = 60.0
"""Seconds between two lines of the log about failed log-ins."""
MOST_ADDRESSES = 1000
"""Addresses that are counted one by one between two lines; calls of others are counted together."""
NAMED = 3
"""Addresses that a line names."""
OTHERS = "other addresses"
"""Calls of addresses that are not counted one by one."""


class FailedLogins:
    """Counts of failed log-ins: the first is logged at once, those after it together, one line every ``every`` seconds.

    A line has addresses and counts, never a token.
    """

    def __init__(self, every: float = EVERY):
        self.every = every
        self._unsaid: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, client: tuple[str, int] | None) -> None:
        """Count a failed log-in of a client; to be called from the event loop."""
        address = _address(client)
        known = address in self._unsaid or len(self._unsaid) < MOST_ADDRESSES
        self._unsaid[address if known else OTHERS] += 1
        if self._timer is None:
            self._say()

    def _say(self) -> None:
        """Log what was counted since the last line; with nothing to log, the next failure is logged at once again."""
        self._timer = None
        if not self._unsaid:
            return
        LOG.warning("%s", _sentence(self._unsaid))
        self._unsaid.clear()
        self._timer = asyncio.get_running_loop().call_later(self.every, self._say)


def _sentence(counts: Counter[str]) -> str:
    total, named = counts.total(), counts.most_common(NAMED)
    parts = [f"{count} from {address}" for address, count in named]
    rest = total - sum(count for _, count in named)
    parts += [f"{rest} from elsewhere"] if rest else []
    return f"{total} failed log-in{'s' if total > 1 else ''} (wrong token): {', '.join(parts)}"


def _address(client: tuple[str, int] | None) -> str:
    """The address of a client; a proxy may pass on any text for one, which is not logged."""
    try:
        return str(ipaddress.ip_address(client[0])) if client else "an unknown address"
    except ValueError:
        return "an unknown address"
