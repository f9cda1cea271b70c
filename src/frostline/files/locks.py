"""Locks on open files. The system gives a lock up when its file is closed or its process ends, however that happens."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def try_lock(file: IO | int) -> bool:
    """Take the lock on an open file; False when another process holds it, or where files cannot be locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is made if it is not there; wait for it as long as another process has it."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
