"""One encoder, audited: what its weights say, what text adds, what stands out, and how far to believe it."""

import dataclasses
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from frostline.auditing import findings as finding_rules
from frostline.auditing.assumptions import Assumption, assumptions_of
from frostline.auditing.audit_metrics import metrics_of
from frostline.auditing.cautions import cautions_of, zero_layers
from frostline.auditing.clouds import measure
from frostline.auditing.controls import Measured, Measuring, Report, controls_of, measured_on
from frostline.auditing.findings import Finding
from frostline.auditing.frost_line import FEWEST, FrostLine
from frostline.auditing.headline import sentence_of
from frostline.auditing.plateau import Plateau
from frostline.auditing.scenes import Scene, scenes
from frostline.auditing.shared_layers import once
from frostline.auditing.tables import SCALE_FREE, clouds_table, heads_table, layers_table
from frostline.auditing.weights import Range, Weights, read
from frostline.encoders.corpus import checked, sample, unread
from frostline.encoders.fold import FoldedLayer, folded
from frostline.encoders.forward import Batch, batches, noise
from frostline.encoders.live_model import Model, open_model, plain_copy
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import Tokenized, longest, open_tokenizer, tokenize
from frostline.encoders.verify import Proof, prove
from frostline.errors import BadModel, BadText
from frostline.extras import need
from frostline.files.plain_json import plain
from frostline.printable import one_line

PROOF_TEXTS, PROOF_TOKENS, PROOF_IMAGES = 6, 64, 2


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found. Tables are pyarrow: ``.to_pandas()``, ``.to_pylist()``.

    heads        one row per head: beta, gap, kind, ranks, rate, …; with text also kappa, attended, perplexity, fidelity
    layers       one row per layer
    clouds       one row per token cloud (before, between and after the layers); empty without text
    findings     what stands out, the largest effect first
    assumptions  what the theory needs, and whether this model has it
    skipped      what was not looked at, and why
    frost        the depth from which the cloud no longer changes; plateau: layers that hardly move it (with text)
    """

    provenance: Mapping[str, Any]
    proof: Proof
    heads: pa.Table
    layers: pa.Table
    clouds: pa.Table
    findings: tuple[Finding, ...]
    assumptions: tuple[Assumption, ...]
    skipped: tuple[str, ...]
    frost: FrostLine | None
    plateau: Plateau | None
    references: Mapping[str, Range]
    metrics: Mapping[str, float]
    sentence: str
    weights: Weights
    scenes: tuple[Scene, ...] = ()
    """Token clouds of the texts that were to be kept, with their words."""

    def __repr__(self) -> str:
        return one_line(self, self.sentence)

    def to_html(self, path: str | Path) -> Path:
        """Write the page."""
        from frostline.auditing.page import write_audit

        return write_audit(Path(path), self)

    def to_markdown(self) -> str:
        """A summary for a model card."""
        from frostline.auditing.page import model_card

        return model_card(self)

    def save(self, folder: str | Path) -> Path:
        """Write the page, the JSON, tables and figures into a folder; the page's path."""
        from frostline.auditing.save import save_audit

        return save_audit(self, Path(folder))

    def facts(self) -> dict[str, Any]:
        """The same as plain data, for JSON; NaN becomes null."""
        return plain(
            {
                "sentence": self.sentence,
                "provenance": dict(self.provenance),
                "proof": dataclasses.asdict(self.proof),
                "metrics": dict(self.metrics),
                "frost_line": None if self.frost is None else dataclasses.asdict(self.frost),
                "plateau": None if self.plateau is None else dataclasses.asdict(self.plateau),
                "findings": [dataclasses.asdict(one) for one in self.findings],
                "assumptions": [dataclasses.asdict(one) for one in self.assumptions],
                "skipped": list(self.skipped),
                "references": {name: dataclasses.asdict(one) for name, one in self.references.items()},
                "heads": self.heads.to_pylist(),
                "layers": self.layers.to_pylist(),
                "clouds": self.clouds.to_pylist(),
            }
        )


