"""Claim: everything happens on the time scale log β (THEORY section 7 and eq. 13)."""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.phases import phases_of_curve
from frostline.experiments.claim import Claim, Criterion, Evidence, Judgement, Line, Rows, Tick, arrays, read_prose
from frostline.experiments.claims.theorem import CLAIM as THEOREM
from frostline.experiments.claims.theorem import FINE_FRAMES, TILT, B, Fine, V, predicted_bound
from frostline.experiments.setting import Setting, follow
from frostline.theory.terminal import terminal

LEVEL = 0.7
"""W₂ on its way to √2: half the way, the hand-over of (13)."""
HALVED = ("t_smallest", "ends", "t_crosses")
"""Times that are measured again with half the nodes."""
SETTLED = 0.05
"""Up to this change with half the nodes a time counts as settled."""
NEAR = 0.6
"""δ of THEORY section 7: below this W₂ counts as near the limit."""


@dataclass(frozen=True)
class Size:
    betas: tuple[float, ...]
    setting: Setting
    until: float
    fine: Fine
    """One of the theorem's runs with very many nodes."""


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    columns = Rows(
        "beta", "t_smallest", "smallest", "begins", "ends", "t_crosses", "eq13", *(f"{name}, half" for name in HALVED)
    )
    start = size.setting.start()
    for beta in size.betas:
        tick(f"β = {beta:g}")
        followed = follow(size.setting, beta, size.until)
        near = np.flatnonzero(followed.distance <= NEAR)
        fate = terminal(size.setting.head(beta), start.tokens, weights=start.weights)
        half = follow(replace(size.setting, count=size.setting.count // 2), beta, size.until)
        crosses = followed.crosses(LEVEL)
        near_half = np.flatnonzero(half.distance <= NEAR)
        values = (
            beta,
            _lowest(followed.times, followed.distance),
            float(followed.distance.min()),
            followed.times[near[0]] if len(near) else np.nan,
            followed.times[near[-1]] if len(near) else np.nan,
            np.nan if crosses is None else crosses,
            np.nan if fate.hand_over is None else fate.hand_over,
            _lowest(half.times, half.distance),
            half.times[near_half[-1]] if len(near_half) else np.nan,
            np.nan if (coarse := half.crosses(LEVEL)) is None else coarse,
        )
        columns.add(*values)
    tick(f"{size.fine.setting.count:,} nodes, β = {size.fine.beta:g}")
    finest = follow(size.fine.setting, size.fine.beta, size.fine.until, FINE_FRAMES)
    bound, _ = predicted_bound(size.setting, followed.times)
    fate = terminal(size.setting.head(1.0))
    seen = phases_of_curve(followed.times, followed.distance)
    return Evidence(
        {"times": columns, "fine": {"t": finest.times, "W2": finest.distance}},
        {
            "fine": {"nodes": size.fine.setting.count, "beta": size.fine.beta, "crosses": finest.crosses(LEVEL)},
            "C": bound.C,
            "c": bound.c,
            "g_A": fate.contraction,
            "g_V": fate.growth,
            "phases_at_coldest": seen.describe(),
        },
    )


def judge(evidence: Evidence) -> Judgement:
    table, numbers = arrays(evidence.tables["times"]), evidence.numbers
    logs = np.log(table["beta"])
    by_bound = 1 / (2 * (numbers["C"] + numbers["c"]))
    by_flow = 0.5 * (1 / numbers["g_A"] + 1 / numbers["g_V"])
    # Up to the first that is not settled, or was not seen: colder agreement would be chance.
    sure = {name: np.minimum.accumulate(np.abs(table[f"{name}, half"] / table[name] - 1) <= SETTLED) for name in HALVED}
    lowest, stay, crossing = (
        Line.through(logs[sure[name]], times[sure[name]]) if sure[name].sum() >= 3 else None
        for name, times in (
            ("t_smallest", table["t_smallest"]),
            ("ends", table["ends"] - table["begins"]),
            ("t_crosses", table["t_crosses"]),
        )
    )
    where = {name: _where(table["beta"], sure[name]) for name in HALVED}
    settled = f"where half the nodes change it by at most {100 * SETTLED:g} %"
    checks = [
        Criterion(
            "the time of the smallest W₂ against log β",
            f"a straight line that rises, R² ≥ 0.98, {settled}",
            f"slope {lowest}{where['t_smallest']}; that of eq. 11 moves with {by_bound:.3g}",
            None if lowest is None else bool(lowest.r_squared >= 0.98 and lowest.low > 0),
        ),
        Criterion(
            f"the time at which W₂ has risen to {LEVEL} again (the hand-over)",
            f"slope {by_flow:.3g} ± 20 % (eq. 13), R² ≥ 0.98, {settled}",
            f"slope {crossing}{where['t_crosses']}",
            None if crossing is None else bool(abs(crossing.slope / by_flow - 1) <= 0.2 and crossing.r_squared >= 0.98),
        ),
        Criterion(
            f"the time spent below W₂ = {NEAR:g}",
            f"gets longer with log β, R² ≥ 0.95, {settled}",
            f"slope {stay}{where['ends']}",
            None if stay is None else bool(stay.low > 0 and stay.r_squared >= 0.95),
        ),
    ]
    fine, run = numbers["fine"], arrays(evidence.tables["fine"])
    usual = float(table["t_smallest"][table["beta"] == fine["beta"]][0])
    finest = _lowest(run["t"], run["W2"])
    back = "has not come back" if fine["crosses"] is None else f"is back at t = {fine['crosses']:.3g}"
    checks.append(
        Criterion(
            f"with {fine['nodes']:,} nodes at β = {fine['beta']:g}: the time of the smallest W₂",
            f"the same, to {100 * SETTLED:g} %",
            f"{finest:.4g} instead of {usual:.4g}; W₂ = {LEVEL} {back} by t = {run['t'][-1]:g}",
            bool(abs(finest / usual - 1) <= SETTLED),
        )
    )
    late = (
        ""
        if crossing is None
        else f", the hand-over by {crossing.slope:.2f} (eq. 13: {by_flow:.2f}){where['t_crosses']}"
    )
    first = "" if lowest is None else f"the minimum comes {lowest.slope:.2f} later (R² = {lowest.r_squared:.3f})"
    return Judgement(f"Per unit of log β {first}{late}.", checks)


def _where(betas: np.ndarray, sure: np.ndarray) -> str:
    """Which temperatures a line is drawn through, and which were not settled."""
    used = f" from β = {betas[sure][0]:g} to {betas[sure][-1]:g} ({sure.sum()} of them)" if sure.any() else ""
    return used + (f", not settled from {betas[~sure][0]:g} on" if not sure.all() else "")


def draw(evidence: Evidence) -> Figure:
    table, numbers = arrays(evidence.tables["times"]), evidence.numbers
    beta = table["beta"]
    (left, right), figure = plot.panels(2)
    left.fill_between(beta, table["begins"], table["ends"], color=plot.BLUE, alpha=0.15, lw=0)
    left.semilogx(beta, table["t_smallest"], "o-", color=plot.BLUE, label=f"W₂ smallest (band: W₂ below {NEAR})")
    left.semilogx(beta, table["t_crosses"], "s-", color=plot.ORANGE, label=f"W₂ back at {LEVEL}")
    left.semilogx(beta, table["t_crosses, half"], "x:", color=plot.ORANGE, label="the same with half the nodes")
    left.semilogx(beta, table["eq13"], ":", color=plot.INK, label="hand-over time of eq. 13")
    left.set(xlabel="β", ylabel="time t", title="times against log β")
    left.legend(fontsize=8, frameon=False)
    right.loglog(beta, table["smallest"], "o-", color=plot.BLUE, label="smallest W₂")
    power = numbers["c"] / (2 * (numbers["C"] + numbers["c"]))
    shape = (np.log1p(beta) / beta) ** power
    right.loglog(
        beta, shape * table["smallest"][-1] / shape[-1], ":", color=plot.INK, label=f"(log β/β)^{power:.2f}, by eq. 11"
    )
    right.set(xlabel="β", ylabel="smallest W₂", title="depth of the minimum")
    right.legend(fontsize=8, frameon=False)
    return figure


def _lowest(t: np.ndarray, w: np.ndarray) -> float:
    """Where a parabola in log W through the lowest kept time and its neighbours is lowest."""
    k = int(np.clip(w.argmin(), 1, len(t) - 2))
    a, b, c = np.log(w[k - 1 : k + 2])
    bend = a - 2 * b + c
    shift = 0.5 * (a - c) / bend if bend > 0 else 0.0
    return float(t[k] + np.clip(shift, -1, 1) * (t[k + 1] - t[k]))


CLAIM = Claim(
    name="time-scale",
    prose=read_prose(__name__),
    sizes={
        "test": Size((10.0, 30.0, 100.0, 300.0), Setting(B, V, TILT, 250), 18.0, THEOREM.sizes["test"].fine[0]),
        "quick": Size(
            (10.0, 18.0, 32.0, 56.0, 100.0, 316.0, 1000.0, 10_000.0),
            Setting(B, V, TILT, 1200),
            30.0,
            THEOREM.sizes["quick"].fine[0],
        ),
        "full": Size(
            (10.0, 18.0, 32.0, 56.0, 100.0, 178.0, 316.0, 1000.0, 3160.0, 10_000.0, 31_600.0, 100_000.0),
            Setting(B, V, TILT, 4000),
            36.0,
            THEOREM.sizes["full"].fine[0],
        ),
    },
    seconds={"test": 6, "quick": 12, "full": 200},
    measure=measure,
    judge=judge,
    draw=draw,
    seeded=False,
)
