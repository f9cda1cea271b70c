"""TOML files: tables read from them with readable errors, and tables made ready to be written to them."""

import tomllib
from pathlib import Path
from typing import Any

from frostline.errors import BadSpec, FrostlineError


def read_toml(path: str | Path, *, holding: str = "the spec", error: type[FrostlineError] = BadSpec) -> dict[str, Any]:
    """The table in a TOML file; ``error`` with a sentence if there is none. ``holding``: what the file is to hold."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as failure:
        raise error(f"cannot read {holding} {str(path)!r}: {failure.strerror}.") from None
    except UnicodeDecodeError:
        raise error(f"cannot read {holding} {str(path)!r}: it is not UTF-8 text.") from None
    except RecursionError:
        raise error(f"{path} is nested too deeply to be {holding}.") from None
    except ValueError as failure:
        raise error(f"{path} is not TOML: {failure}.") from None


def without_nulls(value: Any) -> Any:
    """The value without the entries of its tables that are None: TOML has no null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
