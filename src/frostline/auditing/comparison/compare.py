"""What changed between two checkpoints, over the whole artefact: layers, heads, what is outside the layers, task head,
labels, tokenizer, pooling, settings; and whether it is more than rounding."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from frostline.auditing.comparison.outer_tensors import compare_outside
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
from frostline.printable import one_line

IDLE = re.compile(
    "(?<!token_)dropout|dtype|version|architectures|label|decoder_start|initializer|init_std|cache|gradient|output_|return_"
    "|task|chunk_size|tie_|decoder|cross_attention|deterministic|sparse|reference_compile|num_hidden|name"
)
"""Settings that change training, or how a result is handed over, and not what is made of a text; labels and
architectures are compared by themselves."""
COMPARED = re.compile("label|architectures|version|dtype|name|output_|return_")
"""Of those, what is compared by itself, or says only how a file was written or a result is returned."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two checkpoints of one architecture.

    layers  one row per layer: verdict ("unchanged", "rounding", "changed"), evidence, change of every kind of matrix
    heads   one row per head: β before and after, distance of spectra, and by how many degrees the leading spaces of A
            and V turned (90 when their dimensions differ), beside what rounding of these weights alone turns
    parts   task head, labels, tokenizer, pooling and modules: verdict and differences
    rows    embedding tables that are not the same: rows of each, and those (with their tokens) that moved most
    not_compared  what could not be compared: files, a tokenizer that only one has, settings of training
    """

    base: str
    tuned: str
    layers: pa.Table
    heads: pa.Table
    sentence: str
    outside: Mapping[str, Any]
    """The same verdict for what is outside the layers (embeddings), and settings that differ."""
    provenance: Mapping[str, Any]
    text: Mapping[str, Any] | None = None
    """With text: frost line, median κ and fidelity of each model; ``unread``: how much of the text they could not read,
    as an audit says it."""
    parts: tuple[Part, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    not_compared: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{self.base} and {self.tuned}: {self.sentence}")

    @property
    def changed(self) -> bool:
        """Whether anything differs by more than rounding: a layer, what is outside them, a part, or a setting."""
        parts = (part.verdict for part in self.parts)
        verdicts = (self.outside["verdict"], *parts, *self.layers["verdict"].to_pylist())
        return "changed" in verdicts or bool(self.outside["settings"])

    def save(self, folder: str | Path) -> Path:
        """Write the page, the JSON, tables and figures into a folder; the page's path."""
        from frostline.auditing.comparison.comparison_page import save_comparison

        return save_comparison(self, Path(folder))

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {
                "sentence": self.sentence,
                "provenance": dict(self.provenance),
                "layers": self.layers.to_pylist(),
                "heads": self.heads.to_pylist(),
                "outside": dict(self.outside),
                "parts": [
                    {"part": one.name, "verdict": one.verdict, "differences": list(one.differences)}
                    for one in self.parts
                ],
                "rows": list(self.rows),
                "not_compared": list(self.not_compared),
                "text": self.text,
            }
        )
        return found


def diff(
    base: "str | Path | nn.Module",
    tuned: "str | Path | nn.Module",
    *,
    texts: Sequence[str] | None = None,
    tokenizer: Any = None,
    seed: int = 0,
    report: Callable[[str, str, float, float], None] | None = None,
) -> Comparison:
    """Compare two checkpoints: layer by layer and head by head, and all that is around the layers.

    That is embeddings, task head, labels, tokenizer, pooling, modules and settings. With ``texts`` the two are also
    compared at work. ``tokenizer``: needed with texts when the first model is a live one; both models see the same
    tokens.
    """
    one, other = load(base), load(tuned)
    _same_shape(one, other)
    if texts is not None and one.family.reads == "images":
        raise BadText(f"{one.name} reads images ({one.family.name}); compare weights, without text.")
    rows: dict[str, list[Any]] = {}
    heads: dict[str, list[Any]] = {}
    rounded = blurred(one, other, seed)
    for layer in range(one.layers):
        if report is not None:
            report("comparing", f"layer {layer}", layer, one.layers)
        moved = {part: _moved(one, other, part) for part in sorted(_parts(one, layer) | _parts(other, layer))}
        verdict = worst({name: each.verdict for name, each in moved.items()})
        _add(rows, layer=layer, verdict=verdict, evidence=_evidence(moved, verdict))
        for name in ("query", "key", "value", "output"):
            part = getattr(one.family, name)
            _add(rows, **{name: _change(one.weight(part, layer), other.weight(part, layer))})
        for row in compare_heads(one, other, rounded, layer):
            _add(heads, **row)
    text = None
    if texts is not None:
        text = _at_work((base, one), (tuned, other), rows, texts, tokenizer, seed)
    around = compare_outside(one, other)
    words, untold, tokens = compare_tokenizers(one, other)
    beside, left = compare_around(one, other)
    parts = (around.head, _labels(one, other), *([words] if words is not None else []), *beside)
    differ, idle = _settings(one, other)
    outside = {
        "verdict": around.verdict,
        "evidence": _evidence(around.moved, around.verdict),
        "settings": differ,
    }
    not_compared = (*([untold] if untold else []), *left, *idle)
    found = pa.table(rows)
    return Comparison(
        one.name,
        other.name,
        found,
        pa.table(heads),
        _sentence(found, heads, outside, parts) + _left_out(one, other, not_compared),
        outside,
        {
            "base": one.name,
            "base_sha256": one.fingerprint(),
            "tuned": other.name,
            "tuned_sha256": other.fingerprint(),
            "family": one.family.name,
        },
        text,
        parts,
        tuple(table.facts(tokens) for table in around.rows),
        not_compared,
    )


