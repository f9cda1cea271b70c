"""Two checkpoints compared over the whole artefact: layers, heads and all around them; rounding is told from change."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from torch import nn

from frostline.auditing.comparison.outer_tensors import compare_outside, module_of
from frostline.auditing.comparison.parts import Part, differences, shown, some
from frostline.auditing.comparison.pooling import compare_around
from frostline.auditing.comparison.rounding import Moved, Verdict, compare, worst
from frostline.auditing.comparison.tokenizer_differences import compare_tokenizers
from frostline.auditing.comparison.turned_heads import blurred, compare_heads, heads_in_words
from frostline.auditing.controls import CONTROL_TEXTS, measured_on, some_of
from frostline.encoders.corpus import checked, unread
from frostline.encoders.fold import folded
from frostline.encoders.forward import batches
from frostline.encoders.live_model import COMPUTED, open_model, plain_copy, settings
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import longest, open_tokenizer, tokenize
from frostline.encoders.verify import prove
from frostline.errors import BadModel, BadText
from frostline.files.plain_json import plain
from frostline.progress import ProgressFunction, Tell, telling
from frostline.results import Result, ability

IDLE = re.compile(
    "(?<!token_)dropout|dtype|version|architectures|label|decoder_start|initializer|init_std|cache|gradient|output_|return_"
    "|task|chunk_size|tie_|decoder|cross_attention|deterministic|sparse|reference_compile|num_hidden|name"
)
"""In names of settings: those that change training or the form of the output, and not the result for a text. Labels and
architectures are compared by themselves."""
COMPARED = re.compile("label|architectures|version|dtype|name|output_|return_")
"""In names of those: compared by themselves, or about how a file was written or a result is returned."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """The result of ``frostline.diff``: two checkpoints of one architecture, compared.

    Attributes
    ----------
    base, tuned
        The names of the two models.
    layers
        One row per layer: verdict ("unchanged", "rounding", "changed"), evidence, relative change of each matrix.
    heads
        One row per head: β before and after, distance of spectra, and by how many degrees the leading spaces of A and V
        turned (90 when their dimensions differ), beside the angle by which rounding of these weights alone turns them.
    sentence
        The headline.
    outside
        The verdict on the tensors outside the layers (embeddings), its evidence, and settings that differ.
    provenance
        The models, their digests and their family.
    text
        With text: frost line, median κ and fidelity of each model; else None.
    parts
        Task head, labels, tokenizer, pooling and modules: verdict and differences.
    rows
        Embedding tables that differ: rows of each, and the rows (with their tokens) that moved most.
    not_compared
        What could not be compared: files, a tokenizer that only one model has, settings of training.

    Examples
    --------
    >>> change = fl.diff("path/to/base", "path/to/tuned")  # doctest: +SKIP
    >>> change.changed, change.layers.to_pylist()[0]["verdict"]  # doctest: +SKIP
    (True, 'unchanged')
    """

    base: str
    tuned: str
    layers: pa.Table
    heads: pa.Table
    sentence: str
    outside: Mapping[str, Any]
    provenance: Mapping[str, Any]
    text: Mapping[str, Any] | None = None
    """With text: frost line, median κ and fidelity of each model; ``unread``: how much of the text they could not read,
    as an audit says it."""
    parts: tuple[Part, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    not_compared: tuple[str, ...] = ()

    def headline(self) -> str:
        """The two models and the sentence."""
        return f"{self.base} and {self.tuned}: {self.sentence}"

    def describe(self) -> str:
        """The headline, then every layer and every part with its evidence, a line each."""
        layers = [f"layer {row['layer']}: {row['verdict']} ({row['evidence']})" for row in self.layers.to_pylist()]
        return "\n".join([self.headline(), *layers, *(part.describe() for part in self.parts)])

    @property
    def changed(self) -> bool:
        """Whether anything differs by more than rounding: a layer, a tensor outside them, a part, or a setting."""
        parts = (part.verdict for part in self.parts)
        verdicts = (self.outside["verdict"], *parts, *self.layers["verdict"].to_pylist())
        return "changed" in verdicts or bool(self.outside["settings"])

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
        return ability("Comparison.save")(self, Path(folder))

    def facts(self) -> dict[str, Any]:
        """Tables and verdicts as plain values for JSON; NaN becomes null."""
        return plain(
            {
                "sentence": self.sentence,
                "provenance": dict(self.provenance),
                "layers": self.layers.to_pylist(),
                "heads": self.heads.to_pylist(),
                "outside": dict(self.outside),
                "parts": [
                    {"part": part.name, "verdict": part.verdict, "differences": list(part.differences)}
                    for part in self.parts
                ],
                "rows": list(self.rows),
                "not_compared": list(self.not_compared),
                "text": self.text,
            }
        )


def diff(
    base: "str | Path | nn.Module",
    tuned: "str | Path | nn.Module",
    *,
    texts: Sequence[str] | None = None,
    tokenizer: Any = None,
    seed: int = 0,
    progress: ProgressFunction | None = None,
) -> Comparison:
    """Compare two checkpoints: layer by layer and head by head, and all that is around the layers.

    That is embeddings, task head, labels, tokenizer, pooling, modules and settings.

    Parameters
    ----------
    base, tuned
        Folders, hub ids or live transformers models of one architecture.
    texts
        Texts on which the two are also compared at work; both models see the same tokens.
    tokenizer
        Needed with texts when the first model is a live one.
    seed
        Seed of the rounding that angles are compared with.
    progress
        Called with a ``Progress`` as the work goes on.

    Returns
    -------
    Comparison
        A verdict on every layer and part, and how far each head's temperature and directions moved.

    Raises
    ------
    BadModel
        A model cannot be read, or the two have different shapes.
    BadText
        The texts cannot be used.

    Examples
    --------
    >>> change = fl.diff("path/to/base", "path/to/tuned")  # doctest: +SKIP
    >>> change.layers.to_pandas()  # doctest: +SKIP
    """
    base_encoder, tuned_encoder = load(base), load(tuned)
    _check_same_shape(base_encoder, tuned_encoder)
    if texts is not None and base_encoder.family.reads == "images":
        raise BadText(f"{base_encoder.name} reads images ({base_encoder.family.name}); compare weights, without text.")
    rows, heads = _layers_and_heads(base_encoder, tuned_encoder, seed, telling(progress))
    text = None
    if texts is not None:
        text = _at_work((base, base_encoder), (tuned, tuned_encoder), rows, texts, tokenizer, seed)
    around = compare_outside(base_encoder, tuned_encoder)
    tokenizer_part, tokenizer_trouble, tokens = compare_tokenizers(base_encoder, tuned_encoder)
    folder_parts, files_left = compare_around(base_encoder, tuned_encoder)
    labels = _labels(base_encoder, tuned_encoder)
    parts = (around.head, labels, *([tokenizer_part] if tokenizer_part is not None else []), *folder_parts)
    differing_settings, idle_settings = _settings(base_encoder, tuned_encoder)
    outside = {
        "verdict": around.verdict,
        "evidence": _evidence(around.moved, around.verdict),
        "settings": differing_settings,
    }
    not_compared = (*([tokenizer_trouble] if tokenizer_trouble else []), *files_left, *idle_settings)
    layers = pa.table(rows)
    left_out = _left_out(base_encoder, tuned_encoder, not_compared)
    return Comparison(
        base=base_encoder.name,
        tuned=tuned_encoder.name,
        layers=layers,
        heads=pa.table(heads),
        sentence=_sentence(layers, heads, outside, parts, shared=base_encoder.family.shared) + left_out,
        outside=outside,
        provenance={
            "base": base_encoder.name,
            "base_sha256": base_encoder.fingerprint(),
            "tuned": tuned_encoder.name,
            "tuned_sha256": tuned_encoder.fingerprint(),
            "family": base_encoder.family.name,
        },
        text=text,
        parts=parts,
        rows=tuple(table.facts(tokens) for table in around.rows),
        not_compared=not_compared,
    )


Columns: TypeAlias = dict[str, list[Any]]
"""A table while it grows."""


def _layers_and_heads(base: Encoder, tuned: Encoder, seed: int, tell: Tell) -> tuple[Columns, Columns]:
    """A row per layer, and a row per head."""
    rows: Columns = {}
    heads: Columns = {}
    rounded = blurred(base, tuned, seed)
    for layer in range(base.layers):
        tell("comparing", f"layer {layer}", layer, base.layers)
        modules = sorted(_modules(base, layer) | _modules(tuned, layer))
        moved = {module: _moved(base, tuned, module) for module in modules}
        verdict = worst(each.verdict for each in moved.values())
        _add(rows, layer=layer, verdict=verdict, evidence=_evidence(moved, verdict))
        for name in ("query", "key", "value", "output"):
            part = getattr(base.family, name)
            _add(rows, **{name: _change(base.weight(part, layer), tuned.weight(part, layer))})
        for row in compare_heads(base, tuned, rounded, layer):
            _add(heads, **row)
    return rows, heads


def _at_work(
    base: "tuple[str | Path | nn.Module, Encoder]",
    tuned: "tuple[str | Path | nn.Module, Encoder]",
    rows: Columns,
    texts: Sequence[str],
    tokenizer: Any,
    seed: int,
) -> dict[str, Any]:
    """Both models on the same tokens; adds distance travelled and fidelity to the rows of the layers."""
    words = tokenizer if tokenizer is not None else open_tokenizer(base[1])
    most = min(longest(base[1]), longest(tuned[1]))
    whole = tokenize(base[1], words, checked(texts), most=most)
    unreadable = unread(whole, words.num_special_tokens_to_add(), most)
    tokenized = some_of(whole, CONTROL_TEXTS)
    summary: dict[str, Any] = {"texts": len(tokenized.ids), "tokens": tokenized.tokens, "unread": unreadable}
    for name, (source, encoder) in (("base", base), ("tuned", tuned)):
        layers = [folded(encoder, number) for number in range(encoder.layers)]
        model = plain_copy(source) if isinstance(source, nn.Module) else open_model(encoder)
        prove(encoder, layers, model, batches(some_of(tokenized, 4), tokens=1))
        seen = measured_on(
            encoder, layers, model, tokenized, reference=tokenized, perturbations=False, seed=seed, tell=telling(None)
        )
        rows[f"travelled_{name}"] = seen.clouds.travelled.mean(0).tolist()
        rows[f"fidelity_{name}"] = seen.clouds.layer_fidelity_argmax.mean(0).tolist()
        rows[f"explained_bridge_{name}"] = seen.explained.layers["bridge"].tolist()
        rows[f"kappa_{name}"] = np.median(seen.clouds.kappa, axis=(0, 2)).tolist()
        line = seen.line
        summary[name] = {
            "frost_line": None if line is None else line.depth,
            "frost_line_interval": None if line is None else list(line.interval),
            "fidelity_argmax": float(np.median(seen.clouds.layer_fidelity_argmax)),
            "kappa": float(np.median(seen.clouds.kappa)),
        }
    return summary


def _check_same_shape(base: Encoder, tuned: Encoder) -> None:
    for what in ("family", "layers", "dimension", "heads"):
        a, b = getattr(base, what), getattr(tuned, what)
        if a != b:
            a, b = (x.name if what == "family" else x for x in (a, b))
            raise BadModel(f"the two models differ in {what}: {a} and {b}; diff compares checkpoints of one model.")


def _labels(base: Encoder, tuned: Encoder) -> Part:
    """The names of the classes, by number; a model that says nothing has those that transformers gives it."""
    a, b = (settings(encoder).to_dict() for encoder in (base, tuned))
    names = ("id2label", "label2id")
    return Part.of("labels", [line for name in names for line in differences(a.get(name), b.get(name), name)])


def _settings(base: Encoder, tuned: Encoder) -> tuple[list[str], list[str]]:
    """Differing settings that change what the model computes, and those of training. An unset one has its default."""
    a, b = (settings(encoder).to_dict() for encoder in (base, tuned))
    keys = sorted(key for key in a.keys() | b.keys() if not key.startswith("_") and a.get(key) != b.get(key))
    idle = [key for key in keys if IDLE.search(key)]
    differing = [line for key in keys if key not in idle for line in differences(a.get(key), b.get(key), shown(key))]
    idle = [key for key in idle if not COMPARED.search(key)]
    return differing, [f"settings of training ({some([*map(shown, idle)], ', ')})"] if idle else []


def _modules(encoder: Encoder, layer: int) -> set[str]:
    """Modules of this layer; a tensor that is no module's weight or bias counts as one."""
    start = encoder.prefix + encoder.family.layer.format(layer)
    return {
        module_of(name.removeprefix(encoder.prefix))
        for name in encoder.tensors.names
        if name.startswith(start) and not name.endswith(COMPUTED)
    }


