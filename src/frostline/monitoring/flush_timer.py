"""A timer that has waiting texts looked at: one daemon thread, which keeps no owner alive and ends with it."""

import threading
import weakref
from collections.abc import Callable


class FlushTimer:
    """Calls a method of its owner when something has waited long enough; sleeps while nothing waits.

    The method returns the seconds after which it wants to be called again; None: not before the next ``begin``. Only a
    weak reference to the owner is kept, so that the thread ends when the owner is gone.
    """

    def __init__(self, method: Callable[[], float | None], seconds: float):
        self._method = weakref.WeakMethod(method)
        self._seconds = seconds
        self._begun = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        weakref.finalize(method.__self__, _close, self._closed, self._begun)  # type: ignore[attr-defined]

    def begin(self) -> None:
        """Something waits from now on."""
        self._begun.set()
        # Begun late: a thread does not live on in a forked process, and a watch that gathers nothing needs none.
        if (self._thread is None or not self._thread.is_alive()) and not self._closed.is_set():
            self._thread = threading.Thread(
                target=_run,
                args=(self._method, self._seconds, self._begun, self._closed),
                name="frostline-flush",
                daemon=True,
            )
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        _close(self._closed, self._begun)


def _close(closed: threading.Event, begun: threading.Event) -> None:
    closed.set()
    begun.set()


def _run(
    reference: "weakref.WeakMethod[Callable[[], float | None]]",
    seconds: float,
    begun: threading.Event,
    closed: threading.Event,
) -> None:
    while begun.wait() and not closed.is_set():
        begun.clear()
        wait: float | None = seconds
        while wait is not None and not closed.wait(wait):
            method = reference()
            if method is None:
                return
            wait = method()
            del method
