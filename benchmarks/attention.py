"""What attention itself says of a text: python -m benchmarks.attention --model FOLDER --data DIR

First, how well the resultant length after every layer's attention half is predicted: from the length of the text alone,
with the population's cloud (what a deep profile does), and with its covariance around the text's own
mean. Each is corrected by a line in 1/n on reference texts.

Then AUROC of all shifts for the full detector, with a part that reads where attention goes, and for that part alone:
from attention weights (per head the mean shares of the first token, the last, the token itself and the best other one,
and σ/σ_N), or from the shares by the cloud's law in the two layers of a deep profile. The part has one direction per
kind of broken copy; every kind is judged with itself left out.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.detection import Reader, auroc, without
from benchmarks.shifts import SHIFTED, attacked, code, lines, other_languages
from frostline.encoders.forward import batches
from frostline.encoders.tokenization import tokenize
from frostline.monitoring.alarm import FALSE_ALARM_EVERY, Alarm, texts_between_alarms
from frostline.monitoring.attention_shares import Places, inside, mean_value, shares
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruption_directions import Directions, learn_directions
from frostline.monitoring.corruptions import corrupted
from frostline.monitoring.cross_fitting import COPIES
from frostline.monitoring.detection_delay import detection_delay
from frostline.monitoring.detector import Standards, soft_maximum
from frostline.monitoring.hooks import HiddenStates, Tap, unwatched_passes
from frostline.monitoring.reference_cloud import Inside, MomentSums, ReferenceCloud, insides
from frostline.monitoring.reference_texts import LONGEST

NEVER = -1e30
"""Logit of a token that is not attended to."""


@dataclass(frozen=True, eq=False)
class Read:
    """Numbers of texts: of attention from its weights, and by the law; resultant lengths of every layer."""

    lengths: Tensor
    weights: Tensor
    law: Tensor
    observed: Tensor
    population: Tensor
    around: Tensor

    def features(self, of: str) -> Tensor:
        return torch.cat([self.lengths[:, None], getattr(self, of)], 1)


class Attention:
    """Reads texts with the inside of every layer; the population's cloud is that of the reference."""

    def __init__(self, reader: Reader):
        self.reader = reader
        encoder = reader.encoder
        self.layers = tuple(range(encoder.layers))
        moments = MomentSums(self.layers)
        self._pass(reader.reference, lambda own, present: moments.add(own, present))
        self.reference_cloud: ReferenceCloud = moments.cloud().bound(encoder)

    def _pass(self, texts: Sequence[str], keep: Any) -> list[int]:
        encoder, model = self.reader.encoder, self.reader.model
        clouds = tuple(range(encoder.layers + 1))

        def take(hidden: HiddenStates) -> None:
            keep(insides(self.layers, encoder.heads, clouds, hidden.states), hidden.present)

        order: list[int] = []
        tap = Tap(model, encoder, clouds, take, inside=self.layers, strict=True)
        with torch.no_grad(), unwatched_passes():
            for batch in batches(tokenize(encoder, self.reader.tokenizer, texts, most=LONGEST)):
                model(**batch.inputs)
                order += batch.numbers
        tap.close()
        return order

    def __call__(self, texts: Sequence[str]) -> Read:
        found: list[tuple[Tensor, ...]] = []
        order = self._pass(texts, lambda own, present: found.append(self._read(own, present)))
        back = torch.tensor(order).argsort()
        return Read(*(torch.cat(each)[back] for each in zip(*found, strict=True)))

    def _read(self, layers: Sequence[Inside], present: Tensor) -> tuple[Tensor, ...]:
        cloud, places = self.reference_cloud, Places.of(present)
        two = self.reader.learned.reference_cloud
        assert two is not None and cloud.output is not None and cloud.bias is not None
        weights, law, lengths = [], [], []
        inner = inside(present)[:, :, None, None].float()
        count = inner.sum(1, keepdim=True).clamp_min(1)
        for layer, own in enumerate(layers):
            weights.append(_from_weights(own, places))
            row = [_resultant(own.tokens + own.update, places)]
            for around in (False, True):
                key, value = cloud.keys[layer], cloud.values[layer]
                if around:
                    key, value = ((x * inner).sum(1, keepdim=True) / count for x in (own.key, own.value))
                paid = shares(own.query, own.key, key, cloud.keys_keys[layer], places)
                means = mean_value(paid, own.query, own.value, value, cloud.keys_values[layer], places)
                row.append(
                    _resultant(own.tokens + means.flatten(2) @ cloud.output[layer].T + cloud.bias[layer], places)
                )
                if layer in two.layers and not around:
                    law += [places.mean(paid.weights[atom]) for atom in range(5)]
                    sigma = torch.einsum("bnhi,hij,bnhj->bnh", own.query, cloud.keys_keys[layer], own.query)
                    edge = (2 * places.cloud.clamp_min(2).log()).sqrt()[..., None]
                    law.append(places.mean((sigma.clamp_min(0) / own.query.shape[-1]).sqrt() / edge))
            lengths.append(row)
        number = present.sum(1).clamp_min(1).float().log()
        resultants = (torch.stack(each, 1) for each in zip(*lengths, strict=True))
        return (number, torch.cat(weights, 1), torch.cat(law, 1), *resultants)


