"""The tensors outside the layers of two models: embeddings, norms and a pooler; and the task head.

Tables with added rows (a larger vocabulary, longer positions) are compared where both have rows.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from frostline.auditing.comparison.parts import Part, shown
from frostline.auditing.comparison.rounding import Moved, Verdict, compare, worst
from frostline.encoders.live_model import COMPUTED
from frostline.encoders.load import Encoder

MOST_MOVED = 10
"""Embedding rows of a table that are named, at most."""
WORDS = ("word_embeddings", "tok_embeddings")
"""Names of tables with a row per token of the vocabulary."""
Modules = Mapping[str, Mapping[str, str]]
"""Modules, and for each the names of its tensors by their ending: ".weight", ".bias" or none."""


@dataclass(frozen=True)
class EmbeddingRows:
    """An embedding table row by row: how many rows each model has, and which of those of both moved most.

    ``median``, ``most``: ‖Δ‖ over the norm of the base's row (the usual base, where that is zero).
    """

    table: str
    base: int
    tuned: int
    median: float
    most: tuple[tuple[int, float], ...]

    @property
    def of_words(self) -> bool:
        """Whether the table has a row per token of the vocabulary."""
        return self.table.rsplit(".", 1)[-1] in WORDS

    def facts(self, tokens: Mapping[int, str]) -> dict[str, Any]:
        """With each row's token, where the table is base of words."""
        most = [{"row": row, "token": tokens.get(row) if self.of_words else None, "change": c} for row, c in self.most]
        return {
            "table": self.table,
            "rows_base": self.base,
            "rows_tuned": self.tuned,
            "median": self.median,
            "most": most,
        }


@dataclass(frozen=True)
class Outside:
    """Modules that both have; embedding tables that are not the same; the task head."""

    moved: Mapping[str, Moved]
    rows: tuple[EmbeddingRows, ...]
    head: Part

    @property
    def verdict(self) -> Verdict:
        """The worst of the modules."""
        return worst(each.verdict for each in self.moved.values())


def compare_outside(base: Encoder, tuned: Encoder) -> Outside:
    """Everything that is in no layer."""
    base_modules, tuned_modules = _modules(base), _modules(tuned)
    moved: dict[str, Moved] = {}
    head: dict[str, Moved] = {}
    rows = []
    for name in sorted(base_modules.keys() & tuned_modules.keys()):
        before, after = base_modules[name], tuned_modules[name]
        module = _of_module(base, tuned, name, before, after)
        (moved if _is_encoder(base, name) or name.startswith("pooler") else head)[name] = module
        if name.startswith("embeddings.") and module.verdict == "changed" and ".weight" in before:
            rows.append(_rows(name, base.tensors[before[".weight"]], tuned.tensors[after[".weight"]]))
    for which, encoder, modules, others in (
        ("base", base, base_modules, tuned_modules),
        ("tuned", tuned, tuned_modules, base_modules),
    ):
        for name in _without_copies(encoder, modules, others):
            (moved if _is_encoder(encoder, name) else head)[name] = Moved("changed", 1.0, f"only in the {which} model")
    built = [" ".join(map(str, encoder.config.get("architectures") or [])) for encoder in (base, tuned)]
    if all(built) and built[0] != built[1]:
        head["architectures"] = Moved("changed", 1.0, f"{shown(built[0])} and {shown(built[1])}")
    differing = {name: each for name, each in head.items() if each.verdict != "unchanged"}
    words = tuple(f"{shown(name)}: {each.why}" for name, each in differing.items())
    verdict = worst(each.verdict for each in differing.values())
    return Outside(moved, tuple(rows), Part("task head", verdict, words))


def module_of(tensor: str) -> str:
    """The name of a tensor's module; a tensor that is no module's weight or bias counts as one.

    >>> module_of("encoder.layer.0.output.dense.bias")
    'encoder.layer.0.output.dense'
    """
    return re.sub(r"\.(weight|bias)$", "", tensor)


def _modules(encoder: Encoder) -> dict[str, dict[str, str]]:
    inside = encoder.family.layer.split("{}")[0]
    modules: dict[str, dict[str, str]] = {}
    for name in sorted(encoder.tensors.names):
        bare = name.removeprefix(encoder.prefix)
        if not name.endswith(COMPUTED) and not bare.startswith(inside):
            module = module_of(bare)
            modules.setdefault(module, {})[bare.removeprefix(module)] = name
    return modules


def _is_encoder(encoder: Encoder, module: str) -> bool:
    """Whether a module is one of the family's own, by the first part of its name."""
    family = encoder.family
    names = (family.layer, family.entry_norm, family.entry_map, family.final_norm, "embeddings", "encoder")
    return module.split(".")[0] in {name.split(".")[0] for name in names if name}


def _without_copies(encoder: Encoder, modules: Modules, others: Modules) -> Iterator[str]:
    """Modules that the other model lacks; not copies of modules that both have, which files may leave out."""
    shared = [encoder.tensors[name] for module in modules.keys() & others.keys() for name in modules[module].values()]
    for module in sorted(modules.keys() - others.keys()):
        tensors = [encoder.tensors[name] for name in modules[module].values()]
        if not all(any(copy.shape == kept.shape and torch.equal(copy, kept) for kept in shared) for copy in tensors):
            yield module


def _of_module(base: Encoder, tuned: Encoder, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Moved:
    tensors = []
    for end in sorted(before.keys() | after.keys(), reverse=True):
        if end not in before or end not in after:
            which = "tuned" if end not in before else "base"
            tensors.append(Moved("changed", 1.0, f"{end} only in the {which} model"))
        else:
            tensors.append(_of_table(base.tensors[before[end]], tuned.tensors[after[end]], shown(f"{name}{end}")))
    return Moved.together(tensors)


def _of_table(base: Tensor, tuned: Tensor, name: str) -> Moved:
    """As ``compare``; of tables of unequal length the rows that both have."""
    if base.shape == tuned.shape:
        return compare(base, tuned, name)
    if base.ndim != tuned.ndim or base.ndim == 0 or base.shape[1:] != tuned.shape[1:]:
        return Moved("changed", 1.0, f"shape {tuple(base.shape)} and {tuple(tuned.shape)}")
    both = min(len(base), len(tuned))
    common = compare(base[:both], tuned[:both], name)
    which = "tuned" if len(tuned) > both else "base"
    more = max(len(base), len(tuned)) - both
    same = "the others unchanged" if common.verdict == "unchanged" else f"the others {common.verdict}: {common.why}"
    return Moved("changed", common.change, f"{more} rows only in the {which} model, {same}")


def _rows(name: str, base: Tensor, tuned: Tensor) -> EmbeddingRows:
    both = min(len(base), len(tuned))
    before, after = (table[:both].reshape(both, -1).double() for table in (base, tuned))
    size = before.norm(dim=1)
    usual = float(size[size > 0].median()) if bool((size > 0).any()) else 1.0
    moved = (after - before).norm(dim=1) / torch.where(size > 0, size, usual)
    order = moved.argsort(descending=True)[:MOST_MOVED].tolist()
    most = tuple((row, float(moved[row])) for row in order if moved[row] > 0)
    return EmbeddingRows(name, len(base), len(tuned), float(moved.median()), most)


def name_of(row: Mapping[str, Any]) -> str:
    """A row among the facts of a table, by its token where it has one."""
    return f"row {row['row']}" if row["token"] is None else f"“{shown(row['token'])}”"
