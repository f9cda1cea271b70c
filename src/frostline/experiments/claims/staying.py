"""Beyond the paper: how long clusters stay (THEORY sections 9 and 13): the hand-over, (H), and what replaces it."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.attention import Attention
from frostline.experiments import staying_runs as runs
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, arrays, read_prose
from frostline.experiments.claims.theorem import B, V
from frostline.theory.held_clusters import held_log_density
from frostline.theory.terminal import terminal

TILT = 0.48
"""Tilt of the start along x₂; along x₁ there is none."""
SETTLED = 0.2
"""Up to this change of a time with resolution or range it counts as settled."""
SHORT = 3.0
"""A range that leaves out the tokens within 2e^{−3} of ±e₂."""
BETWEEN = 0.9
"""The density is read from e₁ to this part of the median token's angle: between the edges."""


@dataclass(frozen=True)
class Size:
    free: tuple[float, ...]
    """β whose clusters leave."""
    held: tuple[float, ...]
    """β whose clusters are held."""
    until: float
    ranges: tuple[float, float]
    spacings: tuple[float, float]
    hypothesis: tuple[tuple[float, float], ...]
    """β, and until when (H) is followed."""


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    curves = Rows("beta", "range", "t", "W2")
    lives = Rows("beta", "range", "spacing", "leaves", "last")
    profile = Rows("beta", "predicted", "log_density")

    def add(beta: float, reach: float, spacing: float, *, drawn: bool) -> runs.Stay:
        stay = runs.stay(beta, TILT, until=size.until, reach=reach, spacing=spacing)
        lives.add(beta, reach, spacing, stay.leaves, stay.distances[-1])
        if drawn:
            curves.add(beta, reach, stay.times, stay.distances)
        return stay

    near, far = size.ranges
    coarse, fine = size.spacings
    for beta in (*size.free, *size.held):
        tick(f"β = {beta:g}")
        add(beta, far, coarse, drawn=False)
        stay = add(beta, far, fine, drawn=True)
        if beta in size.free:
            add(beta, near, fine, drawn=False)
        else:
            add(beta, SHORT, fine, drawn=True)
            profile.add(beta, *_profile(stay, beta))
    broken = Rows("beta", "spacing", "density", "exponent", "start", "largest", "peak")
    excess = Rows("beta", "t", "density", "exponent", "mean")
    for beta, until in size.hypothesis:
        tick(f"(H), β = {beta:g}")
        for spacing in size.spacings:
            run = runs.follow_hypothesis(beta, until=until, spacing=spacing)
            means = run.log_means
            broken.add(
                beta, spacing, run.density, run.exponent, means[0], means.max(), run.largest.max() - run.largest[0]
            )
        line = runs.EXPANSION * run.times
        excess.add(beta, run.times, run.least - line, run.largest - run.largest[0] - line, means - means[0])
    fate = terminal(Attention.from_matrices(B, V, 1.0))
    slope = 0.5 * (1 / fate.contraction + 1 / fate.growth) if fate.contraction and fate.growth else np.nan
    return Evidence(
        {"curves": curves, "lives": lives, "profile": profile, "broken": broken, "excess": excess},
        {
            "free": list(size.free),
            "held": list(size.held),
            "ranges": list(size.ranges),
            "spacings": list(size.spacings),
            "until": size.until,
            "slope of eq. 13": slope,
        },
    )


