"""How well shifts are detected: python -m benchmarks.detection --model FOLDER --data DIR

The reference is sst-train.txt, split and learned from as ``frostline baseline`` does it; shifts are compared with
sst-test.txt, TextFooler with its own originals. Every kind of corruption is judged by a detector that has not seen that
kind. Files of DIR are tab-separated, text last.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.special import logsumexp
from scipy.stats import rankdata
from torch import Tensor

from benchmarks.shifts import SHIFTED, attacked, code, lines, other_languages
from frostline.encoders.forward import batches
from frostline.encoders.tokenization import tokenize
from frostline.monitoring.alarm import FALSE_ALARM_EVERY, Alarm, texts_between_alarms
from frostline.monitoring.baseline import LEARNED
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruption_directions import Directions
from frostline.monitoring.corruptions import corrupted, corruptions
from frostline.monitoring.detection_delay import detection_delay
from frostline.monitoring.detector import PARTS, Detector, soft_maximum
from frostline.monitoring.learning import Learning
from frostline.monitoring.profile import Profile
from frostline.monitoring.reference_states import read_reference
from frostline.monitoring.reference_texts import LONGEST, choose_texts
from frostline.monitoring.text_model import open_text_model
from frostline.monitoring.token_probes import Probes

WINDOWS = (8, 32, 128)
RESPLITS, STREAM = 20, 50_000
SHARES = (1.0, 0.1, 0.02)
Method = Callable[[Profile], np.ndarray]


def auroc(normal: np.ndarray, shifted: np.ndarray) -> float:
    ranks = rankdata(np.concatenate([normal, shifted]))[len(normal) :]
    return float((ranks.sum() - len(shifted) * (len(shifted) + 1) / 2) / (len(normal) * len(shifted)))


def false_positives(normal: np.ndarray, shifted: np.ndarray) -> float:
    """Share of normal texts above the score that 95 % of the shifted ones reach."""
    return float((normal >= np.quantile(shifted, 0.05)).mean())


def peers(reference: Profile) -> dict[str, Method]:
    """The methods people use, on the same reference texts."""
    d = reference.passages.shape[-1] // 2

    def last(x: Profile) -> np.ndarray:
        return x.means[:, -d:].double().numpy()

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def nearest(x: Profile) -> np.ndarray:
        near = unit(last(x)) @ unit(last(reference)).T
        return 1 - np.partition(near, -10, 1)[:, -10:].mean(1)

    one = _mahalanobis(last(reference))
    places = range(0, reference.means.shape[1], d)
    layers = [_mahalanobis(reference.means[:, k : k + d].double().numpy()) for k in places]
    rough = _mahalanobis(np.random.default_rng(0).permuted(last(reference), axis=0))
    return {
        "Mahalanobis, last layer": lambda x: one(last(x)),
        "Mahalanobis, all layers": lambda x: sum(
            own(x.means[:, k : k + d].double().numpy()) for own, k in zip(layers, places, strict=True)
        ),
        "relative Mahalanobis": lambda x: one(last(x)) - rough(last(x)),
        "kNN, last layer": nearest,
    }


def _mahalanobis(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    sizes, axes = np.linalg.eigh(np.cov(x.T))
    whitening, centre = axes / np.sqrt(np.maximum(sizes, 0) + 1e-3 * sizes.mean()), x.mean(0)
    return lambda y: np.square((y - centre) @ whitening).sum(1)


Unseen = Sequence[tuple[Detector, Profile]]
"""Detectors of the folds, each with the texts that it has not learned from."""


def without(detector: Detector, kind: str, unseen: Unseen) -> tuple[Detector, Callable[[Profile], Profile]]:
    """The same detector as if this kind of corruption had never been seen, and what it must be shown."""
    kinds, probed = detector.directions.kinds, detector.probes.kinds
    kept = [number for number, name in enumerate(kinds) if name != kind]
    words = [number for number, name in enumerate(probed) if name != kind]

    def bare(one: Detector) -> Detector:
        directions, probes = one.directions, one.probes
        return dataclasses.replace(
            one,
            directions=Directions(tuple(kinds[k] for k in kept), directions.weights[kept], directions.offsets[kept]),
            probes=Probes(tuple(probed[k] for k in words), probes.weights[:, words], probes.offsets[words]),
        )

    def less(texts: Profile) -> Profile:
        return dataclasses.replace(texts, words=texts.words[:, words])

    return bare(detector).standardised([(bare(one), less(texts)) for one, texts in unseen]), less


class Reader:
    """A model with its baseline's own split of the reference, and what has been learned from it."""

    def __init__(self, model: str, texts: list[str], console: Console):
        self.encoder, self.model, self.tokenizer = open_text_model(model, None)
        chosen = choose_texts(texts, self.tokenizer, 0)
        share = round(LEARNED * len(chosen))
        self.reference, self.held_out = chosen[:share], chosen[share:]
        with console.status("") as status:
            self.learned = Learning(
                self.encoder,
                self.model,
                self.tokenizer,
                self.reference,
                self.held_out,
                seed=0,
                progress=lambda at: status.update(f"{at.part} {at.step} ({at.done + 1:g} of {at.total:g})"),
            )
        self.kinds = corruptions(self.reference, self.tokenizer, self.model.get_input_embeddings().weight)

    def __call__(self, texts: list[str]) -> Mapping[str, Profile]:
        tokenized = tokenize(self.encoder, self.tokenizer, texts, most=LONGEST)
        return read_reference(
            self.encoder, self.model, tokenized, self.learned.levels, probes=self.learned.probes
        ).profiles


