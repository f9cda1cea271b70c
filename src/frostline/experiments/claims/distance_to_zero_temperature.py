"""How far temperature takes tokens from their zero-temperature path: W₂(ρ_t^β, ρ_t^∞), the first term of THEORY eq. 11.

The theorem bounds it by a·e^{Ct}, a = √(log(β+1)/β), whatever the start. What is measured on the circle, exactly:

- from a smooth start, over β and t: 1/β at every fixed time (eq. 10), growing like e^{γt}, until it reaches order one
  at the hand-over, a time of order log β (eq. 13): that is what fixes the C of a·e^{Ct};
- from the hardest start found for each β, a bump beside a thin uniform background: a itself, logarithm and all.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from frostline import plot
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.experiments.claim import Criterion, Line, Rows, Table, arrays
from frostline.experiments.setting import Setting, follow
from frostline.theory.bounds import Bound
from frostline.theory.flow import zero_temperature
from frostline.theory.limits import limit
from frostline.transport.circle import circular

FIXED = (1.0, 2.0, 4.0)
"""Times at which the power of β is read off."""
SETTLED = 0.05
"""By how much half the nodes may change a distance that counts."""
WITHIN = 0.05
"""How far a measured power may be from the law's."""
HALFWAY = 0.7
"""W₂ at which tokens count as handed over: half of √2, the largest there is."""
BACKGROUND = 0.1
"""Mass of the uniform part of the hardest start."""
PLACES = tuple(np.geomspace(2.0, 8.0, 12))
"""Where its bump is tried, in units of β^{−1/2} from the limit: no power or logarithm of β is put in."""
EARLY = 0.25
"""The time at which the hardest start is looked at: before anything has grown."""
PER_WIDTH = 2
"""Nodes of the background per β^{−1/2}, the width of what a token looks at."""


def distances(setting: Setting, betas: Sequence[float], until: float) -> Rows:
    """W₂(ρ_t^β, ρ_t^∞), geodesic and exact, over β and t; and with half the nodes."""
    rows = Rows("beta", "t", "W2", "with_half_the_nodes")
    half = Setting(setting.B, setting.V, setting.tilt, setting.count // 2, setting.mirrored)
    times = follow(setting, betas[0], until).times
    # Zero temperature knows no β: one path for all.
    starts = {nodes: nodes.start() for nodes in (setting, half)}
    cold = {
        nodes: zero_temperature(nodes.head(1.0), start.tokens, times=times).tokens for nodes, start in starts.items()
    }
    for beta in betas:
        fine, coarse = (
            [
                _circular(x, y, starts[nodes].weights)
                for x, y in zip(follow(nodes, beta, until).run.tokens, cold[nodes], strict=True)
            ]
            for nodes in (setting, half)
        )
        rows.add(beta, times, fine, coarse)
    return rows


def _circular(x: Float[np.ndarray, "n 2"], y: Float[np.ndarray, "n 2"], weights: Float[np.ndarray, "n"]) -> float:
    """W₂ for the geodesic cost, exact: thousands of clouds are compared, and all are on the circle."""
    s, t = (np.arctan2(cloud[:, 1], cloud[:, 0]) % (2 * np.pi) for cloud in (x, y))
    return circular(s, weights, t, weights, 2.0)[0]


def hardest(setting: Setting, betas: Sequence[float]) -> Rows:
    """For each β the largest W₂(ρ_t^β, ρ_t^∞) at an early time, over the places of the bump."""
    rows = Rows("beta", "place", "W2")
    for beta in betas:
        head, distances = setting.head(beta), []
        for place in PLACES:
            x, weights = _bump(place * beta**-0.5, beta)
            run = simulate(head, x, weights=weights, until=EARLY, save_at=[EARLY])
            cold = zero_temperature(head, x, times=[EARLY]).tokens[-1]
            distances.append(_circular(run.tokens[-1], cold, weights))
        rows.add(beta, PLACES[int(np.argmax(distances))], max(distances))
    return rows


def _bump(place: float, beta: float) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "n"]]:
    """Uniform, and a narrow bump at this angle: its tokens look past themselves at the limit, or do not, just so."""
    count = int(np.ceil(PER_WIDTH * 2 * np.pi * np.sqrt(beta)))
    across = np.linspace(-1.0, 1.0, 43)[1:-1]
    shape = np.cos(across * np.pi / 2) ** 2
    angle = np.concatenate([2 * np.pi * (np.arange(count) + 1 / np.pi) / count, place * (1 + 0.1 * across)])
    weights = np.concatenate([np.full(count, BACKGROUND / count), (1 - BACKGROUND) * shape / shape.sum()])
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), weights


