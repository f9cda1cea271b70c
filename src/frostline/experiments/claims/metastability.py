"""Claim: clusters are metastable, and it is the asymmetry of the start that ends it (THEORY section 9)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, arrays, read_prose
from frostline.experiments.claims.theorem import B, V
from frostline.experiments.setting import Setting, follow
from frostline.theory.terminal import terminal

LEVEL = 0.7
"""W₂ at which a cluster counts as gone."""
TILTS = (0.48, 0.12, 0.03, 0.0075)
"""Tilts of the start along x₂, which make it asymmetric."""
ALONG = 0.36
"""Tilt of the start along x₁."""


@dataclass(frozen=True)
class Size:
    betas: tuple[float, ...]
    count: int
    until: float
    tilts: tuple[float, ...] = TILTS


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    curves = Rows("start", "beta", "t", "W2")
    lives = Rows("start", "beta", "tilt", "asymmetry", "reached", "left")

    def add(kind: str, setting: Setting, beta: float) -> None:
        tick(f"{kind}, β = {beta:g}, tilt {setting.tilt[1]:g}")
        followed = follow(setting, beta, size.until)
        start = setting.start()
        side = start.tokens[:, 0] > 0
        push = abs(float(start.weights[side] @ start.tokens[side, 1])) / float(start.weights[side].sum())
        leaves = followed.crosses(LEVEL)
        below = np.flatnonzero(followed.distance < LEVEL)
        values = (
            kind,
            beta,
            setting.tilt[1],
            push,
            float(followed.times[below[0]]) if len(below) else np.nan,
            np.nan if leaves is None else leaves,
        )
        lives.add(*values)
        curves.add(kind, beta, followed.times, followed.distance)

    for beta in size.betas:
        add("asymmetric", Setting(B, V, (ALONG, size.tilts[0]), size.count), beta)
        add("symmetric", Setting(B, V, (ALONG, size.tilts[0]), size.count // 2, mirrored=True), beta)
    for tilt in size.tilts[1:]:
        add("asymmetric", Setting(B, V, (ALONG, tilt), size.count), size.betas[0])
    growth = terminal(Setting(B, V, (0.0, 0.0), 10).head(1.0)).growth
    return Evidence({"lives": lives, "curves": curves}, {"g_V": growth, "until": size.until})


def judge(evidence: Evidence) -> Judgement:
    lives = arrays(evidence.tables["lives"])
    push, growth = lives["start"] == "asymmetric", evidence.numbers["g_V"]
    over_beta = push & (lives["tilt"] == lives["tilt"].max())
    over_tilt = push & (lives["beta"] == lives["beta"].min())
    stays = (lives["left"] - lives["reached"])[over_beta]
    known = np.isfinite(stays).all()
    longer = Line.through(np.log(lives["beta"][over_beta]), stays) if known else None
    seen = np.isfinite(lives["left"][over_tilt])
    delay = (
        Line.through(np.log(1 / lives["asymmetry"][over_tilt][seen]), lives["left"][over_tilt][seen])
        if seen.sum() >= 3
        else None
    )
    left = int(np.isfinite(lives["left"][~push]).sum())
    reached = np.isfinite(lives["reached"]).all()
    checks = [
        Criterion(
            "a mirror-symmetric start, which has nothing to push it, stays",
            f"W₂ does not come back to {LEVEL} until t = {evidence.numbers['until']:g}, at every β",
            f"{left} of {int((~push).sum())} came back" if reached else "some never got there",
            bool(left == 0 and reached),
        ),
        Criterion(
            f"an asymmetric start leaves (W₂ is back at {LEVEL}), the later the colder",
            "after a time that rises with log β",
            "not all left in time" if longer is None else f"{longer} per unit of log β",
            None if longer is None else bool(longer.low > 0),
        ),
        Criterion(
            "a weaker push delays the end",
            f"by 1/g_V = {1 / growth:.3g} per unit of log(1/α), ± 15 % (eq. 13)",
            "too few left in time" if delay is None else str(delay),
            None if delay is None else abs(delay.slope * growth - 1) <= 0.15,
        ),
    ]
    why = (
        ""
        if delay is None
        else f"; a push weaker by a factor e delays the end by {delay.slope:.2f} (1/g_V = {1 / growth:.2f})"
    )
    known_stays = stays[np.isfinite(stays)]
    long = f"{known_stays.min():.3g} to {known_stays.max():.3g}" if len(known_stays) else "no time that was seen"
    return Judgement(
        f"{left} of {int((~push).sum())} symmetric starts leave before the run ends; asymmetric ones leave after "
        f"{long} below W₂ = {LEVEL}{why}.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    curves = arrays(evidence.tables["curves"])
    lives = arrays(evidence.tables["lives"])
    (left, right), figure = plot.panels(2)
    betas = np.unique(lives["beta"])
    for number, beta in enumerate(betas):
        colour = plot.shade(number, len(betas))
        for kind, style in (("asymmetric", "-"), ("symmetric", ":")):
            chosen = (curves["beta"] == beta) & (curves["start"] == kind)
            # The first curve of a kind and β is the one with the strongest tilt.
            size = int(np.argmax(np.diff(curves["t"][chosen], append=-1.0) < 0)) + 1
            label = f"β = {beta:g}" if kind == "asymmetric" else None
            left.semilogy(curves["t"][chosen][:size], curves["W2"][chosen][:size], style, color=colour, label=label)
    left.set(xlabel="time t", ylabel="W₂ to Π♯ρ₀", title="solid: asymmetric start; dotted: mirror-symmetric")
    left.legend(fontsize=8, frameon=False)
    chosen = (lives["start"] == "asymmetric") & (lives["beta"] == betas[0])
    a, t = lives["asymmetry"][chosen], lives["left"][chosen]
    right.semilogx(a, t, "o", color=plot.ORANGE, label=f"measured, β = {betas[0]:g}")
    slope = 1 / evidence.numbers["g_V"]
    right.semilogx(a, t[0] + slope * np.log(a[0] / a), ":", color=plot.INK, label=f"slope 1/g_V = {slope:.3g}")
    right.set(xlabel="asymmetry α of the start", ylabel=f"time at which W₂ is back at {LEVEL}", title="what ends it")
    right.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="metastability",
    prose=read_prose(__name__),
    sizes={
        "test": Size((30.0, 100.0, 300.0), 240, 26.0, (0.48, 0.12, 0.03)),
        "quick": Size((30.0, 100.0, 1000.0), 800, 30.0),
        "full": Size((30.0, 100.0, 316.0, 1000.0, 10_000.0), 2000, 34.0),
    },
    seconds={"test": 5, "quick": 9, "full": 500},
    measure=measure,
    judge=judge,
    draw=draw,
    seeded=False,
)
