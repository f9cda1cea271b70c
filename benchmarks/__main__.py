"""python -m benchmarks: every benchmark, a table on the terminal and benchmarks/results/latest.json.

A ratio above 1 means frostline is faster than the peer. Both are timed in turns in this very run, best of several, and
both results are compared first: a fast wrong answer is a failure.
"""

import json
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.integrate import solve_ivp

import frostline as fl
from benchmarks import audits, choices, exploring, serving, steppers, sweeping, watching
from benchmarks import large as large_clouds
from frostline.transport.atoms import two_atoms as sorted_atoms
from frostline.transport.exact import exact

ROUNDS = 5


def best_times(*calls: Callable[[], Any]) -> list[float]:
    """The shortest time of each call, the calls taking turns so that a noisy moment hits all alike."""
    for call in calls:
        call()
    times = [[] for _ in calls]
    for _ in range(ROUNDS):
        for mine, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            call()
            mine.append(time.perf_counter() - start)
    return [min(mine) for mine in times]


def mean_map(n: int, d: int, dtype: torch.dtype) -> dict[str, Any]:
    """Our mean map against the textbook: softmax(βxBxᵀ)x with the whole matrix in memory."""
    x = torch.from_numpy(fl.sample.uniform(n, d, seed=0)).to(dtype)
    # A random B: with B = I every token would attend to itself alone.
    B = torch.from_numpy(np.random.default_rng(1).standard_normal((d, d)) / np.sqrt(d)).to(dtype)
    head = fl.Attention.from_matrices(B, B, beta=100.0)
    ours, theirs = lambda: fl.mean_map(head, x), lambda: torch.softmax(100.0 * (x @ B @ x.T), dim=-1) @ x
    gap = float((ours() - theirs()).abs().max())
    mine, peer = best_times(ours, theirs)
    name = f"mean map n={n} d={d} {str(dtype).removeprefix('torch.')}"
    return {
        "what": name,
        "peer": "torch softmax, n×n",
        "ours_s": mine,
        "peer_s": peer,
        "ratio": peer / mine,
        "gap": gap,
    }


def zero_temperature(n: int, d: int) -> dict[str, Any]:
    """The path exact in its clock against scipy's DOP853 at rtol 1e-11, all tokens as one system."""
    rng = np.random.default_rng(0)
    B, V = rng.standard_normal((2, d, d)) / np.sqrt(d)
    head, A = fl.Attention.from_matrices(B, V, beta=1.0), V @ B.T
    x0, times = fl.sample.uniform(n, d, seed=1), np.array([1.0, 10.0])

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(n, d)
        v = x @ A.T / np.linalg.norm(x @ B, axis=1, keepdims=True)
        return (v - (x * v).sum(1, keepdims=True) * x).ravel()

    def ours() -> np.ndarray:
        return fl.zero_temperature(head, x0, times=times).tokens

    def theirs() -> np.ndarray:
        found = solve_ivp(field, (0, 10), x0.ravel(), method="DOP853", rtol=1e-11, atol=1e-12, t_eval=times)
        return found.y.T.reshape(2, n, d)

    gap = float(np.abs(ours() - theirs()).max())
    mine, peer = best_times(ours, theirs)
    name = f"zero temperature n={n} d={d}, t = 10"
    return {"what": name, "peer": "scipy DOP853", "ours_s": mine, "peer_s": peer, "ratio": peer / mine, "gap": gap}


def two_atoms(n: int, d: int) -> dict[str, Any]:
    """Two atoms by sorting against POT's network simplex on the same problem."""
    x, atoms, weights = fl.sample.uniform(n, d, seed=0), fl.sample.uniform(2, d, seed=1), np.full(n, 1 / n)

    def ours() -> float:
        return sorted_atoms(x, weights, atoms, 0.4)

    def theirs() -> float:
        return exact(x, atoms, y_weights=[0.4, 0.6])

    gap = abs(ours() - theirs())
    mine, peer = best_times(ours, theirs)
    name = f"two atoms n={n} d={d}"
    return {
        "what": name,
        "peer": "POT network simplex",
        "ours_s": mine,
        "peer_s": peer,
        "ratio": peer / mine,
        "gap": gap,
    }


def large(n: int, method: str) -> dict[str, Any]:
    """A million points: two atoms, or a circle, against numpy's sort of as many numbers (a floor, not a competitor)."""
    d = 3 if method == "atoms" else 2
    x = fl.sample.uniform(n, d, seed=0)
    y = fl.sample.uniform(2 if method == "atoms" else n, d, seed=1)
    numbers = x[:, 0].copy()
    metric = "euclidean" if method == "atoms" else "geodesic"
    mine, peer = best_times(lambda: fl.wasserstein(x, y, metric=metric, method=method), lambda: np.sort(numbers))
    name = f"{method} n={n}: {mine / peer:.1f} sorts"
    return {"what": name, "peer": "numpy sort", "ours_s": mine, "peer_s": peer, "ratio": peer / mine, "gap": 0.0}


def exact_against_pot(n: int) -> dict[str, Any]:
    """Exact transport through our verb against POT called directly."""
    import ot

    x, y, w = fl.sample.uniform(n, 3, seed=0), fl.sample.uniform(n, 3, seed=1), np.full(n, 1 / n)

    def theirs() -> float:
        return float(np.sqrt(ot.emd2(w, w, ot.dist(x, y), numItermax=10_000_000)))

    def ours() -> float:
        return fl.wasserstein(x, y, method="exact").value

    gap = abs(ours() - theirs())
    mine, peer = best_times(ours, theirs)
    name = f"exact transport n={n}"
    return {"what": name, "peer": "POT emd2", "ours_s": mine, "peer_s": peer, "ratio": peer / mine, "gap": gap}


