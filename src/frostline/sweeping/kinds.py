"""Kinds of work that a sweep can hand out: what each is asked, the file contents that decide it, what it measures."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import frostline
from frostline import spec as specs
from frostline.auditing.judging import CHANGE_METRICS, TEXT_METRICS, WEIGHT_METRICS
from frostline.auditing.texts import SAMPLE
from frostline.errors import BadSpec
from frostline.store import plain

Table = dict[str, Any]
"""What one run is asked: plain values, as TOML has them."""
Found = tuple[dict[str, Any], dict[str, Any]]
"""Measures, and arrays (torch tensors) of those kinds that have some."""
NUMBER, WHOLE, TEXT, YES = pa.float64(), pa.int64(), pa.string(), pa.bool_()
NUMBERS = pa.list_(NUMBER)
SEEN_ONLY = ("cli", "web", "serving", "exploring", "doctor.py", "plot.py", "report", "sweeping")
"""Rooms that show results and do not make them: another version of these makes no other result."""


@dataclass(frozen=True)
class Kind:
    """One kind of work.

    keys      what its spec may say, as columns: name and type; lists and tables become JSON text
    measures  what it finds, as columns
    parse     a table with its defaults written out, or a BadSpec
    files     paths whose contents decide the result
    run       the work itself
    """

    name: str
    keys: Mapping[str, pa.DataType]
    measures: Mapping[str, pa.DataType]
    parse: Callable[[Table], Table]
    files: Callable[[Table], Iterator[Path]]
    run: Callable[[Table], Found]
    arrays: bool = False

    def identity(self, table: Table) -> str:
        """The name of a result: a hash of what is asked, of the files it names and of the code that works it out."""
        digest = hashlib.sha256(msgspec.json.encode([self.name, code_version(), table], order="sorted"))
        for path in self.files(table):
            digest.update(content(path))
        return digest.hexdigest()[:32]

    def columns(self, table: Table) -> dict[str, Any]:
        """What was asked, a value for each key."""
        return dict.fromkeys(self.keys) | dict(_flat(table))


@cache
def code_version() -> str:
    """The version, and a digest of the source that makes results: those of other code are not used again."""
    root = Path(frostline.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        own = path.relative_to(root)
        if own.parts[0] not in SEEN_ONLY or own.parts == ("sweeping", "kinds.py"):
            digest.update(str(own).encode())
            digest.update(path.read_bytes())
    return f"{frostline.__version__}+{digest.hexdigest()[:12]}"


def content(path: Path) -> bytes:
    """A digest of a file, or of all files of a folder."""
    try:
        if path.is_dir():
            parts = sorted(part for part in path.iterdir() if part.is_file())
            return b"".join(part.name.encode() + content(part) for part in parts)
        if path.exists() and not path.is_file():
            raise BadSpec(f"{str(path)!r}, which the spec names, is neither a file nor a folder.")
        known = path.stat()
        return _digest(path, known.st_mtime_ns, known.st_size, known.st_ino)
    except (OSError, ValueError) as error:
        if isinstance(error, BadSpec):
            raise
        raise BadSpec(
            f"cannot read {str(path)[:200]!r}, which the spec names: {getattr(error, 'strerror', error)}."
        ) from None


@lru_cache(4096)
def _digest(path: Path, *_: int) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _flat(table: Table, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if above + key == "tokens.count":
            yield "tokens", value
        elif isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, json.dumps(value) if isinstance(value, list) else value


# ---- Simulate, theory, distance: the spec of a run -------------------------------------------------------------------

RUN_KEYS = {
    "tokens": WHOLE,
    "tokens.distribution": TEXT,
    "tokens.mean": TEXT,
    "tokens.concentration": NUMBER,
    "tokens.centres": TEXT,
    "tokens.angle": NUMBER,
    "tokens.components": TEXT,
    "tokens.antipodal": YES,
    "tokens.path": TEXT,
    "dimension": WHOLE,
    "beta": NUMBER,
    "B": TEXT,
    "Q": TEXT,
    "K": TEXT,
    "V": TEXT,
    "key_bias": TEXT,
    "heads": TEXT,
    "layers": TEXT,
    "until": NUMBER,
    "step": NUMBER,
    "stepper": TEXT,
    "tolerance": NUMBER,
    "save_at": TEXT,
    "seed": WHOLE,
    "dtype": TEXT,
    "device": TEXT,
    "engine": TEXT,
    "max_steps": WHOLE,
}
RUN_MEASURES = {
    "ended": TEXT,
    "steps": WHOLE,
    "evaluations": WHOLE,
    "limit": TEXT,
    "gap": NUMBER,
    "regime": TEXT,
    "w_exact": YES,
    "w_first": NUMBER,
    "w_last": NUMBER,
    "w_least": NUMBER,
    "w_least_at": NUMBER,
    "off_cluster": WHOLE,
    "imbalance": NUMBER,
    "concentration_end": NUMBER,
    "plateau": NUMBER,
    "plateau_begin": NUMBER,
    "plateau_end": NUMBER,
    "plateau_open": YES,
    "terminal_begin": NUMBER,
}


def _run_parse(table: Table) -> Table:
    found = specs.to_table(specs.parse(table))
    del found["out"]
    if isinstance(found["tokens"], int):
        found["tokens"] = {"count": found["tokens"], "distribution": "uniform", "antipodal": False}
    return found


def _run_files(table: Table) -> Iterator[Path]:
    return map(Path, sorted(specs.files(table)))


def _simulate(table: Table, *, transport: bool = False) -> Found:
    from frostline.recording import run_once

    _, summary, arrays = run_once(specs.parse(table), transport=transport)
    limit, distance, phases = summary["limit"], summary["distance"], summary["phases"] or {}

    def when(name: str, end: str) -> Any:
        phase: dict[str, Any] = phases.get(name, {"seen": False})
        return phase[end] if phase["seen"] else None

    begin, end = when("plateau", "begin"), when("plateau", "end")
    measures = {
        "ended": summary["status"],
        "steps": summary["steps"],
        "evaluations": summary["evaluations"],
        "limit": None if limit is None else limit["kind"],
        "gap": None if limit is None else limit["gap"],
        "regime": summary["regime"]["verdict"],
        "w_exact": distance["exact"],
        "w_first": distance["first"],
        "w_last": distance["last"],
        "w_least": distance["smallest"],
        "w_least_at": distance["smallest_at"],
        "off_cluster": summary["off_cluster"],
        "imbalance": summary["mass_imbalance"],
        "concentration_end": when("concentration", "end"),
        "plateau": None if begin is None or end is None else end - begin,
        "plateau_begin": begin,
        "plateau_end": end,
        "plateau_open": when("plateau", "open"),
        "terminal_begin": when("terminal", "begin"),
    }
    if transport:
        bounds = summary["distance_at_times"] or {"times": [], "value": [], "lower": [], "upper": []}
        measures |= {"t": bounds["times"], "w": bounds["value"], "lower": bounds["lower"], "upper": bounds["upper"]}
    return measures, arrays


THEORY_MEASURES = {
    "limit": TEXT,
    "gap": NUMBER,
    "regime": TEXT,
    "rate": NUMBER,
    "rate_guaranteed": NUMBER,
    "bound_C": NUMBER,
    "bound_c": NUMBER,
    "bound_best": NUMBER,
    "bound_best_at": NUMBER,
    "kappa": NUMBER,
    "asymmetry": NUMBER,
    "hand_over": NUMBER,
    "drift": NUMBER,
    "tokens_without_limit": WHOLE,
}


def _theory(table: Table) -> Found:
    from frostline.predicting import predict

    told = predict(specs.parse(table))
    if len(told["layers"]) > 1:
        raise BadSpec(f"a sweep of theory takes one layer; the spec has {len(told['layers'])}.")
    (layer,) = told["layers"]
    without = layer["tokens_without_limit"]
    return {
        "limit": layer["limit"]["kind"],
        "gap": layer["limit"]["gap"],
        "regime": told["regime"]["verdict"],
        "rate": layer["rates"].get("token"),
        "rate_guaranteed": layer["rates"].get("guaranteed"),
        "bound_C": layer["bound"].get("C"),
        "bound_c": layer["bound"].get("c"),
        "bound_best": layer["bound"].get("best"),
        "bound_best_at": layer["bound"].get("best_time"),
        "kappa": min(head["median_kappa"] for head in layer["laplace"]),
        "asymmetry": max(head["asymmetry_of_A"] for head in layer["heads"]),
        "hand_over": layer["terminal"].get("hand_over"),
        "drift": layer["terminal"].get("drift"),
        "tokens_without_limit": None if without is None else len(without),
    }, {}


# ---- Reproduce, audit, diff, score -----------------------------------------------------------------------------------


class _Claim(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    claim: str
    size: str = "quick"
    seed: int = 0


class _Audit(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    text: str | None = None
    texts: int | None = None
    perturbations: bool = True
    seed: int = 0


class _Diff(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    base: str
    tuned: str
    text: str | None = None
    texts: int | None = None
    seed: int = 0


class _Score(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    baseline: str
    model: str
    text: str
    alpha: float = 0.01
    false_alarm_every: float = 1000.0
    light: bool = False


HUB = ("model", "base", "tuned")
"""Keys that may name a model on the hub."""


def _parser(struct: type[msgspec.Struct]) -> Callable[[Table], Table]:
    def parse(table: Table) -> Table:
        try:
            found: Table = msgspec.to_builtins(msgspec.convert(table, struct))
        except msgspec.ValidationError as error:
            raise BadSpec(f"{error}; there are: {', '.join(struct.__struct_fields__)}.") from None
        return found

    return parse


def _named(*keys: str) -> Callable[[Table], Iterator[Path]]:
    """Files and folders that the keys name; the sample is none, nor is a model that is an id on the hub."""

    def files(table: Table) -> Iterator[Path]:
        for key in keys:
            if table[key] is None or (key == "text" and table[key] == SAMPLE):
                continue
            if key not in HUB or os.path.exists(table[key]):
                yield Path(table[key])

    return files


def _reproduce_parse(table: Table) -> Table:
    from frostline.experiments.catalogue import CLAIMS

    found = _parser(_Claim)(table)
    if found["claim"] not in CLAIMS:
        raise BadSpec(f"there is no claim {found['claim']!r}; there are: {', '.join(CLAIMS)}.")
    sizes = CLAIMS[found["claim"]].sizes
    if found["size"] not in sizes:
        raise BadSpec(f"size = {found['size']!r}; there are: {', '.join(sizes)}.")
    return found


def _reproduce(table: Table) -> Found:
    from frostline.experiments.catalogue import CLAIMS

    claim = CLAIMS[table["claim"]]
    evidence = claim.measure(claim.sizes[table["size"]], table["seed"], lambda what: None)
    judged = claim.judge(evidence)
    return {
        "verdict": judged.verdict,
        "why": judged.why,
        "checks": json.dumps(plain([asdict(check) for check in judged.checks])),
        "numbers": json.dumps(plain(dict(evidence.numbers))),
    }, {}


AUDIT_METRICS = (*WEIGHT_METRICS, *TEXT_METRICS, *CHANGE_METRICS)


def _texts(table: Table) -> list[str] | None:
    from frostline.auditing.texts import read_texts, some

    return None if table["text"] is None else some(read_texts(table["text"]), table["texts"])


def _audit(table: Table) -> Found:
    from frostline.auditing.audit import audit

    found = audit(
        table["model"],
        _texts(table),
        perturbations=table["perturbations"],
        seed=table["seed"],
        source=table["text"] or "texts",
    )
    facts = found.facts()
    return {
        **{name: found.metrics.get(name) for name in AUDIT_METRICS},
        "sentence": found.sentence,
        "sha256": found.provenance["sha256"],
        "heads": json.dumps(facts["heads"]),
        "clouds": json.dumps(facts["clouds"]),
    }, {}


def _diff(table: Table) -> Found:
    from frostline.auditing.comparing import diff

    found = diff(table["base"], table["tuned"], texts=_texts(table), seed=table["seed"])
    rows = found.layers.to_pylist()
    return {
        "changed": found.changed,
        "layers_changed": sum(row["verdict"] == "changed" for row in rows),
        "largest_change": max(max(row[part] for part in ("query", "key", "value", "output")) for row in rows),
        "turned_degrees": max(found.heads["angle_A"].to_pylist()),
        "sentence": found.sentence,
        "layers": json.dumps(plain(rows)),
    }, {}


def _score(table: Table) -> Found:
    from frostline.auditing.texts import read_texts
    from frostline.monitoring.calibration import Alarm
    from frostline.monitoring.frost import load_baseline

    found = load_baseline(table["baseline"]).score(
        table["model"], texts=read_texts(table["text"]), level="light" if table["light"] else "full"
    )
    levels, rang = Alarm.once_in(table["false_alarm_every"]).after(0.0, found.p_values)
    strange = int((found.p_values <= table["alpha"]).sum())
    return {
        "texts": len(found.p_values),
        "strange": strange,
        "strange_share": strange / len(found.p_values),
        "least_p": float(found.p_values.min()),
        "alarm_at": int(rang[0]) if rang else None,
        "level": float(levels[-1]),
        "p_values": found.p_values.tolist(),
    }, {}


def _keys(struct: type[msgspec.Struct]) -> dict[str, pa.DataType]:
    kinds = {int: WHOLE, float: NUMBER, bool: YES}
    return {
        field.name: kinds.get(field.type, WHOLE if field.name == "texts" else TEXT)
        for field in msgspec.structs.fields(struct)
    }


KINDS = {
    kind.name: kind
    for kind in (
        Kind("simulate", RUN_KEYS, RUN_MEASURES, _run_parse, _run_files, _simulate, arrays=True),
        Kind("theory", RUN_KEYS, THEORY_MEASURES, _run_parse, _run_files, _theory),
        Kind(
            "distance",
            RUN_KEYS,
            RUN_MEASURES | {"t": NUMBERS, "w": NUMBERS, "lower": NUMBERS, "upper": NUMBERS},
            _run_parse,
            _run_files,
            lambda table: _simulate(table, transport=True),
            arrays=True,
        ),
        Kind(
            "reproduce",
            _keys(_Claim),
            {"verdict": TEXT, "why": TEXT, "checks": TEXT, "numbers": TEXT},
            _reproduce_parse,
            _named(),
            _reproduce,
        ),
        Kind(
            "audit",
            _keys(_Audit),
            dict.fromkeys(AUDIT_METRICS, NUMBER) | {"sentence": TEXT, "sha256": TEXT, "heads": TEXT, "clouds": TEXT},
            _parser(_Audit),
            _named("model", "text"),
            _audit,
        ),
        Kind(
            "diff",
            _keys(_Diff),
            {
                "changed": YES,
                "layers_changed": WHOLE,
                "largest_change": NUMBER,
                "turned_degrees": NUMBER,
                "sentence": TEXT,
                "layers": TEXT,
            },
            _parser(_Diff),
            _named("base", "tuned", "text"),
            _diff,
        ),
        Kind(
            "score",
            _keys(_Score),
            {
                "texts": WHOLE,
                "strange": WHOLE,
                "strange_share": NUMBER,
                "least_p": NUMBER,
                "alarm_at": WHOLE,
                "level": NUMBER,
                "p_values": NUMBERS,
            },
            _parser(_Score),
            _named("baseline", "model", "text"),
            _score,
        ),
    )
}
