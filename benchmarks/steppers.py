"""Work and precision of the steppers: python -m benchmarks.steppers [--out FILE.png]

B = diag(1, .5, .2), V = I until t = 3 log β. The error is the largest W₂, over six times, to a run whose steps are kept
to 1e-10; work is how often the mean map was evaluated.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import frostline as fl

BETAS = (30.0, 1000.0)
TOKENS = 600
WANTED = 1e-3
STEPS = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


@dataclass(frozen=True)
class Curve:
    """How wrong a method was for how many mean maps."""

    name: str
    work: np.ndarray
    error: np.ndarray

    def needed(self, error: float) -> float:
        """The fewest mean maps for this error: between two runs interpolated, by logarithms."""
        met = np.flatnonzero(self.error <= error)
        if not len(met):
            return math.nan
        k = int(met[0])
        if k == 0:
            return float(self.work[0])
        (w0, w1), (e0, e1) = np.log(self.work[k - 1 : k + 1]), np.log(self.error[k - 1 : k + 1])
        return float(np.exp(w0 + (w1 - w0) * (math.log(error) - e0) / (e1 - e0)))


def curves(beta: float) -> list[Curve]:
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta)
    x = fl.sample.uniform(TOKENS, 3, seed=0)
    until = 3 * math.log(beta)
    times = np.linspace(0, until, 7)[1:].tolist()

    def run(stepper: fl.Euler | fl.RK4 | fl.Adaptive) -> fl.Trajectory:
        return fl.simulate(head, x, until=until, stepper=stepper, save_at=times)

    exact = run(fl.Adaptive(1e-10))
    found = []
    for name, steppers in (
        ("Euler", [fl.Euler(step) for step in STEPS]),
        ("RK4", [fl.RK4(step) for step in STEPS[:5]]),
        ("adaptive", [fl.Adaptive(tolerance) for tolerance in TOLERANCES]),
    ):
        runs = [run(stepper) for stepper in steppers]
        error = [
            max(fl.wasserstein(a, b, method="exact").value for a, b in zip(one.tokens, exact.tokens, strict=True))
            for one in runs
        ]
        found.append(Curve(name, np.array([one.evaluations for one in runs]), np.array(error)))
    return found


def in_bench() -> dict[str, Any]:
    """One row of make bench, in mean maps instead of seconds: at the temperature where the gain is smaller."""
    beta = BETAS[-1]
    euler, _, adaptive = curves(beta)
    ours, peer = adaptive.needed(WANTED), euler.needed(WANTED)
    return {
        "what": f"mean maps of the adaptive method for an error of {WANTED:g} in W₂, β = {beta:g}: {ours:.0f}",
        "peer": f"Euler: {peer:.0f} mean maps",
        "ours_s": None,
        "peer_s": None,
        "ratio": peer / ours,
        "gap": WANTED,
    }


def draw(found: dict[float, list[Curve]], out: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 3.6), layout="constrained")
    for axes, (beta, own) in zip(
        np.atleast_1d(figure.subplots(1, len(found), sharey=True)), found.items(), strict=True
    ):
        for curve, marker in zip(own, "os^", strict=True):
            axes.loglog(curve.work, np.maximum(curve.error, 1e-12), marker=marker, label=curve.name)
        axes.axhline(WANTED, color="0.6", linewidth=0.8, linestyle="--")
        axes.set(title=f"β = {beta:g}", xlabel="mean maps", ylabel="error in W₂" if beta == next(iter(found)) else "")
        axes.legend(frameon=False)
    figure.savefig(out, dpi=110, metadata={"Software": None})


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reading.add_argument("--out", help="where the picture goes")
    given = reading.parse_args()
    found = {}
    for beta in BETAS:
        found[beta] = curves(beta)
        for curve in found[beta]:
            print(
                f"β = {beta:g} {curve.name}: "
                + ", ".join(f"{w} → {e:.1e}" for w, e in zip(curve.work, curve.error, strict=True))
            )
        euler, _, adaptive = found[beta]
        ratio = euler.needed(WANTED) / adaptive.needed(WANTED)
        print(f"β = {beta:g}: for an error of {WANTED:g} Euler needs {ratio:.1f} times the mean maps", flush=True)
    if given.out:
        draw(found, given.out)


if __name__ == "__main__":
    main()
