"""Beyond the paper: several heads, layers that differ, heads of low rank."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.dynamics.steppers import RK4
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Rows, Tick, arrays, read_prose
from frostline.sample import uniform
from frostline.sphere import geodesic
from frostline.theory.flow import at_clocks, zero_temperature
from frostline.theory.limits import limit
from frostline.transport.solve import wasserstein

DIMENSION = 64
"""Dimension of the space of the head of low rank."""
RANK = 8
"""Its rank."""


@dataclass(frozen=True)
class Size:
    tokens: int
    betas: tuple[float, ...]
    problems: int
    layers: int


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([12, seed])
    heads = Rows("problem", "biased", "to_numerical", "to_sum")
    for problem in range(size.problems):
        for biased in (False, True):
            tick(f"two heads, problem {problem + 1}{', with a bias' * biased}")
            pair = _pair(rng, size.betas[-1], biased)
            x0 = uniform(size.tokens, 3, seed=rng)
            path = zero_temperature([pair], x0, times=[15.0]).tokens[-1]
            wanted, naive = limit([pair])(x0), _sum_of(pair)(x0)
            heads.add(problem, biased, _apart(path, wanted), _apart(path, naive))
    layers = Rows("beta", "W2")
    stack = [_drawn(rng) for _ in range(size.layers)]
    x0 = uniform(size.tokens, 3, seed=rng)
    cold = x0
    for B, V in stack:
        cold = zero_temperature(Attention.from_matrices(B, V, 1.0), cold, times=[STEP]).tokens[-1]
    for beta in size.betas:
        tick(f"{size.layers} different layers, β = {beta:g}")
        warm = simulate(
            [[Attention.from_matrices(B, V, beta)] for B, V in stack],
            x0,
            until=STEP * size.layers,
            stepper=RK4(STEP / 2),
        ).tokens[-1]
        layers.add(beta, wasserstein(warm, cold).value)
    tick(f"a head of rank {RANK} in d = {DIMENSION}")
    thin = Rows("tau", "angle")
    kinds: list[str] = []
    # Many such heads lead with a complex pair; take the first that has a limit.
    while len(kinds) < 20 and (not kinds or kinds[-1] not in ("points", "subspace")):
        query, key, value = (rng.standard_normal((RANK, DIMENSION)) / np.sqrt(DIMENSION) for _ in range(3))
        low = Attention(query=query, key=key, value=rng.standard_normal((DIMENSION, RANK)) @ value, beta=1.0)
        low_limit = limit(low)
        kinds.append(low_limit.kind)
    x = uniform(size.tokens, DIMENSION, seed=rng)
    if low_limit.kind in ("points", "subspace") and low_limit.gap is not None:
        taus = np.linspace(0.0, 14.0, 8) / low_limit.gap
        for tau, tokens in zip(taus, at_clocks(low, x, taus), strict=True):
            thin.add(tau * low_limit.gap, float(np.median(geodesic(tokens, low_limit(x)))))
    return Evidence(
        {"heads": heads, "layers": layers, "low_rank": thin},
        {
            "low_rank_kind": low_limit.kind,
            "low_rank_kinds_drawn": ", ".join(kinds),
        },
    )


STEP = 0.4
"""Time that tokens spend in each layer."""


def _apart(x: np.ndarray, y: np.ndarray) -> float:
    """The median angle between tokens; NaN where neither is anywhere."""
    known = np.isfinite(x).all(1) & np.isfinite(y).all(1)
    return float(np.median(geodesic(x[known], y[known]))) if known.any() else np.nan


def _pair(rng: np.random.Generator, beta: float, biased: bool) -> list[Attention]:
    """Two heads, each with a leading direction of its own, and maybe a key bias."""
    pair = []
    for _ in range(2):
        factor = rng.standard_normal((3, 3))
        B = factor @ factor.T / 3 + 0.3 * np.eye(3)
        V = np.eye(3) + 0.2 * rng.standard_normal((3, 3))
        bias = 0.3 * rng.standard_normal(3) if biased else None
        pair.append(Attention.from_matrices(B, V, beta, key_bias=bias))
    return pair


def _sum_of(pair: list[Attention]) -> Callable[[np.ndarray], np.ndarray]:
    """The limit of a single head whose A is the sum of the pair's."""
    total = sum(head.matrices.A for head in pair)
    limit_of_sum = limit(Attention.from_matrices(np.eye(3), total, 1.0))

    def where(x: np.ndarray) -> np.ndarray:
        return limit_of_sum(x) if limit_of_sum.kind not in ("rotation", "mixed") else np.full_like(x, np.nan)

    return where


