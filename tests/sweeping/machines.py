"""A real scheduler and real workers, each a process of its own, on the loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def started(*command, **more):
    """A process in a group of its own; whatever it started ends with it."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | more
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, start_new_session=True, **quiet)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def scheduler(port):
    where = ("--host", "127.0.0.1", "--port", str(port))
    return started("-m", "distributed.cli.dask_scheduler", *where, "--no-dashboard")


def worker(port, *options, **more):
    own = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", *options)
    return started("-m", "distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", *own, **more)


def wait_for(condition, seconds=120, what=""):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, what or "waited in vain"
        time.sleep(0.05)


def kill_children(process):
    """The worker proper is a child of the process that watches over it."""
    import psutil

    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
