"""Beyond the paper: what changes in high dimension (THEORY sections 6, 8 and 11)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.laplace import laplace
from frostline.attention import Attention
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Rows, Tick, arrays, read_prose
from frostline.sample import uniform
from frostline.theory.densities import vmf
from frostline.theory.regime import freezing

SCALED = np.geomspace(0.3, 300.0, 13)
"""Values of κ/((d−1)/2) at which a smooth density is measured."""
"""κ in units of (d−1)/2."""


@dataclass(frozen=True)
class Size:
    dimensions: tuple[int, ...]
    tokens: int
    queries: int


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([13, seed])
    smooth, cloud = Rows("d", "scaled", "error"), Rows("d", "n", "kappa_star", "scaled_star", "to_y", "to_nearest")
    for d in size.dimensions:
        tick(f"d = {d}")
        density, x = vmf(uniform(1, d, seed=rng)[0], 1.0), uniform(size.queries, d, seed=rng)
        for scaled in SCALED:
            head = Attention.from_matrices(np.eye(d), np.eye(d), float(scaled * (d - 1) / 2))
            smooth.add(d, scaled, laplace(head, x, density).zeroth_error.mean())
        star = freezing(size.tokens, d)
        # Cold in the sense of section 3, as far as one can be: where the smooth error is 5 %.
        head = Attention.from_matrices(np.eye(d), np.eye(d), 10.0 * (d - 1))
        tokens = uniform(size.tokens, d, seed=rng)
        means = laplace(head, x, tokens)
        nearest = tokens[(means.zeroth @ tokens.T).argmax(1)]
        to_nearest = np.linalg.norm(means.exact - nearest, axis=1).mean()
        cloud.add(d, size.tokens, star, star / ((d - 1) / 2), means.zeroth_error.mean(), to_nearest)
    return Evidence({"smooth": smooth, "tokens": cloud})


def judge(evidence: Evidence) -> Judgement:
    smooth, cloud = arrays(evidence.tables["smooth"]), arrays(evidence.tables["tokens"])
    cold = smooth["scaled"] >= 10
    ratio = smooth["error"][cold] * smooth["scaled"][cold]
    dimensions = cloud["d"]
    high = dimensions >= 32
    window = cloud["scaled_star"]
    checks = [
        Criterion(
            "for a density, how cold is cold: |m − y*| against κ/((d−1)/2)",
            "error·κ/((d−1)/2) between 0.5 and 2 in every d, from 10 on",
            f"{ratio.min():.3g} to {ratio.max():.3g}",
            bool((ratio > 0.5).all() and (ratio < 2).all()),
        ),
        Criterion(
            f"the window between cold and frozen for n = {int(cloud['n'][0])}: κ*/((d−1)/2)",
            "shrinks with d, below 10 (where the error is a tenth) in d ≥ 32",
            ", ".join(f"{w:.3g} (d = {d:g})" for w, d in zip(window, dimensions, strict=True)),
            bool((np.diff(window) < 0).all() and (window[high] < 10).all()),
        ),
        Criterion(
            "for tokens, cold in high d means one token: m is nearer to the best token than to y*",
            "in d ≥ 32, and not in d = 3",
            ", ".join(
                f"{a:.2g} / {b:.2g} (d = {d:g})"
                for a, b, d in zip(cloud["to_nearest"], cloud["to_y"], dimensions, strict=True)
            ),
            bool(
                (cloud["to_nearest"][high] < 0.5 * cloud["to_y"][high]).all()
                and cloud["to_nearest"][1] > cloud["to_y"][1]
            ),
        ),
    ]
    return Judgement(
        f"Cold means κ ≫ (d−1)/2 in every dimension, but {int(cloud['n'][0])} tokens freeze at κ* = "
        f"{window[-1]:.2g}·(d−1)/2 in d = {dimensions[-1]:g}: there the limit theory is one of single tokens, "
        "not of densities.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    smooth, cloud = arrays(evidence.tables["smooth"]), arrays(evidence.tables["tokens"])
    (left, middle, right), figure = plot.panels(3, width=4.4)
    dimensions = np.unique(smooth["d"])
    for number, d in enumerate(dimensions):
        chosen = smooth["d"] == d
        left.loglog(
            smooth["scaled"][chosen],
            smooth["error"][chosen],
            "o-",
            ms=3,
            color=plot.shade(number, len(dimensions)),
            label=f"d = {d:g}",
        )
    left.loglog(SCALED[4:], 1 / SCALED[4:], ":", color=plot.INK)
    left.set(xlabel="κ/((d−1)/2)", ylabel="|m − y*|, smooth density", title="nearly one curve for all dimensions")
    left.legend(fontsize=8, frameon=False)
    middle.loglog(cloud["d"], cloud["scaled_star"], "o-", color=plot.BLUE)
    middle.axhline(10.0, color=plot.INK, lw=1, ls=":")
    middle.set(xlabel="d", ylabel="κ*/((d−1)/2)", title=f"the window closes (n = {int(cloud['n'][0])})")
    right.semilogx(cloud["d"], cloud["to_y"], "o-", color=plot.BLUE, label="to y* = Bᵀx/|Bᵀx|")
    right.semilogx(cloud["d"], cloud["to_nearest"], "s-", color=plot.ORANGE, label="to the best token")
    right.set(xlabel="d", ylabel="mean distance of m", title="κ = 10(d−1)")
    right.legend(fontsize=8, frameon=False)
    for ax in (middle, right):
        plot.x_ticks(ax, cloud["d"])
    return figure


CLAIM = Claim(
    name="high-dimension",
    prose=read_prose(__name__),
    sizes={"test": Size((2, 3, 8, 32), 300, 50), "full": Size((2, 3, 8, 32, 128), 1000, 500)},
    seconds={"test": 1, "full": 2},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
)