def _drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A layer near B = diag(1, .5, .2), V = I."""
    return (
        np.diag([1.0, 0.5, 0.2]) + 0.15 * rng.standard_normal((3, 3)),
        np.eye(3) + 0.15 * rng.standard_normal((3, 3)),
    )


def judge(evidence: Evidence) -> Judgement:
    heads, layers, thin = (arrays(evidence.tables[name]) for name in ("heads", "layers", "low_rank"))
    numbers = evidence.numbers
    near, naive = heads["to_numerical"], heads["to_sum"]
    settled = near < 0.02
    wrong = naive[settled & np.isfinite(naive)]
    w = layers["W2"]
    checks = [
        Criterion(
            "several heads: where the flow is at t = 15 against the numerical limit",
            "within 0.02 rad (median token) in three of four problems",
            f"{int(settled.sum())} of {len(settled)}",
            bool(settled.mean() >= 0.75),
        ),
        Criterion(
            "the sum of the heads' A is no substitute",
            "its limit is off, by more than 0.02 rad in most problems",
            f"median {np.degrees(np.median(wrong)):.2g}°, largest {np.degrees(wrong.max()):.2g}°"
            if len(wrong)
            else "none",
            bool((wrong > 0.02).mean() > 0.5) if len(wrong) else None,
        ),
        Criterion(
            "layers that differ: finite temperature against zero temperature, layer after layer",
            "closer at the coldest than at the warmest, and at most 0.25 there",
            ", ".join(f"{x:.3g} (β = {b:g})" for x, b in zip(w, layers["beta"], strict=True)),
            bool(w[-1] < w[0] and w[-1] <= 0.25),
        ),
        Criterion(
            f"a head of rank {RANK} in d = {DIMENSION}: the limit of its A is where tokens go",
            "within 1e-3 rad (median token) after 14 gap times",
            numbers["low_rank_kind"] + (f", {thin['angle'][-1]:.1e} rad" if len(thin["angle"]) else ""),
            bool(thin["angle"][-1] < 1e-3) if len(thin["angle"]) else None,
        ),
    ]
    return Judgement(
        f"The limit of several heads is numerical ({int(settled.sum())} of {len(settled)} flows are there at t = 15); "
        f"layers that differ follow zero temperature to W₂ = {w[-1]:.2g} at β = {layers['beta'][-1]:g}.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    heads, layers, thin = (arrays(evidence.tables[name]) for name in ("heads", "layers", "low_rank"))
    (left, middle, right), figure = plot.panels(3, width=4.4)
    for biased, colour, label in ((False, plot.BLUE, "two heads"), (True, plot.ORANGE, "two heads with a bias")):
        chosen = (heads["biased"] == biased) & np.isfinite(heads["to_sum"])
        left.loglog(
            heads["to_numerical"][chosen] + 1e-12, heads["to_sum"][chosen] + 1e-12, "o", color=colour, label=label
        )
    left.set(
        xlabel="angle to the numerical limit", ylabel="angle to the limit of ΣA", title="flow at t = 15, median token"
    )
    left.legend(fontsize=8, frameon=False)
    middle.loglog(layers["beta"], layers["W2"], "o-", color=plot.BLUE)
    middle.set(xlabel="β", ylabel="W₂ to zero temperature", title="layers drawn at random")
    if len(thin["angle"]):
        right.semilogy(thin["tau"], thin["angle"], "o-", color=plot.BLUE)
    else:
        right.text(0.5, 0.5, f"no limit: {evidence.numbers['low_rank_kind']}", ha="center", transform=right.transAxes)
        right.plot([])
    right.set(xlabel="gap × clock", ylabel="median angle to the limit", title=f"rank {RANK} in d = {DIMENSION}")
    return figure


CLAIM = Claim(
    name="many-heads",
    prose=read_prose(__name__),
    sizes={"test": Size(100, (10.0, 30.0, 100.0), 3, 8), "full": Size(1000, (10.0, 30.0, 100.0, 300.0), 40, 8)},
    seconds={"test": 4, "full": 70},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
)
