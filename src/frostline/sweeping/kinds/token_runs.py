"""Kinds of runs of tokens: simulate, theory, and the distance curve; all take the spec of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from frostline.errors import BadSpec
from frostline.runs import schema as specs
from frostline.sweeping.kinds.base import NUMBER, NUMBERS, TEXT, WHOLE, YES, Outcome, RunKind, Table

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
    complete = specs.to_table(specs.parse(table))
    del complete["out"]
    if isinstance(complete["tokens"], int):
        complete["tokens"] = {"count": complete["tokens"], "distribution": "uniform", "antipodal": False}
    return complete


def _run_files(table: Table) -> Iterator[Path]:
    return map(Path, sorted(specs.files(table)))


def _simulate(table: Table, *, transport: bool = False) -> Outcome:
    from frostline.runs.record import run_once

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


def _theory(table: Table) -> Outcome:
    from frostline.runs.predict import predict

    predicted = predict(specs.parse(table))
    if len(predicted["layers"]) > 1:
        raise BadSpec(f"a sweep of theory takes one layer; the spec has {len(predicted['layers'])}.")
    (layer,) = predicted["layers"]
    without = layer["tokens_without_limit"]
    return {
        "limit": layer["limit"]["kind"],
        "gap": layer["limit"]["gap"],
        "regime": predicted["regime"]["verdict"],
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


RUNS = (
    RunKind("simulate", RUN_KEYS, RUN_MEASURES, _run_parse, _run_files, _simulate, arrays=True),
    RunKind("theory", RUN_KEYS, THEORY_MEASURES, _run_parse, _run_files, _theory),
    RunKind(
        "distance",
        RUN_KEYS,
        RUN_MEASURES | {"t": NUMBERS, "w": NUMBERS, "lower": NUMBERS, "upper": NUMBERS},
        _run_parse,
        _run_files,
        lambda table: _simulate(table, transport=True),
        arrays=True,
    ),
)
