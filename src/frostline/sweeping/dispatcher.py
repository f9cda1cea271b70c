"""The dispatcher of a sweep: keeps the workers busy with batches of runs, and puts their rows into the dataset."""

import itertools
import os
import queue
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frostline.errors import BadCluster, BadParameter
from frostline.progress import Progress, ProgressFunction
from frostline.sweeping.cluster import CONNECT_SECONDS, connected, quiet
from frostline.sweeping.dataset import Dataset
from frostline.sweeping.kinds.base import code_version
from frostline.sweeping.plan import Plan, Run
from frostline.sweeping.worker import lost, work

if TYPE_CHECKING:
    from distributed import Client, Future

BATCH_SECONDS = 0.3
"""Seconds of work that are handed out together: shorter runs travel in batches."""
BATCH_RUNS = 200
"""Runs in a batch at most."""
BATCHES_A_SECOND = 200
"""Batches that the scheduler gets in a second at most (it manages about 600): where many workers would ask for more,
batches grow."""
AHEAD = 2
"""Batches for each worker: the one it works on, and the next."""
PATIENCE = 120.0
"""Seconds within which a scheduler that went away must come back."""
LOOK_EVERY = 10.0
"""Seconds between two looks at the cluster's workers and at the runs of other clients."""
RESULT_SECONDS = 120.0
"""Seconds within which a finished result must arrive."""


