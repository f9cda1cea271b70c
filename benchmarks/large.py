"""The mean map at large n: python -m benchmarks.large [--n 100000] [--d 3] [--tolerance 1e-6] [--growth FILE.png]

Tokens at clock τ of B = diag(1, .5, .2), V = I. The peer is torch's fused attention in float64 on some queries against
all sources, in turns with ours, times n over how many: its cost is the same for every query.
"""

import argparse
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import frostline as fl
from frostline.dynamics.mean_map import choose
from frostline.theory.flow import at_clocks

ASKED = 2000
"""Queries of the peer; and those on which errors are measured."""


def tokens(n: int, d: int, beta: float, tau: float) -> tuple[fl.Attention, np.ndarray]:
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, *[0.2] * d][:d]), np.eye(d), beta)
    x = fl.sample.uniform(n, d, seed=0)
    return head, x if tau == 0 else np.ascontiguousarray(at_clocks(head, x, [tau])[0])


def compare(n: int, d: int, beta: float, tau: float, tolerance: float, rounds: int = 3) -> dict[str, Any]:
    """Ours and the peer in turns, the best of some rounds, and the largest error of the queries that both did."""
    head, x = tokens(n, d, beta, tau)
    some = np.random.default_rng(1).choice(n, min(n, ASKED), replace=False)
    keys = torch.from_numpy(x)[None, None]
    queries = torch.from_numpy(beta * x[some] @ head.B)[None, None]
    seconds: tuple[list[float], list[float]] = ([], [])
    m = fl.mean_map(head, x, tolerance=tolerance)
    for _ in range(rounds):
        start = time.perf_counter()
        m = fl.mean_map(head, x, tolerance=tolerance)
        middle = time.perf_counter()
        theirs = scaled_dot_product_attention(queries, keys, keys, scale=1.0)[0, 0].numpy()
        seconds[0].append(middle - start)
        seconds[1].append((time.perf_counter() - middle) * n / len(some))
    ours, peer = min(seconds[0]), min(seconds[1])
    return {
        "what": f"mean map n={n:,} d={d} β={beta:g} τ={tau:g} ({choose(head, x, tolerance=tolerance).engine})",
        "peer": "torch SDPA float64" + (", some queries" if n > ASKED else ""),
        "ours_s": ours,
        "peer_s": peer,
        "ratio": peer / ours,
        "gap": float(np.linalg.norm(m[some] - theirs, axis=1).max()),
    }


def numpy_way(head: fl.Attention, x: np.ndarray) -> np.ndarray:
    """What public codes do: the whole matrix, exponentials without a shift."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(head.beta * (x @ head.B) @ x.T)
        return weights @ x / weights.sum(1, keepdims=True)


def keops_way(head: fl.Attention, x: np.ndarray) -> np.ndarray:
    from pykeops.numpy import LazyTensor

    p = np.ascontiguousarray(head.beta * x @ head.B)
    logits = LazyTensor(p[:, None, :]) | LazyTensor(x[None, :, :])
    return np.asarray(logits.sumsoftmaxweight(LazyTensor(x[None, :, :]), axis=1, backend="CPU"))


def public(n: int, beta: float, name: str, way: Callable[[fl.Attention, np.ndarray], np.ndarray]) -> dict[str, Any]:
    """Ours against what a user would otherwise do."""
    head, x = tokens(n, 3, beta, 0)
    seconds: tuple[list[float], list[float]] = ([], [])
    ours = theirs = x
    for turn in range(4):
        start = time.perf_counter()
        ours = fl.mean_map(head, x)
        middle = time.perf_counter()
        theirs = way(head, x)
        if turn:
            seconds[0].append(middle - start)
            seconds[1].append(time.perf_counter() - middle)
    overflows = " (overflows)" if not np.isfinite(theirs).all() else ""
    return {
        "what": f"mean map n={n:,} d=3 β={beta:g}",
        "peer": name + overflows,
        "ours_s": min(seconds[0]),
        "peer_s": min(seconds[1]),
        "ratio": min(seconds[1]) / min(seconds[0]),
        "gap": float(np.linalg.norm(ours - theirs, axis=1).max()),
    }


def against_keops() -> dict[str, Any] | None:
    return None if find_spec("pykeops") is None else public(20_000, 1000.0, "pykeops", keops_way)


def growth(out: str, tolerance: float) -> None:
    """A picture of how the time grows with n, beside the compiled loop and torch's fused attention."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    counts = (3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    for beta, tau, style in ((1e3, 0, "o-"), (1e4, 0, "s-"), (1e4, 2, "^-"), (1e4, 8, "v-")):
        seconds = [compare(n, 3, beta, tau, tolerance, rounds=2)["ours_s"] for n in counts]
        print(f"β = {beta:g}, τ = {tau}: " + ", ".join(f"{s:.3g} s" for s in seconds), flush=True)
        axes.loglog(counts, seconds, style, ms=5, label=f"auto, β = {beta:g}, τ = {tau}")
    head, x = tokens(counts[-1], 3, 1e3, 0)
    for name, label in (("dense", "every pair, compiled"), ("fused", "torch SDPA, float64")):
        some = x[:ASKED]
        fl.mean_map(head, some, sources=x[:10_000], engine=name)
        start = time.perf_counter()
        fl.mean_map(head, some, sources=x[:100_000], engine=name)
        each = (time.perf_counter() - start) / ASKED / 1e5
        axes.loglog(counts, [each * n * n for n in counts], ":", color="0.4" if name == "dense" else "0.7", label=label)
    axes.set(xlabel="tokens n", ylabel="seconds for a mean map", title=f"d = 3, tolerance {tolerance:g}")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(out, dpi=110, metadata={"Software": None})


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reading.add_argument("--n", type=int, nargs="+", default=[4096, 100_000, 1_000_000])
    reading.add_argument("--d", type=int, default=3, choices=(2, 3, 4))
    reading.add_argument("--beta", type=float, nargs="+", default=[1e3, 1e4])
    reading.add_argument("--tau", type=float, nargs="+", default=[0, 2, 4, 8])
    reading.add_argument("--tolerance", type=float, default=1e-6)
    reading.add_argument("--growth", metavar="FILE", help="a picture instead")
    given = reading.parse_args()
    if given.growth:
        growth(given.growth, given.tolerance)
        return
    for n in given.n:
        for beta in given.beta:
            for tau in given.tau:
                row = compare(n, given.d, beta, tau, given.tolerance)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                print(
                    f"{row['what']}: {row['ours_s']:.3f} s, ratio {row['ratio']:.0f}, error {row['gap']:.1e}, "
                    f"peak so far {peak:.2f} GiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
