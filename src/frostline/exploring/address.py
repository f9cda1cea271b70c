"""The page's address bar as a spec: d=3&n=2000&beta=100&B=1,0.5,0.2 …

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

FEWEST = 10
"""Tokens that a run of the page has at least."""
MOST = 100_000
"""Tokens that a run of the page has at most."""
MOST_LAYERS = 1000
"""Steps of a fixed length that a run of the page has at most."""
LONGEST = 10_000.0
"""The largest ``until``, in units of time."""
MOST_OF_TWO_HEADS = 2_000
"""Tokens at most where there is a second head: their limits are integrated one by one."""
KEPT = 5
"""Times that an exported run directory keeps."""
ADAPTIVE_FRAMES = 240
"""Frames after the first one, where the stepper chooses its own steps."""
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
"""Every key of a setting, with its value where it is left out."""
DISTRIBUTIONS = ("uniform", "vmf", "caps", "nodes")
"""Distributions of tokens that the page offers."""
CAP = 0.5
"""Angle of a cap, in rad."""
LARGEST = 1e9
"""The largest absolute value of a number in a setting."""
LONGEST_VALUE = 400
"""Characters that a value may have."""
MATRICES = ("B", "V")
"""Matrices of the first head, which have sliders."""
DIGITS = 10
"""Significant digits of the rows that replace sliders."""

Setting = Mapping[str, str]
"""Keys of an address and their values, as text."""


def read(address: str) -> dict[str, str]:
    """The keys and values of an address; of two keys alike the last counts."""
    try:
        return dict(parse_qsl(address, keep_blank_values=True, max_num_fields=64))
    except ValueError:
        raise BadSpec(f"the address has more than 64 keys; a setting has {len(DEFAULTS)}.") from None


def _completed(setting: Setting) -> tuple[dict[str, str], int]:
    """The setting with its defaults written out, and its dimension."""
    unknown = sorted(set(setting) - set(DEFAULTS))
    if unknown:
        raise BadSpec(f"the setting has the unknown key {unknown[0][:40]!r}; there are: {', '.join(DEFAULTS)}.")
    long = [key for key, value in setting.items() if len(value) > LONGEST_VALUE]
    if long:
        raise BadSpec(f"{long[0]} has {len(setting[long[0]])} characters; {LONGEST_VALUE} are enough.")
    setting = DEFAULTS | dict(setting)
    d = _whole(setting, "d")
    if d not in (2, 3):
        raise BadSpec(f"d is {d}; the page shows the circle (2) and the sphere (3). frostline simulate takes any.")
    return setting, d


def to_spec(setting: Setting) -> specs.Spec:
    """The spec of a setting; a BadSpec with a sentence where the page cannot play with it."""
    setting, d = _completed(setting)
    n = _whole(setting, "n")
    if not FEWEST <= n <= MOST:
        raise BadSpec(f"n is {n}; the page takes {FEWEST} to {MOST:,} tokens. frostline simulate takes more.")
    step, until = _number(setting, "step"), _number(setting, "until")
    if not 0 < until <= LONGEST:
        raise BadSpec(f"until is {until:g}; it lies above 0 and up to {LONGEST:g}.")
    stepper = setting["stepper"]
    table: dict[str, Any] = {
        "dimension": d,
        "tokens": _tokens(setting, n, d),
        "beta": _number(setting, "beta"),
        "stepper": stepper,
        "until": until,
        "seed": _whole(setting, "seed"),
    }
    head = {name: matrix(setting, name, d) for name in MATRICES}
    if setting["B2"].strip():
        if n > MOST_OF_TWO_HEADS:
            raise BadSpec(f"n is {n}; with a second head the page takes {MOST_OF_TWO_HEADS:,} tokens at most.")
        table["heads"] = [head, {"B": matrix(setting, "B2", d), "V": matrix(setting, "V2", d)}]
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
    """Times of the frames: after every layer; evenly spread where the stepper chooses its own steps."""
    assert spec.until is not None
    if spec.step is None:
        return np.linspace(0.0, spec.until, ADAPTIVE_FRAMES + 1)
    layers = max(1, int(np.ceil(spec.until / spec.step * (1 - 1e-9))))
    return np.minimum(np.arange(layers + 1) * spec.step, spec.until)


def matrix(setting: Setting, name: str, d: int) -> list[list[float]]:
    """The rows of a matrix: as they are typed, or made from its values and angles."""
    rows = [
        [_parse_number(part, f"{name}, row {number}" if ";" in setting[name] else name) for part in row.split(",")]
        for number, row in enumerate(setting[name].split(";"), 1)
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
    turn = [_parse_number(part, f"{name}turn") for part in setting.get(f"{name}turn", "0,0,0").split(",")]
    if len(turn) != 3:
        raise BadSpec(f"{name}turn has {len(turn)} angles; it takes three: angle, tilt, twist.")
    angle, tilt, twist = np.radians(turn)
    left, right = rotation(angle + twist, tilt, d), rotation(angle, tilt, d)
    # Sines and cosines of right angles are zero only to rounding; and no −0.
    scale = max(map(abs, values[:d])) or 1.0
    return (scale * np.round((left * (np.array(values[:d]) / scale)) @ right.T, 14) + 0.0).tolist()


def typed_rows(setting: Setting, name: str) -> str:
    """The matrix that sliders describe, in rows as one would type them."""
    setting, d = _completed(setting)
    if name not in MATRICES:
        raise BadSpec(f"there is no matrix {name[:40]!r} with sliders; there are: {', '.join(MATRICES)}.")
    return ";".join(",".join(f"{entry:.{DIGITS}g}" for entry in row) for row in matrix(setting, name, d))


def rotation(angle: float, tilt: float, d: int) -> np.ndarray:
    """Turns the first axis by ``angle`` towards the second, after ``tilt`` towards the third (d = 3)."""
    turned, leaning = np.eye(d), np.eye(d)
    turned[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    if d == 3:
        leaning[np.ix_([0, 2], [0, 2])] = [[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]]
    return turned @ leaning


def _tokens(setting: Setting, n: int, d: int) -> dict[str, Any]:
    kind = setting["tokens"]
    if kind not in DISTRIBUTIONS:
        raise BadSpec(f"tokens is {kind[:40]!r}; there are: {', '.join(DISTRIBUTIONS)}.")
    tokens: dict[str, Any] = {"count": n, "distribution": kind}
    if kind != "uniform":
        mean = [_parse_number(part, "mean") for part in setting["mean"].split(",")]
        if not d <= len(mean) <= 3 or not np.linalg.norm(mean[:d]) > 0:
            raise BadSpec(f"mean is {setting['mean'][:40]!r}; it takes {d} numbers, not all zero: a direction.")
        mean = mean[:d]
        unit = (np.array(mean) / np.linalg.norm(mean)).tolist()
        if kind == "caps":
            across = [-unit[1], unit[0], *unit[2:]] if d == 2 or abs(unit[2]) < 0.9 else [unit[2], unit[1], -unit[0]]
            tokens |= {"centres": [unit, across], "angle": CAP}
        else:
            tokens |= {"mean": unit, "concentration": _number(setting, "concentration")}
    if setting["antipodal"] not in ("0", "1"):
        raise BadSpec(f"antipodal is {setting['antipodal'][:40]!r}; it is 0 or 1.")
    if setting["antipodal"] == "1":
        tokens |= {"antipodal": True, "count": n - n % 2}
    return tokens


def _parse_number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        shown = repr(text.strip()[:40]) if text.strip() else "an empty place"
        raise BadSpec(f"{name} holds {shown}, which is not a number.") from None
    if not abs(value) <= LARGEST:
        raise BadSpec(f"{name} holds {text.strip()[:40]}: NaN, infinite or above {LARGEST:g}; take a smaller number.")
    return value


def _number(setting: Setting, name: str) -> float:
    return _parse_number(setting[name], name)


def _whole(setting: Setting, name: str) -> int:
    try:
        value = int(setting[name])
    except ValueError:
        raise BadSpec(f"{name} is {setting[name][:40]!r}; it takes a whole number.") from None
    if not abs(value) <= 2**62:
        raise BadSpec(f"{name} has {len(setting[name])} digits; take a smaller number.")
    return value