def _resultant(tokens: Tensor, places: Places) -> Tensor:
    centred = tokens - tokens.mean(-1, keepdim=True)
    return places.mean(torch.nn.functional.normalize(centred, dim=-1)).norm(dim=-1)


def _from_weights(own: Inside, places: Places) -> Tensor:
    """Five numbers of every head, from attention weights: as dear as attention itself."""
    query, key = own.query.transpose(1, 2), own.key.transpose(1, 2)
    logits = query @ key.mT / query.shape[-1] ** 0.5
    paid = logits.masked_fill(~places.present[:, None, None], NEVER).softmax(-1)
    rows = torch.arange(len(paid))
    chosen = inside(places.present)
    others = (chosen[:, None, None] & ~torch.eye(paid.shape[-1], dtype=torch.bool)).float()
    count = others.sum(-1)
    mean = (logits * others).sum(-1) / count.clamp_min(1)
    sigma = ((logits - mean[..., None]).square() * others).sum(-1).div(count.clamp_min(1)).sqrt()
    each = (
        paid[rows, :, :, places.start],
        paid[rows, :, :, places.last],
        paid.diagonal(0, -2, -1) * chosen[:, None],
        (paid * others).amax(-1),
        sigma / (2 * count.clamp_min(2).log()).sqrt(),
    )
    return torch.cat([places.mean(values.transpose(1, 2)) for values in each], 1)


class Part:
    """A part of the score: one direction per kind, the evidence of all kinds added up, as in ``broken``."""

    def __init__(self, of: str, reference: Read, broken: Mapping[str, Read], standards: Read):
        self.of, self.standards = of, standards
        copies = {kind: read.features(of) for kind, read in broken.items()}
        pairs = min(len(reference.lengths), *(len(each) for each in copies.values()))
        self.directions: Directions = learn_directions(reference.features(of)[:pairs], copies)

    def __call__(self, texts: Read, without: str) -> Tensor:
        """Standard normal scores, as if one kind had never been seen."""
        kept = [number for number, kind in enumerate(self.directions.kinds) if kind != without]

        def evidence(read: Read) -> Tensor:
            return self.directions(read.features(self.of))[:, kept]

        normal = Standards.fit(evidence(self.standards))

        def surprise(read: Read) -> Tensor:
            return -torch.special.log_ndtr(-normal(evidence(read))).sum(1, keepdim=True)

        return Standards.fit(surprise(self.standards))(surprise(texts))


