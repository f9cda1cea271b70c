"""sweep: missing runs are handed to workers and their rows put into the dataset; another call goes on from there."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frostline.arrays import as_count
from frostline.errors import BadParameter, BadRun
from frostline.progress import ProgressFunction
from frostline.results import Result
from frostline.sweeping import plan as plans
from frostline.sweeping.dataset import MARK, Dataset, command_of, read_table, statuses, whole_status
from frostline.sweeping.dispatcher import Dispatcher, RunCounts
from frostline.sweeping.plan import Plan

if TYPE_CHECKING:
    from distributed import Client


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
    plan : Plan
        The sweep as it was asked for.
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
        """Counts of runs, and the dataset."""
        counts = f"{self.done} of {self.total} runs done, {self.failed} failed, {self.left} left, {self.fresh} just now"
        return f"{counts}; {self.out}"

    def facts(self) -> dict[str, Any]:
        """The counts, the folder, the time and the reason, as ``frostline sweep --json`` prints them."""
        kept = ("total", "done", "failed", "left", "fresh", "seconds", "stopped")
        return {"out": str(self.out), **{name: getattr(self, name) for name in kept}}


def sweep(
    spec: "str | Path | Mapping[str, Any] | Plan",
    *,
    out: "str | Path | None" = None,
    cluster: "str | Client | None" = None,
    workers: int | None = None,
    threads: int = 1,
    again: bool = False,
    progress: ProgressFunction | None = None,
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
    progress : callable, optional
        Called with a ``Progress`` whenever it changes; its ``notice`` says what the sweep waits for.

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
        as_count(count, name)
    began = time.monotonic()
    with Dataset(plan.out, plan.kind, arrays=plan.arrays) as data:
        if again:
            data.drop(plan.ids())
        counts = _standing(plan, data.status)
        tell = progress or (lambda progress: None)
        tell(counts.progress)
        stopped = ""
        if counts.left:
            stopped = Dispatcher(plan, data, counts, threads, tell).go(cluster, workers)
        if counts.left:
            # Other clients of the dataset may have finished some of them.
            fresh, counts = counts.fresh, _standing(plan, data.status)
            counts.fresh = fresh
    return Sweep(
        plan.out,
        counts.total,
        counts.done,
        counts.failed,
        counts.left,
        counts.fresh,
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


def standing(plan: Plan) -> RunCounts:
    """How far a sweep is, by the rows on disk; nothing is run or written."""
    if not (plan.out / MARK).exists():
        return _standing(plan, lambda id: None)
    if command_of(plan.out) is not plan.kind:
        raise BadRun(f"{plan.out} holds runs of {command_of(plan.out).name}, and these are of {plan.kind.name}.")
    there = statuses(plan.out)

    return _standing(plan, lambda id: whole_status(plan.out, id, there.get(bytes.fromhex(id)), arrays=plan.arrays))


def _standing(plan: Plan, status_of: Callable[[str], str | None]) -> RunCounts:
    # As a set: two combinations may mean one run.
    ids = plan.ids()
    counts = RunCounts(len(ids))
    for status in map(status_of, ids):
        if status is not None:
            counts.count(status)
    return counts
