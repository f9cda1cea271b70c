"""The Parquet dataset of a sweep: one row per run, each once, whole or not at all, whoever is killed when.

    out/part-….parquet       rows; a file appears whole, by a rename, and stays; it is rewritten only to take out failed
                             rows that are to be run again
    out/_sweep.json          the format, and the command whose runs the folder holds
    out/_journal-….jsonl     rows that finished since the last part, one per line; its writer holds a lock on it
    out/_arrays/ID.safetensors
    out/_rejected-….jsonl    rows of journals that fit into no table
    out/_lock                held while a part is published, so that rows of other clients are not written twice

A journal whose writer is gone is published by whoever opens the dataset next.
"""

import io
import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import compute, parquet

from frostline.errors import BadRun
from frostline.files.atomic import write_atomically
from frostline.files.locks import try_lock, waiting_lock
from frostline.files.plain_json import as_json
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.kinds.base import NUMBER, TEXT, WHOLE, RunKind

STATUSES = ("done", "failed", "lost")
"""Statuses of a run's row; a lost run took its worker down with it."""
MARK = "_sweep.json"
"""The file that marks a folder as a dataset."""
LOCK = "_lock"
"""The file whose lock is held while a part is published."""
ARRAYS = "_arrays"
"""The folder of the runs' arrays."""
FORMAT = "frostline-sweep-1"
"""The format that this version writes and reads."""
CHUNK = 200
"""Rows in memory at once."""
FLUSH_SECONDS = 5.0
"""Seconds between two parts at least."""
FLUSH_SHARE = 0.05
"""Share of the time so far between two parts at least: long sweeps write few files."""
FLUSH_ROWS = 1000
"""Rows after which a part is written in any case."""
COMMON = {
    "id": TEXT,
    "command": TEXT,
    "status": TEXT,
    "error": TEXT,
    "seconds": NUMBER,
    "started": TEXT,
    "host": TEXT,
    "code": TEXT,
    "python": TEXT,
    "torch": TEXT,
    "numpy": TEXT,
    "threads": WHOLE,
    "spec": TEXT,
}
"""Columns of every kind of run."""
Row = Mapping[str, Any]
"""One run: a value for each column."""


def schema_of(kind: RunKind) -> pa.Schema:
    """The columns of a dataset, the same in every part, so that any reader of Parquet sees one table."""
    return pa.schema({**COMMON, **kind.keys, **kind.measures})