def gather(reader: Reader, data: Path, console: Console) -> dict[str, tuple[Mapping[str, Profile], ...]]:
    """Normal and shifted texts of every shift."""
    test = lines(data / "sst-test.txt")
    originals, perturbed = attacked(data / "sst2-textfooler.csv")
    shifts = {
        "SNLI": lines(data / "snli-dev.txt")[:SHIFTED],
        "20 Newsgroups": lines(data / "20ng-test.txt")[:SHIFTED],
        "code": code(),
        "other languages": other_languages(),
    } | {name: corrupted(test[:SHIFTED], kind, seed=1) for name, kind in reader.kinds.items()}
    with console.status("normal texts") as status:
        normal = reader(test)
        found = {"TextFooler": (reader(originals), reader(perturbed))}
        for name, texts in shifts.items():
            status.update(name)
            found[name] = (normal, reader(texts))
    return found


def evaluate(reader: Reader, found: dict[str, tuple[Mapping[str, Profile], ...]]) -> dict[str, Any]:
    learned = reader.learned
    levels = {level: learned.judge(level).detector for level in learned.levels}
    detector, unseen, judges = levels["full"], learned.unseen("full"), learned.judging["full"]
    rivals = peers(learned.reference["full"])
    rows = []
    for name, (good, bad) in found.items():
        a, b = good["full"], bad["full"]
        mine, less = without(detector, name, unseen) if name in reader.kinds else (detector, lambda x: x)
        parts_of = [mine(less(texts))[0] for texts in (a, b)]
        normal_scores, shifted_scores = (soft_maximum(parts) for parts in parts_of)
        scores = {"ours": (normal_scores.numpy(), shifted_scores.numpy())}
        for number, part in enumerate(PARTS):
            scores[part] = tuple(parts[:, number].numpy() for parts in parts_of)
            scores[f"without {part}"] = tuple(_without(parts, number) for parts in parts_of)
        if name in reader.kinds:
            scores["all kinds known"] = (detector.score(a).numpy(), detector.score(b).numpy())
        scores["light, all kinds known"] = tuple(levels["light"].score(x["light"]).numpy() for x in (good, bad))
        scores |= {rival: (score(a), score(b)) for rival, score in rivals.items()}
        conformal = Conformal.fit(mine.score(less(judges)).numpy(), judges.lengths.numpy())
        rows.append(
            {
                "shift": name,
                "auroc": {method: auroc(*pair) for method, pair in scores.items()},
                "false positives at 95 %": {method: false_positives(*pair) for method, pair in scores.items()},
            }
            | powers(
                conformal.p_values(normal_scores, a.lengths).numpy(),
                conformal.p_values(shifted_scores, b.lengths).numpy(),
                conformal.counts.tolist(),
            ),
        )
    normal = found["SNLI"][0]
    return {
        "shifts": rows,
        "calibration": {
            level: calibration(own, learned.judging[level], normal[level]) for level, own in levels.items()
        },
    }


def _without(parts: Tensor, number: int) -> np.ndarray:
    kept = [k for k in range(parts.shape[1]) if k != number]
    return soft_maximum(parts[:, kept]).numpy()


def powers(normal: np.ndarray, shifted: np.ndarray, counts: list[int]) -> dict[str, Any]:
    """Share of windows of shifted texts that are stranger than 99 % of the normal ones; delays of the alarm."""
    rng = np.random.default_rng(0)
    fine, strange = -np.log(normal), -np.log(shifted)
    found: dict[str, Any] = {}
    for size in WINDOWS:
        usual, other = (each[rng.integers(len(each), size=(4000, size))].mean(1) for each in (fine, strange))
        found[f"window {size}"] = float((other > np.quantile(usual, 0.99)).mean())
    alarm = Alarm.once_in(texts_between_alarms(FALSE_ALARM_EVERY), calibrated_by=counts)
    delays = {share: detection_delay(alarm, share, shifted, counts=counts, streams=50) for share in SHARES}
    return found | {
        "alarm after": delays[1.0].delay,
        "delays": {f"{share:.0%}": {"delay": own.delay, "bound": own.bound} for share, own in delays.items()},
    }


