"""The mean map and the simulator on a GPU: python -m benchmarks.cuda [--run]

Agreement with the CPU first; then pairs a second, with torch's fused attention as the peer; with --run a whole run of a
million tokens at β = 10⁴ until t = 3 log β, which takes minutes.
"""

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import frostline as fl
from benchmarks.large import ASKED, tokens


def agreement(n: int, d: int, dtype: torch.dtype, beta: float) -> None:
    rng = np.random.default_rng(0)
    B, V = rng.standard_normal((2, d, d)) / np.sqrt(d)
    head = fl.Attention.from_matrices(B, V, beta=beta)
    x = torch.from_numpy(fl.sample.uniform(n, d, seed=1)).to(dtype)
    seconds, found = {}, {}
    for device in ("cpu", "cuda"):
        start_tokens = x.to(device)
        fl.simulate(head, start_tokens, until=0.1, stepper=fl.Euler(0.1))
        torch.cuda.synchronize()
        start = time.perf_counter()
        found[device] = fl.simulate(head, start_tokens, until=0.5, stepper=fl.Euler(0.1)).tokens.cpu()
        seconds[device] = (time.perf_counter() - start) / 5
    gap = float((found["cpu"] - found["cuda"]).abs().max())
    print(
        f"n={n} d={d} {dtype} beta={beta:g}: gap {gap:.1e}, cpu {1e3 * seconds['cpu']:.1f} ms a step, "
        f"cuda {1e3 * seconds['cuda']:.1f} ms, ratio {seconds['cpu'] / seconds['cuda']:.1f}",
        flush=True,
    )


def _best(work: Callable[[], Tensor], rounds: int = 3) -> float:
    work()
    seconds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def pairs(n: int, d: int, beta: float, tau: float, tolerance: float) -> None:
    """Pairs a second as if every pair were summed (at β = 1 they are), and the error against float64."""
    head, given = tokens(n, d, beta, tau)
    x = torch.from_numpy(given).cuda()
    some = torch.from_numpy(np.random.default_rng(1).choice(n, ASKED, replace=False)).cuda()
    queries = (beta * x[some] @ torch.from_numpy(head.B).cuda())[None, None]
    keys = x[None, None]
    ours = _best(lambda: fl.mean_map(head, x, tolerance=tolerance, engine="cuda"))
    few, all_keys = queries.float(), keys.float()
    peer = _best(lambda: scaled_dot_product_attention(few, all_keys, all_keys, scale=1.0)) * n / ASKED
    found = fl.mean_map(head, x, tolerance=tolerance, engine="cuda")[some]
    gap = (found - scaled_dot_product_attention(queries, keys, keys, scale=1.0)[0, 0]).norm(dim=1).max()
    print(
        f"n={n:,} d={d} β={beta:g} τ={tau:g} tolerance {tolerance:g}: {ours:.3f} s, {n * n / ours:.2e} pairs/s, "
        f"ratio {peer / ours:.1f} to SDPA in float32 on some queries, error {float(gap):.1e}",
        flush=True,
    )


def run() -> None:
    beta = 1e4
    head, given = tokens(1_000_000, 3, beta, 0)
    start = time.perf_counter()
    found = fl.simulate(head, torch.from_numpy(given).cuda(), until=3 * math.log(beta))
    torch.cuda.synchronize()
    print(
        f"n=1,000,000 β={beta:g} until t = {3 * math.log(beta):.2f}: {time.perf_counter() - start:.0f} s, "
        f"{found.evaluations} mean maps, {found.status}, peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
    )


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reading.add_argument("--run", action="store_true", help="the whole run of a million tokens")
    given = reading.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here; this benchmark needs one.")
    if given.run:
        run()
        return
    for n, d, dtype in ((1000, 3, torch.float64), (20_000, 3, torch.float32), (20_000, 64, torch.float64)):
        agreement(n, d, dtype, 100.0)
    for n, beta, tau in ((500_000, 1.0, 0.0), (500_000, 1e4, 0.0), (500_000, 1e4, 8.0)):
        pairs(n, 3, beta, tau, 1e-6)


if __name__ == "__main__":
    main()
