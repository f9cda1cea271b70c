"""Long work that nobody waits for any more: who waits says so, and loops that may take minutes look."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_mine = threading.local()


class Stopped(Exception):
    """The work was given up because nobody wanted it any more."""


@contextmanager
def unless(unwanted: Callable[[], bool]) -> Iterator[None]:
    """Work in this thread raises ``Stopped`` at its next look once ``unwanted()`` is true."""
    before = getattr(_mine, "unwanted", None)
    _mine.unwanted = unwanted
    try:
        yield
    finally:
        _mine.unwanted = before


def look() -> None:
    """To be called now and then by whatever may take long; costs nothing where nobody can stop it."""
    unwanted = getattr(_mine, "unwanted", None)
    if unwanted is not None and unwanted():
        raise Stopped
