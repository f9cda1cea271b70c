"""Claim: at zero temperature tokens go to Π♯ρ₀, at the rates of THEORY eq. 8 and 9."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.stats import beta as beta_law

from frostline import plot
from frostline.attention import Attention
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, read_prose
from frostline.experiments.random_heads import head_of, near_identity, random_axes, symmetric_matrix
from frostline.sample import uniform
from frostline.sphere import normalise
from frostline.theory.flow import at_clocks, zero_temperature
from frostline.theory.limits import limit
from frostline.transport.index_coupling import index_coupling
from frostline.transport.solve import wasserstein

GAP = 0.7
"""Gap between the leading eigenvalue of A and the next."""
CASES = tuple((m, p) for m in (1, 2, 3) for p in (1, 2))
"""Dimensions m of the dominant eigenspace, each with orders p of W_p."""


@dataclass(frozen=True)
class Size:
    strata: int
    problems: int
    tokens: int


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([1, seed])
    clocks = np.linspace(6.0, 12.0, 9) / GAP
    rates = Rows("m", "p", "tau", "W")
    for m, p in CASES:
        tick(f"eq. 9 for m = {m}, p = {p}")
        x0, weights, head = _stratified(m, size.strata, rng)
        goal = limit(head)(x0)
        for clock, x in zip(clocks, at_clocks(head, x0, clocks), strict=True):
            rates.add(m, p, clock, index_coupling(x, goal, p=p, weights=weights))
    tick("eq. 8 token by token")
    worst, gone = [], []
    for _ in range(size.problems):
        # In d = 2 eq. 8 is an equality.
        d = int(rng.integers(3, 7))
        head, x0 = _symmetric(d, rng), uniform(200, d, seed=rng)
        basis, gap = _space(head)
        taus = np.array([0.3, 1.0, 3.0]) / gap
        before = _tangent(basis, x0)
        for clock, x in zip(taus, at_clocks(head, x0, taus), strict=True):
            worst.append(float((_tangent(basis, x) / (np.exp(-gap * clock) * before)).max()))
    tick("the flow itself")
    head, x0 = _symmetric(3, rng), uniform(40, 3, seed=rng)
    integrated = max(
        float(np.abs(_integrated(head, x, 3.0) - y).max())
        for x, y in zip(x0, zero_temperature(head, x0, times=[3.0]).tokens[-1], strict=True)
    )
    tick("W itself")
    head, x0 = _symmetric(3, rng), uniform(size.tokens, 3, seed=rng)
    goal = limit(head)(x0)
    taus = np.linspace(0.0, 16.0, 9) / _space(head)[1]
    for clock, x in zip(taus, at_clocks(head, x0, taus), strict=True):
        gone.append((clock, wasserstein(x, goal[rng.permutation(len(goal))]).value, float(index_coupling(x, goal))))
    columns = np.array(gone).T
    return Evidence(
        {
            "rates": rates,
            "approach": {"tau": columns[0], "W2": columns[1], "index_coupling": columns[2]},
            "lyapunov": {"ratio": worst},
        },
        {"gap": GAP, "problems": size.problems, "integrated": integrated},
    )


def judge(evidence: Evidence) -> Judgement:
    rates, approach, ratio = (evidence.tables[name] for name in ("rates", "approach", "lyapunov"))
    checks = []
    for m, p in CASES:
        line, wanted = _exponent(rates, m, p), GAP * min(1, m / p)
        checks.append(
            Criterion(
                f"rate of W{'₁₂'[p - 1]} towards a {m}-dimensional limit",
                f"{wanted:.3g} ± 5 %",
                str(line),
                abs(line.slope - wanted) <= 0.05 * wanted,
            )
        )
    largest = float(np.max(ratio["ratio"]))
    checks.append(
        Criterion(
            f"eq. 8 on {200 * evidence.numbers['problems']} tokens at three clocks each",
            "tan θ(τ) e^{gτ}/tan θ(0) ≤ 1",
            f"largest {largest:.9f}",
            largest <= 1 + 1e-7,
            software=True,
        )
    )
    apart = evidence.numbers["integrated"]
    checks.append(
        Criterion(
            "the clock's closed form is the flow: tokens by an ODE solver at t = 3",
            "to 1e-8",
            f"{apart:.1e}",
            apart < 1e-8,
            software=True,
        )
    )
    w = np.asarray(approach["W2"])
    left = float(w[-1] / w[0])
    checks.append(
        Criterion("W₂(ρ_τ, Π♯ρ₀) itself goes to 0", "falls to 1 % or less", f"to {100 * left:.2g} %", left < 0.01)
    )
    gap = float(np.abs(w - approach["index_coupling"]).max())
    checks.append(
        Criterion(
            "each token goes to its own limit: index coupling = W₂", "to 1e-6", f"{gap:.1e}", gap < 1e-6, software=True
        )
    )
    off = max(abs(_exponent(rates, m, p).slope / (GAP * min(1, m / p)) - 1) for m, p in CASES)
    return Judgement(
        f"W₂ to Π♯ρ₀ falls to {100 * left:.2g} % of its start; the exponents of eq. 9 are met to {100 * off:.2g} %; "
        f"the largest ratio in eq. 8 over {200 * evidence.numbers['problems']} tokens is {largest:.6f}.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    rates, approach = evidence.tables["rates"], evidence.tables["approach"]
    (left, right), figure = plot.panels(2)
    for number, (m, p) in enumerate(CASES):
        chosen = (np.array(rates["m"]) == m) & (np.array(rates["p"]) == p)
        tau, w = np.array(rates["tau"])[chosen], np.array(rates["W"])[chosen]
        colour = plot.shade(number, len(CASES))
        line = _exponent(rates, m, p)
        left.semilogy(tau, w, "o", ms=4, color=colour, label=f"m = {m}, p = {p}: rate {line.slope:.3f}")
        factor = tau ** (1 / p) if m == p else 1.0
        predicted = np.exp(-GAP * min(1, m / p) * (tau - tau[0])) * factor
        left.semilogy(tau, predicted * w[0] / predicted[0], color=colour, lw=1)
    left.set(xlabel="clock τ", ylabel="$W_p$ to the limit", title=f"dots: measured; lines: eq. 9 with g = {GAP}")
    left.legend(fontsize=8, frameon=False)
    right.semilogy(approach["tau"], approach["W2"], "o-", color=plot.BLUE, label="W₂ by exact transport")
    right.semilogy(approach["tau"], approach["index_coupling"], "x", color=plot.ORANGE, label="each token to its limit")
    right.set(xlabel="clock τ", ylabel="W₂(ρ_τ, Π♯ρ₀)", title="random tokens on S², random symmetric A")
    right.legend(fontsize=8, frameon=False)
    return figure


def _integrated(head: Attention, x: np.ndarray, t: float) -> np.ndarray:
    """One token of ẋ = P_x V y*(x) by a general solver that does not use the clock."""
    B, V, _, _ = head.matrices

    def velocity(_: float, x: np.ndarray) -> np.ndarray:
        y = B.T @ x
        push = V @ y / np.linalg.norm(y)
        return push - (x @ push) * x

    end: np.ndarray = solve_ivp(velocity, (0.0, t), x, rtol=1e-11, atol=1e-12).y[:, -1]
    return end


def _stratified(m: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Attention]:
    """Tokens near the equator of E decide about rates: uniform tokens in strata of |𝒫x|², with their masses."""
    d = m + 2
    edges = np.concatenate([[0.0], np.geomspace(1e-14, 1.0, n)])
    weights = np.diff(beta_law.cdf(edges, m / 2, (d - m) / 2))
    r = np.sqrt(edges[1:] * np.maximum(edges[:-1], 1e-15))[:, None]
    inside = uniform(n, m, seed=rng) if m > 1 else rng.choice([-1.0, 1.0], (n, 1))
    x0 = normalise(np.concatenate([np.sqrt(r) * inside, np.sqrt(1 - r) * uniform(n, d - m, seed=rng)], axis=1))
    A = np.diag([0.4] * m + [0.4 - GAP] * (d - m))
    return x0, weights / weights.sum(), Attention.from_matrices(np.eye(d), A, 1.0)


def _symmetric(d: int, rng: np.random.Generator) -> Attention:
    """A random head with a symmetric A = VBᵀ, whose leading eigenvalue is at least 0.2 ahead."""
    axes = random_axes(d, rng)
    values = np.sort(rng.uniform(-1, 1, d))[::-1]
    values[0] = values[1] + rng.uniform(0.2, 1.0)
    return head_of(symmetric_matrix(values, axes), near_identity(d, 0.3, rng))


def _space(head: Attention) -> tuple[np.ndarray, float]:
    """Basis of the dominant eigenspace, and the gap below it."""
    target = limit(head)
    assert target.basis is not None and target.gap is not None
    return target.basis, target.gap


def _tangent(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """tan of the angle between each token and E."""
    inside = x @ basis.T
    with np.errstate(divide="ignore"):
        return np.linalg.norm(x - inside @ basis, axis=1) / np.linalg.norm(inside, axis=1)


def _exponent(rates: dict, m: int, p: int) -> Line:
    chosen = (np.array(rates["m"]) == m) & (np.array(rates["p"]) == p)
    tau, w = np.array(rates["tau"])[chosen], np.array(rates["W"])[chosen]
    return Line.through(tau, -np.log(w / tau ** (1 / p) if m == p else w))


CLAIM = Claim(
    name="zero-temperature-limit",
    prose=read_prose(__name__),
    sizes={"test": Size(4000, 10, 200), "quick": Size(20_000, 60, 1000), "full": Size(200_000, 300, 1400)},
    seconds={"test": 1, "quick": 2, "full": 18},
    measure=measure,
    judge=judge,
    draw=draw,
)
