"""A program as a user would write and annotate it: every verb, the class of every result. It is checked, not run."""

from pathlib import Path

import numpy as np
from torch import nn

import frostline as fl


def predict(head: fl.Attention, x: np.ndarray) -> str:
    limit: fl.Limit = fl.limit(head)
    path: fl.ZeroTemperaturePath = fl.zero_temperature(head, x, times=[0, 1, 2])
    rates: fl.Rates = fl.rates(head)
    bound: fl.Bound = fl.bound(head, p=2.0)
    tube: fl.Tube = fl.tube(head, start="uniform", growth="proven", p=2)
    terminal: fl.Terminal = fl.terminal(head)
    regime: fl.Regime = fl.regime(head, x, until=6.0)
    said: list[str] = [limit.describe(), path.describe(), rates.describe(), bound.describe(), terminal.describe()]
    kind: str = limit.kind
    gap: float | None = limit.gap
    best: float = bound.best(beta=1e4)
    said.append(f"{tube.describe()} {tube.best()[0]:.2f} {tube.sides[-1]:.2f}")
    return " ".join([*said, regime.describe(), kind, f"{gap} {best:.2f}"])


def warm(head: fl.Attention, x: np.ndarray) -> tuple[fl.Closure, fl.WarmLimit, fl.MomentFlow]:
    cloud: fl.Cloud = fl.Cloud.of(x, x[:2])
    return fl.closure(head, x, cloud), fl.warm_limit(head, cloud), fl.moment_flow(head, cloud, [0.0, 0.1])


def simulate(head: fl.Attention, x: np.ndarray) -> fl.Trajectory:
    run: fl.Trajectory = fl.simulate(head, x, until=6.0, stepper=fl.Euler(0.05), save_at=[0, 3, 6])
    coarse: fl.Trajectory = fl.simulate(head, x, until=6.0, stepper=fl.RK4(0.5))
    again: fl.Trajectory = fl.simulate([[head, head]], x, until=6.0, stepper=fl.Adaptive())
    times: np.ndarray = run.times
    assert len(times) and coarse.status and again.status
    return run


def show(progress: fl.Progress) -> None:
    print(progress.part, progress.step, f"{progress.share:.0%}")


def record(path: Path) -> fl.Trajectory:
    spec: fl.Spec = fl.read_spec(path, {"beta": 100.0})
    recording: fl.Recording = fl.record(spec, out=path.parent / "run", progress=show)
    run: fl.Trajectory = fl.load_run(recording.folder)
    status: fl.Status = run.status
    assert status is fl.Status.FINISHED and status.complete, status.sentence
    return run


def measure(head: fl.Attention, run: fl.Trajectory, x: np.ndarray) -> dict[str, object]:
    distance: fl.Distance = fl.wasserstein(x, x, p=2)
    plan: fl.Coupling | None = distance.plan
    curve: fl.DistanceCurve = fl.distance_curve(run)
    phases: fl.Phases = fl.phases(run)
    plateau: fl.Phase | None = phases.plateau
    clusters: fl.Clusters = fl.clusters(run)
    certificate: fl.Certificate = fl.certificate(run)
    stability: fl.Stability = fl.stability(head, x, x)
    laplace: fl.Laplace = fl.laplace(head, x, fl.densities.uniform(3))
    growth: fl.Growth = fl.laplace_growth(run)
    fit: fl.Fit = fl.fit([10.0, 100.0], [0.0, 1.0], [[1.0, 0.5], [1.0, 0.4]])
    sliced: fl.Sliced = fl.sliced(x, x)
    value: float = distance.value
    results = (curve, phases, clusters, certificate, stability, laplace, growth, fit, sliced)
    return {"value": value, "plan": plan, "plateau": plateau, "facts": [result.facts() for result in results]}


def encoders(folder: Path, texts: list[str]) -> None:
    audit: fl.Audit = fl.audit(folder, texts, reference=texts, progress=show)
    findings: tuple[fl.Finding, ...] = audit.findings
    audit.save("audit")
    change: fl.Comparison = fl.diff(folder, folder)
    base: fl.Baseline = fl.baseline(folder, texts)
    base.save("enc.frost")
    both: fl.Baseline = fl.merge(folder, [base, fl.load_baseline("enc.frost")])
    scores: fl.Scores = both.score(folder, texts)
    reasons: list[fl.Reason] = list(scores.reasons[0])
    print(findings, change.describe(), reasons)


def watch(model: nn.Module, base: fl.Baseline) -> None:
    watching: fl.Watch = fl.wrap(model, base)
    with watching:
        print(watching.last)
    with fl.watch(model, base, false_alarm_every="30d") as other:
        print(other.ringing)


def sweep(out: str) -> fl.Sweep:
    return fl.sweep({"command": "theory", "spec": {"tokens": 5}, "axes": {"beta": [1.0, 10.0]}}, out=out)


def main() -> None:
    head = fl.Attention.from_matrices(B=np.diag([1.0, 0.5, 0.2]), V=np.eye(3), beta=100.0)
    factored = fl.Factored(np.ones((3, 1)), np.ones((1, 3)))
    x = fl.sample.uniform(1000, 3, seed=0)
    mean = fl.mean_map(head, x, tolerance=1e-8)
    axes = fl.plot.tokens(simulate(head, x))
    try:
        print(predict(head, x), warm(head, x), mean, axes, factored, fl.sphere.normalise(x), record(Path("run.toml")))
    except fl.errors.NoLimit as error:
        print(error)
