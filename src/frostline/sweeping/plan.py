"""Plans of sweeps as users write them (TOML): a command, its spec, axes, conditions, a budget; and their runs."""

import copy
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from frostline.errors import BadSpec
from frostline.files.suggestions import is_name, suggestion
from frostline.files.toml_tables import read_toml
from frostline.sweeping.conditions import condition
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.kinds.base import WHOLE, RunKind, Table

LARGEST = 2_000_000
"""Combinations of a plan at most: walking through more would take minutes."""
OUT = "runs"
"""The folder of the dataset where the file names none."""
RANGE = re.compile(r"\s*(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})\s*")
"""A range of whole numbers, such as "0..9"."""
ALIASES = {"tokens.count": "tokens"}
"""Other names of keys, which axes may have."""


class Budget(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Limits of a sweep: runs (plans of more are refused) and minutes (after them no run is begun)."""

    runs: int = 100_000
    minutes: float | None = None


class Spread(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename={"start": "from"}):
    """An axis by its ends: ``{from = 1, to = 1e4, count = 9, scale = "log"}``."""

    start: float
    to: float
    count: int
    scale: str = "linear"


class SweepSpec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of a sweep file."""

    command: str
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    axes: dict[str, Any] = msgspec.field(default_factory=dict)
    where: str | list[str] = msgspec.field(default_factory=list)
    budget: Budget = msgspec.field(default_factory=Budget)
    arrays: bool = False
    out: str = OUT


@dataclass(frozen=True)
class Run:
    """One run of a sweep: its own spec, and the name of its result."""

    id: str
    table: Table


@dataclass(frozen=True, eq=False)
class Plan:
    """A checked sweep. ``axes``: the values of each group of keys that move together."""

    kind: RunKind
    base: Table
    axes: Mapping[tuple[str, ...], tuple[tuple[Any, ...], ...]]
    conditions: tuple[Callable[[Mapping[str, Any]], bool], ...]
    budget: Budget
    arrays: bool
    out: Path

    @property
    def combinations(self) -> int:
        """Their number before conditions."""
        return math.prod(len(values) for values in self.axes.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes, in the order of the file."""
        return tuple(itertools.chain.from_iterable(self.axes))

    def count(self) -> int:
        """The number of runs after conditions; a BadSpec if it is above the budget, or zero."""
        runs = sum(1 for _ in self._chosen()) if self.conditions else self.combinations
        if runs > self.budget.runs:
            chosen = f", {runs:,} of them chosen by where" if self.conditions else ""
            raise BadSpec(f"{_in_words(self.axes)}{chosen}; the budget is {self.budget.runs:,}. {_advice(self.axes)}")
        if not runs:
            raise BadSpec(f"{_in_words(self.axes)}, and none of them meets where; loosen it.")
        return runs

    def runs(self) -> Iterator[Run]:
        """The runs in the order of the axes, the last one fastest; made one by one."""
        for values in self._chosen():
            table = self._table(values)
            yield Run(self.kind.identity(table), table)

    def ids(self) -> set[str]:
        """The ids of all runs."""
        return {run.id for run in self.runs()}

    def _chosen(self) -> Iterator[dict[str, Any]]:
        for row in itertools.product(*self.axes.values()):
            values = dict(zip(self.names, itertools.chain.from_iterable(row), strict=True))
            if all(holds(values) for holds in self.conditions):
                yield values

    def _table(self, values: Mapping[str, Any]) -> Table:
        table = copy.deepcopy(dict(self.base))
        for name, value in values.items():
            _put(table, name, value)
        return self.kind.parse(table)


Lists = Mapping[tuple[str, ...], Sequence[Any]]
"""The values of each axis."""


def _in_words(axes: Lists) -> str:
    parts = " × ".join(f"{len(values):,} of {','.join(names)}" for names, values in axes.items())
    count = math.prod(len(values) for values in axes.values())
    return f"{parts} = {count:,} combinations" if parts else "there are no axes, so there is one run"


def _advice(axes: Lists) -> str:
    longest = ",".join(max(axes.items(), key=lambda axis: len(axis[1]))[0])
    return (
        f"Take fewer values of {longest} (it has most), or split the sweep (sweeps with the same out share results); "
        f"up to {LARGEST:,} combinations, where can choose among them and budget.runs allow more."
    )


def read(path: str | Path, *, out: str | None = None) -> Plan:
    """The plan in a TOML file."""
    return parse(read_toml(path, holding="the sweep"), out=out, source=str(path))


def parse(table: Mapping[str, Any], *, out: str | None = None, source: str = "the sweep") -> Plan:
    """A plan from a plain table."""
    for key in table:
        if not is_name(key, SweepSpec.__struct_fields__):
            raise BadSpec(f"{source} has the unknown key {key!r}; {suggestion(str(key), SweepSpec.__struct_fields__)}")
    try:
        spec = msgspec.convert(dict(table), SweepSpec)
        _check_numbers([spec.spec, spec.axes], source)
        return _plan(spec, out, source)
    except msgspec.ValidationError as error:
        raise BadSpec(f"{source}: {error}.") from None
    except RecursionError:
        raise BadSpec(f"{source} is nested too deeply.") from None


def _plan(sweep: SweepSpec, out: str | None, source: str) -> Plan:
    if sweep.command not in KINDS:
        raise BadSpec(f"{source}: command = {sweep.command!r}; {suggestion(sweep.command, KINDS)}")
    if sweep.budget.runs < 1 or (sweep.budget.minutes is not None and not sweep.budget.minutes > 0):
        raise BadSpec(f"{source}: a budget must be above zero.")
    kind = KINDS[sweep.command]
    if sweep.arrays and not kind.arrays:
        raise BadSpec(f"{source}: {kind.name} has no arrays to keep; leave arrays out.")
    lists = _lists(sweep.axes, kind, source)
    names_of_axes = list(itertools.chain.from_iterable(lists))
    where = [sweep.where] if isinstance(sweep.where, str) else sweep.where
    folder = sweep.out if out is None else out
    if not folder or "\0" in folder:
        raise BadSpec(f"{source}: out = {folder!r} is no folder.")
    plan = Plan(
        kind,
        copy.deepcopy(sweep.spec),
        {names: _values(names, values, source) for names, values in lists.items()},
        tuple(condition(text, names_of_axes) for text in where),
        sweep.budget,
        sweep.arrays,
        Path(folder),
    )
    try:
        plan.count()
        # Values that are written out are parsed one by one; of ranges and spreads the two ends stand for all.
        _check_each(plan, {names for names, value in lists.items() if isinstance(value, list)})
    except BadSpec as error:
        raise BadSpec(f"{source}: {error}") from None
    return plan


def _lists(axes: Mapping[str, Any], kind: RunKind, source: str) -> Lists:
    """The values of each axis; a BadSpec for unknown names, names that are on two axes, and too many combinations."""
    lists: dict[tuple[str, ...], Sequence[Any]] = {}
    for key, value in _flat_axes(axes, kind):
        names = tuple(ALIASES.get(name.strip(), name.strip()) for name in key.split(","))
        for name in names:
            if name not in kind.keys:
                raise BadSpec(f"{source}: the axis {name!r} is no key of {kind.name}; {suggestion(name, kind.keys)}")
        taken = {*itertools.chain.from_iterable(lists), *(name for name in names if names.count(name) > 1)}
        if twice := sorted(taken & set(names)):
            raise BadSpec(f"{source}: {', '.join(twice)} is on two axes.")
        lists[names] = _listed(names, value, source, whole=kind.keys[names[0]] == WHOLE)
    if math.prod(len(values) for values in lists.values()) > LARGEST:
        raise BadSpec(f"{source}: {_in_words(lists)}; even walking through them is too much. {_advice(lists)}")
    return lists


def _check_numbers(value: Any, source: str) -> None:
    """Refuse numbers that JSON and Parquet cannot hold: they would be lost, or read as missing."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            _check_numbers(item, source)
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadSpec(f"{source}: {value} is no value for a run; numbers are finite.")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise BadSpec(f"{source}: {value:,} is too large; whole numbers have 64 bits.")


def _flat_axes(axes: Mapping[str, Any], kind: RunKind, above: str = "") -> Iterator[tuple[str, Any]]:
    """The axes by their dotted names: ``tokens.concentration = [1, 2]`` without quotes is a table in TOML."""
    for key, value in axes.items():
        name = above + key
        inside = isinstance(value, dict) and not {"from", "to", "count"} <= set(value)
        if inside and any(known.startswith(f"{name}.") for known in (*kind.keys, *ALIASES)):
            yield from _flat_axes(value, kind, f"{name}.")
        else:
            yield name, value


def _listed(names: tuple[str, ...], value: Any, source: str, *, whole: bool) -> Sequence[Any]:
    """The values of an axis as a sequence; a range stays one."""
    name = ",".join(names)
    listed: Sequence[Any]
    if isinstance(value, str):
        ends = RANGE.fullmatch(value)
        if ends is None:
            raise BadSpec(f'{source}: the axis {name} is {value[:80]!r}; write a list, or a range like "0..9".')
        listed = range(int(ends[1]), int(ends[2]) + 1)
    elif isinstance(value, dict):
        listed = tuple(_spread(name, value, source, whole=whole))
    elif isinstance(value, list):
        listed = value
    else:
        like = list(value) if isinstance(value, tuple) else [value]
        raise BadSpec(f'{source}: the axis {name} is {value!r}; write a list, for example {like!r}, or "0..9".')
    if not listed:
        raise BadSpec(f"{source}: the axis {name} is empty; give it values, or leave it out.")
    return listed


def _values(names: tuple[str, ...], listed: Sequence[Any], source: str) -> tuple[tuple[Any, ...], ...]:
    """The values of an axis, each a tuple with one value for each of its names."""
    if len(names) == 1:
        return tuple((value,) for value in listed)
    name = ",".join(names)
    for values in listed:
        if not isinstance(values, list) or len(values) != len(names):
            raise BadSpec(
                f"{source}: values of the axis {name} are lists of {len(names)}, one for each name; got {values!r}."
            )
    return tuple(tuple(values) for values in listed)


def _spread(name: str, value: dict[str, Any], source: str, *, whole: bool) -> list[float]:
    try:
        spread = msgspec.convert(value, Spread)
    except msgspec.ValidationError as error:
        raise BadSpec(f"{source}: the axis {name}: {error}; write {{from = 1, to = 1e4, count = 9}}.") from None
    if not 1 <= spread.count <= LARGEST or spread.scale not in ("linear", "log"):
        raise BadSpec(f'{source}: the axis {name}: count is 1 to {LARGEST:,}, scale "linear" or "log".')
    if spread.scale == "log" and not (spread.start > 0 and spread.to > 0):
        raise BadSpec(f"{source}: the axis {name} is logarithmic, and its ends must be above zero.")
    shares = [k / max(spread.count - 1, 1) for k in range(spread.count)]
    if spread.scale == "log":
        made = [spread.start * (spread.to / spread.start) ** share for share in shares]
    else:
        made = [spread.start * (1 - share) + spread.to * share for share in shares]
    # Rounded, so that decades are decades: 10, not 10.000000000000002. Whole numbers are kept once each.
    rounded = list(dict.fromkeys(map(round, made))) if whole else [float(f"{number:.12g}") for number in made]
    _check_numbers(rounded, f"{source}: the axis {name}")
    return rounded


def _check_each(plan: Plan, written: Collection[tuple[str, ...]]) -> None:
    """Parse each value of each axis, the other axes at their first value: a bad one is refused before any run."""
    first = {name: value for names, values in plan.axes.items() for name, value in zip(names, values[0], strict=True)}
    for names, values in plan.axes.items():
        for value in values if names in written else (values[0], values[-1]):
            plan._table(first | dict(zip(names, value, strict=True)))
    if not plan.axes:
        plan._table({})


def _put(table: Table, name: str, value: Any) -> None:
    """Set a key, or a dotted one: ``tokens.count``."""
    *parents, last = name.split(".")
    for parent in parents:
        inner = table.get(parent)
        if not isinstance(inner, dict):
            # ``tokens = 400`` is short for its count.
            inner = {} if inner is None else {"count": inner}
        table[parent] = table = inner
    if last == "tokens" and isinstance(table.get("tokens"), dict) and isinstance(value, int):
        table["tokens"] = {**table["tokens"], "count": value}
    else:
        table[last] = value
