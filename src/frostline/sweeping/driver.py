"""sweep: missing runs are handed to workers and their rows put into the dataset; another call goes on from there."""

import itertools
import os
import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frostline.errors import BadCluster, BadParameter, BadRun
from frostline.results import Result
from frostline.sweeping import plan as plans
from frostline.sweeping.cluster import CONNECT_SECONDS, connected, quiet
from frostline.sweeping.dataset import MARK, Dataset, command_of, read_table, statuses, whole_status
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


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Result):
    """A sweep that was run: how many of its runs are in the dataset, and where that is.

    Attributes
    ----------
    out : Path
        The folder of the dataset.
    total, done, failed, left : int
        Runs of the sweep; those that finished, those that failed (their rows say why), those that are still missing.
    fresh : int
        Runs that this call worked on.
    seconds : float
        How long this call took.
    stopped : str
        The reason why runs are left, as a sentence; empty where none are.
    table : pyarrow.Table
        One row per run of this sweep.
    """

    out: Path
    total: int
    done: int
    failed: int
    left: int
    fresh: int
    seconds: float
    stopped: str = ""
    plan: Plan = field(kw_only=True)

    @property
    def table(self) -> pa.Table:
        """The rows of this sweep; ``frostline.sweeping.dataset.read_table`` has all rows of the dataset."""
        return read_table(self.out, ids=self.plan.ids())

    def describe(self) -> str:
        """How far the sweep is, and why runs are left."""
        fresh = f"{self.fresh} were run just now" if self.fresh else "nothing had to be run"
        counts = f"{self.done} of {self.total} runs done, {self.failed} failed, {self.left} left; {fresh}."
        return f"{counts}\n{self.stopped}" if self.stopped else counts

    def headline(self) -> str:
        counts = f"{self.done} of {self.total} runs done, {self.failed} failed, {self.left} left, {self.fresh} just now"
        return f"{counts}; {self.out}"

    def facts(self) -> dict[str, Any]:
        """The counts, the folder, the time and the reason, as ``frostline sweep --json`` prints them."""
        kept = ("total", "done", "failed", "left", "fresh", "seconds", "stopped")
        return {"out": str(self.out), **{name: getattr(self, name) for name in kept}}


@dataclass
class SweepProgress:
    """How far a sweep is: runs that are done, that failed, and that this call worked on (``fresh``).

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
        return self.total - self.done - self.failed

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the runs of this call; None before one has finished."""
        return (time.monotonic() - self.began) / self.fresh * self.left if self.fresh else None

    def count(self, status: str) -> None:
        if status == "done":
            self.done += 1
        else:
            self.failed += 1


def sweep(
    spec: "str | Path | Mapping[str, Any] | Plan",
    *,
    out: "str | Path | None" = None,
    cluster: "str | Client | None" = None,
    workers: int | None = None,
    threads: int = 1,
    again: bool = False,
    report: Callable[[SweepProgress], None] | None = None,
) -> Sweep:
    """Run the runs of a sweep that are not in its dataset yet: on processes of this machine, or on a Dask cluster.

    Parameters
    ----------
    spec : str, Path or mapping
        A TOML file, or its table: ``command``, ``spec``, ``axes``, ``where``, ``budget``, ``arrays``, ``out``.
    out : str or Path, optional
        The folder of the dataset; without it the one that the spec names.
    cluster : str or distributed.Client, optional
        The address of a running Dask scheduler, or a client of one; without it processes are started here.
    workers : int, optional
        Processes on this machine; without it one per core.
    threads : int
        Threads of each run.
    again : bool
        Whether runs that failed before are run again.
    report : callable, optional
        Called with the progress whenever it changes.

    Returns
    -------
    Sweep
        How many runs are done, and the table of their results.

    Raises
    ------
    BadSpec
        The spec cannot be read, or asks for more runs than its budget.
    BadParameter
        A number is out of range, or the workers cannot run this.
    BadRun
        The folder holds something else, or the dataset is damaged.
    BadCluster
        No scheduler answers, or its workers run other code.
    MissingExtra
        Dask is not installed.

    Notes
    -----
    Python starts worker processes by importing the calling script, so scripts need ``if __name__ == "__main__":``.

    Examples
    --------
    >>> spec = {"tokens": 5, "dimension": 2, "B": [1.0, 0.5]}
    >>> table = {"command": "theory", "spec": spec, "axes": {"beta": [1.0, 10.0], "seed": "0..9"}}
    >>> plans.parse(table).count()
    20
    >>> sweep(table, out="runs").done  # doctest: +SKIP
    20
    """
    plan = _planned(spec, out)
    for name, count in (("workers", 1 if workers is None else workers), ("threads", threads)):
        if not isinstance(count, int) or count < 1:
            raise BadParameter(f"{name} is {count!r}; there must be one at least.")
    began = time.monotonic()
    with Dataset(plan.out, plan.kind, arrays=plan.arrays) as data:
        if again:
            data.drop(plan.ids())
        progress = _standing(plan, data.status)
        tell = report or (lambda progress: None)
        tell(progress)
        stopped = ""
        if progress.left:
            stopped = _Driver(plan, data, progress, threads, tell).go(cluster, workers)
        if progress.left:
            # Other clients of the dataset may have finished some of them.
            fresh, progress = progress.fresh, _standing(plan, data.status)
            progress.fresh = fresh
    return Sweep(
        plan.out,
        progress.total,
        progress.done,
        progress.failed,
        progress.left,
        progress.fresh,
        round(time.monotonic() - began, 2),
        stopped,
        plan=plan,
    )