class Dataset:
    """One client's hold on a dataset; a context manager. ``arrays``: runs without their arrays count as missing."""

    def __init__(self, out: Path, kind: RunKind, *, arrays: bool = False):
        self.out, self.kind, self.schema, self.arrays = out, kind, schema_of(kind), arrays
        self._there: dict[bytes, str] = {}
        """The status of each run in the table, by its id."""
        self._known: set[str] = set()
        """Names of the parts that were read."""
        self._here: dict[bytes, str] = {}
        """The status of each run that is in the journal only; the rows themselves would fill the memory."""
        self._began = self._flushed = time.monotonic()
        _claim(out, kind)
        self._path = out / f"_journal-{secrets.token_hex(8)}.jsonl"
        with self._alone():
            self.others = self._adopt()
            """The number of other clients that work on the same dataset now."""
            # Under the dataset's lock: no other client takes the journal for an abandoned one.
            self._journal = open(self._path, "x+b")  # noqa: SIM115  held open
            if not try_lock(self._journal):
                raise BadRun(f"{self._path} cannot be locked; choose an out on a disk that has file locks.")

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
            with self._alone():
                self._path.unlink()
        finally:
            self._journal.close()

    def status(self, id: str) -> str | None:
        """The status of a run; None if it has no row."""
        key = bytes.fromhex(id)
        return whole_status(self.out, id, self._here.get(key) or self._there.get(key), arrays=self.arrays)

    def add(self, *rows: Row) -> None:
        """Keep the rows of finished runs: they are on disk when this returns, and in the table soon."""
        for row in rows:
            self._journal.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())
        self._here |= {bytes.fromhex(row["id"]): sys.intern(row["status"]) for row in rows}
        now = time.monotonic()
        pause = max(FLUSH_SECONDS, FLUSH_SHARE * (now - self._began))
        if now - self._flushed > pause or len(self._here) >= FLUSH_ROWS:
            self.flush()

    def keep_arrays(self, id: str, blob: bytes) -> None:
        """Keep the arrays of a run; call it before ``add``, so that every run in the table has its arrays."""
        path = arrays_of(self.out, id)
        path.parent.mkdir(exist_ok=True)
        _write_once(path, blob)

    def flush(self) -> None:
        """Publish the rows of the journal, and read those that other clients published."""
        with self._alone():
            self._publish(self._journal)
        self._journal.seek(0)
        self._journal.truncate()
        self._here = {}
        self._flushed = time.monotonic()

    def refresh(self) -> None:
        """Read the rows that other clients published."""
        with self._alone():
            self._look()

    def drop(self, ids: Collection[str]) -> int:
        """Take out the rows of these runs that are not done, so that they are run again; their number."""
        dropped = 0
        with self._alone():
            for part in parts(self.out):
                rows = _read(part, ["id", "status"])
                kept = compute.or_(compute.equal(rows["status"], "done"), compute.invert(_among(rows["id"], ids)))
                if not compute.all(kept, min_count=0).as_py():
                    left = _read(part).filter(kept)
                    dropped += len(rows) - len(left)
                    # Empty parts stay, too: others may be about to read them.
                    _write(left, part)
            self._there, self._known = {}, set()
            self._look()
        return dropped

    def _adopt(self) -> int:
        """Under the lock: publish journals whose writers are gone; the number of writers that are not."""
        alive = 0
        for path in sorted(self.out.glob("_journal-*.jsonl")):
            with open(path, "r+b") as journal:
                if try_lock(journal):
                    self._publish(journal)
                    path.unlink()
                else:
                    alive += 1
        self._look()
        return alive

    def _publish(self, journal: BinaryIO) -> None:
        """Under the lock: make a part of the rows that are not in the table yet."""
        self._look()
        new = (_fitting(row, self.schema) for key, row in _rows(journal) if key not in self._there)
        tables: list[pa.Table] = []
        while chunk := list(itertools.islice(new, CHUNK)):
            tables += self._tables(chunk)
        if tables:
            part = self.out / f"part-{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
            _write(pa.concat_tables(tables), part)
            self._look()

    def _tables(self, rows: list[dict[str, Any]]) -> Iterator[pa.Table]:
        """One table; if a row does not fit, one for each that does. The others are set aside: they would block all
        rows after them."""
        try:
            yield pa.Table.from_pylist(rows, schema=self.schema)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            if len(rows) == 1:
                with open(self.out / f"_rejected-{secrets.token_hex(8)}.jsonl", "x", encoding="utf-8") as aside:
                    json.dump(rows[0], aside)
            else:
                for row in rows:
                    yield from self._tables([row])

    def _look(self) -> None:
        for part in parts(self.out):
            if part.name not in self._known:
                self._there |= _statuses(_read(part, ["id", "status"]))
                self._known.add(part.name)

    def _alone(self) -> AbstractContextManager[None]:
        return waiting_lock(self.out / LOCK)


def arrays_of(out: Path, id: str) -> Path:
    """The file of a run's arrays, which need not exist."""
    return out / ARRAYS / f"{id}.safetensors"


def whole_status(out: Path, id: str, status: str | None, *, arrays: bool) -> str | None:
    """The status of a run's row; None, as if it had none, where its arrays are wanted and missing."""
    return None if status == "done" and arrays and not arrays_of(out, id).exists() else status


def parts(out: Path) -> list[Path]:
    """The Parquet files of a dataset."""
    return sorted(out.glob("part-*.parquet"))


