"""Run claims into a folder: what is finished is kept, and used again when settings and code are the same.

out/index.html, summary.json
out/claims/NAME/result.json, figure.svg, figure.png, TABLE.parquet, frames.json
"""

import base64
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import frostline
from frostline import plot
from frostline.errors import BadParameter
from frostline.experiments.claim import Claim, Evidence, Frames, Judgement
from frostline.experiments.claims.catalogue import CLAIMS
from frostline.experiments.reproduction_page import write_page
from frostline.files.atomic import write_atomically
from frostline.files.digests import source_digest
from frostline.files.locks import try_lock
from frostline.files.plain_json import as_json
from frostline.rooms import room_of, row_of

SHOWN = 200
"""Tokens of a scrubber: more would make the page too large to send."""
RESULT, FRAMES, SUMMARY, PAGE = "result.json", "frames.json", "summary.json", "index.html"
MARK = ".reproduction"
"""The lock, and the sign that a folder is ours."""
Report = Callable[[str, str, float, float], None]
"""Called with a claim's name, what it does, seconds' worth of work done and seconds' worth in all."""


@dataclass(frozen=True)
class Reproduction:
    """What came out: a row for each claim, the page that shows it, and results of the folder that it does not show."""

    claims: tuple[Mapping[str, Any], ...]
    page: Path
    hidden: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As JSON promises it."""
        kept = ("name", "verdict", "why", "measured", "seconds")
        rows = [
            {**{name: row[name] for name in kept}, "size": row["spec"]["size"], "seed": row["spec"]["seed"]}
            for row in self.claims
        ]
        return {"claims": rows, "page": str(self.page)}


def reproduce(
    claims: list[Claim], *, size: str, out: Path, seed: int = 0, force: bool = False, report: Report | None = None
) -> Reproduction:
    """Measure and judge each claim, unless it is there already; then write the page.

    Whatever ends it early (Ctrl-C, a full disk), finished claims stay, and the page shows them.
    """
    out = out.absolute()
    _check_out(out)
    out.mkdir(parents=True, exist_ok=True)
    total = sum(claim.seconds[size] for claim in claims)
    rows: list[Mapping[str, Any]] = []
    with _alone(out):
        (out / "claims").mkdir(exist_ok=True)
        try:
            done = 0.0
            for claim in claims:
                found = None if force else _finished(claim, size, seed, out)
                if found is None:
                    tick = _tick(claim, size, done, total, report)
                    found = _run(claim, size, seed, out, tick)
                done += claim.seconds[size]
                rows.append(found)
                # After every claim: whatever ends this, what is finished is on the page.
                with uninterrupted():
                    page, hidden = _write(out, left=len(claims) - len(rows))
                if report is not None:
                    report(claim.name, found["verdict"], done, total)
        except BaseException:
            if not rows:
                with uninterrupted():
                    _write(out, left=len(claims))
            raise
    return Reproduction(tuple(rows), page, hidden)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is over; elsewhere than in the main thread signals do not come anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _write(out: Path, left: int) -> tuple[Path, tuple[str, ...]]:
    """The page and the summary of all that is finished in this folder, whichever call did it."""
    there = [name for name in CLAIMS if (out / "claims" / name).is_dir()]
    kept = [
        row for name in there if (row := _kept(out / "claims" / name)) is not None and row["code"] == code_version()
    ]
    hidden = tuple(sorted(set(there) - {row["name"] for row in kept}))
    page = write_page(out / PAGE, [_shown(row, out) for row in kept], left=left, hidden=hidden)
    write_atomically(out / SUMMARY, as_json(Reproduction(tuple(kept), page).facts()))
    return page, hidden


def _tick(claim: Claim, size: str, done: float, total: float, report: Report | None) -> Callable[[str], None]:
    """Parts of a claim count by the time they have taken, up to what the claim was expected to take."""
    began = time.monotonic()

    def tick(what: str) -> None:
        if report is not None:
            report(claim.name, what, done + min(time.monotonic() - began, 0.95 * claim.seconds[size]), total)

    return tick


def _run(claim: Claim, size: str, seed: int, out: Path, tick: Callable[[str], None]) -> Mapping[str, Any]:
    began = time.monotonic()
    tick("begins")
    evidence = claim.measure(claim.sizes[size], seed, tick)
    judgement = claim.judge(evidence)
    row = _row(claim, size, seed, judgement, evidence, time.monotonic() - began)
    final, partial = out / "claims" / claim.name, out / "claims" / f".{claim.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    plot.save(claim.draw(evidence), partial / "figure")
    for name, table in evidence.tables.items():
        parquet.write_table(pa.table(dict(table)), partial / f"{name}.parquet")
    write_atomically(partial / FRAMES, as_json({"frames": [_packed(frames) for frames in evidence.frames]}))
    # The result comes last, with a seal on itself and on all other files: what was changed later is not used again.
    row = {**row, "files": {path.name: _digest(path.read_bytes()) for path in sorted(partial.iterdir())}}
    row["seal"] = _seal(row)
    write_atomically(partial / RESULT, as_json(row))
    old = final.with_name(f".{claim.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        os.rename(final, old)
    os.rename(partial, final)
    shutil.rmtree(old, ignore_errors=True)
    return row


def _row(
    claim: Claim, size: str, seed: int, judgement: Judgement, evidence: Evidence, seconds: float
) -> Mapping[str, Any]:
    checks = [asdict(check) for check in judgement.checks]
    row = {
        "name": claim.name,
        "title": claim.title,
        "statement": claim.statement,
        "reading": claim.reading,
        "assumed": claim.assumed,
        "beyond": claim.beyond,
        "verdict": judgement.verdict,
        "why": judgement.why,
        "measured": {"checks": checks, "numbers": evidence.numbers},
        "seconds": round(seconds, 2),
        "tables": {name: sorted(table) for name, table in evidence.tables.items()},
        "spec": claim.spec(size, seed),
        "code": code_version(),
        "version": frostline.__version__,
    }
    # As it will be read again: numpy numbers become plain ones, NaN becomes null.
    plain_row: Mapping[str, Any] = json.loads(as_json(row))
    return plain_row


def _finished(claim: Claim, size: str, seed: int, out: Path) -> Mapping[str, Any] | None:
    """The result of an earlier call with the same settings and the same code."""
    row = _kept(out / "claims" / claim.name)
    wanted = json.loads(as_json(claim.spec(size, seed)))
    return row if row is not None and row["spec"] == wanted and row["code"] == code_version() else None


def _kept(folder: Path) -> Mapping[str, Any] | None:
    """A finished result as it was written; None when there is none, or when any of it has been changed."""
    try:
        row = json.loads((folder / RESULT).read_bytes())
        if not isinstance(row, dict) or row.pop("seal", None) != _seal(row):
            return None
        same = all(_digest((folder / name).read_bytes()) == digest for name, digest in row["files"].items())
    except (OSError, ValueError):
        return None
    whole = {"name", "code", "spec"} <= set(row)
    return row if same and whole and row["name"] == folder.name else None


def _seal(row: Mapping[str, Any]) -> str:
    return _digest(as_json(row))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def code_version() -> str:
    """A digest of the source that claims depend on: results of other code are not used again."""
    return source_digest(
        lambda parts: room_of(parts) == "experiments" or row_of(room_of(parts)) < row_of("experiments")
    )[:16]


def _shown(row: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """A result with its figure and its frames, for the page."""
    folder = out / "claims" / row["name"]
    spec = row["spec"]
    full = " --full" if spec["size"] == "full" else ""
    return {
        **row,
        "figure": (folder / "figure.svg").read_text(encoding="utf-8"),
        "frames": json.loads((folder / FRAMES).read_text(encoding="utf-8"))["frames"],
        "command": f"frostline reproduce {row['name']}{full} --seed {spec['seed']} --out {out.name}",
        "folder": f"claims/{row['name']}",
    }


def _packed(frames: Frames) -> dict[str, Any]:
    """Coordinates as 16-bit numbers in base64: the page draws no finer."""
    thin = -(-frames.tokens.shape[1] // SHOWN)
    tokens = np.asarray(frames.tokens, dtype=np.float64)[:, ::thin]
    scaled = np.round(32767 * np.clip(tokens, -1, 1)).astype("<i2")
    return {
        "title": frames.title + (f", one in {thin} drawn" if thin > 1 else ""),
        "times": np.round(frames.times, 4).tolist(),
        "tokens": base64.b64encode(scaled.tobytes()).decode(),
        "shape": list(scaled.shape),
        "groups": np.asarray(frames.groups)[::thin].tolist(),
        "marks": np.round(frames.marks, 4).tolist(),
        "level": np.round(frames.level, 5).tolist(),
        "level_name": frames.level_name,
    }


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadParameter(f"{out} is a file; --out names a folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise BadParameter(f"{out} is not empty and was not made by reproduce; choose another --out.")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two calls into one folder would write over each other."""
    with open(out / MARK, "w") as lock:
        if not try_lock(lock):
            raise BadParameter(f"another frostline is writing into {out}; wait for it, or choose another --out.")
        yield
