"""Cooperative cancellation: a caller registers ``is_cancelled``; loops that run for minutes poll it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_thread = threading.local()


class Cancelled(Exception):
    """The caller has given up: the result is no longer needed."""


@contextmanager
def cancel_when(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within the block, polls of this thread raise ``Cancelled`` once ``is_cancelled()`` is true.

    >>> with cancel_when(lambda: True):
    ...     poll()
    Traceback (most recent call last):
    frostline.cancellation.Cancelled
    """
    before = getattr(_thread, "is_cancelled", None)
    _thread.is_cancelled = is_cancelled
    try:
        yield
    finally:
        _thread.is_cancelled = before


def poll() -> None:
    """Raise ``Cancelled`` if the caller has given up; loops that may take minutes call this now and then."""
    is_cancelled = getattr(_thread, "is_cancelled", None)
    if is_cancelled is not None and is_cancelled():
        raise Cancelled
