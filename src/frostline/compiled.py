"""Compiled loops (numba): what every caller of one needs."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C while compiled threads run comes out of numba as a SystemError, with the truth somewhere behind it."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        raise (error if cause is None else KeyboardInterrupt) from None
