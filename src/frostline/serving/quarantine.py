"""Quarantine of damaged event files: they are kept under another name, and nothing of them is changed."""

import itertools
import os
from pathlib import Path

from frostline.errors import BadParameter
from frostline.files.atomic import sync_folder

ENDINGS = ("", "-wal", "-shm")
"""Endings of the names of an SQLite file and of what SQLite keeps beside it."""


def put_aside(path: Path) -> Path:
    """Rename a file to ``NAME.damaged-N``, N the first that is free, with its write-ahead log; returns the new path.

    The caller holds the lock on the file and has closed it.

    Raises
    ------
    BadParameter
        The file cannot be renamed, say in a folder that is read-only.
    """
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        if not any(os.path.lexists(f"{aside}{ending}") for ending in ENDINGS):
            break
    try:
        for ending in ENDINGS:
            if os.path.lexists(f"{path}{ending}"):
                os.rename(f"{path}{ending}", f"{aside}{ending}")
        sync_folder(path.parent)
    except OSError as error:
        raise BadParameter(
            f"{path} is damaged and cannot be put aside ({error.strerror}); rename it, or give another event file."
        ) from None
    return aside
