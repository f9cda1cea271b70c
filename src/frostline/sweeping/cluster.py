"""Dask clients: of processes that are started on this machine, or of a cluster that is running."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from frostline.errors import BadCluster, BadParameter
from frostline.extras import need

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 20.0
"""Seconds within which a scheduler must answer."""
MAIN = 'a script that starts processes needs: if __name__ == "__main__":'
"""The advice for scripts that start worker processes when they are imported."""
FORGETFUL = {"distributed.admin.low-level-log-length": 10}
"""Dask's setting for the last messages that it keeps: with its default, a thousand batches of runs stay in memory."""


@contextmanager
def connected(cluster: "str | Client | None", workers: int | None, threads: int) -> "Iterator[Client]":
    """A client of the scheduler at an address, or of processes that are started here and end with it; a client that is
    given is left as it is."""
    need("distributed", extra="cluster")
    import dask
    from distributed import Client

    if isinstance(cluster, Client):
        yield cluster
    elif cluster is None:
        with quiet(), local(workers, threads) as client:
            yield client
    else:
        if workers is not None:
            raise BadParameter("a cluster has the workers it has; give a number of workers or an address, not both.")
        if not isinstance(cluster, str):
            raise BadParameter(f"cluster is {type(cluster).__name__}; give the address of a scheduler, or a client.")
        with quiet():
            _check_scheduler(cluster)
            with dask.config.set(FORGETFUL):
                client = Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
            try:
                yield client
            finally:
                client.close(timeout=5)


def _check_scheduler(address: str) -> None:
    """A BadCluster if no scheduler answers: a client without one waits longer than its timeout."""
    from distributed import Security, rpc

    async def ask() -> dict[str, object]:
        async with rpc(address, connection_args=Security().get_connection_args("client")) as other:
            identity: dict[str, object] = await other.identity()
            return identity

    try:
        # In a thread of its own, since this one may run an event loop.
        with ThreadPoolExecutor(1) as pool:
            identity = pool.submit(lambda: asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS))).result()
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadCluster(
            f"no scheduler answers at {address} within {CONNECT_SECONDS:g} s ({reason}); is it running? Start one "
            "with: dask scheduler"
        ) from None
    if identity.get("type") != "Scheduler":
        raise BadCluster(f"at {address} there is a {identity.get('type')}; give the address of the scheduler.")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Dask's log: the user gets sentences about workers that come and go, not its traces."""
    distributed = need("distributed", extra="cluster")
    names = [name for name in logging.root.manager.loggerDict if name.startswith(distributed.__name__)]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


@contextmanager
def local(workers: int | None, threads: int) -> "Iterator[Client]":
    """Processes of this machine, one per core unless told otherwise, each with its own threads and no more."""
    import dask
    from distributed import Client, LocalCluster

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BadParameter(f"this is a process that a script has started, and it runs the whole script again; {MAIN}")
    count = max(1, cores() // threads) if workers is None else workers
    pinned = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads)
    )
    with ExitStack() as stack:
        stack.enter_context(_environment_kept())
        stack.enter_context(dask.config.set(FORGETFUL))
        try:
            processes = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                # Dask serves metrics in any case: for this machine only.
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                preload=["frostline.sweeping.worker_signals"],
                env=pinned,
            )
        except RuntimeError as error:
            raise BadCluster(f"the worker processes did not start ({error}); {MAIN}") from None
        client = Client(processes, set_as_default=False)
        try:
            yield client
        finally:
            with _undisturbed():
                client.close()
                processes.close()


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Restore the environment afterwards: Dask leaves the settings of its workers (one thread for each library) in this
    process, where they would slow down later children."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C during the clean-up that follows a first one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
