"""What changed between two checkpoints: weights, temperatures, spectra, leading directions; and whether it is more than
rounding."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from frostline.auditing.at_work import CONTROL_TEXTS, measured_on, some_of
from frostline.auditing.spectra import Factors, HeadSpectra, spectra
from frostline.auditing.texts import checked
from frostline.encoders.capture import COMPUTED, batches, open_model, open_tokenizer, plain_copy, settings, tokenize
from frostline.encoders.folding import folded
from frostline.encoders.loading import Encoder, load
from frostline.encoders.proof import prove
from frostline.errors import BadModel, BadText
from frostline.store import plain

Verdict = Literal["unchanged", "rounding", "changed"]
IDLE = re.compile(
    "(?<!token_)dropout|dtype|version|architectures|label|token_id|initializer|init_std|cache|gradient|output_|return_|problem|task"
    "|classifier|pooler|chunk_size|tie_|decoder|cross_attention|deterministic|sparse|reference_compile|num_hidden|name"
)
"""Settings that do not change what an encoder makes of a text."""
CASTS = (torch.float16, torch.bfloat16)
ON_GRID = 0.15
"""How far from a multiple, in steps, an entry may be that was stored as float16 afterwards."""
LEVELS, STEPS = 256, (127, 7)
"""How many values 8 bits have; how many steps from zero to the largest entry in 8 and in 4 bits."""


@dataclass(frozen=True)
class Moved:
    """One tensor: its verdict, the relative change ‖ΔW‖/‖W‖, and why."""

    verdict: Verdict
    change: float
    why: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two checkpoints of one architecture.

    layers  one row per layer: verdict ("unchanged", "rounding", "changed"), evidence, change of every kind of matrix
    heads   one row per head: β before and after, distance of spectra, and by how many degrees the leading spaces of A
            and V turned (90 when their dimensions differ)
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
    """With text: frost line and median fidelity of each model, and what the difference is."""

    @property
    def changed(self) -> bool:
        """Whether anything differs by more than rounding: a layer, what is outside them, or a setting."""
        verdicts = (self.outside["verdict"], *self.layers["verdict"].to_pylist())
        return "changed" in verdicts or bool(self.outside["settings"])

    def save(self, folder: str | Path) -> Path:
        """Write the page, the JSON, tables and figures into a folder; the page's path."""
        from frostline.auditing.comparison_page import save_comparison

        return save_comparison(self, Path(folder))

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {
                "sentence": self.sentence,
                "provenance": dict(self.provenance),
                "layers": self.layers.to_pylist(),
                "heads": self.heads.to_pylist(),
                "outside": dict(self.outside),
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
    """Compare two checkpoints, layer by layer and head by head; with ``texts`` also at work.

    ``tokenizer``: needed with texts when the first model is a live one; both models see the same tokens.
    """
    one, other = load(base), load(tuned)
    _same_shape(one, other)
    if texts is not None and one.family.reads == "images":
        raise BadText(f"{one.name} reads images ({one.family.name}); compare weights, without text.")
    rows: dict[str, list[Any]] = {}
    heads: dict[str, list[Any]] = {}
    for layer in range(one.layers):
        if report is not None:
            report("comparing", f"layer {layer}", layer, one.layers)
        moved = {part: _moved(one, other, part) for part in sorted(_parts(one, layer) | _parts(other, layer))}
        verdict = _worst({name: each.verdict for name, each in moved.items()})
        _add(rows, layer=layer, verdict=verdict, evidence=_evidence(moved, verdict))
        for name in ("query", "key", "value", "output"):
            part = getattr(one.family, name)
            _add(rows, **{name: _change(one.weight(part, layer), other.weight(part, layer))})
        _compare_heads(heads, layer, spectra(Factors.of(folded(one, layer))), spectra(Factors.of(folded(other, layer))))
    text = None
    if texts is not None:
        text = _at_work((base, one), (tuned, other), rows, texts, tokenizer, seed)
    found = pa.table(rows)
    rest = _rest(one, other)
    verdict = _worst({name: each.verdict for name, each in rest.items()})
    outside = {"verdict": verdict, "evidence": _evidence(rest, verdict), "settings": _settings(one, other)}
    return Comparison(
        one.name,
        other.name,
        found,
        pa.table(heads),
        _sentence(found, heads, outside),
        outside,
        {
            "base": one.name,
            "base_sha256": one.fingerprint(),
            "tuned": other.name,
            "tuned_sha256": other.fingerprint(),
            "family": one.family.name,
        },
        text,
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
    tokenized = some_of(tokenize(base[1], words, checked(texts)), CONTROL_TEXTS)
    found: dict[str, Any] = {"texts": len(tokenized.ids), "tokens": tokenized.tokens}
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


def _rest(one: Encoder, other: Encoder) -> dict[str, Moved]:
    """What is outside the layers and in both: embeddings, norms; a pooler or a head may differ by purpose."""
    inside = one.family.layer.split("{}")[0]
    names = [{part for part in _parts(encoder, None) if not part.startswith(inside)} for encoder in (one, other)]
    return {part: _moved(one, other, part) for part in sorted(names[0] & names[1])}


def _settings(one: Encoder, other: Encoder) -> list[str]:
    """Settings that change what the model computes, and differ; what is not set counts as its default."""
    a, b = settings(one).to_dict(), settings(other).to_dict()
    keys = sorted(key for key in a.keys() | b.keys() if not key.startswith("_") and not IDLE.search(key))
    return [f"{key}: {a.get(key)} and {b.get(key)}" for key in keys if a.get(key) != b.get(key)]


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
            raise BadModel(f"{part}{end} is missing in {missing}; the two are not checkpoints of one model.")
        found.append(compare(one.tensors[names[0]], other.tensors[names[1]], f"{part}{end}"))
    verdict = _worst({str(number): each.verdict for number, each in enumerate(found)})
    return Moved(verdict, found[0].change, next(each.why for each in found if each.verdict == verdict))


def _change(a: np.ndarray, b: np.ndarray) -> float:
    size, moved = float(np.linalg.norm(a)), float(np.linalg.norm(b - a))
    return moved / size if size > 0 else moved


def compare(base: Tensor, tuned: Tensor, name: str = "tensor") -> Moved:
    """One tensor against another: equal, equal up to a cast or a quantisation, or changed."""
    if base.shape != tuned.shape:
        raise BadModel(f"{name} has shape {tuple(base.shape)} and {tuple(tuned.shape)}: these are different models.")
    a, b = base.to("cpu", torch.float64), tuned.to("cpu", torch.float64)
    for which, values in (("base", a), ("tuned", b)):
        if not torch.isfinite(values).all():
            raise BadModel(f"{name} of the {which} model has entries that are NaN or infinite.")
    size = float(a.norm())
    change = float((b - a).norm()) / size if size > 0 else float((b - a).norm())
    if torch.equal(a, b):
        return Moved("unchanged", 0.0, "equal to the last bit")
    apart = (b - a).abs()
    for dtype in CASTS:
        if any(torch.equal(fine.to(dtype).double(), coarse) for fine, coarse in ((a, b), (b, a))):
            return Moved("rounding", change, f"one is the other cast to {str(dtype).removeprefix('torch.')}")
    steps = _quantised(a, b, apart)
    if steps:
        return Moved("rounding", change, steps)
    return Moved("changed", change, f"‖ΔW‖/‖W‖ = {change:.2g}, more than rounding")


def _quantised(a: Tensor, b: Tensor, apart: Tensor) -> str | None:
    """Whether one of the two is the other on a grid: few values, or multiples of a step per block."""
    for grid in (b, a):
        if grid.ndim != 2 or min(grid.shape) < 2:
            continue
        for name, values, off in _blocks(grid, apart):
            if _few(values, off):
                return (
                    f"no more than {LEVELS} different values per {name}, each entry moved by less than their distance"
                )
            for steps in STEPS:
                size = values.abs().amax(1, keepdim=True) / steps
                places = values / size.clamp_min(1e-300)
                on_grid = bool(((places - places.round()).abs() <= ON_GRID).all() and (off <= 0.6 * size).all())
                # Rounding to a grid is off by a quarter of a step in the mean; less is something added to a grid.
                if on_grid and bool(abs((off / size.clamp_min(1e-300)).mean() - 0.25) <= 0.05):
                    return f"multiples of 1/{steps} of the largest entry per {name}, each moved by half a step at most"
    return None


def _blocks(grid: Tensor, apart: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The ways quantisers divide a matrix, each as rows."""
    yield "tensor", grid.reshape(1, -1), apart.reshape(1, -1)
    yield "row", grid, apart
    yield "column", grid.T, apart.T
    for size in (128, 64, 32):
        if grid.shape[1] % size == 0 and grid.shape[1] > size:
            yield f"block of {size}", grid.reshape(-1, size), apart.reshape(-1, size)


def _few(values: Tensor, off: Tensor) -> bool:
    for row, moved in zip(values, off, strict=True):
        levels = torch.unique(row)
        if not 2 <= len(levels) <= min(LEVELS, len(row) // 4):
            return False
        apart = levels.diff()
        if bool(moved.max() > 1.01 * apart.max() or moved.mean() < 0.1 * apart.median()):
            return False
    return True


def _worst(verdicts: Mapping[str, Verdict]) -> Verdict:
    order: tuple[Verdict, ...] = ("unchanged", "rounding", "changed")
    return max(verdicts.values(), key=order.index, default="unchanged")


def _evidence(moved: Mapping[str, Moved], verdict: Verdict) -> str:
    if verdict == "unchanged":
        return f"all {len(moved)} modules equal to the last bit"
    those = {name: each for name, each in moved.items() if each.verdict == verdict}
    name, most = max(those.items(), key=lambda item: item[1].change)
    return f"{len(those)} of {len(moved)} modules, most in {name}: {most.why}"


def _compare_heads(table: dict[str, list[Any]], layer: int, before: HeadSpectra, after: HeadSpectra) -> None:
    for head in range(len(before.beta)):
        unit = max(float(before.value_norm[head]), 1e-300)
        _add(
            table,
            layer=layer,
            head=head,
            beta_base=float(before.beta[head]),
            beta_tuned=float(after.beta[head]),
            gap_base=float(before.gap[head]),
            beta_ratio=float(after.beta[head] / before.beta[head]) if before.beta[head] > 0 else np.nan,
            kind_base=before.kind[head],
            kind_tuned=after.kind[head],
            spectrum_A=_apart(before.eigenvalues[head], after.eigenvalues[head]),
            spectrum_V=_apart(before.value_eigenvalues[head], after.value_eigenvalues[head]) / unit,
            angle_A=_angle(before.leading[head], after.leading[head]),
            angle_V=_angle(before.terminal[head], after.terminal[head]),
        )


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Root mean square distance between two spectra, eigenvalues paired as well as can be."""
    cost = np.abs(one[:, None] - other[None]) ** 2
    return float(np.sqrt(cost[linear_sum_assignment(cost)].mean()))


def _angle(one: np.ndarray, other: np.ndarray) -> float:
    """The largest principal angle between two spaces, in degrees; a right one when their dimensions differ."""
    if one.shape[1] != other.shape[1]:
        return 90.0
    if not one.shape[1]:
        return 0.0
    # From the sine: the cosine of a small angle has lost it.
    sines = np.linalg.svd(other - one @ (one.T @ other), compute_uv=False)
    return float(np.degrees(np.arcsin(np.clip(sines.max(), 0, 1))))


def _add(table: dict[str, list[Any]], **values: Any) -> None:
    for name, value in values.items():
        table.setdefault(name, []).append(value)


def _sentence(layers: pa.Table, heads: Mapping[str, list[Any]], outside: Mapping[str, Any]) -> str:
    """Layers first, then what is outside them."""
    more = ""
    if outside["verdict"] != "unchanged":
        more += f" Outside the layers: {outside['verdict']} ({outside['evidence']})."
    if outside["settings"]:
        more += f" Other settings: {'; '.join(outside['settings'])}."
    return (
        "No layer changed."
        if more and set(layers["verdict"].to_pylist()) == {"unchanged"}
        else _of_layers(layers, heads)
    ) + more


def _of_layers(layers: pa.Table, heads: Mapping[str, list[Any]]) -> str:
    verdicts = layers["verdict"].to_pylist()
    changed = [str(number) for number, verdict in enumerate(verdicts) if verdict == "changed"]
    if set(verdicts) == {"unchanged"}:
        return "Nothing changed."
    if not changed:
        return (
            f"Only rounding: {verdicts.count('rounding')} of {len(verdicts)} layers differ by what a cast or a "
            "quantisation does."
        )
    every = len(changed) == len(verdicts)
    where = "every layer" if every else f"{len(changed)} of {len(verdicts)} layers ({', '.join(changed)})"
    mine = np.isin(heads["layer"], [int(number) for number in changed])
    ratio = np.array(heads["beta_ratio"])[mine]
    ratio = ratio[np.isfinite(ratio)] if np.isfinite(ratio).any() else np.ones(1)
    kinds = int((np.array(heads["kind_base"])[mine] != np.array(heads["kind_tuned"])[mine]).sum())
    angle = float(np.median(np.array(heads["angle_A"])[mine]))
    there = "" if every else " there"
    return (
        f"Changed in {where}: β{there} by a factor {ratio.min():.2f} to {ratio.max():.2f} (median "
        f"{np.median(ratio):.2f}), {kinds} of {int(mine.sum())} heads lead in another way, A's leading direction turns "
        f"by {angle:.0f}° in the median."
    )
