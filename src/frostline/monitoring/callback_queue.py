"""Calls that wait on a thread of their own: they hold nobody up, keep their order, and raise nothing to the caller."""

import threading
from collections import deque
from collections.abc import Callable

from frostline.log import LOG

MOST_WAITING = 100
"""Number of calls that may wait; further ones are dropped and counted."""


class CallbackQueue:
    """A queue of calls. Its thread lives only as long as calls wait, so that an idle queue holds nothing alive."""

    def __init__(self, most: int = MOST_WAITING):
        self.failures = 0
        """Number of calls that raised an exception."""
        self.dropped = 0
        """Number of calls for which there was no room."""
        self._most = most
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_running_here(self) -> bool:
        """Whether the current thread is the one that makes the calls."""
        return self._thread is threading.current_thread()

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called after those that wait already."""
        with self._lock:
            if len(self._waiting) >= self._most:
                self.dropped += 1
                if self.dropped == 1:
                    LOG.warning("a callback is so slow that %d calls wait; further ones are dropped", self._most)
                return
            self._waiting.append(function)
            # A thread does not live on in a forked process.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="frostline-callbacks", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until all calls are made, but no longer than this; never waits on the thread that makes them."""
        thread = self._thread
        if thread is None or self.is_running_here:
            return True
        thread.join(seconds)
        return not thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                function = self._waiting.popleft()
            try:
                function()
            except Exception as error:
                self.failures += 1
                if self.failures == 1:
                    LOG.warning("a callback failed, watching goes on: %s: %s", type(error).__name__, error)
            # Not kept alive until the next call: it may hold a watch.
            del function
