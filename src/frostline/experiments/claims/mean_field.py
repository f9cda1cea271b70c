"""Claim: random tokens follow the mean field, at the rate of sampling (THEORY section 8)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.dynamics.steppers import RK4
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, arrays, read_prose
from frostline.sample import nodes, vmf
from frostline.transport.solve import wasserstein

TILT = 0.6
"""How strongly the start leans to one side."""
DIRECTION = (0.6, 0.8)
"""The direction that the start leans to."""
BETA = 10.0
"""Inverse temperature."""
STEP = 0.1
"""Step of the stepper, in units of time."""


@dataclass(frozen=True)
class Size:
    counts: tuple[int, ...]
    seeds: int
    nodes: int
    until: float = 2.0


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([9, seed])
    head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), BETA)
    rows = Rows("n", "t", "W1")
    tick(f"{size.nodes} weighted nodes")
    field = nodes(size.nodes, 2, log_density=lambda x: TILT * x @ np.array(DIRECTION))
    kept = [0.0, size.until]
    true = simulate(head, field.tokens, weights=field.weights, until=size.until, stepper=RK4(STEP), save_at=kept).tokens
    for count in size.counts:
        tick(f"{size.seeds} samples of {count} tokens")
        x0 = np.stack([vmf(count, DIRECTION, TILT, seed=rng) for _ in range(size.seeds)])
        runs = simulate(head, x0, until=size.until, stepper=RK4(STEP), save_at=kept).tokens
        for t, clouds, goal in zip(kept, runs, true, strict=True):
            for cloud in clouds:
                distance = wasserstein(cloud, goal, p=1, y_weights=field.weights, metric="geodesic", method="circle")
                rows.add(count, t, distance.value)
    return Evidence({"distances": rows}, {"until": size.until})


def judge(evidence: Evidence) -> Judgement:
    checks, powers = [], []
    for t in (0.0, evidence.numbers["until"]):
        counts, means, _ = _means(evidence, t)
        line = Line.through(np.log(counts), np.log(means))
        powers.append(f"n^{{−{-line.slope:.2f}}} at t = {t:g}")
        checks.append(
            Criterion(
                f"mean W₁ between n random tokens and the mean field at t = {t:g}",
                "falls like n^{−1/2}: exponent −0.5 ± 0.12",
                str(line),
                bool(abs(line.slope + 0.5) <= 0.12),
            )
        )
    _, start, _ = _means(evidence, 0.0)
    _, end, _ = _means(evidence, evidence.numbers["until"])
    checks.append(
        Criterion(
            "the flow does not blow the sampling error up",
            "by no more than a factor 5, at every n",
            ", ".join(f"{x:.2g}" for x in end / start),
            bool((end / start <= 5).all()),
        )
    )
    return Judgement(f"Random tokens follow the mean field; the mean W₁ falls like {' and '.join(powers)}.", checks)


def draw(evidence: Evidence) -> Figure:
    (ax,), figure = plot.panels(1, width=6.4)
    for t, colour in ((0.0, plot.BLUE), (evidence.numbers["until"], plot.ORANGE)):
        counts, means, errors = _means(evidence, t)
        ax.errorbar(counts, means, errors, fmt="o-", color=colour, capsize=3, label=f"t = {t:g}")
        ax.plot(counts, means[0] * (counts / counts[0]) ** -0.5, ":", color=colour, lw=1)
    ax.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="W₁ to the mean field", title="dotted: $n^{-1/2}$")
    plot.x_ticks(ax, counts)
    ax.legend(fontsize=8, frameon=False)
    return figure


def _means(evidence: Evidence, t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of tokens, mean W₁ and its standard error over the samples."""
    rows = arrays(evidence.tables["distances"])
    counts = np.unique(rows["n"])
    groups = [rows["W1"][(rows["n"] == n) & (rows["t"] == t)] for n in counts]
    return counts, np.array([g.mean() for g in groups]), np.array([g.std(ddof=1) / np.sqrt(len(g)) for g in groups])


CLAIM = Claim(
    name="mean-field",
    prose=read_prose(__name__),
    sizes={
        "test": Size((25, 50, 100, 200, 400), 32, 600),
        "quick": Size((25, 50, 100, 200, 400, 800), 48, 2000),
        "full": Size((50, 100, 200, 400, 800, 1600, 3200), 40, 8000),
    },
    seconds={"test": 3, "quick": 8, "full": 80},
    measure=measure,
    judge=judge,
    draw=draw,
)
