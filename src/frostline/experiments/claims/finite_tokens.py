"""Beyond the paper: finitely many tokens freeze above κ*_n, and carry the noise of their number (THEORY section 8)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.distance import Measure
from frostline.attention import Attention
from frostline.dynamics.simulation import simulate
from frostline.dynamics.steppers import Euler
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, arrays, read_prose
from frostline.sample import uniform
from frostline.theory.limits import limit
from frostline.theory.regime import freezing

FEW = 0.02
"""Share of tokens off-cluster up to which a cloud counts as gathered."""
FEW_TOKENS = 10_000
"""Numbers of tokens below this count as few."""
WARM = 8.0
"""Below this β tokens gather in one place, whatever their number: another effect."""
STEP = 0.2
"""Step of Euler's method."""
WARM_UNTIL = 8.0
"""On which side a warm token ends is decided by then."""


@dataclass(frozen=True)
class Size:
    clouds: tuple[tuple[int, int], ...]
    """Pairs of d and n."""
    factors: tuple[float, ...]
    seeds: int
    until: float
    warm: tuple[tuple[int, int], ...]
    """Pairs of n and how many seeds."""
    large: tuple[tuple[int, int], ...] = ()
    large_factors: tuple[float, ...] = ()
    """The same with one seed: chance matters little there."""


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    rows = Rows("d", "n", "factor", "beta", "off_cluster", "W2", "imbalance")
    for (d, n), factor, seeds in [
        *((cloud, factor, size.seeds) for cloud in size.clouds for factor in size.factors),
        *((cloud, factor, 1) for cloud in size.large for factor in size.large_factors),
    ]:
        tick(f"d = {d}, n = {n}, κ = {factor:g} κ*")
        beta = factor * freezing(n, d)
        if beta < WARM:
            continue
        rng = np.random.default_rng([10, seed, d, n])
        for off, w, wrong in _ends(d, n, beta, seeds, size.until, rng):
            rows.add(d, n, factor, beta, off, w, wrong)
    noise = Rows("n", "W2", "imbalance")
    for n, seeds in size.warm:
        tick(f"noise of n = {n} warm tokens")
        for _, w, wrong in _ends(2, n, 30.0, seeds, WARM_UNTIL, np.random.default_rng([11, seed, n])):
            noise.add(n, w, wrong)
    table = arrays(noise)
    counts = np.unique(table["n"])
    constants = {}
    for name in ("W2", "imbalance"):
        line = Line.through(np.log(counts), np.log([table[name][table["n"] == n].mean() for n in counts]))
        constants[name] = {"constant": float(np.exp(line.intercept)), "exponent": [line.slope, line.low, line.high]}
    return Evidence({"freezing": rows, "noise": noise}, {"finite-n corrections, constant·n^exponent": constants})


def _ends(
    d: int, n: int, beta: float, seeds: int, until: float, rng: np.random.Generator
) -> list[tuple[float, float, float]]:
    """For each seed the share off-cluster, W₂ to the limit of the same tokens, and the mass at the wrong point."""
    head = Attention.from_matrices(np.diag([1.0] + [0.5] * (d - 1)), np.eye(d), beta)
    x0 = np.stack([uniform(n, d, seed=rng) for _ in range(seeds)])
    last = simulate(head, x0, until=until, stepper=Euler(STEP)).tokens[-1]
    ends = []
    for start, end in zip(x0, last, strict=True):
        measure = Measure.of(limit(head), start, np.full(n, 1 / n))
        ends.append((float(measure.off_cluster(end).mean()), measure.distance(end), measure.imbalance(end)))
    return ends


def judge(evidence: Evidence) -> Judgement:
    rows, noise = arrays(evidence.tables["freezing"]), arrays(evidence.tables["noise"])
    curves = {pair: _shares(rows, *pair) for pair in _pairs(rows)}
    boundary = {pair: _crossing(*curve) for pair, curve in curves.items()}
    shares = {pair: share for pair, (_, share) in curves.items()}
    medians = ", ".join(
        f"{'none' if b is None else f'{b:.2g} κ*'} (d = {d:g}, n = {n:g})" for (d, n), b in boundary.items()
    )
    few = {pair: share for pair, share in shares.items() if pair[1] <= FEW_TOKENS}
    inside = [boundary[d, n] for d, n in few if d >= 3]
    flat = [b for (d, _), b in boundary.items() if d == 2]
    warmest = max(share[0] for (d, _), share in shares.items() if d >= 3)
    frozen = {n: share[-1] for (d, n), share in shares.items() if d == 3}
    levels = ", ".join(f"{100 * share[-1]:.2g} % (d = {d:g}, n = {n:g})" for (d, n), share in shares.items())
    counts = np.unique(noise["n"])
    wrong = Line.through(np.log(counts), np.log([noise["imbalance"][noise["n"] == n].mean() for n in counts]))
    checks = [
        Criterion(
            "d ≥ 3, as far below κ* as one can go and still be cold: tokens gather",
            f"at most {100 * FEW:g} % off-cluster",
            f"{100 * warmest:.2g} %",
            bool(warmest <= FEW),
        ),
        Criterion(
            "d ≥ 3: where half of the final share is off-cluster",
            f"between κ*/10 and 10 κ* for n ≤ {FEW_TOKENS:,}",
            medians,
            bool(all(0.1 < b < 10 for b in inside if b is not None)) if None not in inside else None,
        ),
        Criterion(
            "d = 2: stragglers freeze long before κ*",
            "below κ*/3",
            ", ".join("none" if b is None else f"{b:.2g} κ*" for b in flat),
            bool(all(b < 1 / 3 for b in flat if b is not None)) if None not in flat else None,
        ),
        Criterion(
            "however cold it gets, some stay frozen: the share off-cluster at the coldest",
            f"above 0.5 % for n ≤ {FEW_TOKENS:,} and every d",
            levels,
            bool(min(share[-1] for share in few.values()) > 0.005),
        ),
        Criterion(
            "warm tokens: mass at the wrong point by chance",
            "falls like n^{−1/2}, ± 0.15",
            str(wrong),
            abs(wrong.slope + 0.5) <= 0.15,
        ),
    ]
    if len(few) < len(shares):
        line = Line.through(np.log(list(frozen)), np.log(list(frozen.values())))
        checks.append(
            Criterion(
                "d = 3: that share against n",
                "falls like n^{−1/2}, the distance of neighbours, ± 0.15",
                str(line),
                abs(line.slope + 0.5) <= 0.15,
            )
        )
    return Judgement(
        f"In d ≥ 3 tokens freeze at {' and '.join(f'{b:.2g} κ*' for b in inside if b) or 'no κ that was seen'}; "
        f"on the circle the few that start near the equator do so far below κ*. By chance a mass like "
        f"n^{{−{-wrong.slope:.2f}}} ends at the wrong point.",
        checks,
    )


