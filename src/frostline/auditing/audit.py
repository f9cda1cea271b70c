"""One encoder, audited: its weights, its token clouds on text, what stands out, and how far to believe it."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from frostline.auditing import findings as finding_rules
from frostline.auditing.assumptions import Assumption, assumptions_of
from frostline.auditing.audit_metrics import metrics_of
from frostline.auditing.cautions import few_texts, model_cautions, unfolded_parts, zeros_warning
from frostline.auditing.clouds import measure
from frostline.auditing.controls import Measured, Measuring, controls_of, measured_on
from frostline.auditing.findings import Finding
from frostline.auditing.frost_line import FrostLine
from frostline.auditing.headline import sentence_of
from frostline.auditing.plateau import Plateau
from frostline.auditing.population import REFERENCE_TEXTS
from frostline.auditing.scenes import Scene, scenes
from frostline.auditing.shared_layers import once
from frostline.auditing.tables import SCALE_FREE, clouds_table, heads_table, layers_table
from frostline.auditing.warm_maps import WarmMaps
from frostline.auditing.weights import Range, Weights, read
from frostline.encoders.corpus import checked, sample, some, unread
from frostline.encoders.fold import folded
from frostline.encoders.forward import Batch, batches, noise
from frostline.encoders.live_model import Model, open_model, plain_copy
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import Tokenized, longest, open_tokenizer, tokenize
from frostline.encoders.verify import Proof, prove
from frostline.errors import BadModel, BadText
from frostline.extras import need
from frostline.files.plain_json import plain
from frostline.progress import ProgressFunction, telling
from frostline.results import Result, ability

PROOF_TEXTS = 6
"""Texts that an extraction is proved on."""
PROOF_TOKENS = 64
"""Tokens of each of them, at most, beyond the width of local attention."""
PROOF_IMAGES = 2
"""Images of noise that the extraction of a vision model is proved on."""
RANDOM_TEXT_TOKENS = 16
"""Tokens of a text of random ids, where a model has no tokenizer."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """The result of ``frostline.audit``. Tables are pyarrow: ``.to_pandas()``, ``.to_pylist()``.

    Attributes
    ----------
    provenance
        The model, its digest, the text, the seed, and versions.
    proof
        Errors of logits and outputs rebuilt from the extracted matrices.
    heads
        One row per head: beta, gap, kind, ranks, rate, …; with text also its role, attention paid, shares explained,
        kappa, fidelity.
    layers
        One row per layer; with text shares explained, and the concentration that the law expects.
    clouds
        One row per token cloud (before, between and after the layers); empty without text.
    findings
        What stands out: the law if it holds, then the largest effect first.
    assumptions
        Each assumption of the theory, and whether this model meets it.
    skipped
        Everything that was not looked at, with the reason.
    frost
        The depth from which the cloud no longer changes; None without text.
    plateau
        Layers that hardly move the cloud; None without text, or with too few texts.
    references
        The range of each scale-free number for random weights of the same shape.
    metrics
        Single numbers, which ``--thresholds`` reads.
    sentence
        The headline.
    weights
        Spectra of all heads, and of random ones.
    warm
        The maps VΣBᵀ that warm heads apply, with their leading directions; None without text.
    scenes
        Token clouds of the texts that were to be kept, with their words.

    Examples
    --------
    >>> audit = fl.audit("path/to/model", texts=["ice melts", "water freezes"])  # doctest: +SKIP
    >>> audit.heads.to_pandas().sort_values("beta")  # doctest: +SKIP
    >>> audit.save("audit")  # doctest: +SKIP
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
    warm: WarmMaps | None = None
    scenes: tuple[Scene, ...] = ()

    def headline(self) -> str:
        """The sentence."""
        return self.sentence

    def describe(self) -> str:
        """The sentence, the plateau, the proof of extraction, and every finding, a line each."""
        plateau = [] if self.plateau is None else [self.plateau.describe()]
        findings = [f"{finding.describe()}." for finding in self.findings]
        return "\n".join([self.sentence, *plateau, f"Extraction: {self.proof.describe()}.", *findings])

    def to_html(self, path: str | Path) -> Path:
        """Write the page.

        Parameters
        ----------
        path
            The HTML file to write.

        Returns
        -------
        Path
            The path of the page.
        """
        return ability("Audit.to_html")(Path(path), self)

    def to_markdown(self) -> str:
        """Summarise the audit for a model card.

        Returns
        -------
        str
            The summary, in Markdown.
        """
        return ability("Audit.to_markdown")(self)

    def save(self, folder: str | Path) -> Path:
        """Write the page, the JSON, tables and figures into a folder.

        Parameters
        ----------
        folder
            The folder; it is made if it is not there.

        Returns
        -------
        Path
            The path of the page.
        """
        return ability("Audit.save")(self, Path(folder))

    def facts(self) -> dict[str, Any]:
        """Tables and numbers as plain values for JSON, without weights and scenes; NaN becomes null."""
        return plain(
            {
                "sentence": self.sentence,
                "provenance": dict(self.provenance),
                "proof": self.proof.facts(),
                "metrics": dict(self.metrics),
                "frost_line": None if self.frost is None else self.frost.facts(),
                "plateau": None if self.plateau is None else self.plateau.facts(),
                "findings": [finding.facts() for finding in self.findings],
                "assumptions": [assumption.facts() for assumption in self.assumptions],
                "skipped": list(self.skipped),
                "references": {name: reference.facts() for name, reference in self.references.items()},
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
    reference: Sequence[str] | None = None,
    perturbations: bool = True,
    seed: int = 0,
    source: str = "texts",
    keep_texts: int = 0,
    progress: ProgressFunction | None = None,
) -> Audit:
    """Audit an encoder: its weights, and with ``texts`` also its token clouds at work.

    Parameters
    ----------
    model
        A folder, a hub id or a live transformers model.
    texts
        Texts to measure on; None audits the weights alone.
    tokenizer
        Needed with texts when the model is a live one.
    reference
        Texts whose mean value, v̄, shares explained are measured from: usual text. None: every second one of ``texts``.
        Up to 300 of them are read.
    perturbations
        Whether small changes of the input are followed through the layers.
    seed
        Seed of the controls (random weights, shuffled tokens) and of resampling.
    source
        The name of the texts in the report.
    keep_texts
        The number of texts whose token clouds are kept, with their words, for ``frostline explore``.
    progress
        Called with a ``Progress`` as the work goes on.

    Returns
    -------
    Audit
        Tables of heads, layers and clouds, findings, and the proof of extraction.

    Raises
    ------
    BadModel
        The model cannot be read, is not covered by the theory, or is not reproduced by the extracted matrices.
    BadText
        The texts, or the tokens made of them, cannot be used.

    Examples
    --------
    >>> audit = fl.audit("path/to/model", texts=["ice melts", "water freezes"])  # doctest: +SKIP
    >>> audit.findings[0].evidence  # doctest: +SKIP
    """
    return audit_by(
        measure,
        model,
        texts,
        tokenizer=tokenizer,
        reference=reference,
        perturbations=perturbations,
        seed=seed,
        source=source,
        keep_texts=keep_texts,
        progress=progress,
    )


def audit_by(
    measuring: Measuring,
    model: "str | Path | nn.Module",
    texts: Sequence[str] | None,
    *,
    tokenizer: Any = None,
    reference: Sequence[str] | None = None,
    perturbations: bool = True,
    seed: int = 0,
    source: str = "texts",
    keep_texts: int = 0,
    progress: ProgressFunction | None = None,
) -> Audit:
    """``audit`` with the measuring of token clouds in other hands, such as many processes."""
    for name, given in (("texts", texts), ("reference", reference)):
        if isinstance(given, str):
            raise BadText(f"{name} is one string; give a list of texts: [text].")
    if reference is not None and texts is None:
        raise BadText("a reference is given and no texts; it is what texts are compared with.")
    if keep_texts and texts is None:
        raise BadText(f"{keep_texts} texts are to be kept, and none is given.")
    tell = telling(progress)
    need("transformers")
    encoder = load(model)
    tell("weights", "reading", 0, 1)
    layers = [folded(encoder, number) for number in range(encoder.layers)]
    live: Model = plain_copy(model) if isinstance(model, nn.Module) else open_model(encoder)
    skipped: list[str] = []
    words = _tokenizer(encoder, tokenizer, texts, skipped)
    tokenized = None if texts is None else tokenize(encoder, words, checked(texts))
    # Texts that the model cannot read are refused before any work is done.
    usual = None
    if reference is not None:
        usual = tokenize(encoder, words, some(checked(reference, "the reference"), REFERENCE_TEXTS))
    warning = "" if tokenized is None else unread(tokenized, words.num_special_tokens_to_add(), longest(encoder))
    proof = prove(encoder, layers, live, _proof_batches(encoder, words, texts, seed))
    weights = read(encoder, layers, seed=seed, tick=lambda done, of: tell("weights", f"layer {done}", done, of))
    measured: Measured | None = None
    controls: dict[str, Measured] = {}
    kept: tuple[Scene, ...] = ()
    if tokenized is not None:
        options: dict[str, Any] = {"perturbations": perturbations, "seed": seed, "tell": tell, "measuring": measuring}
        options["reference"] = usual
        measured = measured_on(encoder, layers, live, tokenized, **options)
        controls = controls_of(encoder, layers, live, tokenized, known=measured.population, **options)
        if keep_texts:
            kept = scenes(encoder, layers, live, words, tokenized, keep_texts)
        skipped += few_texts(tokenized)
    elif encoder.family.reads == "text":
        skipped.append("everything that needs text (clouds, frost line, fidelity, perturbations): give --text")
    findings = _findings(encoder, weights, measured, controls)
    return Audit(
        provenance=_provenance(encoder, tokenized, source if texts is not None else None, seed),
        proof=proof,
        heads=heads_table(layers, weights, measured, controls),
        layers=layers_table(weights, measured, controls),
        clouds=clouds_table(measured, controls),
        findings=tuple(findings),
        assumptions=assumptions_of(encoder, layers, weights, measured),
        skipped=(*skipped, *model_cautions(encoder, layers, proof), *unfolded_parts(layers)),
        frost=None if measured is None else measured.line,
        plateau=None if measured is None else measured.plateau,
        references={name: weights.reference(name) for name in SCALE_FREE},
        metrics=metrics_of(encoder, weights, measured, controls, findings),
        sentence=zeros_warning(layers) + sentence_of(encoder, weights, measured, controls, warning),
        weights=weights,
        warm=None if measured is None else measured.warm,
        scenes=kept,
    )


def _findings(
    encoder: Encoder, weights: Weights, measured: Measured | None, controls: Mapping[str, Measured]
) -> list[Finding]:
    """Everything that stands out, in order."""
    findings: list[Finding] = []
    if measured is not None:
        random = controls["random weights"]
        findings += finding_rules.from_text(measured.clouds, random.clouds, measured.line, random.line)
        texts = len(measured.clouds.tokens)
        findings += finding_rules.from_explanations(measured.explained, random.explained, texts)
        if measured.perturbations is not None and random.perturbations is not None:
            findings += finding_rules.from_perturbations(measured.perturbations, random.perturbations)
    findings += finding_rules.from_weights(weights, None if measured is None else measured.clouds)
    findings = finding_rules.in_order(findings)
    return once(findings, encoder.layers) if encoder.family.shared else findings


def _tokenizer(encoder: Encoder, tokenizer: Any, texts: Sequence[str] | None, skipped: list[str]) -> Any:
    """The tokenizer that was passed, or the one beside the model; None where weights are audited without one."""
    if encoder.family.reads == "images":
        if texts is not None:
            raise BadText(f"{encoder.name} reads images ({encoder.family.name}); audit its weights, without text.")
        skipped.append(
            "everything that needs input (clouds, frost line, fidelity, perturbations): this model reads images, and "
            "frostline measures on text; extraction was proved on images of noise"
        )
        return None
    if tokenizer is not None:
        return tokenizer
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
    """A few texts to prove the extraction on: of the user, of the sample, of random token ids, or images of noise."""
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
        lengths = [min(RANDOM_TEXT_TOKENS, length)] * (PROOF_TEXTS - 1) + [length]
        ids = [rng.integers(min(5, vocabulary - 1), vocabulary, size=size) for size in lengths]
        return batches(Tokenized(tuple(tuple(row.tolist()) for row in ids), 0, 0, 0), tokens=1)
    chosen = list(texts or sample())
    few = chosen[:: max(1, len(chosen) // PROOF_TEXTS)][:PROOF_TEXTS]
    if max(windows):
        few.append(" ".join(chosen * (1 + length // len(chosen))))
    return batches(tokenize(encoder, tokenizer, few, most=length), tokens=1)


def _provenance(encoder: Encoder, tokenized: Tokenized | None, source: str | None, seed: int) -> dict[str, Any]:
    from frostline import __version__

    facts: dict[str, Any] = {
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
        "transformers": need("transformers").__version__,
        "python": platform.python_version(),
        "seed": seed,
    }
    if tokenized is not None:
        facts |= {
            "text": source,
            "texts": len(tokenized.ids),
            "tokens": tokenized.tokens,
            "texts_cut": tokenized.cut,
            "texts_empty": tokenized.empty,
            "tokens_unknown": tokenized.unknown,
        }
    return facts
