"""The folder of one measured claim: result, tables, figure and frames, written whole and sealed.

claims/NAME/result.json, figure.svg, figure.png, TABLE.parquet, frames.json
"""

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from pyarrow import parquet

from frostline import plot
from frostline.experiments.claim import Evidence, Frames
from frostline.files.atomic import write_atomically
from frostline.files.plain_json import as_json

SHOWN = 200
"""Tokens of a scrubber at most: more would make the page too large to send."""
RESULT = "result.json"
"""The file of the result, which is written last."""
FRAMES = "frames.json"
"""The file of the frames for the page's scrubber."""


def write_result(folder: Path, row: Mapping[str, Any], evidence: Evidence, figure: Figure) -> Mapping[str, Any]:
    """Write the folder of a claim, replacing an old one by a rename; the row as it was written."""
    partial, old = (folder.with_name(f".{folder.name}.{state}") for state in ("partial", "old"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    plot.save(figure, partial / "figure")
    for name, table in evidence.tables.items():
        parquet.write_table(pa.table(dict(table)), partial / f"{name}.parquet")
    write_atomically(partial / FRAMES, as_json({"frames": [_packed(frames) for frames in evidence.frames]}))
    # The result comes last, with a seal on itself and on all other files: a folder that was changed is not used again.
    row = {**row, "files": {path.name: _digest(path.read_bytes()) for path in sorted(partial.iterdir())}}
    row["seal"] = _seal(row)
    write_atomically(partial / RESULT, as_json(row))
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(partial, folder)
    shutil.rmtree(old, ignore_errors=True)
    return row


def read_result(folder: Path) -> Mapping[str, Any] | None:
    """A finished result as it was written; None when there is none, or when any file of it was changed."""
    try:
        row = json.loads((folder / RESULT).read_bytes())
        if not isinstance(row, dict) or row.pop("seal", None) != _seal(row):
            return None
        unchanged = all(_digest((folder / name).read_bytes()) == digest for name, digest in row["files"].items())
    except (OSError, ValueError):
        return None
    return row if unchanged and {"name", "code", "spec"} <= set(row) and row["name"] == folder.name else None


def read_picture(folder: Path) -> dict[str, Any]:
    """The figure (SVG) and the frames of a finished result, for the page."""
    return {
        "figure": (folder / "figure.svg").read_text(encoding="utf-8"),
        "frames": json.loads((folder / FRAMES).read_text(encoding="utf-8"))["frames"],
    }


def _seal(row: Mapping[str, Any]) -> str:
    return _digest(as_json(row))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _packed(frames: Frames) -> dict[str, Any]:
    """Coordinates as 16-bit numbers in base64: the page draws no finer."""
    every = -(-frames.tokens.shape[1] // SHOWN)
    tokens = np.asarray(frames.tokens, dtype=np.float64)[:, ::every]
    scaled = np.round(32767 * np.clip(tokens, -1, 1)).astype("<i2")
    return {
        "title": frames.title + (f", one in {every} drawn" if every > 1 else ""),
        "times": np.round(frames.times, 4).tolist(),
        "tokens": base64.b64encode(scaled.tobytes()).decode(),
        "shape": list(scaled.shape),
        "groups": np.asarray(frames.groups)[::every].tolist(),
        "marks": np.round(frames.marks, 4).tolist(),
        "level": np.round(frames.level, 5).tolist(),
        "level_name": frames.level_name,
    }
