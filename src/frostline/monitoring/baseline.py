"""A baseline: what normal text looks like to one model, learned once, kept in one ``.frost`` file."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from frostline.encoders.capture import Model, Tokenized, batches, open_model, open_tokenizer, plain_copy, tokenize
from frostline.encoders.loading import Encoder, load, need
from frostline.errors import BadBaseline, BadText
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruptions import corrupted, corruptions
from frostline.monitoring.detector import Detector, Features, Parts, Standard
from frostline.monitoring.directions import Directions
from frostline.monitoring.profiles import Profile, names, profile
from frostline.monitoring.tapping import Tap
from frostline.store import write_atomically

VERSION = 1
LEARNED = 0.6
"""Share of the texts that is learned from; the rest standardises and calibrates, half each."""
FEWEST = 500
"""Different texts that a baseline needs: a fifth of them give p-values, down to 1/101."""
MOST = 20_000
COPIES = 4000
"""Reference texts that broken copies are made of, at most."""
LONGEST = 512
LARGEST = 2**30
"""Bytes of a baseline that are read, at most."""
EXPLAINED = 0.05
"""Reasons are given for texts with p-values up to this."""
STRANGE = 2.0
"""A part is named as a reason from this many standard deviations on."""
QUARTERS = ("first", "second", "third", "last")
Report = Callable[[str, str, float, float], None]


@dataclass(frozen=True, eq=False)
class Scores:
    """One entry per text. ``scores``: larger is stranger; ``p_values``: conformal.

    ``reasons``: in words, for texts with p-values up to 5 %.
    """

    scores: Float[np.ndarray, " n"]
    p_values: Float[np.ndarray, " n"]
    parts: Mapping[str, Float[np.ndarray, " n"]]
    reasons: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Baseline:
    """A detector with its calibration, bound to a model and a tokenizer. ``about`` is what the file's header says."""

    detector: Detector
    conformal: Conformal
    about: Mapping[str, Any]

    def save(self, path: str | Path) -> Path:
        """Write the ``.frost`` file, all at once."""
        tensors = _tensors(self)
        about = dict(self.about) | {"checksum": _checksum(tensors, self.about)}
        write_atomically(Path(path), save(tensors, {"frostline": json.dumps(about)}))
        return Path(path)

    def score(self, model: "nn.Module | str | Path", tokenizer: Any = None, texts: Sequence[str] = ()) -> Scores:
        """Score texts with the model the baseline is of."""
        encoder, live, words = _opened(model, tokenizer)
        self.check(encoder, words)
        tokenized = tokenize(encoder, words, texts, most=LONGEST)
        if tokenized.empty:
            raise BadText(f"{tokenized.empty} of {len(texts)} texts are empty; there is nothing to score in them.")
        return self.judge(features(encoder, live, tokenized))

    def judge(self, texts: Features) -> Scores:
        """Scores, p-values and reasons from profiles."""
        found = self.detector(texts)
        p_values = self.conformal.p_values(found.score, texts.lengths)
        reasons = tuple(
            self._reasons(found, texts, number) if p <= EXPLAINED else () for number, p in enumerate(p_values)
        )
        return Scores(found.score, p_values, found.parts, reasons)

    def check(self, encoder: Encoder, tokenizer: Any = None) -> None:
        """Raise BadBaseline when it is of another model or another tokenizer."""
        shape = [encoder.family.name, encoder.layers, encoder.dimension]
        if shape != self.about["shape"]:
            raise BadBaseline(f"the baseline is of {_named(self.about['shape'])}, the model is {_named(shape)}.")
        if encoder.identity() != self.about["model_sha256"]:
            raise BadBaseline(
                "the baseline is of a model with other weights; make one for this model: frostline baseline MODEL"
            )
        if tokenizer is not None and tokenizer_hash(tokenizer) != self.about["tokenizer_sha256"]:
            raise BadBaseline("the tokenizer is not the one the baseline was made with; its p-values mean nothing.")

    def _reasons(self, found: Parts, texts: Features, number: int) -> tuple[str, ...]:
        said = []
        for part, values in sorted(found.parts.items(), key=lambda item: -item[1][number]):
            strength = float(values[number])
            if strength < STRANGE:
                continue
            if part == "broken":
                kind = int(found.kinds[number].argmax())
                name = self.detector.directions.kinds[kind]
                said.append(f"broken ({strength:.1f} σ): most like {name} text ({found.kinds[number, kind]:.1f} σ)")
            elif part == "foreign":
                said.append(f"foreign ({strength:.1f} σ): its passages are far from those of the reference")
            elif part == "passage":
                where = QUARTERS[int(self.detector.apart(texts[number : number + 1])[0].argmax())]
                said.append(f"passage ({strength:.1f} σ): the {where} quarter of the text is the most foreign")
            else:
                said.append(f"concentration ({strength:.1f} σ): {self._departure(texts.numbers[number])}")
        return tuple(said)

    def _departure(self, numbers: np.ndarray) -> str:
        """The layer-wise number that is farthest from what is expected."""
        apart = (numbers - self.detector.centre) / np.maximum(self.spread, 1e-12)
        most = int(np.abs(apart).argmax())
        name, part, cloud = names(int(self.about["shape"][1]))[most]
        return (
            f"{part}, {name} of cloud {cloud} is {numbers[most]:.3g}, expected {self.detector.centre[most]:.3g} "
            f"({apart[most]:+.1f} σ)"
        )

    @cached_property
    def spread(self) -> Float[np.ndarray, " k"]:
        """Standard deviation of every layer-wise number in the reference."""
        inverse = np.linalg.pinv(self.detector.whitening)
        return np.asarray(np.sqrt(np.square(inverse).sum(0)))


