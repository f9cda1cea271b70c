"""An audit as a folder: the page, the JSON, tables for other programs, figures, a summary for a model card."""

import io
from collections.abc import Mapping, Set
from pathlib import Path

import pyarrow as pa
from matplotlib.figure import Figure
from pyarrow import csv, parquet

from frostline import plot
from frostline.auditing.audit import Audit
from frostline.auditing.page import READINGS, drawings, model_card, write_audit
from frostline.auditing.scene_files import write_scenes
from frostline.errors import BadParameter
from frostline.files.atomic import write_atomically
from frostline.files.plain_json import as_json

PAGE = "index.html"
"""The page."""
FACTS = "audit.json"
"""The result as JSON; a folder that has it is known as an audit."""
CARD = "model_card.md"
"""The summary for a model card."""
OLD_FIGURES = frozenset({"fidelity"})
"""Names of figures that audits no longer draw, and that an older one may have left in the folder."""


def check_folder(folder: Path, known_by: str = FACTS, what: str = "an audit") -> None:
    """Refuse, before any work is done, a folder that cannot be written or that holds other things."""
    if folder.exists() and not folder.is_dir():
        raise BadParameter(f"{folder} is a file; --out names a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / known_by).exists():
        raise BadParameter(f"{folder} holds other things than {what}; give an empty or a new folder.")
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise BadParameter(f"--out {folder} cannot be written ({error.strerror}); give another folder.") from None
    finally:
        for place in missing:
            if place.exists():
                place.rmdir()


def write_table(table: pa.Table, path: Path) -> None:
    """As Parquet and as CSV; the path is without its ending."""
    for end, write in ((".parquet", parquet.write_table), (".csv", csv.write_csv)):
        written = io.BytesIO()
        write(table, written)
        write_atomically(path.with_suffix(end), written.getvalue())


def save_figures(figures: Mapping[str, Figure], folder: Path, known: Set[str]) -> dict[str, str]:
    """As SVG and PNG; removes those of the ``known`` names that an older result in the same folder has left there.

    Returns the SVGs by name, for the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name: plot.save(figure, folder / name) for name, figure in figures.items()}
    for name in known - figures.keys():
        for end in (".svg", ".png"):
            (folder / (name + end)).unlink(missing_ok=True)
    return drawn


def save_audit(audit: Audit, folder: Path) -> Path:
    """Write everything; the page's path. An older audit in the same folder is replaced file by file, each at once."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # First the file by which the folder is known as ours.
    write_atomically(folder / FACTS, as_json(audit.facts()))
    for name in ("heads", "layers", "clouds"):
        write_table(getattr(audit, name), folder / name)
    drawn = save_figures(drawings(audit), folder / "figures", READINGS.keys() | OLD_FIGURES)
    write_scenes(folder, audit.scenes)
    write_atomically(folder / CARD, model_card(audit).encode())
    return write_audit(folder / PAGE, audit, drawn).absolute()
