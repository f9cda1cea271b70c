"""Locks on open files. The system gives a lock up when its file is closed or its process ends, however that happens."""

import contextlib
import fcntl
import os
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


def take_lock_file(path: Path) -> int | None:
    """Make a file, lock it and return its handle; None when another process holds it. Only the owner may read it.

    ``remove_lock_file`` removes the file again, so a handle may lead to a file that is gone and that the next process
    makes anew. Such a lock would keep nobody out: it is given up, and the file is opened again.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not try_lock(handle):
            os.close(handle)
            return None
        if _leads_to(path, handle):
            return handle
        os.close(handle)


def remove_lock_file(path: Path, handle: int) -> None:
    """Remove a lock file and give its lock up, in this order: no process can hold a lock on a removed file for long."""
    with contextlib.suppress(OSError):
        if _leads_to(path, handle):
            path.unlink()
    os.close(handle)


def _leads_to(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
