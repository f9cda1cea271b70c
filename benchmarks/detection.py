"""How well shifts are detected: python -m benchmarks.detection --model FOLDER --data DIR

The reference is sst-train.txt; shifts are compared with sst-test.txt, TextFooler with its own originals. Every kind of
corruption is judged by a detector that has not seen that kind. Files of DIR are tab-separated, text last.
"""

import argparse
import csv
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata

from frostline.encoders.capture import open_model, open_tokenizer, tokenize
from frostline.encoders.loading import load
from frostline.monitoring.baseline import COPIES, LONGEST, features
from frostline.monitoring.calibration import Alarm, Conformal, evidence
from frostline.monitoring.corruptions import corrupted, corruptions
from frostline.monitoring.detector import PARTS, Detector, Features, Standard

SHIFTED = 1500
WINDOWS = (8, 32, 128)
RESPLITS = 20


def auroc(normal: np.ndarray, shifted: np.ndarray) -> float:
    ranks = rankdata(np.concatenate([normal, shifted]))[len(normal) :]
    return float((ranks.sum() - len(shifted) * (len(shifted) + 1) / 2) / (len(normal) * len(shifted)))


def false_positives(normal: np.ndarray, shifted: np.ndarray) -> float:
    """Share of normal texts above the score that 95 % of the shifted ones reach."""
    return float((normal >= np.quantile(shifted, 0.05)).mean())


def lines(path: Path) -> list[str]:
    rows = [line.split("\t", 1)[1].strip() for line in path.read_text(encoding="utf-8").split("\n")[1:] if "\t" in line]
    return [row for row in rows if row]


