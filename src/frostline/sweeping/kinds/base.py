"""A kind of work: what it is asked, the file contents that decide it, what it measures; and the name of a result."""

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
"""What one run is asked: plain values, as TOML has them."""
Found = tuple[dict[str, Any], dict[str, Any]]
"""Measures, and arrays (torch tensors) of those kinds that have some."""
NUMBER, WHOLE, TEXT, YES = pa.float64(), pa.int64(), pa.string(), pa.bool_()
NUMBERS = pa.list_(NUMBER)


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
    return f"{frostline.__version__}+{source_digest(_makes_results)[:12]}"


def _makes_results(parts: tuple[str, ...]) -> bool:
    """Whether another version of a source file may make another result."""
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
