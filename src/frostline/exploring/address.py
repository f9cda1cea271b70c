"""What the page asks for, as it stands in its address bar, made into a spec: d=3&n=2000&beta=100&B=1,0.5,0.2 …

A matrix is typed in rows (``1,0;0,0.5``), or given by d values and, under its name and "turn", three angles in degrees:
B = R(angle + twist, tilt)·diag(values)·R(angle, tilt)ᵀ, where R turns the first axis towards the second by the angle
and towards the third by the tilt. Without a twist it is symmetric, and the values are its eigenvalues. B2 and V2 make
a second head.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from frostline.arrays import evenly_spread
from frostline.errors import BadSpec
from frostline.runs import schema as specs

FEWEST, MOST = 10, 100_000
"""Tokens."""
MOST_LAYERS = 1000
LONGEST = 10_000.0
MOST_OF_TWO_HEADS = 2_000
"""Tokens: their limits are integrated one by one."""
KEPT = 5
"""Times that a run directory keeps."""
ADAPTIVE_FRAMES = 240
DEFAULTS = {
    "d": "3",
    "n": "2000",
    "beta": "100",
    "B": "1,0.5,0.2",
    "Bturn": "0,0,0",
    "V": "1,1,1",
    "Vturn": "0,0,0",
    "B2": "",
    "V2": "1,1,1",
    "tokens": "uniform",
    "mean": "0.6,0.8,0",
    "concentration": "2",
    "antipodal": "0",
    "stepper": "euler",
    "step": "0.1",
    "until": "12",
    "seed": "0",
}
"""Every key of a setting, and what it is where it is left out."""
DISTRIBUTIONS = ("uniform", "vmf", "caps", "nodes")
CAP = 0.5
"""Angle of a cap, in rad."""
LARGEST = 1e9
"""Of any number that is given."""
LONGEST_VALUE = 400
"""Characters."""


def read(address: str) -> dict[str, str]:
    """What an address says; of two keys alike the last counts."""
    try:
        return dict(parse_qsl(address, keep_blank_values=True, max_num_fields=64))
    except ValueError:
        raise BadSpec(f"the address has more than 64 keys; a setting has {len(DEFAULTS)}.") from None


def to_spec(asked: Mapping[str, str]) -> specs.Spec:
    """The spec of a setting; raises a sentence for whatever cannot be played with."""
    unknown = sorted(set(asked) - set(DEFAULTS))
    if unknown:
        raise BadSpec(f"the setting has the unknown key {unknown[0][:40]!r}; there are: {', '.join(DEFAULTS)}.")
    long = [key for key, value in asked.items() if len(value) > LONGEST_VALUE]
    if long:
        raise BadSpec(f"{long[0]} has {len(asked[long[0]])} characters; {LONGEST_VALUE} are enough.")
    given = DEFAULTS | dict(asked)
    d = _whole(given, "d")
    if d not in (2, 3):
        raise BadSpec(f"d is {d}; the page shows the circle (2) and the sphere (3). frostline simulate takes any.")
    n = _whole(given, "n")
    if not FEWEST <= n <= MOST:
        raise BadSpec(f"n is {n}; the page takes {FEWEST} to {MOST:,} tokens. frostline simulate takes more.")
    step, until = _number(given, "step"), _number(given, "until")
    if not 0 < until <= LONGEST:
        raise BadSpec(f"until is {until:g}; it lies above 0 and up to {LONGEST:g}.")
    stepper = given["stepper"]
    table: dict[str, Any] = {
        "dimension": d,
        "tokens": _tokens(given, n, d),
        "beta": _number(given, "beta"),
        "stepper": stepper,
        "until": until,
        "seed": _whole(given, "seed"),
    }
    head = {"B": matrix(given, "B", d), "V": matrix(given, "V", d)}
    if given["B2"].strip():
        if n > MOST_OF_TWO_HEADS:
            raise BadSpec(f"n is {n}; with a second head the page takes {MOST_OF_TWO_HEADS:,} tokens at most.")
        table["heads"] = [head, {"B": matrix(given, "B2", d), "V": matrix(given, "V2", d)}]
    else:
        table |= head
    if stepper != "adaptive":
        if not step > 0:
            raise BadSpec(f"step is {step:g}; it must be above zero.")
        if not until / step <= MOST_LAYERS * (1 + 1e-9):
            raise BadSpec(
                f"steps of {step:g} up to t = {until:g} are {until / step:.4g} layers; the page"
                f" takes {MOST_LAYERS}. Take a longer step or an earlier end."
            )
        table["step"] = step
    spec = specs.parse(table, source="the setting")
    if spec.step is not None:
        # Times at layers: others would shorten steps, and what is exported would not be what was seen.
        times = times_of(spec)
        spec.save_at = times[evenly_spread(len(times), KEPT)].tolist()
    return spec


def times_of(spec: specs.Spec) -> np.ndarray:
    """When a frame is shown: after every layer; evenly where the stepper chooses its own steps."""
    assert spec.until is not None
    if spec.step is None:
        return np.linspace(0.0, spec.until, ADAPTIVE_FRAMES + 1)
    layers = max(1, int(np.ceil(spec.until / spec.step * (1 - 1e-9))))
    return np.minimum(np.arange(layers + 1) * spec.step, spec.until)


def matrix(given: Mapping[str, str], name: str, d: int) -> list[list[float]]:
    """The rows that are typed, or those of a spectrum and its angles."""
    rows = [
        [_read(part, f"{name}, row {number}" if ";" in given[name] else name) for part in row.split(",")]
        for number, row in enumerate(given[name].split(";"), 1)
    ]
    if len(rows) > 1:
        if len(rows) != d or {len(row) for row in rows} != {d}:
            raise BadSpec(
                f"{name} has {len(rows)} rows of {', '.join(str(len(row)) for row in rows)} entries; "
                f"d = {d} takes {d} rows of {d}."
            )
        return rows
    values = rows[0]
    if not d <= len(values) <= 3:
        raise BadSpec(f"{name} has {len(values)} values; d = {d} takes {d}, or {d} rows.")
    turn = [_read(part, f"{name}turn") for part in given.get(f"{name}turn", "0,0,0").split(",")]
    if len(turn) != 3:
        raise BadSpec(f"{name}turn has {len(turn)} angles; it takes three: angle, tilt, twist.")
    angle, tilt, twist = np.radians(turn)
    left, right = rotation(angle + twist, tilt, d), rotation(angle, tilt, d)
    # Sines and cosines of right angles are zero only to rounding; and no −0.
    scale = max(map(abs, values[:d])) or 1.0
    return (scale * np.round((left * (np.array(values[:d]) / scale)) @ right.T, 14) + 0.0).tolist()


def rotation(angle: float, tilt: float, d: int) -> np.ndarray:
    """Turns the first axis by ``angle`` towards the second, after ``tilt`` towards the third (d = 3)."""
    found, leaning = np.eye(d), np.eye(d)
    found[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    if d == 3:
        leaning[np.ix_([0, 2], [0, 2])] = [[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]]
    return found @ leaning


def _tokens(given: Mapping[str, str], n: int, d: int) -> dict[str, Any]:
    kind = given["tokens"]
    if kind not in DISTRIBUTIONS:
        raise BadSpec(f"tokens is {kind[:40]!r}; there are: {', '.join(DISTRIBUTIONS)}.")
    found: dict[str, Any] = {"count": n, "distribution": kind}
    if kind != "uniform":
        mean = [_read(part, "mean") for part in given["mean"].split(",")]
        if not d <= len(mean) <= 3 or not np.linalg.norm(mean[:d]) > 0:
            raise BadSpec(f"mean is {given['mean'][:40]!r}; it takes {d} numbers, not all zero: a direction.")
        mean = mean[:d]
        unit = (np.array(mean) / np.linalg.norm(mean)).tolist()
        if kind == "caps":
            across = [-unit[1], unit[0], *unit[2:]] if d == 2 or abs(unit[2]) < 0.9 else [unit[2], unit[1], -unit[0]]
            found |= {"centres": [unit, across], "angle": CAP}
        else:
            found |= {"mean": unit, "concentration": _number(given, "concentration")}
    if given["antipodal"] not in ("0", "1"):
        raise BadSpec(f"antipodal is {given['antipodal'][:40]!r}; it is 0 or 1.")
    if given["antipodal"] == "1":
        found |= {"antipodal": True, "count": n - n % 2}
    return found


def _read(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        found = repr(text.strip()[:40]) if text.strip() else "an empty place"
        raise BadSpec(f"{name} holds {found}, which is not a number.") from None
    if not abs(value) <= LARGEST:
        raise BadSpec(f"{name} holds {text.strip()[:40]}: NaN, infinite or above {LARGEST:g}; take a smaller number.")
    return value


def _number(given: Mapping[str, str], name: str) -> float:
    return _read(given[name], name)


def _whole(given: Mapping[str, str], name: str) -> int:
    try:
        found = int(given[name])
    except ValueError:
        raise BadSpec(f"{name} is {given[name][:40]!r}; it takes a whole number.") from None
    if not abs(found) <= 2**62:
        raise BadSpec(f"{name} has {len(given[name])} digits; take a smaller number.")
    return found