def _moved(base: Encoder, tuned: Encoder, part: str) -> Moved:
    """The whole of a module, its weight and its bias; or a tensor that has no module."""
    tensors = []
    for end in (".weight", ".bias", ""):
        names = [encoder.stored(part, None, end) for encoder in (base, tuned)]
        if names[0] is None and names[1] is None:
            continue
        if names[0] is None or names[1] is None:
            missing = base.name if names[0] is None else tuned.name
            raise BadModel(f"{shown(part)}{end} is missing in {missing}; the two are not checkpoints of one model.")
        tensors.append(compare(base.tensors[names[0]], tuned.tensors[names[1]], f"{shown(part)}{end}"))
    return Moved.together(tensors)


def _change(base: np.ndarray, tuned: np.ndarray) -> float:
    size, distance = float(np.linalg.norm(base)), float(np.linalg.norm(tuned - base))
    return distance / size if size > 0 else distance


def _evidence(moved: Mapping[str, Moved], verdict: Verdict) -> str:
    if verdict == "unchanged":
        return f"all {len(moved)} modules equal to the last bit"
    alike = {name: each for name, each in moved.items() if each.verdict == verdict}
    name, most = max(alike.items(), key=lambda item: item[1].change)
    return f"{len(alike)} of {len(moved)} modules, most in {shown(name)}: {most.why}"


