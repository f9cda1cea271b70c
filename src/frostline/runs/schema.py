"""Specs as users write them (TOML): their keys and types, their defaults, and readable errors."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from frostline.errors import BadSpec
from frostline.files.suggestions import suggestion
from frostline.files.toml_tables import read_toml, without_nulls

CHOICES = {
    "stepper": ("adaptive", "euler", "rk4"),
    "distribution": ("uniform", "vmf", "caps", "mixture", "nodes", "file"),
    "dtype": ("float64", "float32"),
}
"""The values of each key that takes a name."""

Matrix: TypeAlias = str | list[float | list[float]]
"""Rows; or one list, the diagonal; or "identity"; or the path of a .npy file."""


class HeadSpec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One head: B, or Q and K; V, beta and key_bias, which heads inherit from their layer and layers from the run."""

    B: Matrix | None = None
    Q: Matrix | None = None
    K: Matrix | None = None
    V: Matrix | None = None
    beta: float | None = None
    key_bias: list[float] | None = None


class LayerSpec(HeadSpec, forbid_unknown_fields=True, kw_only=True):
    """One layer: a head, or several under ``heads``."""

    heads: list[HeadSpec] | None = None


class ComponentSpec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One part of a mixture."""

    weight: float
    distribution: Literal["uniform", "vmf", "caps"] = "uniform"
    mean: list[float] | None = None
    concentration: float | None = None
    centres: list[list[float]] | None = None
    angle: float | None = None


class TokensSpec(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many tokens, and from which distribution."""

    count: int | None = None
    distribution: Literal["uniform", "vmf", "caps", "mixture", "nodes", "file"] = "uniform"
    mean: list[float] | None = None
    concentration: float | None = None
    centres: list[list[float]] | None = None
    angle: float | None = None
    components: list[ComponentSpec] | None = None
    antipodal: bool = False
    path: str | None = None


class Spec(LayerSpec, forbid_unknown_fields=True, kw_only=True):
    """A run: heads, tokens, time."""

    tokens: int | TokensSpec
    dimension: int
    layers: list[LayerSpec] | None = None
    until: float | None = None
    step: float | None = None
    stepper: Literal["adaptive", "euler", "rk4"] | None = None
    tolerance: float | None = None
    save_at: list[float] | None = None
    seed: int = 0
    dtype: Literal["float64", "float32"] = "float64"
    device: str = "cpu"
    engine: str = "auto"
    max_steps: int = 10_000_000
    out: str = "run"


def read_spec(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Spec:
    """Read and check the spec of a run.

    Parameters
    ----------
    source : str, Path or mapping
        A TOML file, or its table.
    overrides : mapping, optional
        Values that take the place of those in the file, as flags of the command line do; None changes nothing.

    Returns
    -------
    Spec
        The spec, with defaults for everything left out.

    Raises
    ------
    BadSpec
        The file cannot be read, or a key or value is none of a spec.

    Examples
    --------
    >>> spec = read_spec({"tokens": 40, "dimension": 2, "B": [1.0, 0.5], "beta": 10.0}, {"beta": 100.0})
    >>> spec.beta, spec.stepper
    (100.0, None)
    """
    if overrides is not None and not isinstance(overrides, Mapping):
        raise BadSpec(f"overrides are of type {type(overrides).__name__}; give a mapping of keys to values.")
    if isinstance(source, Mapping):
        return parse(source, overrides)
    if not isinstance(source, str | Path):
        raise BadSpec(f"a spec is read from a TOML file or from its table, not from {type(source).__name__}.")
    return parse(read_toml(source), overrides, source=str(source))


def parse(table: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, *, source: str = "the spec") -> Spec:
    """A spec from a plain table."""
    merged = dict(table)
    for name, value in (overrides or {}).items():
        if value is not None:
            if name == "tokens" and isinstance(merged.get("tokens"), dict):
                merged["tokens"] = {**merged["tokens"], "count": value}
            else:
                merged = {**_without_key(merged, name), name: value}
    _check_keys(merged, Spec, source)
    try:
        spec = msgspec.convert(merged, Spec)
    except msgspec.ValidationError as error:
        raise BadSpec(f"{source}: {_readable(error)}") from None
    except RecursionError:
        raise BadSpec(f"{source} is nested too deeply to be a spec.") from None
    if not 2 <= spec.dimension <= 1_000_000:
        raise BadSpec(f"{source}: dimension = {spec.dimension}; tokens live in 2 or more dimensions.")
    if "\0" in spec.out:
        raise BadSpec(f"{source}: out has a NUL character in it.")
    return spec


def _without_key(value: Any, name: str) -> Any:
    """The table without the key at any depth: a flag overrides the values of single heads and layers as well."""
    if isinstance(value, dict):
        return {key: _without_key(item, name) for key, item in value.items() if key != name}
    return [_without_key(item, name) for item in value] if isinstance(value, list) else value


def to_table(spec: Spec) -> dict[str, Any]:
    """The spec as a plain table, defaults written out: writes as TOML, parses back to itself."""
    table: dict[str, Any] = without_nulls(msgspec.to_builtins(spec))
    return table


def identity(spec: Spec) -> str:
    """A hash of everything the result depends on: the spec without ``out``, and the contents of the files it names."""
    table = to_table(spec) | {"out": None}
    digest = hashlib.sha256(msgspec.json.encode(table, order="sorted"))
    for path in sorted(files(table)):
        digest.update(read_named_file(path))
    return digest.hexdigest()


def read_named_file(path: str) -> bytes:
    """The contents of a file that a spec names."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadSpec(f"cannot read {path!r}, which the spec names: {reason}.") from None


def files(value: Any) -> set[str]:
    """The .npy files that a table names."""
    if isinstance(value, str):
        return {value} if value.endswith(".npy") else set()
    if isinstance(value, dict):
        return set().union(*map(files, value.values()))
    if isinstance(value, list):
        return set().union(*map(files, value)) if value and not isinstance(value[0], float | int) else set()
    return set()


def _check_keys(table: Mapping[str, Any], struct: type[msgspec.Struct], source: str) -> None:
    """Refuse unknown keys before msgspec does, whose message would not suggest the nearest right one."""
    known = struct.__struct_fields__
    nested: dict[str, type[msgspec.Struct]] = {
        "tokens": TokensSpec,
        "heads": HeadSpec,
        "layers": LayerSpec,
        "components": ComponentSpec,
    }
    for key, value in table.items():
        if key not in known:
            raise BadSpec(f"{source} has the unknown key {key!r}; {suggestion(str(key), known)}")
        if key in nested:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Mapping):
                    _check_keys(part, nested[key], f"{source}, [{key}]")


def _readable(error: msgspec.ValidationError) -> str:
    """The message of msgspec in the words of a spec."""
    text, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    if missing:
        return f"{path + '.' if path else ''}{missing[1]} is missing."
    if text.startswith("Invalid enum value"):
        choices = ", ".join(CHOICES.get(path.split(".")[-1], ()))
        return f"{path}: {text.split()[-1].strip(chr(96))} is not known; there are: {choices}."
    for python_word, spec_word in (
        ("| null", ""),
        ("object", "a table"),
        ("array", "a list"),
        ("str", "text"),
        ("int", "a whole number"),
    ):
        text = re.sub(rf"(?<=[`| ]){re.escape(python_word)}(?=[`| ,]|$)", spec_word, text)
    text = (
        re.sub(r"\bfloat\b", "a number", text)
        .replace("`", "")
        .replace(" |", " or")
        .replace("  ", " ")
        .replace(" ,", ",")
    )
    return f"{path}: {text[0].lower() + text[1:].rstrip()}."