def calibration(detector: Detector, judges: Profile, normal: Profile) -> dict[str, float]:
    """False alarms on in-domain text that was never used, over resplits of calibration and held-out texts."""
    scores = torch.cat([detector.score(judges), detector.score(normal)])
    lengths = torch.cat([judges.lengths, normal.lengths])
    rates: dict[str, list[float]] = {"all": [], "short": [], "long": []}
    rings = 0
    for seed in range(RESPLITS):
        order = torch.from_numpy(np.random.default_rng([seed]).permutation(len(scores)))
        one, two = order[: len(judges)], order[len(judges) :]
        fitted = Conformal.fit(scores[one].numpy(), lengths[one].numpy())
        p = fitted.p_values(scores[two], lengths[two]).numpy()
        short = (lengths[two] <= lengths.median()).numpy()
        for name, mine in (("all", slice(None)), ("short", short), ("long", ~short)):
            rates[name].append(float((p[mine] <= 0.01).mean()))
        rng = np.random.default_rng([18, seed])
        alarm = Alarm.once_in(1000, calibrated_by=fitted.counts.tolist())
        _, rang, _ = alarm.after(alarm.quiet, p[rng.integers(len(p), size=STREAM)])
        rings += len(rang)
    found = {f"rate at 1 %, {name} texts": float(np.mean(values)) for name, values in rates.items()}
    return found | {"texts between false alarms, 1000 asked for": RESPLITS * STREAM / max(1, rings)}


def heads(reader: Reader, data: Path) -> dict[str, Any]:
    """Energy and largest probability of a classifier's head, for models that have one; else why there is none."""
    named = reader.encoder.config.get("architectures") or [""]
    if "ForSequenceClassification" not in named[0]:
        return {"none": f"{reader.encoder.name} has no classifier's head"}
    import transformers

    model = getattr(transformers, named[0]).from_pretrained(reader.encoder.folder, local_files_only=True).eval()

    def logits(texts: list[str]) -> np.ndarray:
        tokenized = tokenize(reader.encoder, reader.tokenizer, texts, most=LONGEST)
        with torch.inference_mode():
            found = [model(**batch.inputs).logits.double().numpy() for batch in batches(tokenized)]
        return np.concatenate(found)

    methods = {
        "energy": lambda x: -logsumexp(x, axis=1),
        "largest probability": lambda x: -(x.max(1) - logsumexp(x, axis=1)),
    }
    normal = logits(lines(data / "sst-test.txt"))
    shifted = {
        "SNLI": logits(lines(data / "snli-dev.txt")[:SHIFTED]),
        "20 Newsgroups": logits(lines(data / "20ng-test.txt")[:SHIFTED]),
    }
    return {
        name: {method: auroc(score(normal), score(bad)) for method, score in methods.items()}
        for name, bad in shifted.items()
    }


def show(console: Console, found: dict[str, Any]) -> None:
    for what, title in (
        ("auroc", "AUROC (each kind of corruption left out of learning)"),
        ("false positives at 95 %", "false positives where 95 % of the shifted texts are found"),
    ):
        table = Table(title=title)
        table.add_column("shift")
        methods = [name for name in found["shifts"][0][what] if not name.startswith("without")]
        methods.insert(1, "all kinds known")
        for method in methods:
            table.add_column(method)
        for row in found["shifts"]:
            values = (row[what].get(method) for method in methods)
            table.add_row(row["shift"], *("" if value is None else f"{value:.3f}" for value in values))
        console.print(table)
    table = Table(title="AUROC without one of the parts")
    for column in ("shift", "ours", *PARTS):
        table.add_column(column)
    for row in found["shifts"]:
        values = (row["auroc"][name] for name in ("ours", *(f"without {part}" for part in PARTS)))
        table.add_row(row["shift"], *(f"{value:.3f}" for value in values))
    console.print(table)
    table = Table(title="windows found at 1 % false alarms; texts until the alarm at its default rings, and the bound")
    columns = [f"window {size}" for size in WINDOWS]
    for column in ("shift", *columns, *(f"{share:.0%} shifted" for share in SHARES)):
        table.add_column(column)
    for row in found["shifts"]:
        delays = (f"{own['delay']:.3g} ({own['bound']:.3g})" for own in row["delays"].values())
        table.add_row(row["shift"], *(f"{row[column]:.3g}" for column in columns), *delays)
    console.print(table)
    for level, values in found["calibration"].items():
        for name, value in values.items():
            console.print(f"{level}: {name}: {value:.4g}")
    console.print(f"classifier's head: {found['heads']}")


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--model", required=True)
    reading.add_argument("--data", required=True, type=Path)
    reading.add_argument("--json", type=Path, help="write the results here")
    given = reading.parse_args()
    console = Console(width=200)
    reader = Reader(given.model, lines(given.data / "sst-train.txt"), console)
    found = evaluate(reader, gather(reader, given.data, console)) | {"heads": heads(reader, given.data)}
    show(console, found)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
