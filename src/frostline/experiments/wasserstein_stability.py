"""Claim: two clouds drift apart no faster than e^{ℓt} at zero temperature (THEORY section 7)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.stability import stability
from frostline.attention import Attention
from frostline.experiments.claim import Check, Claim, Evidence, Judgement, Rows, Tick, arrays
from frostline.sample import uniform, vmf
from frostline.sphere import normalise

TIMES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Size:
    problems: int
    tokens: int


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([8, seed])
    rows = Rows("problem", "kind", "t", "W2", "bound", "ell", "observed")

    def add(number: int, kind: str, head: Attention, x: np.ndarray, other: np.ndarray) -> None:
        found = stability(head, x, other, times=TIMES)
        values = (number, kind, found.times, found.measured, found.bound, found.ell, found.observed)
        rows.add(*values)

    tick("where the bound is sharp")
    # B = I: the flow leaves the last eigenvector at the rate λ₁ − λ_d, which is ℓ.
    sharp = Attention.from_matrices(np.eye(3), np.diag([1.0, 0.5, -0.5]), 1.0)
    near = normalise(np.array([0.0, 0.0, 1.0]) + 1e-3 * rng.standard_normal((size.tokens, 3)))
    add(0, "sharp", sharp, near, normalise(near + np.array([0.01, 0.0, 0.0])))
    for number in range(1, size.problems + 1):
        tick(f"random problem {number}")
        d = int(rng.integers(2, 6))
        B = np.eye(d) + 0.25 * rng.standard_normal((d, d)) / np.sqrt(d)
        V = rng.standard_normal((d, d)) / np.sqrt(d)
        symmetric = number % 2 == 0
        if symmetric:
            V = (V + V.T) / 2 @ np.linalg.inv(B).T
        add(
            number,
            "symmetric" if symmetric else "any",
            Attention.from_matrices(B, V, 1.0),
            uniform(size.tokens, d, seed=rng),
            vmf(size.tokens, uniform(1, d, seed=rng)[0], 1.5, seed=rng),
        )
    return Evidence({"distances": rows})


def judge(evidence: Evidence) -> Judgement:
    rows = arrays(evidence.tables["distances"])
    # At t = 0 both sides are the same.
    rows = {name: column[rows["t"] > 0] for name, column in rows.items()}
    ratio = rows["W2"] / rows["bound"]
    sharp = rows["kind"] == "sharp"
    count = len(np.unique(rows["problem"]))
    late = ratio[sharp & (rows["t"] == max(TIMES))][0]
    useful = int((rows["bound"] < np.pi).sum())
    checks = [
        Check(
            f"W₂(ρ_t, ρ̃_t) ≤ e^{{ℓt}} W₂(ρ₀, ρ̃₀) in {count} problems at {len(TIMES) - 1} times",
            "never exceeded",
            f"largest ratio {ratio.max():.6f}; the bound is below π, the largest distance there is, in {useful} of "
            f"{len(ratio)}",
            bool((ratio <= 1 + 1e-6).all()),
        ),
        Check(
            "where the flow expands at the rate ℓ, the bound is nearly reached",
            "a ratio of 0.9 or more",
            f"{late:.3f} at t = {max(TIMES):g}",
            bool(late >= 0.9),
        ),
    ]
    return Judgement(
        f"The distance of two clouds never exceeds e^{{ℓt}} times its start in {count} problems (a bound that says "
        f"something, below π, in {useful} of {len(ratio)} cases), and reaches {100 * late:.3g} % of it where the "
        "flow expands everywhere alike.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    rows = arrays(evidence.tables["distances"])
    (left, right), figure = plot.panels(2)
    for problem in np.unique(rows["problem"]):
        mine = rows["problem"] == problem
        colour = plot.ORANGE if rows["kind"][mine][0] == "sharp" else plot.BLUE
        left.semilogy(
            rows["t"][mine], rows["W2"][mine] / rows["bound"][mine], "o-", ms=3, lw=1, color=colour, alpha=0.7
        )
    left.axhline(1.0, color=plot.INK, lw=1, ls=":")
    left.set(xlabel="time t", ylabel="W₂(ρ_t, ρ̃_t) / bound", title="orange: where the bound is sharp")
    last = rows["t"] == max(TIMES)
    for sharp, colour in ((False, plot.BLUE), (True, plot.ORANGE)):
        mine = last & ((rows["kind"] == "sharp") == sharp)
        right.plot(rows["ell"][mine], rows["observed"][mine], "o", color=colour, alpha=0.7)
    top = float(rows["ell"].max())
    right.plot([0, top], [0, top], ":", color=plot.INK, lw=1)
    right.set(xlabel="ℓ, proven", ylabel="rate at which W₂ really grew", title="below the dotted line: as claimed")
    return figure


CLAIM = Claim(
    name="stability",
    title="Stability in Wasserstein space",
    statement="Under the zero-temperature flow W(ρ_t, ρ̃_t) ≤ e^{ℓt} W(ρ₀, ρ̃₀), where ℓ bounds the expansion of the "
    "flow over the sphere.",
    reading="Left: measured distance over bound, one line per problem; the claim is that no line passes 1. The "
    "orange one is made so that the bound is nearly reached, which shows that it cannot be much improved. "
    "Right: the rate at which clouds really drifted apart against ℓ. Most bounds are far from sharp: ℓ is a"
    " worst case over the whole sphere.",
    assumed="Zero temperature, geodesic cost (the inequality is one for angles), ℓ proven by interval bounds, not "
    "sampled.",
    sizes={"test": Size(6, 60), "quick": Size(30, 150), "full": Size(200, 400)},
    seconds={"test": 2, "quick": 4, "full": 45},
    measure=measure,
    judge=judge,
    draw=draw,
)
