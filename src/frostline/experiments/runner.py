"""Claims run into a folder: finished ones are kept, and used again while their settings and the code are the same.

out/index.html, summary.json
out/claims/NAME/…
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import frostline
from frostline.errors import BadParameter
from frostline.experiments.claim import Claim, Evidence, Judgement
from frostline.experiments.claims.catalogue import CLAIMS
from frostline.experiments.reproduction_page import verdicts_in_words, write_page
from frostline.experiments.result_folder import read_picture, read_result, write_result
from frostline.files.atomic import write_atomically
from frostline.files.digests import source_digest
from frostline.files.locks import try_lock
from frostline.files.plain_json import as_json
from frostline.progress import ProgressFunction, Tell, telling
from frostline.results import Result
from frostline.rooms import room_of, row_of

SUMMARY = "summary.json"
"""The file with the facts of all finished claims."""
PAGE = "index.html"
"""The file of the page."""
MARK = ".reproduction"
"""The file whose lock is held meanwhile, and which marks a folder as made by reproduce."""


@dataclass(frozen=True, repr=False)
class Reproduction(Result):
    """Measured claims: a row for each, the page that shows them, and names of claims that the page does not show."""

    claims: tuple[Mapping[str, Any], ...]
    page: Path
    hidden: tuple[str, ...] = ()

    def describe(self) -> str:
        """The verdict of each claim, and why."""
        lines = [f"{row['verdict'].upper():9} {row['title']}: {row['why']}" for row in self.claims]
        if self.hidden:
            lines.append(f"Not shown: {', '.join(self.hidden)}: measured by other code, or changed since.")
        return "\n".join(lines)

    def headline(self) -> str:
        """Verdicts, and the page."""
        return f"{verdicts_in_words([row['verdict'] for row in self.claims])} {self.page}"

    def facts(self) -> dict[str, Any]:
        """The rows and the page, as ``frostline reproduce --json`` prints them."""
        kept = ("name", "verdict", "why", "measured", "seconds")
        rows = [
            {**{name: row[name] for name in kept}, "size": row["spec"]["size"], "seed": row["spec"]["seed"]}
            for row in self.claims
        ]
        return {"claims": rows, "page": str(self.page)}


def reproduce(
    claims: list[Claim],
    *,
    size: str,
    out: Path,
    seed: int = 0,
    force: bool = False,
    progress: ProgressFunction | None = None,
) -> Reproduction:
    """Measure and judge each claim, unless a finished result is kept; then write the page.

    Whatever ends it early (Ctrl-C, a full disk), finished claims stay, and the page shows them.
    """
    out = out.absolute()
    _check_out(out)
    out.mkdir(parents=True, exist_ok=True)
    tell = telling(progress)
    total = sum(claim.seconds[size] for claim in claims)
    rows: list[Mapping[str, Any]] = []
    with _locked(out):
        (out / "claims").mkdir(exist_ok=True)
        try:
            done = 0.0
            for claim in claims:
                row = None if force else _finished(claim, size, seed, out)
                if row is None:
                    row = _run(claim, size, seed, out, _tick(claim, size, done, total, tell))
                done += claim.seconds[size]
                rows.append(row)
                # After every claim: if this ends early, the page shows the finished ones.
                with uninterrupted():
                    page, hidden = _write_page(out, left=len(claims) - len(rows))
                tell(claim.name, row["verdict"], done, total)
        except BaseException:
            if not rows:
                with uninterrupted():
                    _write_page(out, left=len(claims))
            raise
    return Reproduction(tuple(rows), page, hidden)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; threads other than the main one get no signals anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if signals:
        raise KeyboardInterrupt


def _write_page(out: Path, left: int) -> tuple[Path, tuple[str, ...]]:
    """Write the page and the summary of all finished claims of the folder; the page, and claims that it hides."""
    folders = [out / "claims" / name for name in CLAIMS if (out / "claims" / name).is_dir()]
    kept = [row for row in map(read_result, folders) if row is not None and row["code"] == code_version()]
    hidden = tuple(sorted({folder.name for folder in folders} - {row["name"] for row in kept}))
    page = write_page(out / PAGE, [_shown(row, out) for row in kept], left=left, hidden=hidden)
    write_atomically(out / SUMMARY, as_json(Reproduction(tuple(kept), page).facts()))
    return page, hidden


def _tick(claim: Claim, size: str, done: float, total: float, tell: Tell) -> Callable[[str], None]:
    """Progress within a claim: the seconds so far, up to what the claim was expected to take."""
    began = time.monotonic()

    def tick(part: str) -> None:
        tell(claim.name, part, done + min(time.monotonic() - began, 0.95 * claim.seconds[size]), total)

    return tick


def _run(claim: Claim, size: str, seed: int, out: Path, tick: Callable[[str], None]) -> Mapping[str, Any]:
    """Measure and judge a claim; its row, as it was written."""
    began = time.monotonic()
    tick("begins")
    evidence = claim.measure(claim.sizes[size], seed, tick)
    judgement = claim.judge(evidence)
    row = _row(claim, size, seed, judgement, evidence, time.monotonic() - began)
    return write_result(out / "claims" / claim.name, row, evidence, claim.draw(evidence))


def _row(
    claim: Claim, size: str, seed: int, judgement: Judgement, evidence: Evidence, seconds: float
) -> Mapping[str, Any]:
    row = {
        "name": claim.name,
        **asdict(claim.prose),
        "beyond": claim.beyond,
        "verdict": judgement.verdict,
        "why": judgement.why,
        "measured": {"checks": [check.facts() for check in judgement.checks], "numbers": evidence.numbers},
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
    row = read_result(out / "claims" / claim.name)
    spec = json.loads(as_json(claim.spec(size, seed)))
    return row if row is not None and row["spec"] == spec and row["code"] == code_version() else None


@cache
def code_version() -> str:
    """A digest of the source that claims depend on: results of other code are not used again."""
    return source_digest(
        lambda parts: room_of(parts) == "experiments" or row_of(room_of(parts)) < row_of("experiments")
    )[:16]


def _shown(row: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """A result with its figure, its frames and the command that repeats it, for the page."""
    spec, folder = row["spec"], f"claims/{row['name']}"
    full = " --full" if spec["size"] == "full" else ""
    command = f"frostline reproduce {row['name']}{full} --seed {spec['seed']} --out {out.name}"
    return {**row, **read_picture(out / folder), "command": command, "folder": folder}


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadParameter(f"{out} is a file; --out names a folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise BadParameter(f"{out} is not empty and was not made by reproduce; choose another --out.")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the folder's lock: two calls into one folder would write over each other."""
    with open(out / MARK, "w") as lock:
        if not try_lock(lock):
            raise BadParameter(f"another frostline is writing into {out}; wait for it, or choose another --out.")
        yield
