"""Claim: in the end V's spectrum decides where clusters go, not that of VBᵀ (THEORY section 9)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.analysis.clusters import clusters
from frostline.attention import Attention
from frostline.dynamics.simulation import Trajectory, simulate
from frostline.experiments.claim import Claim, Criterion, Evidence, Frames, Judgement, Rows, Tick, read_prose
from frostline.experiments.setting import Matrix, diagonal
from frostline.sample import vmf
from frostline.sphere import geodesic
from frostline.theory.limits import limit
from frostline.theory.terminal import terminal

NEAR = 0.3
"""Angle (rad) up to which a token counts as near a direction."""
ALMOST = 0.9
"""Share of the tokens that counts as almost all."""


@dataclass(frozen=True)
class Case:
    name: str
    B: Matrix
    V: Matrix
    until: float


TURNING = ((1.0, -0.9, 0.2), (0.9, 1.2, 0.0), (0.0, 0.1, 0.3))
"""V of the last case: a complex pair leads its spectrum, while A = VBᵀ = diag(1, .4, .1)."""
CASES = (
    Case("aligned", diagonal(1.0, 0.5, 0.2), diagonal(2.0, 1.0, 0.5), 12.0),
    Case("misaligned", diagonal(1.0, 0.5, 0.2), diagonal(1.0, 0.2, 2.0), 24.0),
    Case("antipode-attending", diagonal(-1.0, -0.5, -0.2), diagonal(-1.0, -0.6, -1.6), 30.0),
    Case("negative leading value", diagonal(1.0, 0.5, 0.2), diagonal(-1.0, -1.0, -1.0), 40.0),
    Case(
        "complex pair",
        tuple(map(tuple, (np.linalg.inv(np.array(TURNING)) @ np.diag([1.0, 0.4, 0.1])).T.tolist())),
        TURNING,
        30.0,
    ),
)


@dataclass(frozen=True)
class Size:
    tokens: int
    beta: float
    frames: int = 121


def measure(size: Size, seed: int, tick: Tick) -> Evidence:
    ends = Rows(
        "case",
        "beta",
        "predicted",
        "near_predicted",
        "near_limit",
        "beta_spread2",
        "four_times_colder",
        "turns_per_period",
    )
    paths = Rows("case", "t", "x", "y", "z", "reduced_x", "reduced_y", "reduced_z")
    frames = []
    x0 = vmf(size.tokens, [0.4, 0.5, 0.77], 0.5, seed=[6, seed])
    for case in CASES:
        tick(case.name)
        head = Attention.from_matrices(case.B, case.V, size.beta)
        run = simulate(head, x0, until=case.until, save_at=np.linspace(0.0, case.until, size.frames).tolist())
        fate = terminal(head)
        kind = "stalls" if not fate.tightens else "rotation" if fate.end is None else fate.end.kind
        axis = None if fate.end is None or fate.end.basis is None else np.asarray(fate.end.basis)[0]
        last, basis = run.tokens[-1], np.asarray(limit(head).basis)[0]
        follow = _reduced(run, paths, case)
        colder = np.nan
        if kind == "stalls":
            cold = Attention.from_matrices(case.B, case.V, 4 * size.beta)
            end = simulate(cold, x0, until=case.until).tokens[-1]
            colder = 4 * size.beta * float(np.median(_off(end, basis))) ** 2
        values = (
            case.name,
            size.beta,
            kind,
            np.nan if kind != "points" or axis is None else float((np.abs(last @ axis) > np.cos(NEAR)).mean()),
            float((np.abs(last @ basis) > np.cos(NEAR)).mean()),
            size.beta * float(np.median(_off(last, basis))) ** 2,
            colder,
            follow,
        )
        ends.add(*values)
        if case.name in ("misaligned", "complex pair"):
            frames.append(_frames(run, case, basis))
    return Evidence({"ends": ends, "centres": paths}, {}, tuple(frames))


def _off(x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Angle to the line through ±axis."""
    return np.arccos(np.minimum(1.0, np.abs(x @ axis)))


def _reduced(run: Trajectory, paths: Rows, case: Case) -> float:
    """The heaviest cluster's centre from when (12) holds, beside the flow (12); returns turns per predicted period."""
    tight = next((t for t in run.times[1:] if clusters(run, at=float(t)).valid), None)
    if tight is None or tight > 0.8 * run.until:
        return np.nan
    tight_clusters = clusters(run, at=float(tight))
    later = run.times[run.times >= tight]
    flow = tight_clusters.reduced(float(run.until - tight), save_at=(later - tight).tolist())
    chosen = tight_clusters.labels == 0
    centres = np.array([x[chosen].mean(0) for x in run.tokens[run.times >= tight]])
    centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)
    paths.add(case.name, later, *centres.T, *flow.tokens[:, 0].T)
    values, vectors = np.linalg.eig(np.array(case.V))
    lead = int(values.real.argmax())
    if abs(values[lead].imag) < 1e-9:
        return np.nan
    # In the eigenbasis of the pair the direction turns at the constant rate Im λ, once the rest has died out.
    left = np.linalg.inv(vectors)[lead]
    phase = np.unwrap(np.angle(centres @ left))
    half = len(later) // 2
    speed = np.polyfit(later[half:], phase[half:], 1)[0]
    return float(speed / values[lead].imag)


