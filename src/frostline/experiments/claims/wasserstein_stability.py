"""Claim: two clouds drift apart no faster than e^{ℓt} (THEORY section 7): proven at β = ∞, measured at finite β."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.stability import stability
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Rows, Tick, arrays, read_prose
from frostline.experiments.random_heads import head_of, near_identity
from frostline.sample import uniform, vmf
from frostline.sphere import normalise
from frostline.theory.expansion import Derivative
from frostline.transport.circle import circular

TIMES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
"""Times at which clouds at zero temperature are compared."""
WARM = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
"""Times at which clouds at finite temperature are compared."""
BETAS = (10.0, 100.0, 1000.0)
"""Temperatures of the mean field that is compared."""
COLD = 100.0
"""From this β on the rate of zero temperature is claimed."""
TURN = 0.01
"""The angle between the two starts (rad)."""


@dataclass(frozen=True)
class Size:
    problems: int
    tokens: int
    nodes: int


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([8, seed])
    rows = Rows("problem", "kind", "t", "W2", "bound", "ell", "observed")

    def add(number: int, kind: str, head: Attention, x: np.ndarray, other: np.ndarray) -> None:
        drift = stability(head, x, other, times=TIMES)
        values = (number, kind, drift.times, drift.measured, drift.bound, drift.ell, drift.observed)
        rows.add(*values)

    tick("where the bound is sharp")
    # B = I: the flow leaves the last eigenvector at the rate λ₁ − λ_d, which is ℓ.
    sharp = Attention.from_matrices(np.eye(3), np.diag([1.0, 0.5, -0.5]), 1.0)
    near = normalise(np.array([0.0, 0.0, 1.0]) + 1e-3 * rng.standard_normal((size.tokens, 3)))
    add(0, "sharp", sharp, near, normalise(near + np.array([0.01, 0.0, 0.0])))
    for number in range(1, size.problems + 1):
        tick(f"random problem {number}")
        d = int(rng.integers(2, 6))
        B = near_identity(d, 0.25, rng)
        V = rng.standard_normal((d, d)) / np.sqrt(d)
        symmetric = number % 2 == 0
        add(
            number,
            "symmetric" if symmetric else "any",
            head_of((V + V.T) / 2, B) if symmetric else Attention.from_matrices(B, V, 1.0),
            uniform(size.tokens, d, seed=rng),
            vmf(size.tokens, uniform(1, d, seed=rng)[0], 1.5, seed=rng),
        )
    tick("at finite temperature")
    return Evidence({"distances": rows, "warm": _warm(size.nodes)}, {"sharp": _sharp()})


HEAD = Attention.from_matrices(np.diag([1.0, 0.5]), np.diag([1.0, 1.5]), 1.0)
"""The head on the circle whose clouds are compared at finite temperature."""
STARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tilted": lambda angle: np.exp(0.4 * np.cos(angle) + 0.3 * np.sin(angle)),
    "a bump at e₂": lambda angle: 0.2 + 5 * np.exp(30 * (np.sin(angle) - 1)),
}
"""Densities on the circle; the second lies where the flow of HEAD pulls apart fastest."""


def _sharp() -> float:
    """The largest λ_max(sym ∇F) of HEAD on the circle, from 4,000 places: ℓ as it is, not its proven bound."""
    angle = np.linspace(0, 2 * np.pi, 4000)
    derivative, unit = Derivative.scaled(HEAD.matrices.A, HEAD.matrices.B)
    return float(unit * derivative.rate(np.stack([np.cos(angle), np.sin(angle)], axis=1)).max())


def _warm(count: int) -> Rows:
    """W₂ (geodesic, exact) between the mean fields of a start and the same start turned a little, over β and t."""
    rows = Rows("start", "beta", "t", "growth")
    angle = 2 * np.pi * (np.arange(count) + 1 / np.pi) / count
    clouds = [np.stack([np.cos(angle + turn), np.sin(angle + turn)], axis=1) for turn in (0.0, TURN)]
    for start, density in STARTS.items():
        weights = density(angle) / density(angle).sum()
        for beta in BETAS:
            runs = [
                simulate(HEAD.with_beta(beta), x, weights=weights, until=WARM[-1], save_at=[0.0, *WARM]).tokens
                for x in clouds
            ]
            places = [np.arctan2(tokens[..., 1], tokens[..., 0]) % (2 * np.pi) for tokens in runs]
            apart = np.array([circular(s, weights, t, weights, 2.0)[0] for s, t in zip(*places, strict=True)])
            rows.add(start, beta, WARM, apart[1:] / apart[0])
    return rows


def judge(evidence: Evidence) -> Judgement:
    rows = arrays(evidence.tables["distances"])
    # At t = 0 both sides are the same.
    rows = {name: column[rows["t"] > 0] for name, column in rows.items()}
    ratio = rows["W2"] / rows["bound"]
    sharp = rows["kind"] == "sharp"
    count = len(np.unique(rows["problem"]))
    late = ratio[sharp & (rows["t"] == max(TIMES))][0]
    useful = int((rows["bound"] < np.pi).sum())
    warm = arrays(evidence.tables["warm"])
    rate = evidence.numbers["sharp"]
    over = warm["growth"] / np.exp(rate * warm["t"])
    largest = {beta: float(over[warm["beta"] == beta].max()) for beta in BETAS}
    first = (warm["start"] == list(STARTS)[1]) & (warm["beta"] == BETAS[-1]) & (warm["t"] == WARM[0])
    reached = float(over[first][0])
    checks = [
        Criterion(
            f"W₂(ρ_t, ρ̃_t) ≤ e^{{ℓt}} W₂(ρ₀, ρ̃₀) in {count} problems at {len(TIMES) - 1} times, zero temperature",
            "never exceeded: ℓ is proven",
            f"largest ratio {ratio.max():.6f}; the bound is below π, the largest distance there is, in {useful} of "
            f"{len(ratio)}",
            bool((ratio <= 1 + 1e-6).all()),
            software=True,
        ),
        Criterion(
            "ℓ cannot be improved: where the flow expands everywhere alike, the bound is nearly reached",
            "a ratio from 0.9 to 1",
            f"{late:.3f} at t = {max(TIMES):g}",
            bool(0.9 <= late <= 1 + 1e-6),
        ),
        Criterion(
            f"at finite temperature, where nothing is proven: two starts {TURN:g} rad apart, up to t = {WARM[-1]:g}, "
            f"with ℓ = {rate:.3g}, the largest rate there is",
            f"W₂ ≤ e^{{ℓt}} W₂ at the start, from β = {COLD:g} on",
            ", ".join(
                f"at most {x:.3g} of it (β = {b:g}{'' if b >= COLD else ', too warm'})" for b, x in largest.items()
            ),
            max(x for b, x in largest.items() if b >= COLD) <= 1,
        ),
        Criterion(
            f"and it is that rate: a bump where the flow pulls apart fastest, β = {BETAS[-1]:g}, t = {WARM[0]:g}",
            "a ratio of 0.9 or more",
            f"{reached:.3f}",
            reached >= 0.9,
        ),
    ]
    return Judgement(
        f"From β = {COLD:g} on two clouds drift apart no faster than e^{{ℓt}}, as at zero temperature (largest ratio "
        f"{max(x for b, x in largest.items() if b >= COLD):.3g}, and {reached:.3g} where the flow is fastest); at β = "
        f"{BETAS[0]:g} they do not keep to it (ratio {largest[BETAS[0]]:.3g}).",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    rows = arrays(evidence.tables["distances"])
    (left, right, third), figure = plot.panels(3, width=4.4)
    for problem in np.unique(rows["problem"]):
        chosen = rows["problem"] == problem
        colour = plot.ORANGE if rows["kind"][chosen][0] == "sharp" else plot.BLUE
        left.semilogy(
            rows["t"][chosen], rows["W2"][chosen] / rows["bound"][chosen], "o-", ms=3, lw=1, color=colour, alpha=0.7
        )
    left.axhline(1.0, color=plot.INK, lw=1, ls=":")
    left.set(xlabel="time t", ylabel="W₂(ρ_t, ρ̃_t) / bound", title="orange: where the bound is sharp")
    last = rows["t"] == max(TIMES)
    for sharp, colour in ((False, plot.BLUE), (True, plot.ORANGE)):
        chosen = last & ((rows["kind"] == "sharp") == sharp)
        right.plot(rows["ell"][chosen], rows["observed"][chosen], "o", color=colour, alpha=0.7)
    top = float(rows["ell"].max())
    right.plot([0, top], [0, top], ":", color=plot.INK, lw=1)
    right.set(xlabel="ℓ, proven", ylabel="rate at which W₂ really grew", title="below the dotted line: as claimed")
    warm, rate = arrays(evidence.tables["warm"]), evidence.numbers["sharp"]
    for number, beta in enumerate(BETAS):
        for start, style in zip(STARTS, ("o-", "s--"), strict=True):
            chosen = (warm["beta"] == beta) & (warm["start"] == start)
            over = warm["growth"][chosen] / np.exp(rate * warm["t"][chosen])
            name = f"β = {beta:g}, {start}"
            third.semilogy(warm["t"][chosen], over, style, ms=3, color=plot.shade(number, len(BETAS)), label=name)
    third.axhline(1.0, color=plot.INK, lw=1, ls=":")
    third.set(xlabel="time t", ylabel="W₂ / bound", title="at finite temperature")
    third.legend(fontsize=7, frameon=False)
    return figure


CLAIM = Claim(
    name="stability",
    prose=read_prose(__name__),
    sizes={"test": Size(6, 60, 1000), "quick": Size(30, 150, 2000), "full": Size(200, 400, 4000)},
    seconds={"test": 3, "quick": 7, "full": 60},
    measure=measure,
    judge=judge,
    draw=draw,
)
