"""Where runs are worked on: processes of this machine, or a Dask cluster that is running; the same client for both."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from frostline.errors import BadCluster, BadParameter

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 20.0


@contextmanager
def connected(cluster: "str | Client | None", workers: int | None, threads: int) -> "Iterator[Client]":
    """A client of the scheduler at an address; without one, of processes that are started here and end with it; one
    that is there already is left as it is."""
    from distributed import Client

    if isinstance(cluster, Client):
        yield cluster
    elif cluster is None:
        with _quiet(), local(workers, threads) as client:
            yield client
    else:
        if workers is not None:
            raise BadParameter("a cluster has the workers it has; give a number of workers or an address, not both.")
        with _quiet():
            try:
                client = Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError, TypeError) as error:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise BadCluster(
                    f"no scheduler answers at {cluster} within {CONNECT_SECONDS:g} s ({said}); is it running? "
                    "Start one with: dask scheduler"
                ) from None
            try:
                yield client
            finally:
                client.close(timeout=5)


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs of workers that come and go is not for the user: what matters is said in sentences."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def local(workers: int | None, threads: int) -> "Iterator[Client]":
    """Processes of this machine, one per core unless told otherwise, each with its own threads and no more."""
    from distributed import Client, LocalCluster

    count = max(1, cores() // threads) if workers is None else workers
    pinned = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads)
    )
    with (
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            # They serve metrics whether one wants them or not; then for this machine only.
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            env=pinned,
        ) as processes,
        Client(processes, set_as_default=False) as client,
    ):
        yield client


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