def _add(table: Columns, **values: Any) -> None:
    for name, value in values.items():
        table.setdefault(name, []).append(value)


def _sentence(
    layers: pa.Table,
    heads: Mapping[str, list[Any]],
    outside: Mapping[str, Any],
    parts: Sequence[Part],
    *,
    shared: bool,
) -> str:
    """Layers first, then what is outside them."""
    more = ""
    if outside["verdict"] != "unchanged":
        more += f" Outside the layers: {outside['verdict']} ({outside['evidence']})."
    for part in parts:
        if part.verdict != "unchanged":
            more += f" {part.name.capitalize()}: {part.verdict} ({part.evidence})."
    if outside["settings"]:
        more += f" Other settings: {some(outside['settings'])}."
    return (
        "No layer changed."
        if more and set(layers["verdict"].to_pylist()) == {"unchanged"}
        else _of_layers(layers, heads, shared=shared)
    ) + more


def _left_out(base: Encoder, tuned: Encoder, names: Sequence[str]) -> str:
    """In the sentence too, unless both models are in memory and have nothing else."""
    return f" Not compared: {some([*names])}." if names and (base.folder or tuned.folder) else ""


def _of_layers(layers: pa.Table, heads: Mapping[str, list[Any]], *, shared: bool) -> str:
    verdicts = layers["verdict"].to_pylist()
    changed = [number for number, verdict in enumerate(verdicts) if verdict == "changed"]
    if set(verdicts) == {"unchanged"}:
        return "Nothing changed."
    if not changed:
        return (
            f"Only rounding: {verdicts.count('rounding')} of {len(verdicts)} layers differ by what a cast or a "
            "quantisation does."
        )
    every = len(changed) == len(verdicts)
    where = "every layer" if every else f"{len(changed)} of {len(verdicts)} layers ({', '.join(map(str, changed))})"
    return f"Changed in {where}: {heads_in_words(heads, changed, '' if every else ' there', shared=shared)}"
