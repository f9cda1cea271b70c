"""Claim: the theorem itself, THEORY eq. 11, over time and temperature."""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.certificates import certificate
from frostline.analysis.distance import Measure
from frostline.analysis.fits import fit
from frostline.experiments.claim import (
    Check,
    Claim,
    Evidence,
    Frames,
    Judgement,
    Line,
    Rows,
    Table,
    Tick,
    arrays,
    read_prose,
)
from frostline.experiments.claims import distance_to_zero_temperature as coupling
from frostline.experiments.setting import Setting, diagonal, follow
from frostline.theory.bounds import Bound
from frostline.theory.flow import zero_temperature
from frostline.theory.limits import limit
from frostline.theory.rates import rates
from frostline.theory.terminal import terminal

BELOW = 0.8
SETTLED = 0.15
CERTIFIED = 61
"""Times kept for the certificate, which needs to see the way between them."""
FINE_FRAMES = 41
"""Times kept of a run with very many nodes: every third of the others'."""


@dataclass(frozen=True)
class Fine:
    """One run with very many nodes."""

    where: str
    setting: Setting
    beta: float
    until: float


@dataclass(frozen=True)
class Size:
    betas: tuple[float, ...]
    setting: Setting
    until: float
    certified_until: float
    sphere: Setting
    sphere_betas: tuple[float, ...]
    hardest: tuple[float, ...]
    fine: tuple[Fine, ...]


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    curves = Rows("beta", "t", "W2")
    halves = Rows("where", "beta", "smallest", "smallest_with_half_the_nodes")
    proven = Rows("beta", "t", "certified", "W2")
    rows = []
    for beta in size.betas:
        tick(f"β = {beta:g}")
        followed = follow(size.setting, beta, size.until)
        curves.add(beta, followed.times, followed.distance)
        coarse = follow(replace(size.setting, count=size.setting.count // 2), beta, size.until)
        halves.add("circle", beta, followed.distance.min(), coarse.distance.min())
        rows.append(followed.distance)
        early = follow(size.setting, beta, size.certified_until, CERTIFIED)
        promise = certificate(early.run, replayed=False)
        proven.add(beta, early.times, promise.values, early.distance)
    tick("how far temperature takes tokens from their paths")
    apart = coupling.distances(size.setting, size.betas, size.until)
    worst = coupling.hardest(size.setting, size.hardest)
    tick("zero temperature, and the fit")
    predicted, cold = predicted_bound(size.setting, followed.times)
    # Eq. 11 knows no ceiling of its own, W has one: half the time is before most curves reach it.
    early_half = slice(1, len(followed.times) // 2)
    fitted = fit(list(size.betas), followed.times[early_half], np.array(rows)[:, early_half])
    sphere = Rows("beta", "t", "W2")
    for beta in size.sphere_betas:
        tick(f"on S², β = {beta:g}")
        other = follow(size.sphere, beta, size.until)
        sphere.add(beta, other.times, other.distance)
        coarse = follow(replace(size.sphere, count=size.sphere.count // 2), beta, size.until)
        halves.add("S²", beta, other.distance.min(), coarse.distance.min())
    there, _ = predicted_bound(size.sphere, other.times)
    fine = Rows("where", "n", "beta", "t", "W2")
    for finer in size.fine:
        tick(f"{finer.setting.count:,} nodes, {finer.where}, β = {finer.beta:g}")
        finest = follow(finer.setting, finer.beta, finer.until, FINE_FRAMES)
        fine.add(finer.where, finer.setting.count, finer.beta, finest.times, finest.distance)
    return Evidence(
        {
            "curves": curves,
            "certified": proven,
            "coupling": apart,
            "hardest": worst,
            "zero_temperature": {"t": followed.times, "W2": cold},
            "sphere": sphere,
            "nodes": halves,
            "fine": fine,
        },
        {
            "nodes": size.setting.count,
            "predicted": {"M": predicted.M, "C": predicted.C, "c": predicted.c},
            "predicted on S²": {"M": there.M, "C": there.C, "c": there.c},
            "growth": coupling.expected_growth(size.setting.head(1.0)),
            "fitted": {"M": list(fitted.M), "C": list(fitted.C), "c": list(fitted.c), "meaning": fitted.describe()},
        },
        (_frames(followed.run.times, followed.run.tokens, followed.distance, size),),
    )


def predicted_bound(setting: Setting, times: np.ndarray) -> tuple[Bound, np.ndarray]:
    """Eq. 11 with nothing fitted, and the distance at zero temperature.

    c is a little below the rate of section 5 (at the rate itself powers of t may be left over), C makes the first term
    reach order one when eq. 13 hands over, and M is what zero temperature alone needs.
    """
    head, start = setting.head(1.0), setting.start()
    known, fate = rates(head), terminal(head)
    c = BELOW * (known.exact or known.guaranteed)
    C = 1 / (1 / fate.contraction + 1 / fate.growth) if fate.contraction and fate.growth else np.nan
    measure = Measure.of(limit(head), start.tokens, start.weights)
    cold = np.array([measure.distance(x) for x in zero_temperature(head, start.tokens, times=times).tokens])
    return Bound(float((cold * np.exp(c * times)).max()), C, c, origin="order of magnitude"), cold


def _frames(times: np.ndarray, tokens: np.ndarray, distance: np.ndarray, size: Size) -> Frames:
    shown = np.asarray(tokens)[::2]
    return Frames(
        f"{tokens.shape[1]} weighted nodes at β = {size.betas[-1]:g}",
        times[::2],
        shown,
        (shown[0, :, 0] > 0).astype(int),
        np.array([[1.0, 0.0], [-1.0, 0.0]]),
        distance[::2],
        "W₂ to the limit",
    )


def judge(evidence: Evidence) -> Judgement:
    betas, t, w = _grid(evidence.tables["curves"])
    deepest = w.min(1)
    cold = betas >= 10
    off, off_sphere = (_unsettled(evidence.tables["nodes"], where) for where in ("circle", "S²"))
    sure = off <= SETTLED
    counted = cold & sure
    settled = counted.sum() >= 3
    depth = (
        Line.through(np.log(np.log1p(betas[counted]) / betas[counted]), np.log(deepest[counted])) if settled else None
    )
    predicted = Bound(**evidence.numbers["predicted"], origin="order of magnitude")
    above = np.array([(row / predicted(t, beta)).max() for beta, row in zip(betas, w, strict=True)])
    there = Bound(**evidence.numbers["predicted on S²"], origin="order of magnitude")
    sphere_betas, sphere_t, sphere_w = _grid(evidence.tables["sphere"])
    sphere_above = [(row / there(sphere_t, beta)).max() for beta, row in zip(sphere_betas, sphere_w, strict=True)]
    closest = sphere_w.min(1)[off_sphere <= SETTLED]
    power = predicted.c / (2 * (predicted.C + predicted.c))
    fine = arrays(evidence.tables["fine"])
    runs = {
        where: {name: column[fine["where"] == where] for name, column in fine.items()} for where in ("circle", "S²")
    }
    ratios = {
        where: float((run["W2"] / bound(run["t"], run["beta"][0])).max())
        for (where, run), bound in zip(runs.items(), (predicted, there), strict=True)
    }
    circle = runs["circle"]
    usual = np.interp(circle["t"], t, w[betas == circle["beta"][0]][0])
    until_smallest = slice(0, int(circle["W2"].argmin()) + 1)
    apart = float(np.abs(circle["W2"] / usual - 1)[until_smallest].max())
    proven = evidence.tables["certified"]
    later = np.array(proven["t"]) > 0
    certified, measured = np.array(proven["certified"])[later], np.array(proven["W2"])[later]
    useful = certified < 2
    checks = [
        Check(
            "tokens come closer to the limit the colder it is",
            "the smallest W₂ falls with β, to a third or less of that at β = 10, where half the nodes change it by "
            f"at most {100 * SETTLED:g} %",
            ", ".join(
                f"{x:.3g} (β = {b:g}{'' if s else ', not settled'})"
                for x, b, s in zip(deepest, betas, sure, strict=True)
            ),
            bool((np.diff(deepest[sure]) < 0).all() and deepest[counted][-1] <= deepest[counted][0] / 3)
            if settled
            else None,
        ),
        Check(
            "the bound (11): c and C predicted, M from zero temperature, nothing fitted to these curves",
            f"W₂ ≤ {predicted.M:.3g}(a·e^{{{predicted.C:.3g}t}} + e^{{−{predicted.c:.3g}t}}) for every β and t",
            "largest ratios " + ", ".join(f"{x:.3g} (β = {b:g})" for x, b in zip(above, betas, strict=True)),
            bool((above <= 1).all()),
        ),
        Check(
            "the same on S²",
            f"W₂ ≤ {there.M:.3g}(a·e^{{{there.C:.3g}t}} + e^{{−{there.c:.3g}t}}), and closer the colder",
            ", ".join(
                f"smallest {x:.3g}, largest ratio {r:.3g} (β = {b:g}{'' if o <= SETTLED else ', not settled'})"
                for x, r, b, o in zip(sphere_w.min(1), sphere_above, sphere_betas, off_sphere, strict=True)
            ),
            bool(max(sphere_above) <= 1 and (np.diff(closest) < 0).all()) if len(closest) >= 2 else None,
        ),
        _rate(evidence, predicted),
        *coupling.checks(
            evidence.tables["coupling"], evidence.tables["hardest"], predicted, evidence.numbers["growth"]
        ),
        Check(
            "how the smallest W₂ depends on a² = log(β+1)/β",
            f"a power of at least the bound's, c/(2(C+c)) = {power:.3g}, by its whole 95 % interval, from settled β "
            "≥ 10",
            ("" if depth is None else f"{depth}; ")
            + "half the nodes change it by "
            + ", ".join(f"{100 * x:.2g} % (β = {b:g})" for x, b in zip(off, betas, strict=True)),
            None if depth is None or depth.low < power <= depth.high else bool(depth.low >= power),
        ),
        Check(
            "with very many nodes: "
            + ", ".join(f"{run['n'][0]:,} ({where}), β = {run['beta'][0]:g}" for where, run in runs.items()),
            "never above the same bounds; on the circle the same W₂ to 2 % until it is smallest",
            ", ".join(
                f"{where}: smallest {run['W2'].min():.3g} at t = {run['t'][run['W2'].argmin()]:.3g}, largest ratio "
                f"{ratios[where]:.3g}, {run['W2'][-1]:.3g} at t = {run['t'][-1]:g}"
                for where, run in runs.items()
            )
            + f"; {100 * apart:.2g} % from the circle's {evidence.numbers['nodes']:,} nodes",
            bool(max(ratios.values()) <= 1 and apart <= 0.02),
        ),
        Check(
            "what is certified, token by token, is above what is measured",
            "at every time and β; less than 2 somewhere",
            f"smallest ratio {float((certified / measured)[useful].min()) if useful.any() else np.nan:.3g}; "
            f"{int(useful.sum())} of {len(useful)} not vacuous",
            bool((certified >= measured * (1 - 1e-9)).all()) if useful.any() else None,
            software=True,
        ),
    ]
    return Judgement(
        f"The smallest W₂ falls from {deepest[0]:.2g} at β = {betas[0]:g} to {deepest[sure][-1]:.2g} at β = "
        f"{betas[sure][-1]:g}; eq. 11 with constants from the theory is never exceeded (largest ratio "
        f"{max(above.max(), *sphere_above):.2f}), and none of its c, C and a can be much smaller.",
        checks,
    )


def _rate(evidence: Evidence, predicted: Bound) -> Check:
    """c is what zero temperature needs in the end, no less and no more."""
    cold = arrays(evidence.tables["zero_temperature"])
    late = cold["t"] >= cold["t"][-1] / 2
    rate = -Line.through(cold["t"][late], np.log(cold["W2"][late])).slope
    return Check(
        "c, from both sides: the rate at which W₂(ρ_t^{∞}, Π♯ρ₀) falls in the second half of the time",
        f"c = {predicted.c:.3g} is {BELOW:g} to 1 times that",
        f"{rate:.3g}: {predicted.c / rate:.3g} times",
        bool(BELOW <= predicted.c / rate <= 1),
    )


def draw(evidence: Evidence) -> Figure:
    (left, middle, right), figure = plot.panels(3, width=4.4)
    zero = evidence.tables["zero_temperature"]
    left.semilogy(zero["t"], zero["W2"], color=plot.NOWHERE, lw=2, label="β = ∞")
    for ax, table, name, where in (
        (left, "curves", "predicted", "circle"),
        (middle, "sphere", "predicted on S²", "S²"),
    ):
        betas, t, w = _grid(evidence.tables[table])
        bound = Bound(**evidence.numbers[name], origin="order of magnitude")
        for number, beta in enumerate(betas):
            colour = plot.shade(number, len(betas))
            ax.semilogy(t, w[number], color=colour, lw=2, label=f"β = {beta:g}")
            ax.semilogy(t, np.minimum(bound(t, beta), 4), color=colour, lw=1, ls=":")
        ax.set(xlabel="time t", ylabel="W₂ to Π♯ρ₀", title=f"{where}; dotted: eq. 11, nothing fitted")
        fine = arrays(evidence.tables["fine"])
        chosen = fine["where"] == where
        name = f"β = {fine['beta'][chosen][0]:g}, {fine['n'][chosen][0]:,} nodes"
        ax.semilogy(fine["t"][chosen], fine["W2"][chosen], "k.", ms=4, label=name)
        ax.set_ylim(0.5 * min(w.min(), fine["W2"][chosen].min()), 3)
        ax.legend(fontsize=7, frameon=False, loc="lower left")
    coupling.draw(right, evidence.tables["coupling"], evidence.numbers["growth"])
    return figure


def _unsettled(nodes: Table, where: str) -> np.ndarray:
    """The relative change of the smallest W₂ with half the nodes, for each β."""
    table = arrays(nodes)
    chosen = table["where"] == where
    return np.abs(table["smallest_with_half_the_nodes"][chosen] / table["smallest"][chosen] - 1)


def _grid(curves: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """β, times, and W₂ with a row for each β."""
    betas = np.unique(curves["beta"])
    w = np.array(curves["W2"]).reshape(len(betas), -1)
    return betas, np.array(curves["t"])[: w.shape[1]], w


B = diagonal(1.0, 0.5)
V = diagonal(1.0, 1.5)
TILT = (0.36, 0.48)
"""Tilt of the start on the circle."""
SPHERE = (diagonal(1.0, 0.5, 0.4), diagonal(1.0, 1.5, 1.0), (0.36, 0.48, 0.2))
"""B, V and tilt on the sphere."""

CLAIM = Claim(
    name="theorem",
    prose=read_prose(__name__),
    sizes={
        "test": Size(
            (1.0, 10.0, 30.0, 100.0, 300.0),
            Setting(B, V, TILT, 300),
            18.0,
            2.0,
            Setting(*SPHERE, 250),
            (3.0, 10.0),
            (100.0, 1000.0, 10_000.0),
            (Fine("circle", Setting(B, V, TILT, 2000), 100.0, 18.0), Fine("S²", Setting(*SPHERE, 500), 30.0, 9.0)),
        ),
        "quick": Size(
            (1.0, 10.0, 32.0, 100.0, 316.0, 1000.0, 10_000.0),
            Setting(B, V, TILT, 1200),
            30.0,
            6.0,
            Setting(*SPHERE, 1000),
            (3.0, 10.0, 30.0, 100.0),
            (100.0, 1000.0, 10_000.0, 100_000.0),
            (Fine("circle", Setting(B, V, TILT, 5000), 1000.0, 30.0), Fine("S²", Setting(*SPHERE, 4000), 100.0, 10.0)),
        ),
        "full": Size(
            (1.0, 10.0, 32.0, 100.0, 316.0, 1000.0, 10_000.0, 100_000.0),
            Setting(B, V, TILT, 4000),
            36.0,
            6.0,
            Setting(*SPHERE, 3000),
            (1.0, 10.0, 30.0, 100.0, 1000.0),
            (100.0, 1000.0, 10_000.0, 100_000.0, 1_000_000.0),
            (
                Fine("circle", Setting(B, V, TILT, 1_000_000), 10_000.0, 36.0),
                Fine("S²", Setting(*SPHERE, 100_000), 1000.0, 12.0),
            ),
        ),
    },
    seconds={"test": 7, "quick": 45, "full": 1500},
    measure=measure,
    judge=judge,
    draw=draw,
    seeded=False,
)
