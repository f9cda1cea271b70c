"""Loaded by worker processes of this machine: Ctrl-C in a terminal is for the client, which ends them."""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called by Dask when a worker starts, in the main thread of its process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
