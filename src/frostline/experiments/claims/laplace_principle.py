"""Claim: the Laplace principle, its first-order correction, and how the flow spends it (THEORY section 6)."""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.laplace import laplace
from frostline.attention import Attention
from frostline.experiments.claim import (
    Claim,
    Criterion,
    Evidence,
    Judgement,
    Line,
    Rows,
    Table,
    Tick,
    arrays,
    read_prose,
)
from frostline.experiments.random_heads import near_identity
from frostline.experiments.setting import Setting, diagonal, follow
from frostline.sample import uniform
from frostline.theory.densities import vmf

STATIC = (100.0, 316.0, 1000.0, 3160.0, 10_000.0, 31_600.0, 100_000.0)
"""Values of β for a density that does not move."""
DIMENSIONS = (2, 3, 10)
"""Dimensions of that density."""
SETTLED = 0.15
"""Half the nodes may change a peak by this much; where they change it more, the nodes are too few."""


@dataclass(frozen=True)
class Size:
    betas: tuple[float, ...]
    setting: Setting
    until: float
    queries: int


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([2, seed])
    still = Rows("d", "beta", "zeroth", "first")
    for d in DIMENSIONS:
        tick(f"|m − y*| at the start, d = {d}")
        B = near_identity(d, 0.2, rng)
        x, density = uniform(size.queries, d, seed=rng), vmf(uniform(1, d, seed=rng)[0], 2.0)
        for beta in STATIC:
            means = laplace(Attention.from_matrices(B, np.eye(d), beta), x, density)
            assert means.first_error is not None
            still.add(d, beta, means.zeroth_error.mean(), means.first_error.mean())
    moving = Rows("beta", "nodes", "t", "error")
    for beta in size.betas:
        for count in (size.setting.count, size.setting.count // 2):
            tick(f"along a run, β = {beta:g}, {count} nodes")
            run, head = follow(replace(size.setting, count=count), beta, size.until).run, size.setting.head(beta)
            for t, x in list(zip(run.times, run.tokens, strict=True))[::3]:
                error = laplace(head, x, x, weights=run.weights).zeroth_error
                moving.add(beta, count, t, _quantile(error, run.weights))
    return Evidence({"start": still, "run": moving})


def judge(evidence: Evidence) -> Judgement:
    still, moving = evidence.tables["start"], evidence.tables["run"]
    checks = []
    for d in DIMENSIONS:
        chosen = np.array(still["d"]) == d
        logs = np.log(np.array(still["beta"])[chosen])
        for what, name, order in (("|m − y*|", "zeroth", 1), ("what eq. 10 leaves", "first", 2)):
            line = Line.through(logs, -np.log(np.array(still[name])[chosen]))
            near = abs(line.slope - order) <= 0.05 * order
            checks.append(
                Criterion(f"{what} for a smooth start, d = {d}", f"falls like β^−{order}, ± 5 %", str(line), near)
            )
    betas, start, peak, coarse = _peaks(moving)
    worst = np.sqrt(np.log1p(betas) / betas)
    off = np.abs(coarse / peak - 1)
    counted = off <= SETTLED
    power = Line.through(np.log(worst[counted]), np.log(peak[counted])) if counted.sum() >= 3 else None
    factors = peak / worst
    checks.append(
        Criterion(
            "the error (99 % of the mass are below it), at its largest along the run, against √(log(β+1)/β)",
            f"a power 1 ± 0.25 and a factor between 0.3 and 3, from three β that half the nodes change by at most "
            f"{100 * SETTLED:g} %",
            ("" if power is None else f"power {power}; ")
            + "factors "
            + ", ".join(f"{f:.2f} (β = {b:g}; ±{100 * o:.2g} %)" for f, b, o in zip(factors, betas, off, strict=True)),
            None
            if power is None
            else bool(abs(power.slope - 1) <= 0.25 and (factors[counted] > 0.3).all() and (factors[counted] < 3).all()),
        )
    )
    cold = int(np.flatnonzero(counted)[-1]) if counted.any() else 0
    grown = peak / start
    checks.append(
        Criterion(
            "the flow makes it grow, more so the colder",
            "by a factor that rises with β",
            ", ".join(f"{g:.3g} at β = {b:g}" for g, b in zip(grown, betas, strict=True)),
            bool((np.diff(grown) > 0).all() and grown[-1] > 3),
        )
    )
    return Judgement(
        f"A smooth start is off y* by O(1/β); the flow sharpens it, and the error climbs by a factor {grown[cold]:.0f} "
        f"at β = {betas[cold]:g}, to {factors[cold]:.2f}·√(log(β+1)/β).",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    still, moving = evidence.tables["start"], evidence.tables["run"]
    (left, middle, right), figure = plot.panels(3, width=4.4)
    for number, d in enumerate(DIMENSIONS):
        chosen = np.array(still["d"]) == d
        beta, colour = np.array(still["beta"])[chosen], plot.shade(number, len(DIMENSIONS))
        left.loglog(beta, np.array(still["zeroth"])[chosen], "o-", ms=4, color=colour, label=f"d = {d}: |m − y*|")
        left.loglog(beta, np.array(still["first"])[chosen], "s--", ms=3, color=colour, label=f"d = {d}: after eq. 10")
    left.set(xlabel="β", ylabel="mean error", title="smooth start: slopes −1 and −2")
    left.legend(fontsize=8, frameon=False)
    betas, start, peak, _ = _peaks(moving)
    for number, value in enumerate(betas):
        chosen = (np.array(moving["beta"]) == value) & (np.array(moving["nodes"]) == max(moving["nodes"]))
        colour = plot.shade(number, len(betas))
        middle.semilogy(
            np.array(moving["t"])[chosen], np.array(moving["error"])[chosen], color=colour, label=f"β = {value:g}"
        )
    middle.set(xlabel="time t", ylabel="|m − y*|, 99 % of the mass below", title="the flow spends what the start had")
    middle.legend(fontsize=8, frameon=False)
    right.loglog(betas, start, "o-", color=plot.BLUE, label="at t = 0")
    right.loglog(betas, peak, "o-", color=plot.ORANGE, label="largest along the run")
    right.loglog(betas, np.sqrt(np.log1p(betas) / betas), ":", color=plot.INK, label="√(log(β+1)/β)")
    right.set(xlabel="β", ylabel="|m − y*|, 99 % below", title="from 1/β to the worst case")
    right.legend(fontsize=8, frameon=False)
    return figure


def _quantile(error: np.ndarray, weights: np.ndarray | None) -> float:
    """99 % of the mass have a smaller error. The largest of all is that of the token nearest to the equator, and grows
    with the number of nodes."""
    order = np.argsort(error)
    share = np.cumsum(np.full(len(error), 1 / len(error)) if weights is None else weights[order])
    return float(error[order][min(len(error) - 1, int(np.searchsorted(share, 0.99)))])


def _peaks(moving: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each β the error at the start, its largest value, and that with half the nodes."""
    table = arrays(moving)
    betas, counts = np.unique(table["beta"]), np.unique(table["nodes"])
    coarse, fine = (
        [table["error"][(table["beta"] == beta) & (table["nodes"] == count)] for beta in betas] for count in counts
    )
    return betas, np.array([g[0] for g in fine]), np.array([g.max() for g in fine]), np.array([g.max() for g in coarse])


SETTING = Setting(diagonal(1.0, 0.5), diagonal(1.0, 1.0), (0.36, 0.48), 800)
"""The run whose error is followed: a tilted start on the circle."""

CLAIM = Claim(
    name="laplace-principle",
    prose=read_prose(__name__),
    sizes={
        "test": Size((30.0, 100.0, 300.0), Setting(SETTING.B, SETTING.V, SETTING.tilt, 300), 10.0, 20),
        "quick": Size((100.0, 316.0, 1000.0, 3160.0, 10_000.0), SETTING, 16.0, 100),
        "full": Size(
            (100.0, 316.0, 1000.0, 3160.0, 10_000.0), Setting(SETTING.B, SETTING.V, SETTING.tilt, 2000), 16.0, 1000
        ),
    },
    seconds={"test": 3, "quick": 4, "full": 60},
    measure=measure,
    judge=judge,
    draw=draw,
)