def audit(
    model: "str | Path | nn.Module",
    texts: Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    perturbations: bool = True,
    seed: int = 0,
    source: str = "texts",
    keep_texts: int = 0,
    report: Report | None = None,
    measuring: Measuring = measure,
) -> Audit:
    """Audit an encoder: a folder, a hub id or a live transformers model; with ``texts`` also at work.

    ``tokenizer``: needed with texts when the model is a live one. ``source``: what the texts are called in the report.
    ``keep_texts``: of so many texts the token clouds are kept, with their words, for ``frostline explore``.
    ``measuring``: how clouds are measured; ``frostline.sweeping.splitting`` has one that uses many processes.
    """
    if isinstance(texts, str):
        raise BadText("texts is one string; give a list of texts: [text].")
    tell = report or (lambda part, what, done, total: None)
    need("transformers")
    encoder = load(model)
    tell("weights", "reading", 0, 1)
    layers = [folded(encoder, number) for number in range(encoder.layers)]
    live: Model = plain_copy(model) if isinstance(model, nn.Module) else open_model(encoder)
    skipped: list[str] = []
    words = _tokenizer(encoder, tokenizer, texts, skipped)
    tokenized = None if texts is None else tokenize(encoder, words, checked(texts))
    # Texts that the model cannot read are refused before any work is done.
    unreadable = "" if tokenized is None else unread(tokenized, words.num_special_tokens_to_add(), longest(encoder))
    proof = prove(encoder, layers, live, _proof_batches(encoder, words, texts, seed))
    spectra = read(encoder, layers, seed=seed, tick=lambda done, of: tell("weights", f"layer {done}", done, of))
    measured: Measured | None = None
    controls: dict[str, Measured] = {}
    kept: tuple[Scene, ...] = ()
    if keep_texts and texts is None:
        raise BadText(f"{keep_texts} texts are to be kept, and none is given.")
    found: list[Finding] = []
    if tokenized is not None:
        options: dict[str, Any] = {"perturbations": perturbations, "seed": seed, "tell": tell, "measuring": measuring}
        measured = measured_on(encoder, layers, live, tokenized, **options)
        controls = controls_of(encoder, layers, live, tokenized, **options)
        if keep_texts:
            kept = scenes(encoder, layers, live, words, tokenized, keep_texts)
        skipped += _cautions(tokenized)
        random = controls["random weights"]
        found = finding_rules.from_text(measured.clouds, random.clouds, measured.line, random.line)
        if measured.perturbations is not None and random.perturbations is not None:
            found += finding_rules.from_perturbations(measured.perturbations, random.perturbations)
    elif encoder.family.reads == "text":
        skipped.append("everything that needs text (clouds, frost line, fidelity, perturbations): give --text")
    found += finding_rules.from_weights(spectra, None if measured is None else measured.clouds)
    found.sort(key=lambda one: -one.effect)
    if encoder.family.shared:
        found = once(found, encoder.layers)
    assumptions = assumptions_of(encoder, layers, spectra, measured)
    metrics = metrics_of(encoder, spectra, measured, controls, found)
    return Audit(
        provenance=_provenance(encoder, tokenized, source if texts is not None else None, seed),
        proof=proof,
        heads=heads_table(layers, spectra, measured, controls),
        layers=layers_table(spectra, measured, controls),
        clouds=clouds_table(measured, controls),
        findings=tuple(found),
        assumptions=assumptions,
        skipped=(*skipped, *cautions_of(encoder, layers, proof), *_unfolded(layers)),
        frost=None if measured is None else measured.line,
        plateau=None if measured is None else measured.plateau,
        references={name: spectra.reference(name) for name in SCALE_FREE},
        metrics=metrics,
        sentence=_zeros_first(layers) + sentence_of(encoder, spectra, measured, controls, unreadable),
        weights=spectra,
        scenes=kept,
    )


