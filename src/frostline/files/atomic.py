"""Writes that leave a whole file behind, whatever happens meanwhile."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """The file has its old content or the new one, whatever happens, and the new one is on disk on return."""
    # Readers of whole folders of Parquet pass over names that begin like this.
    temporary = path.with_name(f"_{path.name}.tmp")
    if path.exists() and not path.is_file():
        # A device, say, which a rename would replace.
        raise OSError(errno.EINVAL, "this is not a file that can be replaced", str(path))
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = str(path)
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make what was created or renamed in this folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
