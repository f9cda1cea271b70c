"""Whether the theory's subspaces earn their time: python -m benchmarks.energies --model FOLDER --data DIR

For every head the energy of a text's tokens in the dominant eigenspace of VBᵀ and in that of V (two numbers per head
and layer, in the mean over the tokens) is put beside the numbers the detector has; AUROC with and without.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from benchmarks.detection import Reader, auroc, without
from benchmarks.shifts import SHIFTED, attacked, lines
from frostline.encoders.fold import folded
from frostline.encoders.forward import batches
from frostline.encoders.spectra import Factors
from frostline.encoders.tokenization import tokenize
from frostline.monitoring.corruptions import corrupted
from frostline.monitoring.cross_fitting import cross_fit
from frostline.monitoring.detector import Detector
from frostline.monitoring.hooks import HiddenStates, Tap
from frostline.monitoring.profile import Profile
from frostline.monitoring.reference_texts import LONGEST

COPIES = 2000


class Energies:
    """Energies of texts, one row each."""

    def __init__(self, reader: Reader):
        self.reader = reader
        self.layers = []
        for number in range(reader.encoder.layers):
            layer = folded(reader.encoder, number)
            factors, epsilon = Factors.of(layer), float(np.finfo(np.float64).eps)
            leads = zip(
                factors.dominant(epsilon=epsilon, resolve=False),
                factors.dominant_of_values(epsilon=epsilon),
                strict=True,
            )
            bases = [lead.ends for pair in leads for lead in pair]
            owner = np.repeat(np.arange(len(bases)), [basis.shape[1] for basis in bases])
            which = torch.from_numpy((owner[:, None] == np.arange(len(bases))).astype(np.float32))
            self.layers.append((layer.norm, torch.from_numpy(np.concatenate(bases, 1)).float(), which))

    def __call__(self, texts: list[str]) -> torch.Tensor:
        reader = self.reader
        found: list[torch.Tensor] = []
        order: list[int] = []

        def take(hidden: HiddenStates) -> None:
            mask = hidden.present.float()
            rows = []
            for state, (norm, basis, which) in zip(hidden.states, self.layers, strict=True):
                u = torch.from_numpy(norm.on_sphere(state.double().numpy())[0]).float()
                energy = (u @ basis).square() @ which
                rows.append((energy * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
            found.append(torch.cat(rows, 1))

        tap = Tap(reader.model, reader.encoder, range(reader.encoder.layers), take, strict=True)
        with torch.no_grad():
            for batch in batches(tokenize(reader.encoder, reader.tokenizer, texts, most=LONGEST)):
                reader.model(**batch.inputs)
                order += batch.numbers
        tap.close()
        return torch.cat(found)[torch.tensor(order).argsort()]


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--model", required=True)
    reading.add_argument("--data", required=True, type=Path)
    given = reading.parse_args()
    console = Console(width=160)
    train = lines(given.data / "sst-train.txt")
    reader = Reader(given.model, train, console)
    energies = Energies(reader)
    reference = reader.reference
    learned = reader.learned
    test = lines(given.data / "sst-test.txt")
    originals, perturbed = attacked(given.data / "sst2-textfooler.csv")
    sets = {"test": test, "originals": originals, "TextFooler": perturbed}
    sets |= {
        "SNLI": lines(given.data / "snli-dev.txt")[:SHIFTED],
        "20NG": lines(given.data / "20ng-test.txt")[:SHIFTED],
    }
    kinds = ("shuffled", "typos", "truncated", "repeated", "emoji", "injected")
    sets |= {kind: corrupted(test[:SHIFTED], reader.kinds[kind], seed=1) for kind in kinds}
    seen: dict[str, tuple[Profile, torch.Tensor]] = {}
    for name, texts in sets.items():
        seen[name] = (reader(texts)["full"], energies(texts))
    own = (learned.reference["full"], energies(reference))
    copies = {
        kind: (
            learned.broken["full"][kind][:COPIES],
            energies(learned.broken_copies(kind)[:COPIES]),
        )
        for kind in reader.kinds
    }

    results: Mapping[str, list[float]] = {name: [] for name in sets if name not in ("test", "originals")}
    for more in (False, True):
        profiles = _with(own, more), {kind: _with(pair, more) for kind, pair in copies.items()}
        unseen = cross_fit(*profiles, learned.probes_without_fold["full"], seed=0)
        detector = Detector.learn(*profiles, learned.probes["full"], seed=0).standardised(unseen)
        for name, values in results.items():
            mine, less = without(detector, name, unseen) if name in kinds else (detector, lambda x: x)
            normal = seen["originals" if name == "TextFooler" else "test"]
            a, b = mine.score(less(_with(normal, more))), mine.score(less(_with(seen[name], more)))
            values.append(auroc(a.numpy(), b.numpy()))
    for name, (before, after) in results.items():
        console.print(f"{name:12} without {before:.3f}, with {after:.3f} ({after - before:+.3f})")


def _with(pair: tuple[Profile, torch.Tensor], more: bool) -> Profile:
    features, energy = pair
    return dataclasses.replace(features, numbers=torch.cat([features.numbers, energy], 1)) if more else features


if __name__ == "__main__":
    main()
