"""How long the moment flow holds: fl.moment_flow against 10⁵ tokens, d = 3, 16, 64, at logits of three deviations.

    python -m benchmarks.moments [--tokens 100000] [--until 4]

Tokens are a Gaussian about a mean, put on the sphere, moved by RK4 with the exact mean map: on a GPU some 15 seconds a
line, on two cores hours (take 5,000 tokens there). Not part of ``make bench``.
"""

import argparse

import numpy as np
import torch

import frostline as fl
from frostline.sphere import unit_rows

STEP = 0.1
"""Step of RK4, in the time of (2)."""
ROWS = 20_000
"""Queries whose logits are in memory at a time."""


def start(kind: str, d: int, warmth: float, count: int, seed: int = 7) -> tuple[fl.Attention, np.ndarray]:
    """A head, and tokens whose logits have the standard deviation ``warmth`` at the start."""
    rng = np.random.default_rng(seed)
    if kind == "symmetric":
        B, V = np.diag(np.linspace(1, 0.2, d)), np.eye(d)
    else:
        B, V = (rng.standard_normal((d, d)) / np.sqrt(d) for _ in range(2))
    mean = rng.standard_normal(d)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    root = np.linalg.cholesky((axes * (np.linspace(0.3, 1.7, d) / d)) @ axes.T)
    x = unit_rows(mean / (2 * np.linalg.norm(mean)) + rng.standard_normal((count, d)) @ root.T)
    p = x @ B
    sigma = np.sqrt(np.einsum("ni,ij,nj->n", p, np.cov(x.T, bias=True), p).mean())
    return fl.Attention.from_matrices(B, V, warmth / sigma), x


def tokens_at(head: fl.Attention, x0: np.ndarray, times: np.ndarray) -> list[np.ndarray]:
    """The tokens at multiples of the step, in float32 on a GPU where there is one."""
    device, dtype = ("cuda", torch.float32) if torch.cuda.is_available() else ("cpu", torch.float64)
    x = torch.tensor(x0, dtype=dtype, device=device)
    B, V = (torch.tensor(part, dtype=dtype, device=device) for part in (head.beta * head.B, head.V))

    def velocity(y: torch.Tensor) -> torch.Tensor:
        means = [torch.softmax((part @ B) @ y.T, 1) @ y for part in y.split(ROWS)]
        push = torch.cat(means) @ V.T
        return push - (y * push).sum(1, keepdim=True) * y

    kept = []
    for step in range(round(times[-1] / STEP) + 1):
        if np.isclose(times, step * STEP).any():
            kept.append(x.double().cpu().numpy())
        x = fl.RK4().advance(velocity, x, STEP)
    return kept


def main() -> None:
    """Print the measured and the estimated error, and until when each is at most 0.1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--until", type=float, default=4.0)
    given = parser.parse_args()
    times = np.arange(0, given.until + STEP, 4 * STEP)
    print("d   kind       σ    holds  holds by tokens  error at the end  estimated")
    for d in (3, 16, 64):
        for kind in ("symmetric", "random"):
            for warmth in (0.5, 1.0, 2.0):
                head, x = start(kind, d, warmth, given.tokens)
                flow = fl.moment_flow(head, fl.Cloud.of(x, keep=False), times)
                errors = np.array(
                    [
                        np.hypot(np.linalg.norm(y.mean(0) - m), np.linalg.norm(np.cov(y.T, bias=True) - s))
                        for y, m, s in zip(tokens_at(head, x, times), flow.mean, flow.covariance, strict=True)
                    ]
                )
                held = times[np.cumprod(errors <= 0.1).astype(bool)][-1]
                print(
                    f"{d:<3} {kind:10} {warmth:<4} {flow.holds_until:<6.1f} {held:<16.1f} "
                    f"{errors[-1]:<17.3f} {flow.error[-1]:.3f}"
                )


if __name__ == "__main__":
    main()