def _planned(spec: "str | Path | Mapping[str, Any] | Plan", out: "str | Path | None") -> Plan:
    folder = None if out is None else str(out)
    if isinstance(spec, Plan):
        return spec if folder is None else replace(spec, out=Path(folder))
    if isinstance(spec, Mapping):
        return plans.parse(spec, out=folder)
    if isinstance(spec, str | Path):
        return plans.read(spec, out=folder)
    raise BadParameter(f"the sweep is {type(spec).__name__}; give a TOML file, or its table.")


def standing(plan: Plan) -> SweepProgress:
    """How far a sweep is, by the rows on disk; nothing is run or written."""
    if not (plan.out / MARK).exists():
        return _standing(plan, lambda id: None)
    if command_of(plan.out) is not plan.kind:
        raise BadRun(f"{plan.out} holds runs of {command_of(plan.out).name}, and these are of {plan.kind.name}.")
    there = statuses(plan.out)

    return _standing(plan, lambda id: whole_status(plan.out, id, there.get(bytes.fromhex(id)), arrays=plan.arrays))


def _standing(plan: Plan, status_of: Callable[[str], str | None]) -> SweepProgress:
    # As a set: two combinations may mean one run.
    ids = plan.ids()
    progress = SweepProgress(len(ids))
    for status in map(status_of, ids):
        if status is not None:
            progress.count(status)
    return progress


class _SchedulerLost(Exception):
    pass


class _Driver:
    """Keeps workers busy with batches, a few ahead for each, and puts their results into the dataset."""

    def __init__(
        self, plan: Plan, data: Dataset, progress: SweepProgress, threads: int, tell: Callable[[SweepProgress], None]
    ):
        self.plan, self.data, self.progress, self.threads, self.tell = plan, data, progress, threads, tell
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
                if self.progress.left and not self._may_begin():
                    return f"The budget of {self.plan.budget.minutes:g} minutes is spent; call again to go on."
                return ""
            except (_SchedulerLost, BadCluster) as error:
                if isinstance(error, BadCluster) and lost_at is None:
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > PATIENCE:
                    raise BadCluster(
                        f"the scheduler at {cluster} went away and did not come back within {PATIENCE:g} s; "
                        f"{self.progress.done + self.progress.failed} of {self.progress.total} runs are kept, call "
                        "again to go on."
                    ) from None
                self._notify("the scheduler went away; waiting for it")
                self.waiting += [batch for _, batch in self.flying.values()]
                self.flying = {}
                time.sleep(1)

    def _missing(self) -> Iterator[Run]:
        """Runs without a row. A second client begins elsewhere in the plan, so that few runs are done twice."""
        begin = int(self.progress.total * _beginning(self.data.others))
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
            if time.monotonic() - looked > (1.0 if self.progress.notice else LOOK_EVERY):
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
            self.tell(self.progress)

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
        if not self.progress.fresh:
            # The time left is reckoned from here: starting processes is not part of any run.
            self.progress.began = time.monotonic()
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
            self.progress.fresh += 1
            self.progress.count(row["status"])
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
        self.progress.notice = sentence
        self.tell(self.progress)


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
