"""One offline HTML page: a template filled with figures and tables, its style and drawings inlined."""

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from frostline import plot
from frostline.files.atomic import write_atomically

COLOURS = {plot.INK: "var(--ink)", plot.FAINT: "var(--faint)", "#000000": "var(--ink)", "#ffffff": "none"}
"""Colours of figures that follow the page into the dark."""


def render(path: Path, template: str, **context: Any) -> Path:
    """Fill a template of this folder, with the common style, and write it at once or not at all."""
    here = files("frostline.report")
    environment = Environment(
        loader=FunctionLoader(lambda name: (here / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["maths"] = maths
    filled = environment.get_template(template)
    write_atomically(
        path, filled.render(style=Markup((here / "page.css").read_text(encoding="utf-8")), **context).encode()
    )
    return path


def maths(text: str) -> Markup:
    """Plain text with x^{…}, x^2, e^Λ and x_t set as superscripts and subscripts.

    >>> maths("W_p falls like e^{−gτ}")
    Markup('W<sub>p</sub> falls like e<sup>−gτ</sup>')
    """
    marked = str(Markup.escape(text))
    marked = re.sub(r"\^\{([^}]*)\}", lambda match: f"<sup>{match[1]}</sup>", marked)
    marked = re.sub(r"\^([−-]?[0-9.]+(?:/[0-9]+)?|[Α-ω](?!\w))", r"<sup>\1</sup>", marked)
    marked = re.sub(r"(?<=[\w♯ρℓθ̃*])_([A-Za-zβτ])(?![a-z])", r"<sub>\1</sub>", marked)
    return Markup(marked)


def figure_section(name: str, title: str, reading: str, drawing: str, *, label: str = "") -> dict[str, Any]:
    """A figure of a page: the name and title of its section, how to read it, and the drawing (SVG).

    ``label``: for those who cannot see it, where the title does not say enough.
    """
    svg = Markup(inlined(drawing, name, label or title))
    return {"name": name, "title": title, "reading": reading, "svg": svg}


def table_section(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], reading: str = ""
) -> dict[str, Any]:
    """A table of a page; cells are shown as ``cell`` writes them."""
    cells = [[cell(value) for value in row] for row in rows]
    return {"title": title, "reading": reading, "columns": list(columns), "rows": cells}


def cell(value: object) -> str:
    """A value in a table: four digits of a number, a dash where there is none.

    >>> cell(0.123456), cell(float("nan")), cell(12)
    ('0.1235', '–', '12')
    """
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if np.isfinite(value) else "–"
    return "–" if value is None else str(value)


def inlined(svg: str, name: str, label: str) -> str:
    """The drawing without its prologue, in colours that follow the page, with a label for those who cannot see it."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for colour, variable in COLOURS.items():
        body = body.replace(colour, variable)
    # Every figure numbers its parts from one: names nobody refers to go, the others must differ on the page.
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", body)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", body)
    # Sized by the page, but never larger than it was drawn.
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) width="([^"]*)"', r'\1 style="max-width: \2"', body, count=1)
    return body.replace("<svg", f'<svg role="img" aria-label="{Markup.escape(label)}"', 1)