def expectations(sets: Mapping[str, Read], reference: Read) -> list[dict[str, Any]]:
    """Mean absolute error per text, beside the texts' own spread; and the mean error in spreads of the reference."""

    def powers(read: Read) -> Tensor:
        return torch.stack([torch.ones_like(read.lengths), (-read.lengths).exp()], 1)

    rows = []
    count = reference.lengths.exp()[:, None]
    cosine = ((count * reference.observed.square() - 1) / (count - 1).clamp_min(1)).mean(0)
    for name, read in sets.items():
        share = (-read.lengths[:, None]).exp()
        alone = (read.observed - (share + (1 - share) * cosine).sqrt()).abs().mean(0)
        row = {"texts": name, "standard deviation": read.observed.std(0).tolist(), "length alone": alone.tolist()}
        for law in ("population", "around"):
            usual = reference.observed - getattr(reference, law)
            line = torch.linalg.lstsq(powers(reference), usual).solution
            errors = read.observed - getattr(read, law) - powers(read) @ line
            spread = (usual - powers(reference) @ line).std(0)
            row[law] = errors.abs().mean(0).tolist()
            row[f"{law}, in spreads"] = (errors.mean(0) / spread).tolist()
        rows.append(row)
    return rows


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--model", required=True)
    reading.add_argument("--data", required=True, type=Path)
    reading.add_argument("--texts", type=int, help="learn from so many texts only")
    reading.add_argument("--shifted", type=int, default=SHIFTED, help="judge so many texts of every shift")
    reading.add_argument("--json", type=Path, help="write the results here")
    given = reading.parse_args()
    console = Console(width=170)
    reader = Reader(given.model, lines(given.data / "sst-train.txt")[: given.texts], console)
    if reader.learned.reference_cloud is None:
        raise SystemExit("this model has its positions inside attention: there is no deep profile of it.")
    attention = Attention(reader)
    test = lines(given.data / "sst-test.txt")
    originals, perturbed = attacked(given.data / "sst2-textfooler.csv")
    shifts = {
        "SNLI": lines(given.data / "snli-dev.txt"),
        "20 Newsgroups": lines(given.data / "20ng-test.txt"),
        "code": code(),
        "other languages": other_languages(),
    } | {name: corrupted(test[:SHIFTED], kind, seed=1) for name, kind in reader.kinds.items()}
    pairs = {"TextFooler": (originals, perturbed)} | {name: (test, texts) for name, texts in shifts.items()}
    seen: dict[int, tuple[Any, Read]] = {}

    def both(texts: list[str]) -> tuple[Any, Read]:
        if id(texts) not in seen:
            seen[id(texts)] = (reader(texts[: given.shifted])["full"], attention(texts[: given.shifted]))
        return seen[id(texts)]

    learned = reader.learned
    # The part is not cross-fitted: half of the held-out texts are its standards, the others calibrate.
    half = len(reader.held_out) // 2
    unseen, judging = learned.unseen("full"), learned.judging["full"][half:]
    reference, own_standards = attention(reader.reference[:COPIES]), attention(reader.held_out[:half])
    own_judging = attention(reader.held_out[half:])
    broken = {}
    for kind in reader.kinds:
        broken[kind] = attention(learned.broken_copies(kind))
    parts = {of: Part(of, reference, broken, own_standards) for of in ("weights", "law")}
    known = {name: both(shifts[name])[1] for name in ("SNLI", "20 Newsgroups", "shuffled")}
    found: dict[str, Any] = {
        "expectations": expectations({"SST": both(test)[1]} | known, own_standards),
        "shifts": [],
    }
    detector = learned.judge("full").detector
    for name, (good, bad) in pairs.items():
        mine, less = without(detector, name, unseen) if name in reader.kinds else (detector, lambda x: x)
        normal, shifted = both(good), both(bad)
        row: dict[str, Any] = {"shift": name}

        def judge(what: str, part: Part | None, row: dict[str, Any] = row, name: str = name) -> None:
            scores = []
            for profile, read in (normal, shifted, (judging, own_judging)):  # noqa: B023 (called at once)
                each = mine(less(profile))[0]  # noqa: B023
                scores.append(soft_maximum(each if part is None else torch.cat([each, part(read, name)], 1)))
            row[what] = auroc(scores[0].numpy(), scores[1].numpy())
            conformal = Conformal.fit(scores[2].numpy(), judging.lengths.numpy())
            p = conformal.p_values(scores[1], shifted[0].lengths).numpy()  # noqa: B023
            counts = conformal.counts.tolist()
            alarm = Alarm.once_in(texts_between_alarms(FALSE_ALARM_EVERY), calibrated_by=counts)
            row[f"{what}: alarm"] = detection_delay(alarm, 1.0, p, counts=counts, streams=50).delay

        judge("full", None)
        for of, part in parts.items():
            judge(f"with {of}", part)
            alone = (part(read, name)[:, 0].numpy() for read in (normal[1], shifted[1]))
            row[f"{of} alone"] = auroc(*alone)
        found["shifts"].append(row)
    for rows in found.values():
        show(console, rows)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        cells = (value if isinstance(value, list | str) else [value] for value in row.values())
        table.add_row(*(cell if isinstance(cell, str) else " ".join(f"{x:.3g}" for x in cell) for cell in cells))
    console.print(table)


if __name__ == "__main__":
    main()