def baseline(
    model: "nn.Module | str | Path",
    tokenizer: Any = None,
    texts: Sequence[str] = (),
    *,
    seed: int = 0,
    report: Report | None = None,
) -> Baseline:
    """Learn what these texts look like to the model."""
    tell = report or (lambda part, what, done, total: None)
    if isinstance(texts, str):
        raise BadText("texts is one string; give a list of texts.")
    encoder, live, words = _opened(model, tokenizer)
    chosen = _chosen(texts, seed)
    share = round(LEARNED * len(chosen))
    reference, held_out = chosen[:share], chosen[share:]
    kinds = corruptions(reference, words, live.get_input_embeddings().weight)
    total = len(kinds) + 2

    def seen(own: Sequence[str], what: str, done: int) -> Features:
        tell("reading", what, done, total)
        return features(encoder, live, tokenize(encoder, words, own, most=LONGEST))

    known = seen(reference, "reference", 0)
    broken = {
        name: seen(corrupted(reference[:COPIES], kind, seed=seed), f"{name} copies", number + 1)
        for number, (name, kind) in enumerate(kinds.items())
    }
    others = seen(held_out, "calibration", total - 1)
    tell("learning", "directions, codebook, density", 1, 1)
    # Standards and p-values from different texts: a score must not have seen the texts that judge it.
    standards, judges = others[: len(others) // 2], others[len(others) // 2 :]
    detector = Detector.learn(known, broken, standards, seed=seed)
    conformal = Conformal.fit(detector(judges).score, judges.lengths)
    import frostline

    return Baseline(
        detector,
        conformal,
        {
            "version": VERSION,
            "frostline": frostline.__version__,
            "model": encoder.name,
            "shape": [encoder.family.name, encoder.layers, encoder.dimension],
            "model_sha256": encoder.identity(),
            "tokenizer_sha256": tokenizer_hash(words),
            "texts": len(chosen),
            "calibration_texts": len(judges),
            "kinds": list(kinds),
            "seed": seed,
        },
    )


def features(encoder: Encoder, model: Model, tokenized: Tokenized) -> Features:
    """Profiles of texts, in their order, by the same hooks that watch a model in use."""
    found: list[Profile] = []
    tap = Tap(model, encoder, lambda states, present: found.append(profile(states, present)), strict=True)
    order: list[int] = []
    try:
        with torch.inference_mode():
            for batch in batches(tokenized):
                model(**batch.inputs)
                order += batch.numbers
    finally:
        tap.close()
    back = np.argsort(order)
    parts = [Features.of(one) for one in found]
    whole = Features(*(np.concatenate([getattr(one, name) for one in parts]) for name in Features.__annotations__))
    return whole[back]


def load_baseline(path: str | Path) -> Baseline:
    """Read a ``.frost`` file; raises BadBaseline when it is damaged, foreign or newer."""
    path = Path(path)
    if not path.is_file():
        raise BadBaseline(f"there is no file {path}; make one with: frostline baseline MODEL --text FILE -o {path}")
    if path.stat().st_size > LARGEST:
        raise BadBaseline(f"{path} has {path.stat().st_size / 2**30:.1f} GB; no baseline is larger than 1 GB.")
    try:
        with safe_open(path, framework="pt") as opened:
            header = (opened.metadata() or {}).get("frostline")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadBaseline(f"{path} is not a whole baseline ({error}); copy it again or make it anew.") from None
    if header is None:
        raise BadBaseline(f"{path} is a safetensors file, but not a baseline of frostline.")
    try:
        about = json.loads(header)
        version = int(about["version"])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, RecursionError):
        raise BadBaseline(f"{path} has a header that cannot be read; make the baseline anew.") from None
    if version > VERSION:
        raise BadBaseline(f"{path} was made by a newer frostline (format {version}, this one reads {VERSION}); update.")
    if about.pop("checksum", None) != _checksum(tensors, about):
        raise BadBaseline(f"{path} is damaged: its contents do not match its checksum; copy it again.")
    try:
        return _from_tensors(tensors, about)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise BadBaseline(f"{path} lacks parts of a baseline ({error}); make it anew.") from None


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of what a tokenizer does: its own description where it has one, its vocabulary otherwise."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Padding and truncation are settings of a call, not of the tokenizer.
        told = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    words = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def _opened(model: "nn.Module | str | Path", tokenizer: Any) -> tuple[Encoder, Model, Any]:
    need("transformers")
    encoder = load(model)
    if encoder.family.reads != "text":
        raise BadText(f"{encoder.name} reads images ({encoder.family.name}); baselines are of models that read text.")
    if tokenizer is None and encoder.folder is None:
        raise BadText("a live model needs its tokenizer too: baseline(model, tokenizer, texts).")
    # A model in training would add its dropout to the baseline, one on a GPU could not read our batches.
    live = plain_copy(model) if isinstance(model, nn.Module) else open_model(encoder)
    return encoder, live, open_tokenizer(encoder) if tokenizer is None else tokenizer


