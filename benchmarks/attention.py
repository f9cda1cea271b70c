"""Whether what attention does earns its time: python -m benchmarks.attention --model FOLDER --data DIR

AUROC of all shifts for the full detector, for the deep one (the same with a part that reads where the attention of two
layers goes), and for that part alone; every kind of corruption is judged with itself left out. Then how far the
resultant length after the attention half of these layers is from the one that is expected.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.detection import Reader, auroc, gather, without
from benchmarks.shifts import lines
from frostline.monitoring.alarm import FALSE_ALARM_EVERY, Alarm, texts_between_alarms
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruption_directions import Directions
from frostline.monitoring.detection_delay import detection_delay
from frostline.monitoring.detector import AttentionPart, Detector, soft_maximum
from frostline.monitoring.profile import Profile


def without_attention(detector: Detector, kind: str, standards: Profile) -> Detector:
    """The deep detector as if its part of attention had never seen this kind of corruption."""
    part = detector.attention
    assert part is not None
    told = part.directions
    kept = [number for number, name in enumerate(told.kinds) if name != kind]
    directions = Directions(tuple(told.kinds[k] for k in kept), told.weights[kept], told.offsets[kept])
    other = dataclasses.replace(detector, attention=AttentionPart(directions, part.kinds))
    return other.standardised(standards)


def ablation(reader: Reader, found: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per shift."""
    learned = reader.learned
    full, deep = (learned.judge(level).detector for level in ("full", "deep"))
    standards, judging = learned.standards["full"], learned.judging["full"]
    rows = []
    for name, (good, bad) in found.items():
        row: dict[str, Any] = {"shift": name}
        for method, detector in (("full", full), ("deep", deep)):
            mine, less = without(detector, name, standards) if name in reader.kinds else (detector, lambda x: x)
            if method == "deep" and name in reader.kinds:
                mine = without_attention(mine, name, less(standards))
            parts = [mine(less(texts["full"]))[0] for texts in (good, bad)]
            scores = [soft_maximum(each) for each in parts]
            row[method] = auroc(scores[0].numpy(), scores[1].numpy())
            conformal = Conformal.fit(mine.score(less(judging)).numpy(), judging.lengths.numpy())
            shifted = conformal.p_values(scores[1], bad["full"].lengths).numpy()
            counts = conformal.counts.tolist()
            alarm = Alarm.once_in(texts_between_alarms(FALSE_ALARM_EVERY), calibrated_by=counts)
            row[f"{method}, alarm after"] = detection_delay(alarm, 1.0, shifted, counts=counts, streams=50).delay
            if method == "deep":
                row["attention alone"] = auroc(*(each[:, -1].numpy() for each in parts))
        rows.append(row)
    return rows


def expectations(reader: Reader, data: Path) -> list[dict[str, Any]]:
    """Mean absolute error per text beside the texts' own spread, and beside a length that knows only n."""
    closure = reader.learned.closure
    assert closure is not None
    normal = lines(data / "sst-test.txt")
    sets = {
        "SST": normal,
        "SNLI": lines(data / "snli-dev.txt")[:1500],
        "20 Newsgroups": lines(data / "20ng-test.txt")[:1500],
        "shuffled": [" ".join(np.random.default_rng(0).permutation(text.split())) for text in normal],
    }
    held = reader.read(reader.held_out)
    count, seen = held.profiles["full"].lengths.exp()[:, None], held.gathering.observed
    cosine = ((count * seen.square() - 1) / (count - 1).clamp_min(1)).mean(0)
    rows = []
    for name, texts in sets.items():
        own = reader.read(texts)
        share = (-own.profiles["full"].lengths[:, None]).exp()
        usual = (share + (1 - share) * cosine).sqrt()
        errors = own.gathering.observed - own.gathering.expected
        rows.append(
            {
                "texts": name,
                "standard deviation": own.gathering.observed.std(0).tolist(),
                "length alone": (own.gathering.observed - usual).abs().mean(0).tolist(),
                "closure": errors.abs().mean(0).tolist(),
                "mean error in spreads": (errors / closure.spread).mean(0).tolist(),
            }
        )
    return rows


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        cells = (value if isinstance(value, list | str) else [value] for value in row.values())
        table.add_row(*(cell if isinstance(cell, str) else " ".join(f"{x:.4g}" for x in cell) for cell in cells))
    console.print(table)


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--model", required=True)
    reading.add_argument("--data", required=True, type=Path)
    reading.add_argument("--texts", type=int, help="learn from so many texts only")
    reading.add_argument("--json", type=Path, help="write the results here")
    given = reading.parse_args()
    console = Console(width=160)
    reader = Reader(given.model, lines(given.data / "sst-train.txt")[: given.texts], console)
    if reader.learned.closure is None:
        raise SystemExit("this model has its positions inside attention: there is no deep profile of it.")
    found = {
        "expectations": expectations(reader, given.data),
        "shifts": ablation(reader, gather(reader, given.data, console)),
    }
    for rows in found.values():
        show(console, rows)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