def command_of(out: Path) -> RunKind:
    """The kind of runs a dataset holds."""
    try:
        mark = json.loads((out / MARK).read_text(encoding="utf-8"))
        if mark["format"] != FORMAT:
            raise BadRun(f"{out} is a sweep of the format {mark['format']!r}; this version reads {FORMAT!r}.")
        return KINDS[mark["command"]]
    except FileNotFoundError:
        raise BadRun(f"{out} holds no sweep: there is no {out / MARK}; run one with frostline sweep SPEC.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, BadRun):
            raise
        raise BadRun(f"{out / MARK} cannot be read: {type(error).__name__}.") from None


def read_table(out: str | Path, columns: list[str] | None = None, *, ids: Collection[str] | None = None) -> pa.Table:
    """The published rows of a dataset, all or those of these runs; a sweep under way publishes every few seconds."""
    out = Path(out)
    empty = schema_of(command_of(out)).empty_table()
    tables = [empty if columns is None else empty.select(columns), *(_read(part, columns) for part in parts(out))]
    # Another version of frostline may have had other columns.
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise BadRun(f"the parts of {out} do not fit together: {str(error).splitlines()[0][:200]}.") from None
    return whole if ids is None else whole.filter(_among(whole["id"], ids))


def _among(column: pa.ChunkedArray, ids: Collection[str]) -> pa.ChunkedArray:
    return compute.is_in(column, pa.array(list(ids), pa.string()))


def statuses(out: Path) -> dict[bytes, str]:
    """The status of every run on disk, those of sweeps under way included; nothing is written or waited for."""
    in_journals: dict[bytes, str] = {}
    # Journals first: rows that move into a part meanwhile are read there.
    for path in out.glob("_journal-*.jsonl"):
        with suppress(FileNotFoundError), open(path, "rb") as journal:
            in_journals |= {key: row["status"] for key, row in _rows(journal)}
    return in_journals | _statuses(read_table(out, ["id", "status"]))


def _statuses(table: pa.Table) -> dict[bytes, str]:
    pairs = zip(table["id"].to_pylist(), table["status"].to_pylist(), strict=True)
    return {bytes.fromhex(id): sys.intern(status) for id, status in pairs}


def _claim(out: Path, kind: RunKind) -> None:
    """Mark the folder as a dataset of this kind; a BadRun if it holds something else."""
    if (out.exists() or out.is_symlink()) and not out.is_dir():
        raise BadRun(f"{out} is a file, or a link that leads nowhere; choose another out.")
    if not (out / MARK).exists():
        # Another client may be doing the same just now.
        if out.is_dir() and any(not path.name.startswith("_") for path in out.iterdir()):
            raise BadRun(f"{out} is not empty and holds no sweep; choose another out.")
        out.mkdir(parents=True, exist_ok=True)
        _write_once(out / MARK, as_json({"format": FORMAT, "command": kind.name}))
    holds = command_of(out)
    if holds is not kind:
        raise BadRun(f"{out} holds runs of {holds.name}, and these are of {kind.name}; choose another out.")


def _write_once(path: Path, blob: bytes) -> None:
    """Write a file that another client may write at the same moment, with the same bytes.

    One of the two then finds its temporary file gone.
    """
    try:
        write_atomically(path, blob)
    except FileNotFoundError:
        if not path.exists():
            raise


def _rows(journal: BinaryIO) -> Iterator[tuple[bytes, Row]]:
    """The rows of a journal, each run once; the last line may be cut off where its writer was killed."""
    journal.seek(0)
    seen = set()
    for line in journal:
        try:
            row = json.loads(line)
            key = bytes.fromhex(row["id"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if len(key) == 16 and row.get("status") in STATUSES and key not in seen:
            seen.add(key)
            yield key, row


def _fitting(row: Row, schema: pa.Schema) -> dict[str, Any]:
    return {name: row.get(name) for name in schema.names}


def _write(table: pa.Table, path: Path) -> None:
    blob = io.BytesIO()
    parquet.write_table(table, blob, compression="zstd")
    write_atomically(path, blob.getvalue())


def _hex(ids: pa.ChunkedArray) -> bool:
    return bool(compute.all(compute.match_substring_regex(ids, "^[0-9a-f]{32}$"), min_count=0).as_py())


def _read(part: Path, columns: list[str] | None = None) -> pa.Table:
    try:
        table = parquet.read_table(part, columns=columns, partitioning=None)
        for name in ("id", "status"):
            if name in (columns or ("id", "status")) and (
                table.schema.field(name).type != TEXT
                or table[name].null_count
                or (name == "id" and not _hex(table[name]))
            ):
                raise pa.ArrowInvalid(f"its column {name} is not what a sweep writes")
        return table
    except (OSError, pa.ArrowException, KeyError) as error:
        raise BadRun(
            f"{part} cannot be read ({str(error).splitlines()[0][:120]}); put it back from a backup, or remove it and "
            "run the sweep again: only its runs are repeated."
        ) from None
