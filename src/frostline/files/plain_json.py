"""Results as JSON: numpy becomes numbers and lists, what is no number becomes null."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def as_json(value: Mapping[str, Any]) -> bytes:
    """The bytes of a readable JSON file."""
    return (json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become null."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value


def finite_number(value: Any) -> float | None:
    """A value that was read from JSON as a number; None where it is none, or none that a float can hold.

    >>> finite_number(3), finite_number("3"), finite_number(True), finite_number(10**400), finite_number(float("nan"))
    (3.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
