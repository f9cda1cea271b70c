"""Claim: with a dominant eigenspace of dimension 2 or 3 the limit is a distribution, and tokens take its shape."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import ks_2samp

from frostline import plot
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Rows, Tick, arrays, read_prose
from frostline.sample import uniform, vmf
from frostline.theory.limits import limit
from frostline.transport.solve import wasserstein

SMALL = 0.4
"""Distances to the limit count as small up to this share of a uniform distribution's."""


@dataclass(frozen=True)
class Size:
    betas: tuple[float, ...]
    tokens: int
    until: float = 8.0
    times: int = 5


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([7, seed])
    rows = Rows("m", "beta", "t", "W2", "W2_of_uniform", "floor")
    shape = Rows("which", "angle")
    for m in (2, 3):
        d = m + 1
        B = np.diag([1.0] * m + [0.2])
        # Tilted within E and out of it: the limit is far from uniform.
        x0, other = (vmf(size.tokens, [1.0] + [0.5] * (d - 1), 2.0, seed=rng) for _ in range(2))
        goal, again = (limit(Attention.from_matrices(B, np.eye(d), 1.0))(x) for x in (x0, other))
        flat = np.concatenate([uniform(size.tokens, m, seed=rng), np.zeros((size.tokens, 1))], axis=1)
        null, floor = wasserstein(flat, goal).value, wasserstein(again, goal).value
        for beta in size.betas:
            tick(f"m = {m}, β = {beta:g}")
            times = np.linspace(0.0, size.until, size.times)
            run = simulate(Attention.from_matrices(B, np.eye(d), beta), x0, until=size.until, save_at=times.tolist())
            for t, x in zip(run.times, run.tokens, strict=True):
                values = (m, beta, t, wasserstein(x, goal).value, null, floor)
                rows.add(*values)
        if m == 2:
            chosen = run.tokens[int(np.argmin(rows["W2"][-size.times :]))]
            for name, cloud in (("start", x0), ("limit", goal), ("tokens", chosen), ("uniform", flat)):
                angles = np.arctan2(cloud[:, 1], cloud[:, 0])
                shape.add(name, angles)
    return Evidence({"distances": rows, "angles": shape})


def judge(evidence: Evidence) -> Judgement:
    rows = arrays(evidence.tables["distances"])
    checks, lowest_of_all = [], []
    for m in (2, 3):
        selected = rows["m"] == m
        betas = np.unique(rows["beta"][selected])
        lowest = np.array([rows["W2"][selected & (rows["beta"] == beta)].min() for beta in betas])
        null, floor, start = rows["W2_of_uniform"][selected][0], rows["floor"][selected][0], rows["W2"][selected][0]
        lowest_of_all.append(f"{lowest[-1]:.2g} for m = {m}")
        checks.append(
            Criterion(
                f"m = {m}: W₂ of all tokens to Π♯ρ₀",
                f"at most {SMALL} of a uniform distribution's, {null:.3g}, and of the start's, {start:.3g}",
                f"{lowest[-1]:.3g} at β = {betas[-1]:g} (another sample of the limit is off by {floor:.3g})",
                bool(lowest[-1] <= SMALL * min(null, start)),
            )
        )
        checks.append(
            Criterion(
                f"m = {m}: closer the colder",
                "the smallest W₂ falls with β",
                ", ".join(f"{w:.3g}" for w in lowest),
                bool((np.diff(lowest) < 0).all()),
            )
        )
    angles = _angles(evidence)
    gap, gap_of_flat = (float(ks_2samp(angles[name], angles["limit"]).statistic) for name in ("tokens", "uniform"))
    checks.append(
        Criterion(
            "m = 2: the distribution of angles on the circle E∩S (Kolmogorov–Smirnov)",
            f"largest gap to the limit's at most {SMALL} of a uniform distribution's",
            f"{gap:.2g} against {gap_of_flat:.2g}",
            bool(gap <= SMALL * gap_of_flat),
        )
    )
    return Judgement(
        f"Tokens take the shape of the whole limit distribution: W₂ falls to {' and '.join(lowest_of_all)}.", checks
    )


def draw(evidence: Evidence) -> Figure:
    rows = arrays(evidence.tables["distances"])
    (left, right), figure = plot.panels(2)
    betas = np.unique(rows["beta"])
    for m, style in ((2, "o-"), (3, "s--")):
        for number, beta in enumerate(betas):
            selected = (rows["m"] == m) & (rows["beta"] == beta)
            label = f"m = {m}, β = {beta:g}"
            left.semilogy(
                rows["t"][selected],
                rows["W2"][selected],
                style,
                ms=4,
                color=plot.shade(number, len(betas)),
                label=label,
            )
        left.axhline(rows["W2_of_uniform"][rows["m"] == m][0], color=plot.NOWHERE, lw=1, ls=style[1:])
    left.set(xlabel="time t", ylabel="W₂ to Π♯ρ₀", title="exact transport; grey: a uniform distribution on E∩S")
    left.legend(fontsize=8, frameon=False)
    angles, edges = _angles(evidence), np.linspace(-np.pi, np.pi, 37).tolist()
    right.hist(angles["limit"], edges, density=True, color=plot.FAINT, label="limit Π♯ρ₀")
    for name, colour, style in (("tokens", plot.ORANGE, "-"), ("start", plot.BLUE, ":")):
        right.hist(angles[name], edges, density=True, histtype="step", color=colour, ls=style, lw=1.8, label=name)
    right.set(xlabel="angle on the circle E∩S", ylabel="density", title=f"m = 2, β = {betas[-1]:g}")
    right.legend(fontsize=8, frameon=False)
    return figure


def _angles(evidence: Evidence) -> dict[str, np.ndarray]:
    table = evidence.tables["angles"]
    which, angle = np.array(table["which"]), np.array(table["angle"])
    return {name: angle[which == name] for name in ("start", "limit", "tokens", "uniform")}


CLAIM = Claim(
    name="subspaces",
    prose=read_prose(__name__),
    sizes={
        "test": Size((30.0, 200.0), 500, 6.0, 4),
        "quick": Size((30.0, 100.0, 300.0), 1200),
        "full": Size((30.0, 100.0, 300.0, 1000.0), 1400, 10.0, 9),
    },
    seconds={"test": 3, "quick": 8, "full": 80},
    measure=measure,
    judge=judge,
    draw=draw,
)
