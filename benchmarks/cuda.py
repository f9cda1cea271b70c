"""python -m benchmarks.cuda: the simulator on a GPU against itself on the CPU: agreement first, then the ratio."""

import time

import numpy as np
import torch

import frostline as fl


def compare(n: int, d: int, dtype: torch.dtype, beta: float) -> None:
    rng = np.random.default_rng(0)
    B, V = rng.standard_normal((2, d, d)) / np.sqrt(d)
    head = fl.Attention.from_matrices(B, V, beta=beta)
    x = torch.from_numpy(fl.sample.uniform(n, d, seed=1)).to(dtype)
    seconds, found = {}, {}
    for device in ("cpu", "cuda"):
        start_tokens = x.to(device)
        fl.simulate(head, start_tokens, until=0.1, stepper=fl.Euler(0.1))
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        found[device] = fl.simulate(head, start_tokens, until=0.5, stepper=fl.Euler(0.1)).tokens.cpu()
        seconds[device] = (time.perf_counter() - start) / 5
    gap = float((found["cpu"] - found["cuda"]).abs().max())
    print(
        f"n={n} d={d} {dtype} beta={beta:g}: gap {gap:.1e}, cpu {1e3 * seconds['cpu']:.1f} ms a step, "
        f"cuda {1e3 * seconds['cuda']:.1f} ms, ratio {seconds['cpu'] / seconds['cuda']:.1f}"
    )


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here; this benchmark needs one.")
    for dtype in (torch.float64, torch.float32):
        for n, d in ((1000, 3), (20_000, 3), (20_000, 64)):
            compare(n, d, dtype, 100.0)
    start = time.perf_counter()
    x = torch.from_numpy(fl.sample.uniform(100_000, 3, seed=1)).cuda()
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=1000.0)
    run = fl.simulate(head, x, until=0.5, stepper=fl.Euler(0.1))
    torch.cuda.synchronize()
    memory = torch.cuda.max_memory_allocated() / 2**30
    print(f"100,000 tokens, 5 steps: {time.perf_counter() - start:.2f} s, peak {memory:.2f} GiB, {run.status}")


if __name__ == "__main__":
    main()
