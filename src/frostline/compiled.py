"""Compiled loops (numba): kept on disk, interruptible, announced when they have to be compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from frostline.log import LOG


def njit(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's ``njit`` with the compiled loop kept on disk, where a folder can be written."""
    import numba

    def decorated(loop: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **settings)(loop)
        except RuntimeError:
            _warn_not_kept()
            return numba.njit(**settings)(loop)

    return decorated


@cache
def _warn_not_kept() -> None:
    LOG.warning(
        "compiled loops cannot be kept on disk and take half a minute in every process; "
        "set NUMBA_CACHE_DIR to a folder that can be written"
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt where numba's threads turned Ctrl-C into a SystemError that has it among its causes."""
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
    """Log once when a loop has to be compiled: that takes seconds, and later processes find it on disk."""
    from numba.core import event

    class Announcer(event.Listener):
        def __init__(self) -> None:
            self.announced = False

        def on_start(self, compiling: Any) -> None:
            ours = compiling.data["dispatcher"].py_func.__module__.startswith("frostline")
            if ours and not self.announced:
                self.announced = True
                LOG.warning("compiling loops for this machine; this happens once, they are kept on disk")

        def on_end(self, compiling: Any) -> None:
            pass

    event.register("numba:compile", Announcer())  # type: ignore[no-untyped-call]
