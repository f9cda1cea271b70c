"""What engine="auto" takes beside the best engine, over a grid of clouds: python -m benchmarks.choices [--short]"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import frostline as fl
from benchmarks.large import tokens
from frostline.dynamics.mean_map import choose

ENOUGH = 0.06
"""Seconds that a case is timed for, at least."""
Case = tuple[int, int, float, float]


def grid(*, short: bool) -> Iterator[Case]:
    """n, d, β, τ."""
    if short:
        yield from itertools.product((1000, 5000, 20_000), (3,), (1.0, 1e4), (0.0, 4.0))
        yield from ((2000, 16, 100.0, 0.0), (20_000, 2, 100.0, 0.0), (20_000, 4, 100.0, 0.0))
    else:
        yield from itertools.product((300, 1000, 3000, 8000, 20_000, 50_000), (2, 3, 4), (1.0, 100.0, 1e4), (0.0, 4.0))
        yield from itertools.product((300, 3000), (8, 16, 64), (1.0, 1e4), (0.0,))


def best_of(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The shortest time of each; those that take long are not called often, those that lose by far only once."""
    best = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        best[name] = time.perf_counter() - start
    least = min(best.values())
    for _ in range(max(4, int(ENOUGH / least / len(best)))):
        for name, call in calls.items():
            if best[name] < 3 * least:
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def compare(case: Case) -> tuple[str, str, dict[str, float]]:
    """The engine that auto takes, the best one, and how long each takes."""
    n, d, beta, tau = case
    head, x = tokens(n, d, beta, tau)
    engines = ["auto", "dense", "fused", *(["tree"] if d <= 4 else [])]
    calls = {name: (lambda name=name: fl.mean_map(head, x, engine=name)) for name in engines}
    seconds = best_of(calls)
    best = min(engines[1:], key=seconds.__getitem__)
    return choose(head, x).engine, best, seconds


def in_bench() -> dict[str, Any]:
    """One row of make bench: the case in which auto is furthest from the best."""
    found = {case: compare(case) for case in grid(short=True)}
    cost = {case: seconds["auto"] / seconds[best] for case, (_, best, seconds) in found.items()}
    worst = max(cost, key=cost.__getitem__)
    _, best, seconds = found[worst]
    n, d, beta, tau = worst
    return {
        "what": f"engine auto, the worst of {len(found)} clouds: n={n:,} d={d} β={beta:g} τ={tau:g}",
        "peer": f"best engine, {best}",
        "ours_s": seconds["auto"],
        "peer_s": seconds[best],
        "ratio": 1 / cost[worst],
        "gap": 0.0,
    }


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--short", action="store_true", help="fewer clouds")
    given = reading.parse_args()
    table = Table("n", "d", "β", "τ", "auto takes", "best", "auto / best", "dense", "fused", "tree")
    costs = []
    with Console(stderr=True).status("timing …"):
        for case in grid(short=given.short):
            taken, best, seconds = compare(case)
            costs.append(seconds["auto"] / seconds[best])
            table.add_row(
                f"{case[0]:,}",
                *(f"{value:g}" for value in case[1:]),
                taken,
                best,
                f"{costs[-1]:.2f}",
                *(f"{1e3 * seconds[name]:.2f}" if name in seconds else "" for name in ("dense", "fused", "tree")),
            )
    console = Console(width=100)
    console.print(table)
    console.print(f"times in ms; auto / best: median {np.median(costs):.2f}, largest {max(costs):.2f}")


if __name__ == "__main__":
    main()