def _tokenizer(encoder: Encoder, given: Any, texts: Sequence[str] | None, skipped: list[str]) -> Any:
    if encoder.family.reads == "images":
        if texts is not None:
            raise BadText(f"{encoder.name} reads images ({encoder.family.name}); audit its weights, without text.")
        skipped.append(
            "everything that needs input (clouds, frost line, fidelity, perturbations): this model reads images, and "
            "frostline measures on text; extraction was proved on images of noise"
        )
        return None
    if given is not None:
        return given
    if encoder.folder is None:
        if texts is not None:
            raise BadText("a live model needs its tokenizer too: audit(model, texts, tokenizer=tokenizer).")
        return None
    try:
        return open_tokenizer(encoder)
    except BadText:
        if texts is not None:
            raise
        skipped.append("the tokenizer: there is none that can be read; extraction was proved on random token ids")
        return None


def _proof_batches(encoder: Encoder, tokenizer: Any, texts: Sequence[str] | None, seed: int) -> Iterator[Batch]:
    if encoder.family.reads == "images":
        return noise(encoder, images=PROOF_IMAGES, seed=seed)
    # Where tokens see no further than a window, one text must be longer than it.
    windows = [encoder.window(number) or 0 for number in range(encoder.layers)]
    length = min(longest(encoder), PROOF_TOKENS + max(windows))
    if tokenizer is None:
        vocabulary = encoder.config.get("vocab_size")
        if not isinstance(vocabulary, int) or vocabulary < 1:
            raise BadModel(f"{encoder.name}: config.json says vocab_size {vocabulary!r}.")
        rng = np.random.default_rng(seed)
        ids = [rng.integers(min(5, vocabulary - 1), vocabulary, size=min(16, length)) for _ in range(PROOF_TEXTS - 1)]
        ids.append(rng.integers(min(5, vocabulary - 1), vocabulary, size=length))
        return batches(Tokenized(tuple(tuple(row.tolist()) for row in ids), 0, 0, 0), tokens=1)
    chosen = list(texts or sample())
    few = chosen[:: max(1, len(chosen) // PROOF_TEXTS)][:PROOF_TEXTS]
    if max(windows):
        few.append(" ".join(chosen * (1 + length // len(chosen))))
    return batches(tokenize(encoder, tokenizer, few, most=length), tokens=1)


def _provenance(encoder: Encoder, tokenized: Tokenized | None, source: str | None, seed: int) -> dict[str, Any]:
    import torch
    import transformers

    from frostline import __version__

    found: dict[str, Any] = {
        "model": encoder.name,
        "family": encoder.family.name,
        "layers": encoder.layers,
        "heads": encoder.heads,
        "dimension": encoder.dimension,
        "sha256": encoder.fingerprint(),
        "stored_as": encoder.stored_as(),
        "computed_in": "float64 (weights), float32 (the model's own passes)",
        "frostline": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "seed": seed,
    }
    if tokenized is not None:
        found |= {
            "text": source,
            "texts": len(tokenized.ids),
            "tokens": tokenized.tokens,
            "texts_cut": tokenized.cut,
            "texts_empty": tokenized.empty,
            "tokens_unknown": tokenized.unknown,
        }
    return found


def _cautions(tokenized: Tokenized) -> list[str]:
    """What a reader must know about the text before believing anything measured on it."""
    if len(set(tokenized.ids)) >= FEWEST:
        return []
    return [f"fewer than {FEWEST} different texts: intervals mean nothing, and no finding is drawn from text"]


def _zeros_first(layers: Sequence[FoldedLayer]) -> str:
    """Before any number: that there is nothing to measure."""
    zero = len(zero_layers(layers)) == len(layers)
    return "All attention weights of this model are zero: nothing below says anything about its heads. " if zero else ""


def _unfolded(layers: Sequence[FoldedLayer]) -> list[str]:
    """Each reason once, with the layers it is about."""
    reasons: dict[str, list[int]] = {}
    for layer in layers:
        for reason in layer.unfolded:
            reasons.setdefault(reason, []).append(layer.number)
    return [
        f"{'all layers' if len(numbers) == len(layers) else 'layer ' + ', '.join(map(str, numbers))}: {reason}"
        for reason, numbers in reasons.items()
    ]