def _frames(run: Trajectory, case: Case, basis: np.ndarray) -> Frames:
    side = (run.tokens[0] @ basis > 0).astype(int)
    near = np.array([_off(x, basis).mean() for x in run.tokens])
    marks = np.array([basis, -basis])
    title = f"{case.name}: {len(side)} tokens at β = {run.layers[0][0].beta:g}"
    return Frames(title, run.times[::2], np.asarray(run.tokens)[::2], side, marks, near[::2], "mean angle to ±e₁ (rad)")


def judge(evidence: Evidence) -> Judgement:
    ends, paths = evidence.tables["ends"], evidence.tables["centres"]
    checks = []
    for k, name in enumerate(ends["case"]):
        share, spread, turns = ends["near_predicted"][k], ends["beta_spread2"][k], ends["turns_per_period"][k]
        if ends["predicted"][k] == "points":
            checks.append(
                Criterion(
                    f"{name}: where V's spectrum says the tokens end",
                    f"at least {100 * ALMOST:g} % within {NEAR} rad",
                    f"{100 * share:.3g} %",
                    bool(share >= ALMOST),
                )
            )
        elif ends["predicted"][k] == "stalls":
            checks.append(
                Criterion(
                    f"{name}: clusters that do not tighten",
                    "the median angle s to the axis stalls like β^{−1/2}: βs² between 1 and 10, also at 4β",
                    f"βs² = {spread:.3g}, and {ends['four_times_colder'][k]:.3g}",
                    bool(1 <= spread <= 10 and 1 <= ends["four_times_colder"][k] <= 10),
                )
            )
        else:
            checks.append(
                Criterion(
                    f"{name}: clusters rotate for ever at the rate of the pair",
                    "Im λ ± 5 %",
                    "no tight cluster was seen" if np.isnan(turns) else f"{turns:.3f}·Im λ",
                    None if np.isnan(turns) else bool(abs(turns - 1) <= 0.05),
                )
            )
    moved = [k for k, name in enumerate(ends["case"]) if name in ("misaligned", "antipode-attending")]
    left = [ends["near_limit"][k] for k in moved]
    checks.append(
        Criterion(
            "there the zero-temperature limit ±e₁ has been left",
            "at most 10 % still there",
            ", ".join(f"{100 * x:.3g} %" for x in left),
            bool(max(left) <= 0.1),
        )
    )
    off = _deviation(paths)
    checks.append(
        Criterion(
            "the cluster flow (12) follows the centres",
            "within 0.2 rad, from when it is valid on",
            ", ".join(f"{name} {angle:.2g}" for name, angle in off.items()) or "never valid",
            bool(max(off.values()) <= 0.2) if off else None,
        )
    )
    return Judgement(
        f"{sum(check.holds is True for check in checks)} of {len(checks)} checks hold: V's spectrum, not that of VBᵀ, "
        "decides where clusters end: they stay, move to V's leading vector, to its last one, stall, or rotate.",
        checks,
    )


def _deviation(paths: dict) -> dict[str, float]:
    """The largest angle between a centre and the cluster flow, case by case."""
    names = np.array(paths["case"])
    errors = {}
    for name in dict.fromkeys(paths["case"]):
        real, flow = (
            np.array([paths[prefix + axis] for axis in "xyz"]).T[names == name] for prefix in ("", "reduced_")
        )
        errors[str(name)] = float(np.max(geodesic(real, flow / np.linalg.norm(flow, axis=1, keepdims=True))))
    return errors


def draw(evidence: Evidence) -> Figure:
    paths = evidence.tables["centres"]
    names = np.array(paths["case"])
    shown = list(dict.fromkeys(paths["case"]))
    axes, figure = plot.panels(max(1, len(shown)), width=3.4, height=3.4)
    for ax, name in zip(axes, shown, strict=False):
        chosen = names == name
        t = np.array(paths["t"])[chosen]
        for axis, colour, label in zip("xyz", (plot.BLUE, plot.ORANGE, plot.NOWHERE), "₁₂₃", strict=True):
            ax.plot(t, np.array(paths[axis])[chosen], color=colour, lw=2.5, alpha=0.55, label=f"x{label}")
            ax.plot(t, np.array(paths["reduced_" + axis])[chosen], color=colour, lw=1, ls="--")
        ax.set(xlabel="time t", title=str(name), ylim=(-1.1, 1.1))
    axes[0].set_ylabel("centre of the heaviest cluster")
    axes[0].legend(fontsize=8, frameon=False)
    return figure


CLAIM = Claim(
    name="terminal-phase",
    prose=read_prose(__name__),
    sizes={"test": Size(120, 60.0, 81), "quick": Size(400, 100.0), "full": Size(2000, 300.0)},
    seconds={"test": 4, "quick": 6, "full": 110},
    measure=measure,
    judge=judge,
    draw=draw,
)
