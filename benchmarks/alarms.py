"""The stream's alarm on real baselines: promises kept, time spent in alarms, delays beside the likelihood-ratio bound.

    python -m benchmarks.alarms --model MINILM --data DIR [--baselines 10] [--sizes 3000 2000] [--processes 2]

Baselines are made of SST train sentences; all other SST sentences are normal text that was never used; SNLI and 20
Newsgroups are shifts. A baseline of 3,000 texts costs some minutes on a core; p-values are kept in --work, so that an
interrupted run goes on. Not part of ``make bench``.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.shifts import lines
from frostline.monitoring.alarm import FALSE_ALARM_EVERY, Alarm, texts_between_alarms
from frostline.monitoring.alarm_course import AlarmCourse
from frostline.monitoring.detection_delay import detection_delay

HELD_OUT = 5000
"""Normal texts that a baseline is tried on."""
STRANGE = 600
"""Texts of every shift that a baseline is tried on."""
PROMISED = (1_000.0, 10_000.0)
"""Texts per false alarm in the trial of promises."""
STREAM = 50_000
"""Texts of the stream of the trial of promises: normal ones, in a random order, again and again."""


def p_values(model: Path, data: Path, size: int, seed: int, work: Path) -> Path:
    """p-values of normal and strange texts by one baseline, kept in a file."""
    kept = work / f"{size}-{seed}.npz"
    if kept.exists():
        return kept
    import torch

    import frostline as fl

    torch.set_num_threads(1)
    rng = np.random.default_rng([30, seed])
    train = list(dict.fromkeys(lines(data / "sst-train.txt")))
    order = rng.permutation(len(train))
    base = fl.baseline(model, [train[number] for number in order[:size]], seed=seed)
    rest = [train[number] for number in order[size:]]
    rest += [text for name in ("sst-test.txt", "sst-dev.txt") for text in lines(data / name)]
    known = set(train)
    fresh = list(dict.fromkeys(rest[: len(train) - size] + [t for t in rest[len(train) - size :] if t not in known]))
    normal = [fresh[number] for number in rng.permutation(len(fresh))[:HELD_OUT]]
    texts = {"normal": normal}
    for name, file in (("SNLI", "snli-dev.txt"), ("20 Newsgroups", "20ng-test.txt")):
        strange = lines(data / file)
        texts[name] = [strange[number] for number in rng.permutation(len(strange))[:STRANGE]]
    found = {name: base.score(model, some).p_values for name, some in texts.items()}
    np.savez(kept, counts=base.judges["full"].conformal.counts.numpy(), **found)
    return kept


def active_share(alarm: Alarm, p: np.ndarray, rate: float) -> tuple[float, int]:
    """Share of the time in which there is an alarm over normal texts, and how often it begins."""
    course, active, begun = AlarmCourse(alarm), 0, 0
    for number, value in enumerate(p.tolist()):
        begun += course.take(value, number / rate) == "alarm"
        active += course.ringing
    return active / len(p), begun


def judge(kept: Path, every: float, rate: float) -> dict[str, float | str]:
    """Everything that is measured of one baseline."""
    with np.load(kept) as arrays:
        found = {name: arrays[name] for name in arrays}
    counts = found.pop("counts").tolist()
    rng = np.random.default_rng([31, int(kept.stem.split("-")[1])])
    normal = found["normal"]
    default = Alarm.once_in(every, calibrated_by=counts)
    row: dict[str, float | str] = {"baseline": kept.stem, "floor": 1 / (1 + min(counts))}
    row["active"], row["alarms"] = active_share(default, normal, rate)
    for promised in PROMISED:
        alarm = Alarm.once_in(promised, calibrated_by=counts)
        stream = normal[rng.integers(len(normal), size=STREAM)]
        row[f"rings, 1 in {promised:,.0f}"] = len(alarm.after(alarm.quiet, stream)[1]) / (STREAM / promised)
    for name in ("SNLI", "20 Newsgroups"):
        row[f"delay {name}"] = detection_delay(default, 1.0, found[name], counts=counts).delay
    for promised, label in ((1e5, "1e5"), (every, "default")):
        alarm = Alarm.once_in(promised, calibrated_by=counts)
        for share in (0.1, 0.02):
            delay = detection_delay(alarm, share, found["SNLI"], counts=counts)
            row[f"{share:.0%}, {label}"] = delay.delay
            row[f"{share:.0%}, {label}, bound"] = delay.bound
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--baselines", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3000, 2000])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("alarms"))
    parser.add_argument("--rate", type=float, default=10.0)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    tasks = [(size, seed) for size in asked.sizes for seed in range(asked.baselines)]
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        files = [pool.submit(p_values, asked.model, asked.data, *task, asked.work) for task in tasks]
        kept = [file.result() for file in files]
    rows = [judge(file, texts_between_alarms(FALSE_ALARM_EVERY, asked.rate), asked.rate) for file in kept]
    print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))


if __name__ == "__main__":
    main()
