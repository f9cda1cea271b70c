"""Compiled loops (numba): what every caller of one needs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

LOG = logging.getLogger("frostline")


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C while compiled threads run comes out of numba as a SystemError, with the truth somewhere behind it."""
    _announce_compiling()
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        raise (error if cause is None else KeyboardInterrupt) from None


@cache
def _announce_compiling() -> None:
    """Say so, once, when a loop has to be compiled: that takes seconds, and the next process finds it on disk."""
    from numba.core import event

    class Announcer(event.Listener):
        said = False

        def on_start(self, compiling: Any) -> None:
            ours = compiling.data["dispatcher"].py_func.__module__.startswith("frostline")
            if ours and not Announcer.said:
                Announcer.said = True
                LOG.warning("compiling loops for this machine; this happens once, they are kept on disk")

        def on_end(self, compiling: Any) -> None:
            pass

    event.register("numba:compile", Announcer())  # type: ignore[no-untyped-call]