def _at_work(
    base: "tuple[str | Path | nn.Module, Encoder]",
    tuned: "tuple[str | Path | nn.Module, Encoder]",
    rows: dict[str, list[Any]],
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
    found: dict[str, Any] = {"texts": len(tokenized.ids), "tokens": tokenized.tokens, "unread": unreadable}
    for name, (source, encoder) in (("base", base), ("tuned", tuned)):
        layers = [folded(encoder, number) for number in range(encoder.layers)]
        model = plain_copy(source) if isinstance(source, nn.Module) else open_model(encoder)
        prove(encoder, layers, model, batches(some_of(tokenized, 4), tokens=1))
        seen = measured_on(encoder, layers, model, tokenized, perturbations=False, seed=seed)
        rows[f"travelled_{name}"] = seen.clouds.travelled.mean(0).tolist()
        rows[f"fidelity_{name}"] = seen.clouds.layer_fidelity_argmax.mean(0).tolist()
        rows[f"kappa_{name}"] = np.median(seen.clouds.kappa, axis=(0, 2)).tolist()
        line = seen.line
        found[name] = {
            "frost_line": None if line is None else line.depth,
            "frost_line_interval": None if line is None else list(line.interval),
            "fidelity_argmax": float(np.median(seen.clouds.layer_fidelity_argmax)),
            "kappa": float(np.median(seen.clouds.kappa)),
        }
    return found


def _same_shape(one: Encoder, other: Encoder) -> None:
    for what in ("family", "layers", "dimension", "heads"):
        a, b = getattr(one, what), getattr(other, what)
        if a != b:
            a, b = (x.name if what == "family" else x for x in (a, b))
            raise BadModel(f"the two models differ in {what}: {a} and {b}; diff compares checkpoints of one model.")


def _labels(one: Encoder, other: Encoder) -> Part:
    """The names of the classes, by number; a model that says nothing has those that transformers gives it."""
    a, b = (settings(encoder).to_dict() for encoder in (one, other))
    names = ("id2label", "label2id")
    return Part.of("labels", [line for name in names for line in differences(a.get(name), b.get(name), name)])


def _settings(one: Encoder, other: Encoder) -> tuple[list[str], list[str]]:
    """Settings that change what the model computes, and differ; and others. What is not set counts as its default."""
    a, b = (settings(encoder).to_dict() for encoder in (one, other))
    keys = sorted(key for key in a.keys() | b.keys() if not key.startswith("_") and a.get(key) != b.get(key))
    idle = [key for key in keys if IDLE.search(key)]
    found = [line for key in keys if key not in idle for line in differences(a.get(key), b.get(key), shown(key))]
    idle = [key for key in idle if not COMPARED.search(key)]
    return found, [f"settings of training ({some([*map(shown, idle)], ', ')})"] if idle else []


def _parts(encoder: Encoder, layer: int | None) -> set[str]:
    """Modules of this layer, or of the whole model for None; a tensor that is no module's weight or bias by itself."""
    start = encoder.prefix + ("" if layer is None else encoder.family.layer.format(layer))
    return {
        re.sub(r"\.(weight|bias)$", "", name.removeprefix(encoder.prefix))
        for name in encoder.tensors.names
        if name.startswith(start) and not name.endswith(COMPUTED)
    }


def _moved(one: Encoder, other: Encoder, part: str) -> Moved:
    """The whole of a module, its weight and its bias; or a tensor that has no module."""
    found = []
    for end in (".weight", ".bias", ""):
        names = [encoder.stored(part, None, end) for encoder in (one, other)]
        if names[0] is None and names[1] is None:
            continue
        if names[0] is None or names[1] is None:
            missing = one.name if names[0] is None else other.name
            raise BadModel(f"{shown(part)}{end} is missing in {missing}; the two are not checkpoints of one model.")
        found.append(compare(one.tensors[names[0]], other.tensors[names[1]], f"{shown(part)}{end}"))
    verdict = worst({str(number): each.verdict for number, each in enumerate(found)})
    return Moved(verdict, found[0].change, next(each.why for each in found if each.verdict == verdict))


def _change(a: np.ndarray, b: np.ndarray) -> float:
    size, moved = float(np.linalg.norm(a)), float(np.linalg.norm(b - a))
    return moved / size if size > 0 else moved


def _evidence(moved: Mapping[str, Moved], verdict: Verdict) -> str:
    if verdict == "unchanged":
        return f"all {len(moved)} modules equal to the last bit"
    those = {name: each for name, each in moved.items() if each.verdict == verdict}
    name, most = max(those.items(), key=lambda item: item[1].change)
    return f"{len(those)} of {len(moved)} modules, most in {shown(name)}: {most.why}"


def _add(table: dict[str, list[Any]], **values: Any) -> None:
    for name, value in values.items():
        table.setdefault(name, []).append(value)


def _sentence(
    layers: pa.Table, heads: Mapping[str, list[Any]], outside: Mapping[str, Any], parts: Sequence[Part]
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
        else _of_layers(layers, heads)
    ) + more


def _left_out(one: Encoder, other: Encoder, names: Sequence[str]) -> str:
    """In the sentence too, unless both models are in memory and have nothing else."""
    return f" Not compared: {some([*names])}." if names and (one.folder or other.folder) else ""


def _of_layers(layers: pa.Table, heads: Mapping[str, list[Any]]) -> str:
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
    return f"Changed in {where}: {heads_in_words(heads, changed, '' if every else ' there')}"
