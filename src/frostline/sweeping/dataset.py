"""The Parquet dataset of a sweep: one row per run, each once, whole or not at all, whoever is killed when.

    out/part-….parquet       rows; files appear whole, by a rename, and never change but to have failed rows taken out
    out/_sweep.json          whose folder this is
    out/_journal-….jsonl     rows that finished since the last part, one per line; its writer holds a lock on it
    out/_arrays/ID.safetensors
    out/_lock                held while a part is published: rows that another client has published are left out

A journal whose writer is gone is published by whoever opens the dataset next.
"""

import fcntl
import io
import json
import secrets
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from frostline.errors import BadRun
from frostline.store import as_json, write_atomically
from frostline.sweeping.kinds import KINDS, NUMBER, TEXT, WHOLE, Kind

MARK, LOCK, ARRAYS = "_sweep.json", "_lock", "_arrays"
FORMAT = "frostline-sweep-1"
FLUSH_SECONDS, FLUSH_SHARE, FLUSH_ROWS = 5.0, 0.05, 5000
"""A part is written after so many seconds, or this share of the time so far if that is more: few files, little lost."""
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
Row = Mapping[str, Any]


def schema_of(kind: Kind) -> pa.Schema:
    """The same for every part, so that any reader of Parquet sees one table."""
    return pa.schema({**COMMON, **kind.keys, **kind.measures})