def attacked(path: Path) -> tuple[list[str], list[str]]:
    """Originals and attacked texts that changed the label, without the marks around changed words."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["result_type"] == "Successful"]
    return tuple([re.sub(r"\[\[|\]\]", "", row[name]).strip() for row in rows] for name in _TEXTS)  # type: ignore[return-value]


_TEXTS = ("original_text", "perturbed_text")


def code_lines() -> list[str]:
    """Python source, a few lines at a time, from the standard library."""
    found = []
    for module in (argparse, csv, json, re, dataclasses):
        source = Path(str(module.__file__)).read_text(encoding="utf-8").split("\n")
        found += [
            " ".join(line.strip() for line in source[k : k + 3] if line.strip()) for k in range(0, len(source), 3)
        ]
    return [text for text in found if len(text) > 20][:SHIFTED]


def peers(reference: Features) -> dict[str, Callable[[Features], np.ndarray]]:
    """The methods people use, on the same reference."""
    clouds = reference.means.shape[1]
    d = reference.passages.shape[-1] // 2

    def last(x: Features) -> np.ndarray:
        return x.means[:, clouds - d :].astype(np.float64)

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def nearest(x: Features) -> np.ndarray:
        near = unit(last(x)) @ unit(last(reference)).T
        return 1 - np.partition(near, -10, 1)[:, -10:].mean(1)

    one = _mahalanobis(last(reference))
    layers = [_mahalanobis(reference.means[:, k : k + d].astype(np.float64)) for k in range(0, clouds, d)]
    rough = _mahalanobis(np.random.default_rng(0).permuted(last(reference), axis=0))
    return {
        "Mahalanobis, last layer": lambda x: one(last(x)),
        "Mahalanobis, all layers": lambda x: sum(
            own(x.means[:, k : k + d].astype(np.float64)) for own, k in zip(layers, range(0, clouds, d), strict=True)
        ),
        "relative Mahalanobis": lambda x: one(last(x)) - rough(last(x)),
        "kNN, last layer": nearest,
    }


def _mahalanobis(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    sizes, axes = np.linalg.eigh(np.cov(x.T))
    whitening, centre = axes / np.sqrt(np.maximum(sizes, 0) + 1e-3 * sizes.mean()), x.mean(0)
    return lambda y: np.square((y - centre) @ whitening).sum(1)


def without(detector: Detector, kind: str, standards: Features) -> Detector:
    """The same detector as if this kind of corruption had never been seen."""
    kept = [number for number, name in enumerate(detector.directions.kinds) if name != kind]
    directions = dataclasses.replace(
        detector.directions,
        kinds=tuple(detector.directions.kinds[number] for number in kept),
        weights=detector.directions.weights[kept],
    )
    bare = dataclasses.replace(
        detector, directions=directions, kinds=tuple(detector.kinds[number] for number in kept), standards={}
    )
    return dataclasses.replace(
        bare, standards={name: Standard.fit(raw) for name, raw in bare.raw(standards)[0].items()}
    )


class Reader:
    """Features of texts, kept in a folder so that a second run is quick."""

    def __init__(self, model: str, cache: Path | None):
        self.encoder = load(model)
        self.model, self.tokenizer = open_model(self.encoder), open_tokenizer(self.encoder)
        self.cache = cache

    def __call__(self, name: str, texts: Sequence[str]) -> Features:
        file = None if self.cache is None else self.cache / f"{name}.npz"
        if file is not None and file.is_file():
            with np.load(file) as kept:
                return Features(*(kept[part].astype(np.float32) for part in Features.__annotations__))
        found = features(self.encoder, self.model, tokenize(self.encoder, self.tokenizer, texts, most=LONGEST))
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, **{part: getattr(found, part) for part in Features.__annotations__})
        return found


def evaluate(model: str, data: Path, cache: Path | None, console: Console) -> dict[str, Any]:
    reader = Reader(model, cache)
    train, test = lines(data / "sst-train.txt"), lines(data / "sst-test.txt")
    half = len(train) // 2
    kinds = corruptions(train[:half], reader.tokenizer, reader.model.get_input_embeddings().weight)
    known = reader("reference", train[:half])
    others = reader("held-out", train[half:])
    standards, judges = others[: len(others) // 2], others[len(others) // 2 :]
    with console.status("broken copies of the reference") as status:
        broken = {}
        for name, kind in kinds.items():
            status.update(f"{name} copies of the reference")
            broken[name] = reader(f"reference-{name}", corrupted(train[:half][:COPIES], kind, seed=0))
        normal = reader("test", test)
        originals, perturbed = attacked(data / "sst2-textfooler.csv")
        shifts = {
            "SNLI": (normal, reader("snli", lines(data / "snli-dev.txt")[:SHIFTED])),
            "20 Newsgroups": (normal, reader("20ng", lines(data / "20ng-test.txt")[:SHIFTED])),
            "code": (normal, reader("code", code_lines())),
            "TextFooler": (reader("originals", originals), reader("textfooler", perturbed)),
        }
        for name, kind in kinds.items():
            status.update(f"{name} copies of the test texts")
            shifts[name] = (normal, reader(f"test-{name}", corrupted(test[:SHIFTED], kind, seed=1)))
        status.update("learning")
        detector = Detector.learn(known, broken, standards, seed=0)
    rivals = peers(known)
    rows = []
    for name, (good, bad) in shifts.items():
        mine = without(detector, name, standards) if name in kinds else detector
        a, b = mine(good), mine(bad)
        row: dict[str, Any] = {"shift": name, "ours": auroc(a.score, b.score)}
        row["false positives at 95 %"] = false_positives(a.score, b.score)
        if name in kinds:
            row["all kinds known"] = auroc(detector(good).score, detector(bad).score)
        row |= {part: auroc(a.parts[part], b.parts[part]) for part in PARTS}
        row |= {rival: auroc(score(good), score(bad)) for rival, score in rivals.items()}
        row |= powers(Conformal.fit(mine(judges).score, judges.lengths), a.score, good, b.score, bad)
        rows.append(row)
    return {"shifts": rows, "calibration": calibration(detector, judges, normal)}


def powers(conformal: Conformal, a: np.ndarray, good: Features, b: np.ndarray, bad: Features) -> Mapping[str, float]:
    """Share of windows of shifted texts that are stranger than 99 % of the normal ones; delay of the alarm."""
    rng = np.random.default_rng(0)
    fine, strange = evidence(conformal.p_values(a, good.lengths)), evidence(conformal.p_values(b, bad.lengths))
    found = {}
    for size in WINDOWS:
        usual, other = (each[rng.integers(len(each), size=(4000, size))].mean(1) for each in (fine, strange))
        found[f"window {size}"] = float((other > np.quantile(usual, 0.99)).mean())
    alarm = Alarm.once_in(1000)
    p = conformal.p_values(b, bad.lengths)
    delays = []
    for _ in range(50):
        _, rang = alarm.after(0.0, p[rng.integers(len(p), size=2000)])
        delays.append(rang[0] + 1 if rang else 2000)
    return found | {"alarm after": float(np.mean(delays))}


def calibration(detector: Detector, judges: Features, normal: Features) -> dict[str, float]:
    """False alarms on in-domain text that was never used, over resplits of calibration and held-out texts."""
    scores = np.concatenate([detector(judges).score, detector(normal).score])
    lengths = np.concatenate([judges.lengths, normal.lengths])
    rates: dict[str, list[float]] = {"all": [], "short": [], "long": []}
    runs = []
    alarm = Alarm.once_in(1000)
    for seed in range(RESPLITS):
        order = np.random.default_rng([seed]).permutation(len(scores))
        one, two = order[: len(judges)], order[len(judges) :]
        p = Conformal.fit(scores[one], lengths[one]).p_values(scores[two], lengths[two])
        short = lengths[two] <= np.median(lengths)
        for name, mine in (("all", slice(None)), ("short", short), ("long", ~short)):
            rates[name].append(float((p[mine] <= 0.01).mean()))
        rng = np.random.default_rng([18, seed])
        _, rang = alarm.after(0.0, p[rng.integers(len(p), size=30_000)])
        runs.append(30_000 / max(1, len(rang)))
    found = {f"rate at 1 %, {name} texts": float(np.mean(values)) for name, values in rates.items()}
    return found | {"texts between false alarms, 1000 asked for": float(np.mean(runs))}


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--model", required=True)
    reading.add_argument("--data", required=True, type=Path)
    reading.add_argument("--cache", type=Path, help="keep features here")
    reading.add_argument("--json", type=Path, help="write the results here")
    given = reading.parse_args()
    console = Console(width=200)
    found = evaluate(given.model, given.data, given.cache, console)
    table = Table(title="AUROC (each kind of corruption left out of learning), and what else was measured")
    for name in dict.fromkeys(name for row in found["shifts"] for name in row):
        table.add_column(name)
    for row in found["shifts"]:
        shown = (row.get(str(column.header)) for column in table.columns)
        table.add_row(
            *("" if value is None else value if isinstance(value, str) else f"{value:.3f}" for value in shown)
        )
    console.print(table)
    for name, value in found["calibration"].items():
        console.print(f"{name}: {value:.4g}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