def expected_growth(head: Attention) -> float:
    """γ, to leading order: W₂(ρ_t^β, ρ_t^∞) ~ e^{γt}/β while t < log β/γ·½, for d = 2, one pair of points.

    Tokens arrive at e₁ at the rate g/|Bᵀe₁| and leave e₂ at g/|Bᵀe₂|. A cluster that sharpens like e^{rt} pushes its
    tokens by ∇log f/κ ~ e^{rt}/β (eq. 10); tokens near e₂ part like e^{rt}, but are fewer like e^{−rt}: half of r in
    W₂.
    """
    target = limit(head)
    e1 = np.asarray(target.basis, dtype=np.float64)[0]
    B = head.matrices.B
    arriving, leaving = (float(target.gap or 0.0) / np.linalg.norm(e @ B) for e in (e1, np.array([-e1[1], e1[0]])))
    return float(max(arriving, leaving / 2))


def draw(ax: Axes, table: Table, growth: float) -> None:
    """β·W(ρ_t^β, ρ_t^∞) over time: where the lines of all β lie on each other it is 1/β."""
    rows = arrays(table)
    betas = np.unique(rows["beta"])
    for number, beta in enumerate(betas):
        chosen = (rows["beta"] == beta) & (rows["t"] > 0)
        colour = plot.shade(number, len(betas))
        ax.semilogy(rows["t"][chosen], beta * rows["W2"][chosen], color=colour, lw=2, label=f"β = {beta:g}")
    last = (rows["beta"] == betas[-1]) & (rows["t"] >= 4)
    t, w = rows["t"][last], betas[-1] * rows["W2"][last]
    ax.semilogy(t, w[0] * np.exp(growth * (t - t[0])), ":", color=plot.INK, lw=1, label=f"e^({growth:.3g} t)")
    ax.set(xlabel="time t", ylabel="β · W₂ to zero temperature's path", title="what temperature does, circle")
    ax.legend(fontsize=7, frameon=False, loc="lower right")