class Dataset:
    """One client's hold on a dataset. Use as a context manager."""

    def __init__(self, out: Path, kind: Kind):
        self.out, self.kind, self.schema = out, kind, schema_of(kind)
        self._there: dict[bytes, str] = {}
        """Of each run in the table: its status."""
        self._known: set[str] = set()
        """Parts that were looked into."""
        self._rows: dict[bytes, Row] = {}
        """Runs that are in no part yet."""
        self._began = self._flushed = time.monotonic()
        _claim(out, kind)
        self._path = out / f"_journal-{secrets.token_hex(8)}.jsonl"
        with self._alone():
            self.others = self._adopt()
            """How many clients are at work on the same dataset now."""
            # With the lock: nobody takes it for one whose writer is gone.
            self._journal = open(self._path, "xb")  # noqa: SIM115  held open
            fcntl.flock(self._journal, fcntl.LOCK_EX)

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
            self._path.unlink()
        finally:
            self._journal.close()

    def status(self, id: str) -> str | None:
        """Of a run that is there."""
        key = bytes.fromhex(id)
        return self._rows[key]["status"] if key in self._rows else self._there.get(key)

    def add(self, row: Row, arrays: bytes | None = None) -> None:
        """A finished run: on disk when this returns, in the table soon."""
        if arrays is not None:
            (self.out / ARRAYS).mkdir(exist_ok=True)
            write_atomically(self.out / ARRAYS / f"{row['id']}.safetensors", arrays)
        self._journal.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._journal.flush()
        self._rows[bytes.fromhex(row["id"])] = row
        now = time.monotonic()
        pause = max(FLUSH_SECONDS, FLUSH_SHARE * (now - self._began))
        if now - self._flushed > pause or len(self._rows) >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Publish what finished; and see what others published."""
        with self._alone():
            self._publish(self._rows)
        self._journal.truncate(0)
        self._journal.seek(0)
        self._rows = {}
        self._flushed = time.monotonic()

    def refresh(self) -> None:
        """See what other clients have published."""
        with self._alone():
            self._look()

    def drop(self, statuses: Collection[str]) -> int:
        """Take out rows with these statuses, so that their runs are run again; how many there were."""
        gone = 0
        with self._alone():
            for part in parts(self.out):
                table = _read(part)
                kept = table.filter(compute.invert(compute.is_in(table["status"], pa.array(list(statuses)))))
                if len(kept) < len(table):
                    gone += len(table) - len(kept)
                    if len(kept):
                        _write(kept, part)
                    else:
                        part.unlink()
            self._there, self._known = {}, set()
            self._look()
        return gone

    def _adopt(self) -> int:
        """With the lock: publish journals whose writers are gone; how many writers are not."""
        alive = 0
        for path in sorted(self.out.glob("_journal-*.jsonl")):
            with open(path, "r+b") as journal:
                try:
                    fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    alive += 1
                    continue
                self._publish(dict(_whole_lines(journal.read())))
                path.unlink()
        self._look()
        return alive

    def _publish(self, rows: Mapping[bytes, Row]) -> None:
        """With the lock: rows that are not in the table yet become a part of it."""
        self._look()
        new = [_fitting(row, self.schema) for key, row in rows.items() if key not in self._there]
        if new:
            table = pa.Table.from_pylist(new, schema=self.schema)
            part = self.out / f"part-{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
            _write(table, part)
            self._look()

    def _look(self) -> None:
        for part in parts(self.out):
            if part.name not in self._known:
                read = _read(part, ["id", "status"])
                for id, status in zip(read["id"].to_pylist(), read["status"].to_pylist(), strict=True):
                    self._there[bytes.fromhex(id)] = sys.intern(status)
                self._known.add(part.name)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.out / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def parts(out: Path) -> list[Path]:
    return sorted(out.glob("part-*.parquet"))


def command_of(out: Path) -> Kind:
    """The kind of runs a dataset holds."""
    try:
        told = json.loads((out / MARK).read_text(encoding="utf-8"))
        if told["format"] != FORMAT:
            raise BadRun(f"{out} is a sweep of another format ({told['format']}).")
        return KINDS[told["command"]]
    except FileNotFoundError:
        raise BadRun(f"{out} is no sweep: it has no {MARK}.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadRun):
            raise
        raise BadRun(f"{out / MARK} cannot be read: {type(error).__name__}.") from None


def read_table(out: str | Path, columns: list[str] | None = None) -> pa.Table:
    """All rows of a dataset that are published; those of a sweep under way appear every few seconds."""
    out = Path(out)
    empty = schema_of(command_of(out)).empty_table()
    found = [empty if columns is None else empty.select(columns), *(_read(part, columns) for part in parts(out))]
    # Another version of frostline may have had other columns.
    return pa.concat_tables(found, promote_options="permissive")


def _claim(out: Path, kind: Kind) -> None:
    """Make the folder ours, or refuse it."""
    if out.exists() and not out.is_dir():
        raise BadRun(f"{out} is a file; choose another out.")
    if not (out / MARK).exists():
        # Another client may be doing the same just now.
        if out.is_dir() and any(not path.name.startswith("_") for path in out.iterdir()):
            raise BadRun(f"{out} is not empty and holds no sweep; choose another out.")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / MARK, as_json({"format": FORMAT, "command": kind.name}))
    there = command_of(out)
    if there is not kind:
        raise BadRun(f"{out} holds runs of {there.name}, and these are of {kind.name}; choose another out.")


def _whole_lines(blob: bytes) -> Iterator[tuple[bytes, Row]]:
    """The rows of a journal; the last line may have been cut off by whatever ended its writer."""
    for line in blob.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
            key = bytes.fromhex(row["id"])
        except (ValueError, KeyError, TypeError):
            continue
        yield key, row


def _fitting(row: Row, schema: pa.Schema) -> dict[str, Any]:
    return {name: row.get(name) for name in schema.names}


def _write(table: pa.Table, path: Path) -> None:
    blob = io.BytesIO()
    parquet.write_table(table, blob, compression="zstd")
    write_atomically(path, blob.getvalue())


def _read(part: Path, columns: list[str] | None = None) -> pa.Table:
    try:
        return parquet.read_table(part, columns=columns, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise BadRun(
            f"{part} cannot be read ({str(error).splitlines()[0][:120]}); put it back from a backup, or remove it and "
            "run the sweep again: only its runs are repeated."
        ) from None
