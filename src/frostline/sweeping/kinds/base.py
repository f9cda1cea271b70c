"""Kinds of runs: their keys, the files that decide their result, their measures, and the name of a result."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import frostline
from frostline.errors import BadSpec
from frostline.files.digests import source_digest
from frostline.rooms import SHOWING, room_of

Table = dict[str, Any]
"""The spec of one run: plain values, as TOML has them."""
Outcome = tuple[dict[str, Any], dict[str, Any]]
"""Measures of a run, and its arrays (torch tensors) where its kind keeps some."""
NUMBER = pa.float64()
"""Columns of numbers."""
WHOLE = pa.int64()
"""Columns of whole numbers."""
TEXT = pa.string()
"""Columns of text, and of lists and tables as JSON."""
YES = pa.bool_()
"""Columns of yes and no."""
NUMBERS = pa.list_(NUMBER)
"""Columns with a list of numbers in each row."""


@dataclass(frozen=True)
class RunKind:
    """One kind of run.

    keys      keys of its spec as columns, name and type; lists and tables become JSON text
    measures  its measures as columns, name and type
    parse     writes the defaults of a table out, or raises BadSpec
    files     paths whose contents decide the result
    run       does the work
    """

    name: str
    keys: Mapping[str, pa.DataType]
    measures: Mapping[str, pa.DataType]
    parse: Callable[[Table], Table]
    files: Callable[[Table], Iterator[Path]]
    run: Callable[[Table], Outcome]
    arrays: bool = False

    def identity(self, table: Table) -> str:
        """The name of a result: a hash of the spec, of the files it names and of the code that computes it."""
        digest = hashlib.sha256(msgspec.json.encode([self.name, code_version(), table], order="sorted"))
        for path in self.files(table):
            digest.update(content(path))
        return digest.hexdigest()[:32]

    def columns(self, table: Table) -> dict[str, Any]:
        """The spec of a run as columns: a value, or None, for each key."""
        return dict.fromkeys(self.keys) | dict(_flat(table))


@cache
def code_version() -> str:
    """The version, and a digest of the source that computes results: results of other code are not used again."""
    return f"{frostline.__version__}+{source_digest(_makes_results)[:12]}"


def _makes_results(parts: tuple[str, ...]) -> bool:
    """Whether a change of this source file may change a result."""
    if parts[0] == "sweeping":
        return parts[1] == "kinds"
    return room_of(parts) not in SHOWING


def content(path: Path) -> bytes:
    """A digest of a file, or of all files of a folder."""
    try:
        if path.is_dir():
            parts = sorted(part for part in path.iterdir() if part.is_file())
            return b"".join(part.name.encode() + content(part) for part in parts)
        if path.exists() and not path.is_file():
            raise BadSpec(f"{str(path)!r}, which the spec names, is neither a file nor a folder.")
        stat = path.stat()
        return _digest(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
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
