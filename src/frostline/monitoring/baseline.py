"""A baseline: what normal text looks like to one model, learned once."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from frostline import __version__
from frostline.encoders.live_model import Model, open_model, plain_copy
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import is_unicode, tokenize
from frostline.errors import BadBaseline, BadText
from frostline.extras import need
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruptions import LOCAL, corrupted, corruptions
from frostline.monitoring.detector import Detector, Features
from frostline.monitoring.profile import clouds_of
from frostline.monitoring.reading import read
from frostline.monitoring.reasons import Judge, Scores
from frostline.monitoring.tokenizer import texts_first, tokenizer_of
from frostline.monitoring.word_probes import Probes, changed_tokens, learn_probe
from frostline.printable import one_line

VERSION = 3
LEVELS = ("full", "light")
LEARNED = 0.6
"""Share of the texts that is learned from; the rest standardises and calibrates, half each."""
FEWEST = 500
"""Different texts that a baseline needs: a fifth of them give p-values, down to 1/101."""
MOST = 20_000
COPIES = 4000
"""Reference texts that broken copies are made of, at most."""
PROBED = 10**8
"""Numbers in the states of tokens that one probe is learned from, at most."""
LONGEST = 512
LOOKED_AT = 1000
"""Characters of a text that must hold a token."""
Report = Callable[[str, str, float, float], None]


@dataclass(frozen=True, eq=False)
class Baseline:
    """Judges for every level of profile, bound to a model and a tokenizer. ``about`` is what the file's header says.

    ``texts``: what it was learned from, if that was to be kept: only then can it be merged with others.
    """

    judges: Mapping[str, Judge]
    about: Mapping[str, Any]
    texts: tuple[str, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.about.get('texts')} texts, of {self.about.get('model')}")

    def save(self, path: str | Path) -> Path:
        """Write the ``.frost`` file, all at once."""
        from frostline.monitoring.baseline_file import save

        return save(self, Path(path))

    @texts_first("base.score(model, texts, tokenizer=tokenizer)")
    def score(
        self,
        model: "nn.Module | str | Path",
        texts: Iterable[str],
        *,
        tokenizer: Any = None,
        level: str = "full",
        report: Report | None = None,
    ) -> Scores:
        """Score texts with the model the baseline is of; ``tokenizer``: needed where none is beside the model."""
        from frostline.monitoring.scorer import Scorer

        texts = listed(texts)
        scorer = Scorer(self, model, tokenizer, level=level)
        return scorer.score(scorer.tokenized(texts), report=report)

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


@texts_first("fl.baseline(model, texts, tokenizer=tokenizer)")
def baseline(
    model: "nn.Module | str | Path",
    texts: Iterable[str],
    *,
    tokenizer: Any = None,
    keep_texts: bool = False,
    seed: int = 0,
    report: Report | None = None,
) -> Baseline:
    """Learn what these texts look like to the model; the order of the texts does not matter.

    ``tokenizer``: needed where none is beside the model: in its folder, or for a live model in the folder that its
    ``config.name_or_path`` names.
    ``keep_texts``: the file will hold the texts themselves, so that it can be merged with others.
    """
    texts = listed(texts)
    encoder, live, words = opened(model, tokenizer)
    chosen = _chosen(texts, words, seed)
    share = round(LEARNED * len(chosen))
    learned = Learning(encoder, live, words, chosen[:share], chosen[share:], seed=seed, report=report)
    judges = {level: learned.judge(level) for level in LEVELS}
    return Baseline(
        judges,
        {
            "version": VERSION,
            "frostline": __version__,
            "model": encoder.name,
            "shape": [encoder.family.name, encoder.layers, encoder.dimension],
            "model_sha256": encoder.identity(),
            # Of the files themselves, where there are any: embeddings and feed-forward layers are in these.
            "files_sha256": encoder.fingerprint() if encoder.files else None,
            "tokenizer_sha256": tokenizer_hash(words),
            "texts": len(chosen),
            "calibration_texts": len(learned.judging["full"]),
            "cut_at_tokens": LONGEST,
            "seed": seed,
        },
        tuple(chosen) if keep_texts else (),
    )


def merge(
    model: "nn.Module | str | Path",
    baselines: "Sequence[Baseline | str | Path]",
    tokenizer: Any = None,
    *,
    seed: int = 0,
    report: Report | None = None,
) -> Baseline:
    """One baseline from several that kept their texts: the same as a baseline of all their texts."""
    if len(baselines) < 2:
        raise BadBaseline(f"{len(baselines)} baselines were given; merging takes two or more.")
    from frostline.monitoring.baseline_file import load_baseline

    encoder, live, words = opened(model, tokenizer)
    pooled: list[str] = []
    for number, given in enumerate(baselines):
        one = given if isinstance(given, Baseline) else load_baseline(given)
        if not one.texts:
            name = f"baseline {number + 1}" if isinstance(given, Baseline) else str(given)
            raise BadBaseline(f"{name} did not keep its texts; make it anew with keep_texts (--keep-texts).")
        one.check(encoder, words)
        pooled += one.texts
    return baseline(
        live if isinstance(model, nn.Module) else model,
        pooled,
        tokenizer=words,
        keep_texts=True,
        seed=seed,
        report=report,
    )


class Learning:
    """All that is read and learned for a baseline; every kind of broken copy is read once and then forgotten.

    Standards and p-values come from different texts: a score must not have seen the texts that judge it.
    """

    def __init__(
        self,
        encoder: Encoder,
        model: Model,
        tokenizer: Any,
        reference: Sequence[str],
        held_out: Sequence[str],
        *,
        seed: int,
        report: Report | None = None,
    ):
        tell = report or (lambda part, what, done, total: None)
        self.levels = {level: clouds_of(encoder.layers, level) for level in LEVELS}
        self.seed = seed
        self._dimension = encoder.dimension
        kinds = corruptions(reference, tokenizer, model.get_input_embeddings().weight)
        total = len(kinds) + 2
        known = tokenize(encoder, tokenizer, reference, most=LONGEST)
        most = PROBED // (len(self.levels["full"]) * encoder.dimension)
        sampled = int(np.searchsorted(np.cumsum([len(own) for own in known.ids]), most))
        tell("reading", "reference", 0, total)
        self.reference = read(encoder, model, known, self.levels).features
        self.broken: dict[str, dict[str, Features]] = {level: {} for level in LEVELS}
        found: dict[str, dict[str, Any]] = {level: {} for level in LEVELS}
        for number, (kind, corruption) in enumerate(kinds.items()):
            tell("reading", f"{kind} copies", number + 1, total)
            originals = reference[:COPIES]
            made = corrupted(originals, corruption, seed=seed)
            # What is left of a text may have no token at all: then it stays whole.
            kept = zip(made, originals, have_tokens(made, tokenizer), strict=True)
            texts = [copy if fine else original for copy, original, fine in kept]
            copies = tokenize(encoder, tokenizer, texts, most=LONGEST)
            seen = read(encoder, model, copies, self.levels, sampled=sampled if kind in LOCAL else 0)
            for level in LEVELS:
                self.broken[level][kind] = seen.features[level]
            if kind in LOCAL:
                pairs = zip(known.ids, copies.ids[: len(seen.tokens)], strict=False)
                changed = torch.from_numpy(np.concatenate([changed_tokens(*pair) for pair in pairs]))
                states = torch.cat(seen.tokens)
                for level, clouds in self.levels.items():
                    # The light level looks at the last clouds, which are last in the states too.
                    found[level][kind] = learn_probe(states[:, -len(clouds) * encoder.dimension :], changed)
        self.probes = {level: self._probes(found[level], clouds) for level, clouds in self.levels.items()}
        tell("reading", "calibration", total - 1, total)
        others = read(
            encoder,
            model,
            tokenize(encoder, tokenizer, held_out, most=LONGEST),
            self.levels,
            probes=self.probes,
        ).features
        half = len(held_out) // 2
        self.standards = {level: own[:half] for level, own in others.items()}
        self.judging = {level: own[half:] for level, own in others.items()}
        tell("learning", "directions, codebook, density", 1, 1)

    def _probes(self, found: Mapping[str, Any], clouds: tuple[int, ...]) -> Probes:
        kept = {kind: own for kind, own in found.items() if own is not None}
        weights = [own[0].reshape(len(clouds), self._dimension) for own in kept.values()]
        if not kept:
            return Probes((), torch.zeros(len(clouds), 0, self._dimension), torch.zeros(0))
        return Probes(tuple(kept), torch.stack(weights, 1).contiguous(), torch.stack([own[1] for own in kept.values()]))

    def judge(self, level: str) -> Judge:
        detector = Detector.learn(
            self.reference[level], self.broken[level], self.probes[level], self.standards[level], seed=self.seed
        )
        judging = self.judging[level]
        scores = detector(judging).score
        return Judge(self.levels[level], detector, Conformal.fit(scores.numpy(), judging.lengths.numpy()))


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of what a tokenizer does: its own description where it has one, its vocabulary otherwise."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Padding and truncation are settings of a call, not of the tokenizer.
        told = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    words = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def opened(model: "nn.Module | str | Path", tokenizer: Any) -> tuple[Encoder, Model, Any]:
    """The encoder, a model that can be run, and a tokenizer."""
    need("transformers")
    encoder = load(model)
    if encoder.family.reads != "text":
        raise BadText(f"{encoder.name} reads images ({encoder.family.name}); baselines are of models that read text.")
    words = tokenizer_of(model, encoder, tokenizer)
    # A model in training would add its dropout to the baseline, one on a GPU could not read our batches.
    live = plain_copy(model) if isinstance(model, nn.Module) else open_model(encoder)
    return encoder, live, words


def _chosen(texts: Sequence[str], tokenizer: Any, seed: int) -> list[str]:
    """Different texts that have tokens, in random order, no more than are needed."""
    different = sorted({text for text in texts if text.strip()})
    fine = have_tokens(different, tokenizer)
    different = [text for text, has in zip(different, fine, strict=True) if has]
    if len(different) < FEWEST:
        raise BadText(
            f"{len(different)} different texts of {len(texts)} given; a baseline needs at least {FEWEST} (better "
            "a few thousand: the more there are, the smaller p-values can get)."
        )
    order = np.random.default_rng([16, seed]).permutation(len(different))[:MOST]
    return [different[number] for number in order]


def listed(texts: Iterable[str]) -> list[str]:
    """Texts as a list of strings that a tokenizer reads."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise BadText(f"texts is a {type(texts).__name__}; give a list of texts.")
    found = list(texts)
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise BadText(f"texts must be strings; text {number} is a {type(text).__name__}.")
        if not is_unicode(text):
            raise BadText(f"text {number} holds half a character (a lone surrogate), which no tokenizer reads.")
    return [str(text) for text in found]


def have_tokens(texts: Sequence[str], tokenizer: Any) -> list[bool]:
    """Whether texts have tokens of their own, beside those that every text has."""
    if not texts:
        return []
    special = tokenizer.num_special_tokens_to_add()
    found = tokenizer([text[:LOOKED_AT] for text in texts], truncation=False, verbose=False)["input_ids"]
    return [len(ids) > special for ids in found]


def _named(shape: Sequence[Any]) -> str:
    return f"a {shape[0]} with {shape[1]} layers, d = {shape[2]}"