def draw(evidence: Evidence) -> Figure:
    rows, noise = arrays(evidence.tables["freezing"]), arrays(evidence.tables["noise"])
    (left, right), figure = plot.panels(2)
    pairs = _pairs(rows)
    for number, (d, n) in enumerate(pairs):
        factors, share = _shares(rows, d, n)
        label = f"d = {d:g}, n = {n:,.0f}"
        left.semilogx(factors, 100 * share, "o-", ms=4, color=plot.shade(number, len(pairs)), label=label)
    left.axvline(1.0, color=plot.INK, lw=1, ls=":")
    left.set(xlabel="κ/κ*", ylabel="tokens off-cluster, % (median)", title="freezing, in units of κ*")
    # From nothing to a fifth of a percent, or to a third.
    left.set_yscale("symlog", linthresh=0.1)
    left.set_ylim(bottom=0)
    left.legend(fontsize=8, frameon=False)
    counts = np.unique(noise["n"])
    for name, colour, label in (("W2", plot.BLUE, "W₂"), ("imbalance", plot.ORANGE, "mass at the wrong point")):
        means = np.array([noise[name][noise["n"] == n].mean() for n in counts])
        right.loglog(counts, means, "o-", color=colour, label=label)
        power = -0.25 if name == "W2" else -0.5
        right.loglog(counts, means[0] * (counts / counts[0]) ** power, ":", color=colour, lw=1)
    plot.x_ticks(right, counts)
    right.set(xlabel="tokens n", title="warm, d = 2: dotted $n^{-1/4}$ and $n^{-1/2}$")
    right.legend(fontsize=8, frameon=False)
    return figure


def _shares(rows: dict[str, np.ndarray], d: float, n: float) -> tuple[np.ndarray, np.ndarray]:
    """The factors, and the median share of tokens off-cluster at each."""
    chosen = (rows["d"] == d) & (rows["n"] == n)
    factors = np.unique(rows["factor"][chosen])
    return factors, np.array([np.median(rows["off_cluster"][chosen & (rows["factor"] == f)]) for f in factors])


def _pairs(rows: dict[str, np.ndarray]) -> list[tuple[float, float]]:
    return sorted({(float(d), float(n)) for d, n in zip(rows["d"], rows["n"], strict=True)})


def _crossing(factors: np.ndarray, share: np.ndarray) -> float | None:
    """Where the share passes half of its last value, by interpolation in the logarithm of the factor."""
    half = share[-1] / 2
    above = np.flatnonzero(share > half)
    if not len(above) or above[0] == 0:
        return None
    k = int(above[0])
    rest = (half - share[k - 1]) / (share[k] - share[k - 1])
    return float(np.exp(np.log(factors[k - 1]) + rest * np.log(factors[k] / factors[k - 1])))


CLAIM = Claim(
    name="finite-tokens",
    prose=read_prose(__name__),
    sizes={
        "test": Size(
            ((2, 100), (3, 100), (3, 200)),
            (0.01, 0.1, 0.3, 1.0, 3.0, 30.0),
            9,
            12.0,
            tuple((n, 100) for n in (50, 100, 200, 400)),
        ),
        "full": Size(
            ((2, 100), (2, 300), (3, 300), (3, 1000), (4, 1000)),
            (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
            9,
            15.0,
            (*((n, 150) for n in (50, 100, 200, 400, 800)), (10_000, 40), (100_000, 12), (1_000_000, 6)),
            ((3, 1_000_000),),
            (0.03, 1.0, 30.0),
        ),
    },
    seconds={"test": 4, "full": 1200},
    measure=measure,
    judge=judge,
    draw=draw,
    beyond=True,
)
