"""What a sweep costs beside its runs: python -m benchmarks.sweeping

1,000 small runs by `sweep` against the same runs in a bare loop on the same two processes; a finished sweep of 10,000
called again; memory of the client; how many empty tasks a second the scheduler gives out; and from these, on paper, a
phase diagram of a million runs on a thousand cores.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from frostline.sweeping import plan as plans
from frostline.sweeping.cluster import local
from frostline.sweeping.dataset import Dataset
from frostline.sweeping.dispatcher import batch_size
from frostline.sweeping.driver import sweep
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.worker import lost

SMALL = {"tokens": 500, "dimension": 3, "B": [1.0, 0.5, 0.2], "beta": 100.0, "until": 5.0, "step": 0.1}
RUNS = 1000


def asked(out: str | Path, runs: int, first: int = 0) -> dict[str, Any]:
    return {"command": "simulate", "out": str(out), "spec": SMALL, "axes": {"seed": f"{first}..{first + runs - 1}"}}


def loop(tables: list[dict[str, Any]]) -> int:
    """The runs themselves, and nothing else."""
    for table in tables:
        KINDS["simulate"].run(table)
    return len(tables)


def overhead(runs: int = RUNS, rounds: int = 3) -> tuple[float, float]:
    """Median seconds by sweep, and by the bare loop, in turns on the same processes."""
    ours, bare = [], []
    with local(2, 1) as client, tempfile.TemporaryDirectory() as place:
        workers = list(client.nthreads())
        sweep(asked(f"{place}/warm", 20), cluster=client)
        for number in range(rounds):
            tables = [run.table for run in plans.parse(asked(place, runs, 10_000 * number)).runs()]
            start = time.perf_counter()
            halves = [client.submit(loop, tables[k::2], workers=[workers[k]], pure=False) for k in (0, 1)]
            assert sum(client.gather(halves)) == runs
            bare.append(time.perf_counter() - start)
            start = time.perf_counter()
            assert sweep(asked(f"{place}/{number}", runs, 10_000 * number), cluster=client).done == runs
            ours.append(time.perf_counter() - start)
    return float(np.median(ours)), float(np.median(bare))


def finished(out: Path, runs: int) -> None:
    """A dataset as if a sweep of so many runs had been run: rows without measures."""
    plan = plans.parse(asked(out, runs))
    with Dataset(out, plan.kind) as data:
        for run in plan.runs():
            data.add(lost("simulate", run.id, run.table, "") | {"status": "done", "seconds": 0.1})


def peak() -> float:
    """MiB that this process has had at most. Not getrusage: that counts the parent's, too, at the time of its fork."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


RESUME = """
import sys, time
from benchmarks.sweeping import asked, peak
from frostline.sweeping.driver import sweep
start = time.perf_counter()
found = sweep(asked(sys.argv[1], int(sys.argv[2])))
assert found.fresh == 0 and found.done == found.total
print(time.perf_counter() - start, peak())
"""


def resumed(runs: int) -> tuple[float, float]:
    """Seconds, and MiB of the client, of a finished sweep that is called again."""
    with tempfile.TemporaryDirectory() as place:
        finished(Path(place) / "runs", runs)
        done = subprocess.run(
            [sys.executable, "-c", RESUME, f"{place}/runs", str(runs)], capture_output=True, text=True, check=True
        )
        seconds, memory = map(float, done.stdout.split())
    return seconds, memory


CLIENT = """
import sys
from benchmarks.sweeping import peak
from frostline.sweeping.driver import sweep
def main():
    asked = {"command": "theory", "out": sys.argv[1], "axes": {"seed": f"0..{int(sys.argv[2]) - 1}"},
             "spec": {"tokens": 10, "dimension": 2, "B": [1.0, 0.5], "beta": 100.0}}
    assert sweep(asked, workers=1).done == int(sys.argv[2])
    print(peak())
if __name__ == "__main__":
    main()
"""


def client_memory(runs: int) -> float:
    """MiB at most of a client that has so many runs done."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "client.py"
        script.write_text(CLIENT)
        command = [sys.executable, str(script), f"{place}/runs", str(runs)]
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path}
        )
        return float(done.stdout)


def nothing(number: int) -> int:
    return number


def throughput(tasks: int = 3000) -> float:
    """Empty tasks a second through client, scheduler and two workers."""
    with local(2, 1) as client:
        client.gather(client.map(nothing, range(100), pure=False))
        start = time.perf_counter()
        client.gather(client.map(nothing, range(tasks), pure=False))
        return tasks / (time.perf_counter() - start)


def planned_and_kept(runs: int = 20_000, together: int = 50) -> tuple[float, float]:
    """Seconds of the client for each run: to plan it once, and to put its row into the dataset."""
    with tempfile.TemporaryDirectory() as place:
        plan = plans.parse(asked(f"{place}/runs", runs))
        start = time.perf_counter()
        made = list(plan.runs())
        planning = time.perf_counter() - start
        found = [lost("simulate", run.id, run.table, "") | {"status": "done", "w_last": 0.1} for run in made]
        start = time.perf_counter()
        with Dataset(plan.out, plan.kind) as data:
            for first in range(0, runs, together):
                data.add(*found[first : first + together])
        return planning / runs, (time.perf_counter() - start) / runs


def on_paper(each: float, tasks_a_second: float, planning: float, keeping: float) -> str:
    """What a million such runs take on a thousand cores."""
    runs, cores = 1_000_000, 1000
    together = batch_size(each, cores)
    working = runs * each / cores
    scheduling = runs / together / tasks_a_second
    before, during = runs * planning, runs * (planning + keeping)
    return (
        f"{runs:,} runs of {each:.3f} s on {cores:,} cores: {working:.0f} s of work on each core; {together} runs "
        f"travel together, so the scheduler needs {scheduling:.0f} s; the client plans for {before:.0f} s before the "
        f"first run and is busy for {during:.0f} s beside them; at least "
        f"{before + max(working, scheduling, during):.0f} s in all, {runs * each / 3600:.0f} core hours of work"
    )


def rows() -> Iterator[dict[str, Any]]:
    """As ``make bench`` shows it."""
    ours, bare = overhead(runs=200, rounds=2)
    yield {
        "what": "sweep of 200 runs, n = 500, 50 steps",
        "peer": "bare loop on the same two processes",
        "ours_s": ours,
        "peer_s": bare,
        "ratio": bare / ours,
        "gap": 0.0,
    }


if __name__ == "__main__":
    ours, bare = overhead()
    print(f"{RUNS} runs: sweep {ours:.1f} s, bare loop {bare:.1f} s: {100 * (ours / bare - 1):+.1f} %", flush=True)
    each = 2 * bare / RUNS
    for runs in (100, 10_000):
        seconds, memory = resumed(runs)
        print(f"finished sweep of {runs:,} runs called again: {seconds:.2f} s, {memory:.0f} MiB", flush=True)
        print(f"client that has {runs:,} runs done: {client_memory(runs):.0f} MiB at most", flush=True)
    tasks, (planning, keeping) = throughput(), planned_and_kept()
    print(f"scheduler: {tasks:.0f} empty tasks a second", flush=True)
    print(f"client, for each run: {1e6 * planning:.0f} µs to plan it, {1e6 * keeping:.0f} µs to keep it", flush=True)
    print(on_paper(each, tasks, planning, keeping))