def _chosen(texts: Sequence[str], seed: int) -> list[str]:
    """Different texts, in random order, no more than are needed."""
    if any(not isinstance(text, str) for text in texts):
        raise BadText("texts must be strings.")
    different = list(dict.fromkeys(text for text in texts if text.strip()))
    if len(different) < FEWEST:
        raise BadText(
            f"{len(different)} different texts of {len(texts)} given; a baseline needs at least {FEWEST} (better "
            "a few thousand: p-values go down to five over their number)."
        )
    order = np.random.default_rng([16, seed]).permutation(len(different))[:MOST]
    return [different[number] for number in order]


def _named(shape: Sequence[Any]) -> str:
    return f"a {shape[0]} with {shape[1]} layers, d = {shape[2]}"


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """Of everything in the file, its header too."""
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(found: Baseline) -> dict[str, Tensor]:
    detector = found.detector
    arrays = {
        "directions.centre": detector.directions.centre,
        "directions.spread": detector.directions.spread,
        "directions.weights": detector.directions.weights,
        "codes": detector.codes,
        "centre": detector.centre,
        "whitening": detector.whitening,
        "kinds": np.stack([own.quantiles for own in detector.kinds]),
        "edges": found.conformal.edges,
    }
    arrays |= {f"standard.{name}": own.quantiles for name, own in detector.standards.items()}
    arrays |= {f"calibration.{number}": own for number, own in enumerate(found.conformal.scores)}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _from_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Baseline:
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    directions = Directions(
        tuple(about["kinds"]),
        arrays["directions.centre"],
        arrays["directions.spread"],
        arrays["directions.weights"],
    )
    standards = {
        name.removeprefix("standard."): Standard(array)
        for name, array in arrays.items()
        if name.startswith("standard.")
    }
    kinds = tuple(Standard(row) for row in arrays["kinds"])
    detector = Detector(directions, arrays["codes"], arrays["centre"], arrays["whitening"], kinds, standards)
    groups = tuple(arrays[f"calibration.{number}"] for number in range(len(arrays["edges"]) + 1))
    return Baseline(detector, Conformal(groups, arrays["edges"]), about)