@dataclass
class RunCounts:
    """Counts of the runs of a sweep: done, failed, and worked on by this call (``fresh``).

    ``notice``: a sentence for the user while the sweep waits for something.
    """

    total: int
    done: int = 0
    failed: int = 0
    fresh: int = 0
    notice: str = ""
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """The number of runs without a result."""
        return self.total - self.done - self.failed

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the runs of this call; None before one has finished."""
        return (time.monotonic() - self.began) / self.fresh * self.left if self.fresh else None

    @property
    def progress(self) -> Progress:
        """The counts in words, and what is left."""
        left = self.seconds_left
        more = "" if self.notice or left is None else f", about {_duration(left)} more"
        step = f"{self.done} done, {self.failed} failed, {self.left} left{more}"
        return Progress("", step, self.done + self.failed, self.total, self.notice)

    def count(self, status: str) -> None:
        """Count a finished run by its status."""
        if status == "done":
            self.done += 1
        else:
            self.failed += 1


class _SchedulerLost(Exception):
    pass


class Dispatcher:
    """Keeps workers busy with batches, a few ahead for each, and puts their results into the dataset."""

    def __init__(self, plan: Plan, data: Dataset, counts: RunCounts, threads: int, tell: ProgressFunction):
        self.plan, self.data, self.counts, self.threads, self.tell = plan, data, counts, threads, tell
        self.waiting: list[list[Run]] = []
        """Batches that came back without a result, to be handed out again."""
        self.suspects: list[Run] = []
        """Runs whose worker died, to be tried once more on their own: Dask blames every run that the worker had."""
        self.alone: set[str] = set()
        """Ids of suspects that were handed out on their own."""
        self.flying: dict[Any, tuple[Future, list[Run]]] = {}
        """Batches that workers have now, by the key of their future."""
        self.taken: set[str] = set()
        """Ids of runs that were handed out."""
        self.size, self.wanted = 1, 0
        minutes = plan.budget.minutes
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.runs = self._missing()

    def go(self, cluster: "str | Client | None", workers: int | None) -> str:
        """Run until nothing is left or the budget is spent; the reason for an early end, as a sentence."""
        # A client that has lost its scheduler goes on talking after it is closed.
        with quiet():
            return self._go(cluster, workers)

    def _go(self, cluster: "str | Client | None", workers: int | None) -> str:
        lost_at: float | None = None
        while True:
            try:
                with connected(cluster, workers, self.threads) as client:
                    lost_at = None
                    self._notify("")
                    self._drive(client)
                if self.counts.left and not self._may_begin():
                    return f"The budget of {self.plan.budget.minutes:g} minutes is spent; call again to go on."
                return ""
            except (_SchedulerLost, BadCluster) as error:
                if isinstance(error, BadCluster) and lost_at is None:
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > PATIENCE:
                    raise BadCluster(
                        f"the scheduler at {cluster} went away and did not come back within {PATIENCE:g} s; "
                        f"{self.counts.done + self.counts.failed} of {self.counts.total} runs are kept, call "
                        "again to go on."
                    ) from None
                self._notify("the scheduler went away; waiting for it")
                self.waiting += [batch for _, batch in self.flying.values()]
                self.flying = {}
                time.sleep(1)

    def _missing(self) -> Iterator[Run]:
        """Runs without a row. A second client begins elsewhere in the plan, so that few runs are done twice."""
        begin = int(self.counts.total * _beginning(self.data.others))
        for run in itertools.chain(
            itertools.islice(self.plan.runs(), begin, None), itertools.islice(self.plan.runs(), begin)
        ):
            if run.id not in self.taken and self.data.status(run.id) is None:
                self.taken.add(run.id)
                yield run

    def _drive(self, client: "Client") -> None:
        arrived: queue.SimpleQueue[Future] = queue.SimpleQueue()
        looked = -LOOK_EVERY
        while True:
            if time.monotonic() - looked > (1.0 if self.counts.notice else LOOK_EVERY):
                looked = time.monotonic()
                # Also where there is no worker yet: clusters that grow by themselves grow when something waits.
                self.wanted = AHEAD * max(1, self._threads_of(client))
                # What other clients have finished meanwhile is not run again.
                self.data.refresh()
            while len(self.flying) < self.wanted and self._may_begin():
                batch = self._batch()
                if not batch:
                    break
                self._submit(client, batch, arrived)
            if not self.flying:
                return
            try:
                self._take(arrived.get(timeout=1.0))
            except queue.Empty:
                self._check(client)
            self.tell(self.counts.progress)

    def _may_begin(self) -> bool:
        return self.deadline is None or time.monotonic() < self.deadline

    def _batch(self) -> list[Run]:
        while self.waiting:
            batch = [run for run in self.waiting.pop() if self.data.status(run.id) is None]
            if batch:
                return batch
        batch = list(itertools.islice(self.runs, self.size))
        if not batch and self.suspects and not self.flying:
            batch = [self.suspects.pop()]
            self.alone.add(batch[0].id)
        return batch

    def _submit(self, client: "Client", batch: list[Run], arrived: "queue.SimpleQueue[Future]") -> None:
        future = client.submit(
            work,
            self.plan.kind.name,
            code_version(),
            [(run.id, run.table) for run in batch],
            arrays=self.plan.arrays,
            threads=self.threads,
            folder=os.getcwd(),
            key=f"frostline-{secrets.token_hex(8)}",
            pure=False,
        )
        if not self.counts.fresh:
            # The time left is reckoned from here: starting processes is not part of any run.
            self.counts.began = time.monotonic()
        self.flying[future.key] = (future, batch)
        future.add_done_callback(arrived.put)

    def _take(self, future: "Future") -> None:
        known = self.flying.pop(future.key, None)
        if known is None:
            return
        batch = known[1]
        if future.status == "finished":
            try:
                rows = future.result(timeout=RESULT_SECONDS)
            except (OSError, TimeoutError, CancelledError):
                self.flying[future.key] = known
                raise _SchedulerLost from None
            future.release()
            self._keep(rows)
            each = sum(row["seconds"] for row, _ in rows) / len(rows)
            self.size = min(2 * self.size, batch_size(each, self.wanted // AHEAD))
        elif future.status == "error":
            self._failed(future, batch)
        else:
            self.flying[future.key] = known
            raise _SchedulerLost

    def _failed(self, future: "Future", batch: list[Run]) -> None:
        from distributed import KilledWorker

        error = future.exception()
        if isinstance(error, BadCluster):
            # Not one that goes away by waiting.
            raise BadParameter(str(error))
        if not isinstance(error, KilledWorker):
            raise BadParameter(
                f"the workers cannot run this: {type(error).__name__}: {str(error)[:300]}. Is frostline "
                f"{code_version()} installed there, with the same extras?"
            )
        if not all(run.id in self.alone for run in batch):
            self.suspects += batch
            return
        (run,) = batch
        error_of_run = (
            f"its worker died each time it was tried, at last {error.allowed_failures + 1} times with no other run of "
            "this sweep beside it; too little memory is the usual reason"
        )
        self._keep([(lost(self.plan.kind.name, run.id, run.table, error_of_run), None)])

    def _keep(self, rows: list[tuple[dict[str, Any], bytes | None]]) -> None:
        new = [(row, arrays) for row, arrays in rows if self.data.status(row["id"]) is None]
        for row, arrays in new:
            if arrays is not None:
                self.data.keep_arrays(row["id"], arrays)
            self.counts.fresh += 1
            self.counts.count(row["status"])
        if new:
            self.data.add(*(row for row, _ in new))

    def _check(self, client: "Client") -> None:
        """After a second without a result: raise if the scheduler, or a batch, is lost."""
        gone = any(future.status in ("lost", "cancelled") for future, _ in self.flying.values())
        if gone or client.status != "running":
            raise _SchedulerLost

    def _threads_of(self, client: "Client") -> int:
        try:
            # A scheduler that is connected may still not answer.
            threads = sum(client.nthreads(callback_timeout=CONNECT_SECONDS).values())
        except (OSError, TimeoutError, ValueError, CancelledError):
            raise _SchedulerLost from None
        self._notify("" if threads else "the cluster has no workers; waiting for some")
        return threads

    def _notify(self, sentence: str) -> None:
        self.counts.notice = sentence
        self.tell(self.counts.progress)


def batch_size(seconds: float, workers: int) -> int:
    """How many runs are handed out together, by the seconds that one takes and the number of workers."""
    together = max(BATCH_SECONDS, workers / BATCHES_A_SECOND)
    return max(1, min(BATCH_RUNS, round(together / max(seconds, 1e-4))))


def _beginning(client: int) -> float:
    """The share of the plan at which a client begins: 0, 1/2, 1/4, 3/4, …, far from the others (van der Corput)."""
    share, part = 0.0, 0.5
    while client:
        share += part * (client & 1)
        client, part = client >> 1, part / 2
    return share


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