def _profile(found: runs.Stay, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """βf and log ρ at the nodes between e₁ and the heaviest part of the cluster on the side that V prefers."""
    x, weights, logs = found.last.tokens, found.last.weights, found.last.log_density
    angles = np.arctan2(x[:, 1], x[:, 0])
    order = np.argsort(angles)
    middle = angles[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    between = (angles * np.sign(middle) > 0) & (np.abs(angles) < BETWEEN * abs(middle)) & np.isfinite(logs)
    return held_log_density(Attention.from_matrices(B, V, beta))(x[between]), logs[between]


def judge(evidence: Evidence) -> Judgement:
    numbers, lives = evidence.numbers, arrays(evidence.tables["lives"])
    free, held = np.array(numbers["free"]), np.array(numbers["held"])
    (near, far), (coarse, fine) = numbers["ranges"], numbers["spacings"]

    def column(name: str, betas: np.ndarray, reach: float, spacing: float) -> np.ndarray:
        rows = [(lives["beta"] == b) & (lives["range"] == reach) & (lives["spacing"] == spacing) for b in betas]
        return np.array([lives[name][row][0] for row in rows])

    leaves = column("leaves", free, far, fine)
    all_leave = bool(np.isfinite(leaves).all())
    law = Line.through(np.log(free), leaves) if all_leave else None
    wanted = numbers["slope of eq. 13"]
    finer = np.abs(leaves - column("leaves", free, far, coarse)).max()
    shorter = np.abs(leaves - column("leaves", free, near, fine)).max()
    stayed = column("leaves", held, far, fine)
    last, last_coarse = column("last", held, far, fine), column("last", held, far, coarse)
    apart = float(np.abs(last_coarse / last - 1).max())
    cut = column("leaves", held, SHORT, fine)
    late = np.abs(cut - law(np.log(held))) if law is not None else np.full(len(held), np.nan)
    checks = [
        Criterion(
            f"the hand-over, β = {free[0]:g} to {free[-1]:g}: W₂ back at {runs.LEVEL}",
            f"at times with the slope {wanted:.3g} ± 15 % of eq. 13 in log β, R² ≥ 0.99",
            "not all left" if law is None else str(law),
            bool(law is not None and abs(law.slope / wanted - 1) <= 0.15 and law.r_squared >= 0.99),
        ),
        Criterion(
            "there neither resolution nor range matters",
            f"the time changes by at most {SETTLED:g} when the resolution doubles, and from range {near:g} to {far:g}",
            f"{finer:.2g} and {shorter:.2g}",
            bool(finer <= SETTLED and shorter <= SETTLED),
        ),
        Criterion(
            f"colder, β = {held[0]:g} to {held[-1]:g}, clusters are held",
            f"W₂ below {runs.LEVEL} until t = {numbers['until']:g}, the same to 5 % with half the resolution",
            ", ".join(f"{w:.3g} (β = {b:g})" for w, b in zip(last, held, strict=True)) + f"; {100 * apart:.2g} % apart",
            bool(np.isnan(stayed).all() and apart <= 0.05),
        ),
        Criterion(
            f"it is stragglers that hold them: with the range {SHORT:g}",
            "they leave within 1 of the line through the warmer ones",
            ", ".join(f"{t:.3g} (β = {b:g})" for t, b in zip(cut, held, strict=True)),
            bool((late <= 1.0).all()),
        ),
        _stationary(evidence),
        *_hypothesis(evidence),
    ]
    sums = (
        f"Up to β = {free[-1]:g} the hand-over moves by {law.slope:.2f} per unit of log β (eq. 13: {wanted:.2f}); "
        if law is not None
        else ""
    )
    return Judgement(
        f"{sums}from β = {held[0]:g} on clusters are held, at W₂ = "
        f"{' and '.join(f'{w:.2g}' for w in last)}; (H) breaks, the tokens' mean of e^Λ does not grow.",
        checks,
    )


def _stationary(evidence: Evidence) -> Criterion:
    table = arrays(evidence.tables["profile"])
    lines = {
        beta: Line.through(table["predicted"][table["beta"] == beta], table["log_density"][table["beta"] == beta])
        for beta in np.unique(table["beta"])
        if (table["beta"] == beta).sum() >= 5
    }
    return Criterion(
        "where they are held, log ρ against βf, between e₁ and the middle of the cluster",
        "slope 1 ± 0.1, R² ≥ 0.98",
        "; ".join(f"{line} (β = {beta:g})" for beta, line in lines.items()),
        all(abs(line.slope - 1) <= 0.1 and line.r_squared >= 0.98 for line in lines.values()) if lines else None,
    )


def _hypothesis(evidence: Evidence) -> list[Criterion]:
    table = arrays(evidence.tables["broken"])
    fine = evidence.numbers["spacings"][1]
    finest = table["spacing"] == fine
    betas = table["beta"][finest]
    times = {name: table[name][finest] for name in ("density", "exponent")}
    moved = max(float(np.abs(table[name][~finest] / times[name] - 1).max()) for name in times)
    law = Line.through(np.log(betas), np.log(times["density"]))
    grown = (table["largest"] - table["start"])[finest]
    words = "; ".join(
        f"{name} {', '.join(f'{t:.3g} (β = {b:g})' for t, b in zip(values, betas, strict=True))}"
        for name, values in (("−log min ρ", times["density"]), ("Λ", times["exponent"]))
    )
    return [
        Criterion(
            f"(H): the time at which −log min ρ ≤ Γt and Λ ≤ Λ₀ + Γt are exceeded by {runs.EXCESS:g}",
            "finite, later the colder, the same to 2 % with half the resolution; a power of β from 0.3 to 0.8",
            f"{words}; {100 * moved:.2g} % apart; the first's power {law}",
            bool(
                all((np.diff(values) > 0).all() for values in times.values())
                and moved <= 0.02
                and 0.3 <= law.slope <= 0.8
            ),
        ),
        Criterion(
            "what stays controlled instead: log ∫ e^Λ dρ",
            "never 0.01 above its start, while the largest Λ rises by 3 or more",
            f"at most {grown.max():.2g} above; Λ by {table['peak'][finest].min():.3g} or more",
            bool((grown <= 0.01).all() and (table["peak"][finest] >= 3).all()),
        ),
    ]


def draw(evidence: Evidence) -> Figure:
    curves, profile, excess = (arrays(evidence.tables[name]) for name in ("curves", "profile", "excess"))
    (left, middle, right), figure = plot.panels(3, width=4.4)
    every = np.unique(np.concatenate([table["beta"] for table in (curves, profile, excess)]))
    colour = {beta: plot.shade(number, len(every)) for number, beta in enumerate(every)}
    for beta in np.unique(curves["beta"]):
        for reach in np.unique(curves["range"][curves["beta"] == beta]):
            chosen = (curves["beta"] == beta) & (curves["range"] == reach)
            style = ":" if reach == SHORT else "-"
            left.semilogy(curves["t"][chosen], curves["W2"][chosen], style, color=colour[beta])
    left.axhline(runs.LEVEL, color=plot.INK, lw=0.5)
    left.text(curves["t"].max(), 1.04 * runs.LEVEL, f"{runs.LEVEL} = hand-over", ha="right", fontsize=7)
    left.set(xlabel="time t", ylabel="W₂ to Π♯ρ₀", title="symmetric start")
    for beta in np.unique(profile["beta"]):
        chosen = profile["beta"] == beta
        f, logs = profile["predicted"][chosen], profile["log_density"][chosen]
        middle.plot(f, logs, ".", ms=3, color=colour[beta])
        middle.plot(f, f + np.median(logs - f), ":", lw=1, color=colour[beta])
    middle.set(xlabel="βf", ylabel="log ρ", title="a held cluster")
    for beta in np.unique(excess["beta"]):
        chosen = excess["beta"] == beta
        for name, style in (("density", "-"), ("exponent", "--"), ("mean", ":")):
            right.plot(excess["t"][chosen], excess[name][chosen], style, color=colour[beta])
    right.set(xlabel="time t", ylabel="excess over the line of (H)", title="hypothesis (H), V = I")
    kinds = {
        left: ("curves", {"-": "all tokens", ":": f"range {SHORT:g}"}),
        middle: ("profile", {".": "measured", ":": "slope 1"}),
        right: ("excess", {"-": "−log min ρ", "--": "largest Λ", ":": "log ∫ e$^Λ$ dρ"}),
    }
    for ax, (table, styles) in kinds.items():
        for beta in np.unique(evidence.tables[table]["beta"]):
            ax.plot([], [], color=colour[beta], label=f"β = {beta:g}")
        for style, label in styles.items():
            ax.plot([], [], style, color=plot.INK, label=label)
        ax.legend(fontsize=7, frameon=False)
    return figure


CLAIM = Claim(
    name="staying",
    prose=read_prose(__name__),
    sizes={
        "test": Size(
            (30.0, 60.0, 120.0, 200.0),
            (1000.0,),
            26.0,
            (6.0, 12.0),
            (1.0, 0.5),
            ((100.0, 4.0), (178.0, 5.0), (300.0, 6.0)),
        ),
        "quick": Size(
            (30.0, 60.0, 100.0, 150.0, 200.0),
            (300.0, 1000.0, 10_000.0),
            40.0,
            (6.0, 15.0),
            (1.0, 0.5),
            ((100.0, 6.0), (300.0, 9.0), (1000.0, 14.0), (3000.0, 22.0)),
        ),
        "full": Size(
            (30.0, 60.0, 100.0, 150.0, 200.0),
            (300.0, 500.0, 1000.0, 3000.0, 10_000.0),
            100.0,
            (6.0, 15.0),
            (0.5, 0.25),
            ((100.0, 6.0), (300.0, 9.0), (1000.0, 14.0), (3000.0, 22.0), (10_000.0, 32.0)),
        ),
    },
    seconds={"test": 5, "quick": 20, "full": 300},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
    seeded=False,
)
