"""Compiled loops (numba): what every caller of one needs."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

LOG = logging.getLogger("frostline")


def njit(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's ``njit`` for a loop that is compiled once and kept on disk; where no folder can be written, compiled anew
    in every process."""
    import numba

    def decorated(loop: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **settings)(loop)
        except RuntimeError:
            _not_kept()
            return numba.njit(**settings)(loop)

    return decorated


@cache
def _not_kept() -> None:
    LOG.warning(
        "compiled loops cannot be kept on disk and take half a minute in every process; "
        "set NUMBA_CACHE_DIR to a folder that can be written"
    )


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
