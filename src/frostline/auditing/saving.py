"""An audit as a folder: the page, the JSON, tables for other programs, figures, a summary for a model card."""

import io
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from frostline import plot
from frostline.auditing.audit import Audit
from frostline.auditing.page import drawings, model_card, write_audit
from frostline.errors import BadParameter
from frostline.store import as_json, write_atomically

PAGE, FACTS, CARD = "index.html", "audit.json", "model_card.md"


def check_folder(folder: Path, known_by: str = FACTS, what: str = "an audit") -> None:
    """Refuse, before any work is done, a place where this cannot go."""
    if folder.exists() and not folder.is_dir():
        raise BadParameter(f"{folder} is a file; --out names a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / known_by).exists():
        raise BadParameter(f"{folder} holds other things than {what}; give an empty or a new folder.")


def save_audit(audit: Audit, folder: Path) -> Path:
    """Write everything; the page's path. An older audit in the same folder is replaced file by file, each at once."""
    check_folder(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    # First the file by which the folder is known as ours.
    write_atomically(folder / FACTS, as_json(audit.facts()))
    for name in ("heads", "layers", "clouds"):
        table: pa.Table = getattr(audit, name)
        written = io.BytesIO()
        parquet.write_table(table, written)
        write_atomically(folder / f"{name}.parquet", written.getvalue())
        written = io.BytesIO()
        csv.write_csv(table, written)
        write_atomically(folder / f"{name}.csv", written.getvalue())
    for name, figure in drawings(audit).items():
        plot.save(figure, folder / "figures" / name)
    write_atomically(folder / CARD, model_card(audit).encode())
    return write_audit(folder / PAGE, audit).absolute()
