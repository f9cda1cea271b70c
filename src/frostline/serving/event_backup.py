"""Backups of event files: one consistent file, made while a service writes."""

import contextlib
import os
import sqlite3
from pathlib import Path

from frostline.errors import BadParameter
from frostline.files.atomic import sync_folder
from frostline.files.locks import remove_lock_file, take_lock_file
from frostline.serving.event_file import connect, create_private

BESIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside its own."""


def back_up(path: Path, target: Path, *, force: bool = False) -> int:
    """Copy an event file with what is still in its write-ahead log; returns the number of events in the copy.

    ``target`` has its old content or the whole copy, whatever happens meanwhile.

    Raises
    ------
    BadParameter
        The event file cannot be read or is damaged; or ``target`` is there and ``force`` is not given, or is in use.
    """
    target = target.resolve()
    if target == path.resolve():
        raise BadParameter(f"{target} is the event file itself; give another file.")
    if not target.parent.is_dir() or (target.exists() and not target.is_file()):
        raise BadParameter(f"no backup can be written to {target}; give a file in a folder that is there.")
    connection = connect(path)
    try:
        lock = Path(f"{target}.lock")
        claim = take_lock_file(lock)
        if claim is None:
            raise BadParameter(f"{target} is in use by another frostline; give another file.")
        try:
            return _back_up(connection, target, force=force)
        finally:
            remove_lock_file(lock, claim)
    except sqlite3.Error as error:
        raise BadParameter(
            f"{path} cannot be copied ({error}); if it is damaged, frostline events {path} shows what can be read."
        ) from None
    finally:
        connection.close()


def _back_up(source: sqlite3.Connection, target: Path, *, force: bool) -> int:
    there = [f"{target}{ending}" for ending in ("", *BESIDE) if os.path.lexists(f"{target}{ending}")]
    if there and not force:
        raise BadParameter(f"{there[0]} is there already; --force replaces it.")
    temporary = target.with_name(f".{target.name}.tmp")
    _remove(temporary, "", *BESIDE)
    create_private(temporary)
    try:
        count = _copy(source, temporary)
        # SQLite would use an old log for the new file.
        _remove(target, *BESIDE)
        if force:
            os.replace(temporary, target)
        else:
            os.link(temporary, target)  # fails if somebody else was quicker
        sync_folder(target.parent)
    except FileExistsError:
        raise BadParameter(f"{target} is there already; --force replaces it.") from None
    finally:
        _remove(temporary, "", *BESIDE)
    return count


def _copy(source: sqlite3.Connection, path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as copy:
        # In one step: a service that writes meanwhile goes on, and the copy has what there was at its beginning.
        source.backup(copy)
        # Of a copy with a log of its own, again only one half might be carried away.
        copy.execute("PRAGMA journal_mode = DELETE")
        verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(str(verdict).split()))
        count = copy.execute("SELECT count(*) FROM events").fetchone()[0]
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return int(count)


def _remove(path: Path, *endings: str) -> None:
    for ending in endings:
        Path(f"{path}{ending}").unlink(missing_ok=True)
