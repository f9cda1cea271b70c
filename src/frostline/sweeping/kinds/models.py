"""Kinds of runs about claims and models: reproduce, audit, diff, score."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from frostline.auditing.metric_names import CHANGE_METRICS, TEXT_METRICS, WEIGHT_METRICS
from frostline.errors import BadSpec
from frostline.files.plain_json import plain
from frostline.files.suggestions import suggestion
from frostline.sweeping.kinds.base import NUMBER, NUMBERS, TEXT, WHOLE, YES, Outcome, RunKind, Table


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
    false_alarm_every: float | str = "30d"
    rate: float = 10.0
    profile: str = "full"
    light: bool = False  # the old way to say profile = "light"; it goes in 0.3


HUB = ("model", "base", "tuned")
"""Keys that may name a model on the hub."""


def _parser(struct: type[msgspec.Struct]) -> Callable[[Table], Table]:
    def parse(table: Table) -> Table:
        try:
            complete: Table = msgspec.to_builtins(msgspec.convert(table, struct))
        except msgspec.ValidationError as error:
            raise BadSpec(f"{error}; there are: {', '.join(struct.__struct_fields__)}.") from None
        return complete

    return parse


def _named(*keys: str) -> Callable[[Table], Iterator[Path]]:
    """Finds the files and folders that these keys name: not the sample, nor models that are ids on the hub."""

    def files(table: Table) -> Iterator[Path]:
        from frostline.encoders.corpus import SAMPLE

        for key in keys:
            name = table[key]
            if name is not None and (key, name) != ("text", SAMPLE) and (key not in HUB or os.path.exists(name)):
                yield Path(name)

    return files


def _reproduce_parse(table: Table) -> Table:
    from frostline.experiments.claims.catalogue import CLAIMS

    complete = _parser(_Claim)(table)
    if complete["claim"] not in CLAIMS:
        raise BadSpec(f"there is no claim {complete['claim']!r}; {suggestion(complete['claim'], CLAIMS)}")
    sizes = CLAIMS[complete["claim"]].sizes
    if complete["size"] not in sizes:
        raise BadSpec(f"size = {complete['size']!r}; there are: {', '.join(sizes)}.")
    return complete


def _score_parse(table: Table) -> Table:
    """A time between false alarms becomes a number of texts: a column has one type."""
    from frostline.monitoring.alarm import texts_between_alarms

    complete = _parser(_Score)(table)
    return complete | {"false_alarm_every": texts_between_alarms(complete["false_alarm_every"], complete["rate"])}


def _reproduce(table: Table) -> Outcome:
    from frostline.experiments.claims.catalogue import CLAIMS

    claim = CLAIMS[table["claim"]]
    evidence = claim.measure(claim.sizes[table["size"]], table["seed"], lambda what: None)
    judgement = claim.judge(evidence).facts()
    return {
        "verdict": judgement["verdict"],
        "why": judgement["why"],
        "checks": json.dumps(plain(judgement["checks"])),
        "numbers": json.dumps(plain(dict(evidence.numbers))),
    }, {}


AUDIT_METRICS = (*WEIGHT_METRICS, *TEXT_METRICS, *CHANGE_METRICS)
"""Numbers of an audit, each a column."""


def _texts(table: Table) -> list[str] | None:
    from frostline.encoders.corpus import read_texts, some

    return None if table["text"] is None else some(read_texts(table["text"]), table["texts"])


def _audit(table: Table) -> Outcome:
    from frostline.auditing.audit import audit

    audited = audit(
        table["model"],
        _texts(table),
        perturbations=table["perturbations"],
        seed=table["seed"],
        source=table["text"] or "texts",
    )
    facts = audited.facts()
    return {
        **{name: audited.metrics.get(name) for name in AUDIT_METRICS},
        "sentence": audited.sentence,
        "sha256": audited.provenance["sha256"],
        "heads": json.dumps(facts["heads"]),
        "clouds": json.dumps(facts["clouds"]),
    }, {}


def _diff(table: Table) -> Outcome:
    from frostline.auditing.comparison.compare import diff

    change = diff(table["base"], table["tuned"], texts=_texts(table), seed=table["seed"])
    rows = change.layers.to_pylist()
    return {
        "changed": change.changed,
        "layers_changed": sum(row["verdict"] == "changed" for row in rows),
        "largest_change": max(max(row[part] for part in ("query", "key", "value", "output")) for row in rows),
        "turned_degrees": max(change.heads["angle_A"].to_pylist()),
        "sentence": change.sentence,
        "layers": json.dumps(plain(rows)),
    }, {}


def _score(table: Table) -> Outcome:
    from frostline.encoders.corpus import read_texts
    from frostline.monitoring.alarm import Alarm
    from frostline.monitoring.baseline_file import load_baseline
    from frostline.monitoring.calibration import check_alpha

    base, profile = load_baseline(table["baseline"]), "light" if table["light"] else table["profile"]
    conformal = base.judge(profile).conformal
    check_alpha(conformal, table["alpha"])
    alarm = Alarm.once_in(table["false_alarm_every"], calibrated_by=conformal.counts.tolist())
    scores = base.score(table["model"], read_texts(table["text"]), profile=profile)
    levels, rang, _ = alarm.after(alarm.quiet, scores.p_values)
    strange = int((scores.p_values <= table["alpha"]).sum())
    return {
        "texts": len(scores.p_values),
        "strange": strange,
        "strange_share": strange / len(scores.p_values),
        "least_p": float(scores.p_values.min()),
        "alarm_at": int(rang[0]) if rang else None,
        "level": float(levels[-1]),
        "p_values": scores.p_values.tolist(),
    }, {}


def _keys(struct: type[msgspec.Struct]) -> dict[str, pa.DataType]:
    kinds = {int: WHOLE, float: NUMBER, bool: YES}
    return {
        field.name: kinds.get(field.type, WHOLE if field.name == "texts" else TEXT)
        for field in msgspec.structs.fields(struct)
    }


MODELS = (
    RunKind(
        "reproduce",
        _keys(_Claim),
        {"verdict": TEXT, "why": TEXT, "checks": TEXT, "numbers": TEXT},
        _reproduce_parse,
        _named(),
        _reproduce,
    ),
    RunKind(
        "audit",
        _keys(_Audit),
        dict.fromkeys(AUDIT_METRICS, NUMBER) | {"sentence": TEXT, "sha256": TEXT, "heads": TEXT, "clouds": TEXT},
        _parser(_Audit),
        _named("model", "text"),
        _audit,
    ),
    RunKind(
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
    RunKind(
        "score",
        _keys(_Score) | {"false_alarm_every": NUMBER},
        {
            "texts": WHOLE,
            "strange": WHOLE,
            "strange_share": NUMBER,
            "least_p": NUMBER,
            "alarm_at": WHOLE,
            "level": NUMBER,
            "p_values": NUMBERS,
        },
        _score_parse,
        _named("baseline", "model", "text"),
        _score,
    ),
)