def checks(table: Table, worst: Table, bound: Bound, growth: float) -> list[Criterion]:
    """a, C and e^{Ct}, each from both sides; which other laws the data reject, and which they do not."""
    rows = arrays(table)
    betas = np.unique(rows["beta"])
    t = rows["t"][: len(rows["t"]) // len(betas)]
    w, half = (rows[name].reshape(len(betas), -1) for name in ("W2", "with_half_the_nodes"))
    return [
        _amplitude(worst, bound),
        _fixed_times(betas, t, w),
        _growing(betas, t, w, half, growth),
        _one_constant(betas, t, w, half, bound),
    ]


def _amplitude(worst: Table, bound: Bound) -> Criterion:
    rows = arrays(worst)
    betas, w = rows["beta"], rows["W2"]
    a = np.array([bound.amplitude(beta) for beta in betas])
    power, plain = (float(np.polyfit(np.log(x), np.log(w), 1)[0]) for x in (a, betas**-0.5))
    return Criterion(
        "a = √(log(β+1)/β), from both sides: W(ρ_t^{β}, ρ_t^{∞}) from the hardest start of each β, at "
        f"t = {EARLY:g}",
        "its power against a is 1 ± 0.05",
        f"{power:.3f}; W/a " + ", ".join(f"{x:.3g} (β = {b:g})" for x, b in zip(w / a, betas, strict=True)) + "; "
        f"against β^{{−1/2}} {plain:.3f}, against 1/β {plain / 2:.3f}: {_verdict(plain, plain / 2)}",
        abs(power - 1) <= WITHIN,
    )


def _verdict(*powers: float) -> str:
    """On laws against which the measured powers should be 1."""
    near = [abs(power - 1) <= WITHIN for power in powers]
    return "not distinguishable" if all(near) else "rejected" if not any(near) else "partly rejected"


def _fixed_times(betas: np.ndarray, t: np.ndarray, w: np.ndarray) -> Criterion:
    cold = betas >= 100
    x = np.log(betas[cold])
    powers = (
        {s: float(np.polyfit(x, np.log(w[cold, np.abs(t - s).argmin()]), 1)[0]) for s in FIXED} if len(x) > 1 else {}
    )
    return Criterion(
        "from a smooth start, at a fixed time: the power of β in W(ρ_t^{β}, ρ_t^{∞})",
        "−1 ± 0.05, from β = 100 on: eq. 10, far inside eq. 11",
        "; ".join(f"{power:.3f} (t = {s:g})" for s, power in powers.items())
        + "; β^{−1/2} would have −0.5, "
        + _verdict(*(-2 * power for power in powers.values())),
        all(abs(power + 1) <= WITHIN for power in powers.values()) if powers else None,
    )


def _growing(betas: np.ndarray, t: np.ndarray, w: np.ndarray, half: np.ndarray, growth: float) -> Criterion:
    rates = {}
    for beta, fine, coarse in zip(betas, w, half, strict=True):
        window = (t >= 4) & (t <= 0.85 * np.log(beta) / (2 * growth))
        if beta >= 100 and window.sum() >= 8 and np.abs(coarse[window] / fine[window] - 1).max() <= SETTLED:
            rates[beta] = Line.through(t[window], np.log(fine[window])).slope
    return Criterion(
        "from a smooth start, in time: it grows like e^{γt} from t = 4 until clusters are β^{−1/2} wide",
        f"γ = {growth:.3g} ± 15 %, predicted from the spectrum; without e^{{Ct}} it would be 0",
        ", ".join(f"{rate:.3g} (β = {beta:g})" for beta, rate in rates.items()) or "half the nodes change it too much",
        all(abs(rate / growth - 1) <= 0.15 for rate in rates.values()) if rates else None,
    )


def _one_constant(betas: np.ndarray, t: np.ndarray, w: np.ndarray, half: np.ndarray, bound: Bound) -> Criterion:
    same = [beta < 10 or _same_hand_over(t, *pair) for beta, *pair in zip(betas, w, half, strict=True)]
    # Colder than the first β that needs more nodes none is trusted: there half the nodes may agree by chance.
    sure = (betas >= 10) & np.logical_and.accumulate(same)
    if sure.sum() < 3:
        return Criterion("C, from both sides", "three settled β", f"{int(sure.sum())}", None)

    def level(C: float, amplitudes: np.ndarray) -> float:
        """The slope of log max_t W/(a·e^{Ct}) over log β: zero where one M serves every β."""
        needed = (w[sure] / (amplitudes[sure, None] * np.exp(C * t))).max(1)
        return float(np.polyfit(np.log(betas[sure]), np.log(needed), 1)[0])

    def best(amplitudes: np.ndarray) -> float:
        # The first C at which it is zero, if any: where C is large only the first instants count.
        rates = np.linspace(0.0, 1.0, 201)
        slopes = np.array([level(rate, amplitudes) for rate in rates])
        turn = int((slopes <= 0).argmax())
        if not turn:
            return np.nan
        return float(np.interp(0.0, slopes[[turn, turn - 1]], rates[[turn, turn - 1]]))

    a = np.array([bound.amplitude(beta) for beta in betas])
    C, plain, inverse = (best(x) for x in (a, betas**-0.5, 1 / betas))
    return Criterion(
        "C, from both sides: the C at which one M serves every β in W(ρ_t^{β}, ρ_t^{∞}) ≤ M·a·e^{Ct}",
        f"within a factor 1.5 of the predicted {bound.C:.3g}; a smaller C needs an M that grows with β, for a larger "
        "one M vanishes",
        f"{C:.3g}, from β = {', '.join(f'{b:g}' for b in betas[sure])}. Not distinguishable by this: β^{{−1/2}} for a, "
        f"with C = {plain:.3g}. For 1/β " + (f"{inverse:.3g}" if np.isfinite(inverse) else "no C will do"),
        bool(bound.C > 0 and 1 / 1.5 <= C / bound.C <= 1.5),
    )


def _same_hand_over(t: np.ndarray, fine: np.ndarray, coarse: np.ndarray) -> bool:
    """Whether half the nodes hand over at the same time."""
    times = [float(t[int((w >= HALFWAY).argmax())]) if (w >= HALFWAY).any() else np.nan for w in (fine, coarse)]
    return bool(abs(times[1] / times[0] - 1) <= SETTLED) if times[0] > 0 else False