def bracket(n: int, tau: float) -> dict[str, Any]:
    """The bracket of a shuffled zero-temperature cloud, once; POT's costs alone would need n²·8 bytes: no ratio.

    The gap is the relative width.
    """
    from frostline.theory.flow import at_clocks

    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), 1.0)
    x = fl.sample.uniform(n, 3, seed=0)
    y = at_clocks(head, x, [tau])[0][np.random.default_rng(1).permutation(n)]
    start = time.perf_counter()
    found = fl.wasserstein(x, y, method="bracket", tolerance=0.05)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    name = f"bracket n={n} τ={tau:g}, width {100 * found.width:.2g} %, peak so far {peak:.2g} GiB"
    memory = f"none ({8e-9 * n * n:.2g} GB)" if n > 10_000 else "none"
    return {"what": name, "peer": memory, "ours_s": took, "peer_s": None, "ratio": None, "gap": found.width}


def certificate(n: int, d: int) -> dict[str, Any]:
    """What a certificate costs beside the run it certifies (the peer): the gap is by how much it is above W₂."""
    head = fl.Attention.from_matrices(np.diag(np.linspace(1, 0.4, d)), np.eye(d), beta=100.0)
    x0 = fl.sample.uniform(n, d, seed=0)

    def theirs() -> fl.Trajectory:
        return fl.simulate(head, x0, until=1.0, stepper=fl.RK4(0.05))

    run = theirs()
    path = fl.zero_temperature(head, x0, times=run.times).tokens[0]
    gap = float(fl.certificate(run).temperature[0]) - exact(run.tokens[0], path)
    assert gap >= 0, "a certificate below the distance is wrong"
    mine, peer = best_times(lambda: fl.certificate(run), theirs)
    name = f"certificate n={n} d={d}"
    return {
        "what": name,
        "peer": "the RK4 run itself",
        "ours_s": mine,
        "peer_s": peer,
        "ratio": peer / mine,
        "gap": gap,
    }


def run_all() -> list[dict[str, Any]]:
    plans: list[Callable[[], dict[str, Any] | None]] = [
        *(
            lambda n=n, d=d, t=t: mean_map(n, d, t)
            for n, d in ((1000, 3), (5000, 3), (5000, 64))
            for t in (torch.float64, torch.float32)
        ),
        lambda: large_clouds.compare(4096, 3, 1e3, 0, 1e-10),
        lambda: large_clouds.compare(100_000, 3, 1e3, 0, 1e-6),
        lambda: large_clouds.compare(100_000, 3, 1e4, 4, 1e-6),
        lambda: large_clouds.compare(1_000_000, 3, 1e3, 0, 1e-6, rounds=1),
        lambda: large_clouds.compare(1_000_000, 2, 1e4, 0, 1e-8, rounds=1),
        lambda: large_clouds.public(4096, 100.0, "numpy, n×n, no shift", large_clouds.numpy_way),
        lambda: large_clouds.public(4096, 1000.0, "numpy, n×n, no shift", large_clouds.numpy_way),
        large_clouds.against_keops,
        choices.in_bench,
        steppers.in_bench,
        lambda: zero_temperature(1000, 3),
        lambda: zero_temperature(1000, 32),
        lambda: two_atoms(2000, 3),
        lambda: large(10**6, "atoms"),
        lambda: large(10**6, "circle"),
        lambda: exact_against_pot(2000),
        lambda: bracket(300, 1.0),
        lambda: bracket(10**5, 1.0),
        lambda: bracket(10**5, 3.0),
        lambda: bracket(10**5, 6.0),
        lambda: bracket(10**6, 1.0),
        lambda: bracket(10**6, 3.0),
        lambda: certificate(100, 3),
        lambda: certificate(2000, 3),
        audits.weights_alone,
        lambda: audits.with_text(1),
        lambda: audits.with_text(4),
        audits.comparison,
        lambda: watching.in_bench((16, 32)),
        lambda: watching.in_bench((16, 128)),
        lambda: watching.in_bench((1, 32)),
    ]
    found = [row for plan in plans if (row := plan()) is not None]
    return [*found, *exploring.rows(), *sweeping.rows(), *serving.in_bench()]


def main() -> None:
    console = Console()
    with console.status("timing …"):
        rows = run_all()
    table = Table(
        "benchmark", "ours", "peer", "ratio", "largest difference", title=f"{torch.get_num_threads()} threads"
    )
    for row in rows:
        table.add_row(
            row["what"],
            "" if row["ours_s"] is None else f"{1e3 * row['ours_s']:.2f} ms",
            row["peer"] if row["peer_s"] is None else f"{1e3 * row['peer_s']:.2f} ms ({row['peer']})",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            f"{row['gap']:.1e}",
        )
    console.print(table)
    machine = {"platform": platform.platform(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    out = Path(__file__).parent / "results" / "latest.json"
    out.parent.mkdir(exist_ok=True)
    # A peer that overflows has no difference; JSON knows no NaN.
    plain = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    out.write_text(json.dumps({"machine": machine, "rows": plain}, indent=2) + "\n")
    console.print(f"Written: {out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out}")


main()
