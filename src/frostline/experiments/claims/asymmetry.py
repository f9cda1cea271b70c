"""Beyond the paper: no symmetry. Oblique projections, rotations, Jordan blocks, and what the theorem's shape bears."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, arrays, read_prose
from frostline.experiments.random_heads import head_of
from frostline.experiments.setting import Setting, diagonal, follow
from frostline.sample import nodes, vmf
from frostline.sphere import normalise
from frostline.theory.flow import at_clocks, zero_temperature
from frostline.theory.limits import limit
from frostline.transport.index_coupling import index_coupling
from frostline.transport.solve import wasserstein

CRITICAL = 0.125
"""A(s) = [[1, s], [−s, .75]] has real eigenvalues below this s, a Jordan block at it, a complex pair above."""
TILT = (0.36, 0.48)
"""Tilt of the smooth start."""


@dataclass(frozen=True)
class Size:
    tokens: int
    beta: float
    skews: tuple[float, ...]
    betas: tuple[float, ...]
    nodes: int
    until: float


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rng = np.random.default_rng([11, seed])
    tick("an oblique projection")
    S = np.eye(3) + np.array([[0.0, 0.0, 1.2], [0.0, 0.0, -0.6], [0.0, 0.0, 0.0]])
    A = S @ np.diag([1.0, 1.0, 0.1]) @ np.linalg.inv(S)
    head = head_of(A, np.diag([1.0, 0.8, 0.6]), size.beta)
    x0 = vmf(size.tokens, [0.3, 0.3, 0.9], 3.0, seed=rng)
    oblique = limit(head)(x0)
    upright = normalise(x0 * np.array([1.0, 1.0, 0.0]))
    oblique_rows = Rows("t", "oblique", "orthogonal")
    run = simulate(head, x0, until=8.0, save_at=[0.0, 2.0, 4.0, 6.0, 8.0])
    for t, x in zip(run.times, run.tokens, strict=True):
        oblique_rows.add(t, wasserstein(x, oblique).value, wasserstein(x, upright).value)
    depths = Rows("skew", "asymmetry", "beta", "smallest")
    for skew in size.skews:
        A = np.array(_skewed(skew))
        for beta in size.betas:
            tick(f"s = {skew:g}, β = {beta:g}")
            followed = follow(_setting(skew, size.nodes), beta, size.until)
            depths.add(skew, np.linalg.norm(A - A.T, 2) / (2 * np.linalg.norm(A, 2)), beta, followed.distance.min())
    tick("a rotation")
    turning = _setting(0.4, size.nodes)
    period = limit(turning.head(1.0)).period
    assert period is not None
    start = turning.start()
    back = zero_temperature(turning.head(1.0), start.tokens, times=[period]).tokens[-1]
    cold = simulate(
        turning.head(size.betas[-1]),
        start.tokens,
        weights=start.weights,
        until=2 * period,
        save_at=np.linspace(0, 2 * period, 81).tolist(),
    )
    angle = np.unwrap(np.arctan2(cold.tokens[..., 1], cold.tokens[..., 0]), axis=0)
    tick("a Jordan block")
    jordan = Rows("tau", "p", "W")
    defective = Attention.from_matrices(np.eye(2), np.array([[1.0, 1.0], [0.0, 1.0]]), 1.0)
    field = nodes(20_000, 2)
    for tau, x in zip(TAUS, at_clocks(defective, field.tokens, TAUS), strict=True):
        for p in (1, 2):
            jordan.add(tau, p, index_coupling(x, limit(defective)(field.tokens), p=p))
    return Evidence(
        {"oblique": oblique_rows, "depth": depths, "jordan": jordan},
        {
            "period": period,
            "back_after_a_period": float(np.linalg.norm(back - start.tokens, axis=1).max()),
            "turns_in_two_periods": float(np.median(np.abs(angle[-1] - angle[0])) / (2 * np.pi)),
            "kinds": {f"s = {skew:g}": limit(_setting(skew, 10).head(1.0)).kind for skew in (0.0, CRITICAL, 0.4)},
        },
    )


TAUS = np.geomspace(20.0, 200.0, 6)
"""Clocks at which the Jordan block is measured."""


def _skewed(skew: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return (1.0, skew), (-skew, 0.75)


def _setting(skew: float, count: int) -> Setting:
    """B = diag(1, .5) and V = A(s)B⁻ᵀ."""
    V = np.array(_skewed(skew)) @ np.diag([1.0, 2.0])
    return Setting(diagonal(1.0, 0.5), tuple(map(tuple, V.tolist())), TILT, count)


def judge(evidence: Evidence) -> Judgement:
    oblique, depth, jordan = (arrays(evidence.tables[name]) for name in ("oblique", "depth", "jordan"))
    numbers = evidence.numbers
    at = int(oblique["oblique"].argmin())
    ratio = float(oblique["oblique"][at] / oblique["orthogonal"][at])
    falls = [
        float(depth["smallest"][(depth["skew"] == s)][-1] / depth["smallest"][(depth["skew"] == s)][0])
        for s in np.unique(depth["skew"])
    ]
    turns = numbers["turns_in_two_periods"]
    slopes = {p: Line.through(np.log(TAUS), np.log(jordan["W"][jordan["p"] == p])) for p in (1, 2)}
    checks = [
        Criterion(
            "non-normal A: tokens go to the oblique projection, not to the orthogonal one",
            "W₂ to the first at most half of that to the second",
            f"{oblique['oblique'][at]:.3g} against {oblique['orthogonal'][at]:.3g}",
            ratio <= 0.5,
        ),
        Criterion(
            "real but skew: the theorem's shape survives",
            "colder is closer for every skewness below the critical one",
            ", ".join(f"×{f:.2f} (s = {s:g})" for f, s in zip(falls, np.unique(depth["skew"]), strict=True)),
            bool(max(falls) < 1),
        ),
        Criterion(
            "past the critical skewness there is no limit, but a period",
            "zero temperature is back after one to 1e-6",
            f"{numbers['back_after_a_period']:.1e}; kinds: "
            + ", ".join(f"{name} {kind}" for name, kind in numbers["kinds"].items()),
            numbers["back_after_a_period"] < 1e-6
            and list(numbers["kinds"].values()) == ["points", "defective", "rotation"],
            software=True,
        ),
        Criterion(
            "past the critical skewness tokens at finite temperature keep turning, with zero temperature's period",
            "2 turns in two periods, ± 10 %",
            f"{turns:.3f}",
            abs(turns / 2 - 1) <= 0.1,
        ),
        Criterion(
            "one Jordan block of size 2, each token coupled with its own limit: τ^{−min(1, 1/p)}",
            "exponents −1 and −0.5, ± 10 %",
            "; ".join(f"p = {p}: {line}" for p, line in slopes.items()),
            all(abs(line.slope * p + 1) <= 0.1 for p, line in slopes.items()),
        ),
    ]
    return Judgement(
        f"Without symmetry the limit is the oblique projection ({1 / ratio:.1f} times closer than the orthogonal one), "
        f"and the theorem's shape survives while the leading eigenvalue is real; past that tokens turn for ever.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    oblique, depth, jordan = (arrays(evidence.tables[name]) for name in ("oblique", "depth", "jordan"))
    (left, middle, right), figure = plot.panels(3, width=4.4)
    left.semilogy(oblique["t"], oblique["oblique"], "o-", color=plot.BLUE, label="to the oblique projection")
    left.semilogy(oblique["t"], oblique["orthogonal"], "s--", color=plot.ORANGE, label="to the orthogonal one")
    left.set(xlabel="time t", ylabel="W₂", title="where tokens of a non-normal A go")
    left.legend(fontsize=8, frameon=False)
    betas = np.unique(depth["beta"])
    for number, beta in enumerate(betas):
        chosen = depth["beta"] == beta
        colour = plot.shade(number, len(betas))
        middle.plot(depth["asymmetry"][chosen], depth["smallest"][chosen], "o-", color=colour, label=f"β = {beta:g}")
    middle.set(xlabel="‖A − Aᵀ‖/2‖A‖", ylabel="smallest W₂ to the limit", title="the theorem's shape, skewed")
    middle.legend(fontsize=8, frameon=False)
    for p, paint in ((1, plot.BLUE), (2, plot.ORANGE)):
        chosen = jordan["p"] == p
        right.loglog(jordan["tau"][chosen], jordan["W"][chosen], "o-", color=paint, label=f"$W_{p}$")
    plot.x_ticks(right, TAUS)
    right.set(xlabel="clock τ", title="a Jordan block: slopes −1 and −1/2")
    right.legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="asymmetry",
    prose=read_prose(__name__),
    sizes={
        "test": Size(300, 100.0, (0.0, 0.1), (30.0, 300.0), 300, 24.0),
        "full": Size(1400, 300.0, (0.0, 0.04, 0.08, 0.1, 0.115), (100.0, 1000.0, 10_000.0), 2000, 36.0),
    },
    seconds={"test": 4, "full": 150},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
)
