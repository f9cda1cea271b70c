"""sweep: hand the runs that are not there yet to workers, put what comes back into the dataset; call again to go on."""

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
from frostline.printable import one_line
from frostline.sweeping import plan as plans
from frostline.sweeping.cluster import CONNECT_SECONDS, connected, quiet
from frostline.sweeping.dataset import MARK, Dataset, arrays_of, command_of, read_table, statuses
from frostline.sweeping.kinds.base import code_version
from frostline.sweeping.plan import Plan, Run
from frostline.sweeping.worker import lost, work

if TYPE_CHECKING:
    from distributed import Client, Future

BATCH_SECONDS, BATCH_RUNS, BATCHES_A_SECOND = 0.3, 200, 200
"""Runs that are shorter than this travel together, but no more than so many; longer ones, too, where there are so many
workers that the scheduler would be asked for more batches a second than this (it manages about 600)."""
AHEAD = 2
"""Batches for each worker: the one it works on, and the next."""
PATIENCE = 120.0
"""Seconds that a scheduler which went away has to come back."""
LOOK_EVERY = 10.0
RESULT_SECONDS = 120.0
"""That a result which is ready may take to come."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """What came out: ``total`` runs, of which ``done``, ``failed`` (their rows say why) and ``left``; ``fresh`` were
    run just now."""

    out: Path
    total: int
    done: int
    failed: int
    left: int
    fresh: int
    seconds: float
    stopped: str = ""
    """Why runs are left."""
    plan: Plan = field(kw_only=True, repr=False)

    def __repr__(self) -> str:
        said = f"{self.done} of {self.total} runs done, {self.failed} failed, {self.left} left, {self.fresh} just now"
        return one_line(self, f"{said}; {self.out}")

    @property
    def table(self) -> pa.Table:
        """Its rows; ``frostline.sweeping.dataset.read_table`` has all of a dataset that sweeps share."""
        return read_table(self.out, ids=self.plan.ids())

    def facts(self) -> dict[str, Any]:
        kept = ("total", "done", "failed", "left", "fresh", "seconds", "stopped")
        return {"out": str(self.out), **{name: getattr(self, name) for name in kept}}


@dataclass
class Progress:
    """Of a sweep under way."""

    total: int
    done: int = 0
    failed: int = 0
    fresh: int = 0
    said: str = ""
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed

    @property
    def seconds_left(self) -> float | None:
        """From those that were run just now; None before there are some."""
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
    report: Callable[[Progress], None] | None = None,
) -> Sweep:
    """Run the runs of a sweep that are not in its dataset yet: on processes of this machine, or on a Dask cluster.

    ``spec``: a TOML file, or its table. ``out``: another folder than the file's. ``cluster``: the address of a
    scheduler, or a client of one. ``workers``: processes (one per core). ``threads``: of each run. ``again``: also
    those that failed before. Scripts that call this need the usual ``if __name__ == "__main__":``.
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
            # Some that other clients have done, perhaps.
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


def standing(plan: Plan) -> Progress:
    """How far a sweep is, by what is on disk; nothing is run or written."""
    if not (plan.out / MARK).exists():
        return _standing(plan, lambda id: None)
    if command_of(plan.out) is not plan.kind:
        raise BadRun(f"{plan.out} holds runs of {command_of(plan.out).name}, and these are of {plan.kind.name}.")
    there = statuses(plan.out)

    def status(id: str) -> str | None:
        found = there.get(bytes.fromhex(id))
        return None if found == "done" and plan.arrays and not arrays_of(plan.out, id).exists() else found

    return _standing(plan, status)


def _standing(plan: Plan, status: Callable[[str], str | None]) -> Progress:
    # As a set: two combinations may mean one run.
    ids = plan.ids()
    found = Progress(len(ids))
    for told in map(status, ids):
        if told is not None:
            found.count(told)
    return found


class _SchedulerLost(Exception):
    pass


class _Driver:
    """Keeps workers busy with batches, few of them at a time; takes what comes back."""

    def __init__(self, plan: Plan, data: Dataset, progress: Progress, threads: int, tell: Callable[[Progress], None]):
        self.plan, self.data, self.progress, self.threads, self.tell = plan, data, progress, threads, tell
        self.waiting: list[list[Run]] = []
        """Batches that came back without a result, to be handed out again."""
        self.suspects: list[Run] = []
        """Runs whose worker died, to be tried once more with nothing beside them: Dask blames all that a worker had."""
        self.alone: set[str] = set()
        """Those that were handed out like that."""
        self.flying: dict[Any, tuple[Future, list[Run]]] = {}
        self.taken: set[str] = set()
        self.size, self.wanted = 1, 0
        minutes = plan.budget.minutes
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.runs = self._missing()

    def go(self, cluster: "str | Client | None", workers: int | None) -> str:
        """Until nothing is left, or the budget is; why it stopped early, in a sentence."""
        # A client that has lost its scheduler goes on talking after it is closed.
        with quiet():
            return self._go(cluster, workers)

    def _go(self, cluster: "str | Client | None", workers: int | None) -> str:
        lost_at: float | None = None
        while True:
            try:
                with connected(cluster, workers, self.threads) as client:
                    lost_at = None
                    self._say("")
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
                self._say("the scheduler went away; waiting for it")
                self.waiting += [batch for _, batch in self.flying.values()]
                self.flying = {}
                time.sleep(1)

    def _missing(self) -> Iterator[Run]:
        """Runs that are not there. A second client begins elsewhere, so that few runs are done twice."""
        begin = int(self.progress.total * _spread(self.data.others))
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
            if time.monotonic() - looked > (1.0 if self.progress.said else LOOK_EVERY):
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
        told = (
            f"its worker died each time it was tried, at last {error.allowed_failures + 1} times with no other run of "
            "this sweep beside it; too little memory is the usual reason"
        )
        self._keep([(lost(self.plan.kind.name, run.id, run.table, told), None)])

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
        """Nothing came for a second: is there still someone to come from?"""
        gone = any(future.status in ("lost", "cancelled") for future, _ in self.flying.values())
        if gone or client.status != "running":
            raise _SchedulerLost

    def _threads_of(self, client: "Client") -> int:
        try:
            # A scheduler may be there and say nothing.
            found = sum(client.nthreads(callback_timeout=CONNECT_SECONDS).values())
        except (OSError, TimeoutError, ValueError, CancelledError):
            raise _SchedulerLost from None
        self._say("" if found else "the cluster has no workers; waiting for some")
        return found

    def _say(self, text: str) -> None:
        self.progress.said = text
        self.tell(self.progress)


def batch_size(seconds: float, workers: int) -> int:
    """How many runs of so many seconds are handed out together."""
    together = max(BATCH_SECONDS, workers / BATCHES_A_SECOND)
    return max(1, min(BATCH_RUNS, round(together / max(seconds, 1e-4))))


def _spread(number: int) -> float:
    """0, 1/2, 1/4, 3/4, …: places to begin at, far from each other."""
    found, part = 0.0, 0.5
    while number:
        found += part * (number & 1)
        number, part = number >> 1, part / 2
    return found
