"""The mean map at large n: python -m benchmarks.large [--n 100000] [--d 3] [--tolerance 1e-6]

Tokens at clock τ of B = diag(1, .5, .2), V = I. The peer is torch's fused attention in float64 on some queries against
all sources, in turns with ours, times n over how many: its cost is the same for every query.
"""

import argparse
import resource
import time
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


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reading.add_argument("--n", type=int, nargs="+", default=[4096, 100_000, 1_000_000])
    reading.add_argument("--d", type=int, default=3, choices=(2, 3, 4))
    reading.add_argument("--beta", type=float, nargs="+", default=[1e3, 1e4])
    reading.add_argument("--tau", type=float, nargs="+", default=[0, 2, 4, 8])
    reading.add_argument("--tolerance", type=float, default=1e-6)
    given = reading.parse_args()
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
