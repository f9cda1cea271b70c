"""The work of one worker: runs in, rows out; a run that fails is a row with its error."""

import json
import os
import platform
import socket
import sys
import threading
import time
import traceback
from contextlib import chdir, nullcontext
from typing import Any

import numpy as np
import torch

from frostline.errors import BadCluster, FrostlineError
from frostline.files.plain_json import plain
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.kinds.base import Table, code_version

LONGEST_ERROR = 2000
"""Characters of an error in a row at most."""
_one_at_a_time = threading.Lock()
"""Compiled loops use all threads they are given: two runs in one process would fight, and may abort it."""


def work(
    command: str, code: str, runs: list[tuple[str, Table]], *, arrays: bool, threads: int, folder: str
) -> list[tuple[dict[str, Any], bytes | None]]:
    """Rows of the runs, in their order, with their arrays where asked for. ``folder``: the client's folder, which paths
    are relative to."""
    check_code(code)
    with _one_at_a_time, chdir(folder) if os.path.isdir(folder) else nullcontext():
        _use(threads)
        return [_row(command, id, table, arrays) for id, table in runs]


def check_code(code: str) -> None:
    """Refuse work where this machine has other code than the client."""
    if code_version() != code:
        raise BadCluster(
            f"the worker on {socket.gethostname()} has frostline {code_version()}, and this client has {code}; install "
            "the same on both, or results of two kinds would be mixed."
        )


def lost(command: str, id: str, table: Table, error: str) -> dict[str, Any]:
    """The row of a run that took its worker down with it."""
    return _about(command, id, table, time.time()) | {"status": "lost", "error": error}


def _row(command: str, id: str, table: Table, arrays: bool) -> tuple[dict[str, Any], bytes | None]:
    from safetensors.torch import save

    began = time.time()
    row, blob = _about(command, id, table, began), None
    try:
        if KINDS[command].identity(table) != id:
            raise BadCluster(
                f"a file that the spec names is not the same on {socket.gethostname()} as the client saw it, or not "
                "there; workers need the same files at the same paths, unchanged while the sweep lasts."
            )
        measures, kept = KINDS[command].run(table)
        row |= measures | {"status": "done", "error": None}
        if arrays:
            blob = save({name: array.contiguous() for name, array in kept.items()})
    except (FrostlineError, MemoryError) as error:
        row |= {"status": "failed", "error": str(error)[:LONGEST_ERROR] or type(error).__name__}
    except Exception as error:
        # An unforeseen error is reported with its place.
        where = traceback.extract_tb(error.__traceback__)[-1]
        sentence = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        row |= {"status": "failed", "error": sentence[:LONGEST_ERROR]}
    row["seconds"] = round(time.time() - began, 4)
    return plain(row), blob


def _about(command: str, id: str, table: Table, began: float) -> dict[str, Any]:
    return {
        "id": id,
        "command": command,
        "seconds": None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "host": socket.gethostname(),
        "code": code_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
        "spec": json.dumps(table, sort_keys=True),
        **KINDS[command].columns(table),
    }


def _use(threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    if "numba" in sys.modules:
        import numba

        numba.set_num_threads(min(threads, int(getattr(numba.config, "NUMBA_NUM_THREADS"))))  # noqa: B009
    else:
        os.environ["NUMBA_NUM_THREADS"] = str(threads)
