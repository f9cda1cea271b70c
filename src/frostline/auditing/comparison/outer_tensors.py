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
"""Embedding rows that are named."""
WORDS = ("word_embeddings", "tok_embeddings")
"""Names of tables with a row per token of the vocabulary."""
Modules = Mapping[str, Mapping[str, str]]
"""Modules, and for each the names of its tensors by their ending: ".weight", ".bias" or none."""


@dataclass(frozen=True)
class Rows:
    """An embedding table row by row: how many rows each model has, and which of those of both moved most.

    ``median``, ``most``: ‖Δ‖ over the norm of the base's row (the usual one, where that is zero).
    """

    table: str
    base: int
    tuned: int
    median: float
    most: tuple[tuple[int, float], ...]

    @property
    def of_words(self) -> bool:
        return self.table.rsplit(".", 1)[-1] in WORDS

    def facts(self, tokens: Mapping[int, str]) -> dict[str, Any]:
        """With each row's token, where the table is one of words."""
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
    rows: tuple[Rows, ...]
    head: Part

    @property
    def verdict(self) -> Verdict:
        return worst({name: each.verdict for name, each in self.moved.items()})


def compare_outside(one: Encoder, other: Encoder) -> Outside:
    """Everything that is in no layer."""
    mine, theirs = _modules(one), _modules(other)
    moved: dict[str, Moved] = {}
    head: dict[str, Moved] = {}
    rows = []
    for name in sorted(mine.keys() & theirs.keys()):
        found = _of_module(one, other, name, mine[name], theirs[name])
        (moved if _is_encoder(one, name) or name.startswith("pooler") else head)[name] = found
        if name.startswith("embeddings.") and found.verdict == "changed" and {".weight"} <= mine[name].keys():
            rows.append(_rows(name, *(e.tensors[m[name][".weight"]] for e, m in ((one, mine), (other, theirs)))))
    for which, encoder, own, others in (("base", one, mine, theirs), ("tuned", other, theirs, mine)):
        for name in _without_copies(encoder, own, others):
            (moved if _is_encoder(encoder, name) else head)[name] = Moved("changed", 1.0, f"only in the {which} model")
    built = [" ".join(map(str, encoder.config.get("architectures") or [])) for encoder in (one, other)]
    if all(built) and built[0] != built[1]:
        head["architectures"] = Moved("changed", 1.0, f"{shown(built[0])} and {shown(built[1])}")
    differ = {name: each for name, each in head.items() if each.verdict != "unchanged"}
    words = tuple(f"{shown(name)}: {each.why}" for name, each in differ.items())
    verdict = worst({name: each.verdict for name, each in differ.items()})
    return Outside(moved, tuple(rows), Part("task head", verdict, words))


def _modules(encoder: Encoder) -> dict[str, dict[str, str]]:
    inside = encoder.family.layer.split("{}")[0]
    found: dict[str, dict[str, str]] = {}
    for name in sorted(encoder.tensors.names):
        bare = name.removeprefix(encoder.prefix)
        if not name.endswith(COMPUTED) and not bare.startswith(inside):
            module = re.sub(r"\.(weight|bias)$", "", bare)
            found.setdefault(module, {})[bare.removeprefix(module)] = name
    return found


def _is_encoder(encoder: Encoder, module: str) -> bool:
    """By the first part of its name: those of a family's own modules."""
    family = encoder.family
    own = (family.layer, family.entry_norm, family.entry_map, family.final_norm, "embeddings", "encoder")
    return module.split(".")[0] in {name.split(".")[0] for name in own if name}


def _without_copies(encoder: Encoder, own: Modules, others: Modules) -> Iterator[str]:
    """Modules that the other model lacks; not copies of what both have, which files may leave out."""
    shared = [encoder.tensors[name] for module in own.keys() & others.keys() for name in own[module].values()]
    for module in sorted(own.keys() - others.keys()):
        tensors = [encoder.tensors[name] for name in own[module].values()]
        if not all(any(one.shape == it.shape and torch.equal(one, it) for it in shared) for one in tensors):
            yield module


def _of_module(one: Encoder, other: Encoder, name: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> Moved:
    found = []
    for end in sorted(mine.keys() | theirs.keys(), reverse=True):
        if end not in mine or end not in theirs:
            found.append(Moved("changed", 1.0, f"{end} only in the {'tuned' if end not in mine else 'base'} model"))
        else:
            found.append(_of_table(one.tensors[mine[end]], other.tensors[theirs[end]], shown(f"{name}{end}")))
    verdict = worst({str(number): each.verdict for number, each in enumerate(found)})
    return Moved(verdict, found[0].change, next(each.why for each in found if each.verdict == verdict))


def _of_table(base: Tensor, tuned: Tensor, name: str) -> Moved:
    """As ``compare``; of tables of unequal length the rows that both have."""
    if base.shape == tuned.shape:
        return compare(base, tuned, name)
    if base.ndim != tuned.ndim or base.ndim == 0 or base.shape[1:] != tuned.shape[1:]:
        return Moved("changed", 1.0, f"shape {tuple(base.shape)} and {tuple(tuned.shape)}")
    both = min(len(base), len(tuned))
    found = compare(base[:both], tuned[:both], name)
    which = "tuned" if len(tuned) > both else "base"
    more = max(len(base), len(tuned)) - both
    same = "the others unchanged" if found.verdict == "unchanged" else f"the others {found.verdict}: {found.why}"
    return Moved("changed", found.change, f"{more} rows only in the {which} model, {same}")


def _rows(name: str, base: Tensor, tuned: Tensor) -> Rows:
    both = min(len(base), len(tuned))
    one, other = (part[:both].reshape(both, -1).double() for part in (base, tuned))
    size = one.norm(dim=1)
    usual = float(size[size > 0].median()) if bool((size > 0).any()) else 1.0
    moved = (other - one).norm(dim=1) / torch.where(size > 0, size, usual)
    order = moved.argsort(descending=True)[:MOST_MOVED].tolist()
    most = tuple((row, float(moved[row])) for row in order if moved[row] > 0)
    return Rows(name, len(base), len(tuned), float(moved.median()), most)


def name_of(row: Mapping[str, Any]) -> str:
    """A row among the facts of a table, by its token where it has one."""
    return f"row {row['row']}" if row["token"] is None else f"“{shown(row['token'])}”"
