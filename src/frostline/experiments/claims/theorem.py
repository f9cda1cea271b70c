"""Claim: the theorem itself, THEORY eq. 11, over time and temperature."""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.certificates import certificate
from frostline.analysis.distance import Measure
from frostline.analysis.fits import fit
from frostline.experiments.claim import (
    Claim,
    Criterion,
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
from frostline.experiments.setting import Followed, Setting, diagonal, follow
from frostline.theory.bounds import Bound
from frostline.theory.flow import zero_temperature
from frostline.theory.limits import limit
from frostline.theory.rates import rates
from frostline.theory.terminal import terminal

BELOW = 0.8
"""The fitted constant c lies between this and 1 times the rate of zero temperature."""
SETTLED = 0.15
"""Up to this change with half the nodes a smallest W₂ counts as settled."""
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
    curves, sphere = Rows("beta", "t", "W2"), Rows("beta", "t", "W2")
    halves = Rows("where", "beta", "smallest", "smallest_with_half_the_nodes")
    proven = Rows("beta", "t", "certified", "W2")

    def add(where: str, rows: Rows, setting: Setting, beta: float) -> Followed:
        followed = follow(setting, beta, size.until)
        rows.add(beta, followed.times, followed.distance)
        coarse = follow(replace(setting, count=setting.count // 2), beta, size.until)
        halves.add(where, beta, followed.distance.min(), coarse.distance.min())
        return followed

    for beta in size.betas:
        tick(f"β = {beta:g}")
        followed = add("circle", curves, size.setting, beta)
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
    fitted = fit(list(size.betas), followed.times[early_half], _grid(curves)[2][:, early_half])
    for beta in size.sphere_betas:
        tick(f"on S², β = {beta:g}")
        other = add("S²", sphere, size.sphere, beta)
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


@dataclass(frozen=True, eq=False)
class _Curves:
    """The measured W₂ of one setting, a row for each β, and the bound that is predicted for it."""

    where: str
    betas: np.ndarray
    times: np.ndarray
    distances: np.ndarray
    bound: Bound
    settled: np.ndarray
    """For each β whether half the nodes give nearly the same smallest W₂."""
    changes: np.ndarray
    """By which share half the nodes change it."""
    fine: dict[str, np.ndarray]
    """The run with very many nodes."""

    @classmethod
    def of(cls, evidence: Evidence, where: str) -> "_Curves":
        table, prediction = {"circle": ("curves", "predicted"), "S²": ("sphere", "predicted on S²")}[where]
        bound = Bound(**evidence.numbers[prediction], origin="order of magnitude")
        halves, fine = (
            {name: column[columns["where"] == where] for name, column in columns.items()}
            for columns in (arrays(evidence.tables["nodes"]), arrays(evidence.tables["fine"]))
        )
        changes = np.abs(halves["smallest_with_half_the_nodes"] / halves["smallest"] - 1)
        return cls(where, *_grid(evidence.tables[table]), bound, changes <= SETTLED, changes, fine)

    @property
    def smallest(self) -> np.ndarray:
        """The smallest W₂ for each β."""
        return self.distances.min(1)

    @property
    def ratios(self) -> np.ndarray:
        """The largest ratio of W₂ to the bound, for each β."""
        rows = zip(self.betas, self.distances, strict=True)
        return np.array([(row / self.bound(self.times, beta)).max() for beta, row in rows])

    @property
    def fine_ratio(self) -> float:
        """The largest ratio of W₂ to the bound, with very many nodes."""
        return float((self.fine["W2"] / self.bound(self.fine["t"], self.fine["beta"][0])).max())

    @property
    def counted(self) -> np.ndarray:
        """The values of β that the law of the smallest W₂ is judged by."""
        return (self.betas >= 10) & self.settled


def judge(evidence: Evidence) -> Judgement:
    circle, sphere = _Curves.of(evidence, "circle"), _Curves.of(evidence, "S²")
    checks = [
        _closer(circle),
        _bounded(circle),
        _bounded_on_sphere(sphere),
        _rate(evidence, circle.bound),
        *coupling.checks(
            evidence.tables["coupling"], evidence.tables["hardest"], circle.bound, evidence.numbers["growth"]
        ),
        _power(circle),
        _refined(circle, sphere, evidence.numbers["nodes"]),
        _certified(evidence.tables["certified"]),
    ]
    settled = circle.settled
    return Judgement(
        f"The smallest W₂ falls from {circle.smallest[0]:.2g} at β = {circle.betas[0]:g} to "
        f"{circle.smallest[settled][-1]:.2g} at β = {circle.betas[settled][-1]:g}; eq. 11 with constants from the "
        f"theory is never exceeded (largest ratio {max(*circle.ratios, *sphere.ratios):.2f}), and none of its c, C and "
        "a can be much smaller.",
        checks,
    )


def _closer(circle: _Curves) -> Criterion:
    smallest, settled, counted = circle.smallest, circle.settled, circle.counted
    return Criterion(
        "tokens come closer to the limit the colder it is",
        "the smallest W₂ falls with β, to a third or less of that at β = 10, where half the nodes change it by "
        f"at most {100 * SETTLED:g} %",
        ", ".join(
            f"{x:.3g} (β = {b:g}{'' if s else ', not settled'})"
            for x, b, s in zip(smallest, circle.betas, settled, strict=True)
        ),
        bool((np.diff(smallest[settled]) < 0).all() and smallest[counted][-1] <= smallest[counted][0] / 3)
        if counted.sum() >= 3
        else None,
    )


def _bounded(circle: _Curves) -> Criterion:
    M, C, c = circle.bound.M, circle.bound.C, circle.bound.c
    return Criterion(
        "the bound (11): c and C predicted, M from zero temperature, nothing fitted to these curves",
        f"W₂ ≤ {M:.3g}(a·e^{{{C:.3g}t}} + e^{{−{c:.3g}t}}) for every β and t",
        "largest ratios " + ", ".join(f"{x:.3g} (β = {b:g})" for x, b in zip(circle.ratios, circle.betas, strict=True)),
        bool((circle.ratios <= 1).all()),
    )


def _bounded_on_sphere(sphere: _Curves) -> Criterion:
    M, C, c = sphere.bound.M, sphere.bound.C, sphere.bound.c
    closest = sphere.smallest[sphere.settled]
    return Criterion(
        "the same on S²",
        f"W₂ ≤ {M:.3g}(a·e^{{{C:.3g}t}} + e^{{−{c:.3g}t}}), and closer the colder",
        ", ".join(
            f"smallest {x:.3g}, largest ratio {r:.3g} (β = {b:g}{'' if s else ', not settled'})"
            for x, r, b, s in zip(sphere.smallest, sphere.ratios, sphere.betas, sphere.settled, strict=True)
        ),
        bool(max(sphere.ratios) <= 1 and (np.diff(closest) < 0).all()) if len(closest) >= 2 else None,
    )


def _power(circle: _Curves) -> Criterion:
    betas, counted = circle.betas[circle.counted], circle.smallest[circle.counted]
    line = Line.through(np.log(np.log1p(betas) / betas), np.log(counted)) if len(betas) >= 3 else None
    power = circle.bound.c / (2 * (circle.bound.C + circle.bound.c))
    return Criterion(
        "how the smallest W₂ depends on a² = log(β+1)/β",
        f"a power of at least the bound's, c/(2(C+c)) = {power:.3g}, by its whole 95 % interval, from settled β ≥ 10",
        ("" if line is None else f"{line}; ")
        + "half the nodes change it by "
        + ", ".join(f"{100 * x:.2g} % (β = {b:g})" for x, b in zip(circle.changes, circle.betas, strict=True)),
        None if line is None or line.low < power <= line.high else bool(line.low >= power),
    )


def _refined(circle: _Curves, sphere: _Curves, nodes: int) -> Criterion:
    both, fine = (circle, sphere), circle.fine
    usual = np.interp(fine["t"], circle.times, circle.distances[circle.betas == fine["beta"][0]][0])
    until_smallest = slice(0, int(fine["W2"].argmin()) + 1)
    apart = float(np.abs(fine["W2"] / usual - 1)[until_smallest].max())
    return Criterion(
        "with very many nodes: "
        + ", ".join(f"{curves.fine['n'][0]:,} ({curves.where}), β = {curves.fine['beta'][0]:g}" for curves in both),
        "never above the same bounds; on the circle the same W₂ to 2 % until it is smallest",
        ", ".join(
            f"{curves.where}: smallest {curves.fine['W2'].min():.3g} at "
            f"t = {curves.fine['t'][curves.fine['W2'].argmin()]:.3g}, largest ratio {curves.fine_ratio:.3g}, "
            f"{curves.fine['W2'][-1]:.3g} at t = {curves.fine['t'][-1]:g}"
            for curves in both
        )
        + f"; {100 * apart:.2g} % from the circle's {nodes:,} nodes",
        bool(max(curves.fine_ratio for curves in both) <= 1 and apart <= 0.02),
    )


def _certified(proven: Table) -> Criterion:
    later = np.array(proven["t"]) > 0
    certified, measured = np.array(proven["certified"])[later], np.array(proven["W2"])[later]
    useful = certified < 2
    return Criterion(
        "what is certified, token by token, is above what is measured",
        "at every time and β; less than 2 somewhere",
        f"smallest ratio {float((certified / measured)[useful].min()) if useful.any() else np.nan:.3g}; "
        f"{int(useful.sum())} of {len(useful)} not vacuous",
        bool((certified >= measured * (1 - 1e-9)).all()) if useful.any() else None,
        software=True,
    )


def _rate(evidence: Evidence, predicted: Bound) -> Criterion:
    """c is what zero temperature needs in the end, no less and no more."""
    cold = arrays(evidence.tables["zero_temperature"])
    late = cold["t"] >= cold["t"][-1] / 2
    rate = -Line.through(cold["t"][late], np.log(cold["W2"][late])).slope
    return Criterion(
        "c, from both sides: the rate at which W₂(ρ_t^{∞}, Π♯ρ₀) falls in the second half of the time",
        f"c = {predicted.c:.3g} is {BELOW:g} to 1 times that",
        f"{rate:.3g}: {predicted.c / rate:.3g} times",
        bool(BELOW <= predicted.c / rate <= 1),
    )


def draw(evidence: Evidence) -> Figure:
    (left, middle, right), figure = plot.panels(3, width=4.4)
    zero = evidence.tables["zero_temperature"]
    left.semilogy(zero["t"], zero["W2"], color=plot.NOWHERE, lw=2, label="β = ∞")
    for ax, where in ((left, "circle"), (middle, "S²")):
        curves = _Curves.of(evidence, where)
        t, fine = curves.times, curves.fine
        for number, (beta, w) in enumerate(zip(curves.betas, curves.distances, strict=True)):
            colour = plot.shade(number, len(curves.betas))
            ax.semilogy(t, w, color=colour, lw=2, label=f"β = {beta:g}")
            ax.semilogy(t, np.minimum(curves.bound(t, beta), 4), color=colour, lw=1, ls=":")
        ax.set(xlabel="time t", ylabel="W₂ to Π♯ρ₀", title=f"{where}; dotted: eq. 11, nothing fitted")
        label = f"β = {fine['beta'][0]:g}, {fine['n'][0]:,} nodes"
        ax.semilogy(fine["t"], fine["W2"], "k.", ms=4, label=label)
        ax.set_ylim(0.5 * min(curves.distances.min(), fine["W2"].min()), 3)
        ax.legend(fontsize=7, frameon=False, loc="lower left")
    coupling.draw(right, evidence.tables["coupling"], evidence.numbers["growth"])
    return figure


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
