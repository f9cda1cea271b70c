"""The phase diagram of a sweep: one measure, as colour, over two axes; as a page, and as SVG and PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from frostline import plot
from frostline.errors import BadParameter
from frostline.files.suggestions import suggestion
from frostline.report.html import figure_section, render, table_section
from frostline.results import Result
from frostline.sweeping.columns import MEANINGS
from frostline.sweeping.dataset import read_table

SHORT = {"n": "tokens", "d": "dimension", "t": "until", "β": "beta"}
"""Short names of columns."""
MOST_CELLS = 200
"""Cells in one direction at most."""
MOST_WORDS = 7
"""Different words that colours can tell apart."""
TICKS = 12
"""Labels of an axis at most."""
LONGEST_NAME = 24
"""Characters of a label at most."""
MOST_WRITTEN = 150
"""Cells of a diagram whose numbers are written into them, at most."""
MOST_ACROSS = 15
"""Columns of a diagram whose numbers are written into its cells, at most."""
LARGEST = 1e300
"""The largest absolute value that matplotlib can draw."""
KNOWN = {"yes": 2, "holds": 2, "no": 3, "fails": 3, "unknown": 1, "undecided": 1}
"""Places of verdicts in matplotlib's colours "tab10": green, red, orange."""
FAILED = "#b3261e"
"""Colour of the crosses for failed runs."""
DARK = "#101418"
"""Colour of numbers on light cells."""
LIGHT = "#fcfdff"
"""Colour of numbers on dark cells."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagram(Result):
    """Cells ``values[row, column]`` over ``ys`` and ``xs``: the median of a number, or the most frequent text, of the
    runs there. ``runs`` counts those that finished, ``seen`` those of them that have a value, ``failed`` the others."""

    x: str
    y: str
    color: str
    xs: tuple[Any, ...]
    ys: tuple[Any, ...]
    values: np.ndarray
    runs: np.ndarray
    seen: np.ndarray
    failed: np.ndarray

    def describe(self) -> str:
        """The cells in words: how many runs, over which values, and how many have none or failed."""
        how = "the most frequent one" if self.values.dtype == object else "the median"
        most = int(self.runs.max())
        each = "" if most <= 1 else f" Of several runs in a cell (up to {most}) it shows {how}."
        gone = int(self.failed.sum())
        failed = f" {gone} run{' failed (cross)' if gone == 1 else 's failed (crosses)'}." if gone else ""
        total, seen = int(self.runs.sum()), int(self.seen.sum())
        without = "" if seen == total else f" {total - seen} of them have none."
        meaning = f"{self.color}: {MEANINGS[self.color]}. " if self.color in MEANINGS else ""
        return (
            f"{meaning}{total} runs over {len(self.xs)} values of {self.x} and {len(self.ys)} of {self.y}.{without}"
            f"{each}{failed}"
        )

    def headline(self) -> str:
        """Axes, colour and number of runs."""
        return f"{self.color} over {self.x} and {self.y}; {int(self.runs.sum())} runs"


def make_diagram(table: pa.Table, *, x: str, y: str, color: str) -> Diagram:
    """The phase diagram of a sweep's table."""
    columns_of_table = table.column_names
    x, y, color = (
        _column(table, name if name in columns_of_table else SHORT.get(name, name)) for name in (x, y, color)
    )
    if x == y:
        raise BadParameter(f"x and y are both {x}; take two different axes.")
    done = np.array(table["status"].to_pylist(), dtype=object) == "done"
    across, along = table[x].to_pylist(), table[y].to_pylist()
    xs, ys = _sorted(across, x), _sorted(along, y)
    columns, rows = {value: k for k, value in enumerate(xs)}, {value: k for k, value in enumerate(ys)}
    text = not (pa.types.is_floating(table[color].type) or pa.types.is_integer(table[color].type))
    cells: dict[tuple[int, int], list[Any]] = {}
    shape = (len(ys), len(xs))
    runs, failed = np.zeros(shape, dtype=int), np.zeros(shape, dtype=int)
    for a, b, value, good in zip(across, along, table[color].to_pylist(), done, strict=True):
        if a is None or b is None:
            continue
        place = rows[b], columns[a]
        (runs if good else failed)[place] += 1
        if good and value is not None:
            cells.setdefault(place, []).append(str(value) if text else float(value))
    values = np.full(shape, None, dtype=object) if text else np.full(shape, np.nan)
    seen = np.zeros(shape, dtype=int)
    for place, measured in cells.items():
        seen[place] = len(measured)
        values[place] = max(sorted(set(measured)), key=measured.count) if text else float(np.median(measured))
    return Diagram(x, y, color, xs, ys, values, runs, seen, failed)


def write_diagram(out: Path, *, x: str, y: str, color: str, table: pa.Table | None = None) -> Path:
    """Write the page into the dataset, with SVG and PNG beside it; its path. ``table``: the rows, or None for all."""
    diagram = make_diagram(read_table(out) if table is None else table, x=x, y=y, color=color)
    stem = out / f"_diagram-{diagram.x}-{diagram.y}-{diagram.color}"
    # Names of columns have dots in them, which are no endings here.
    drawing = plot.save(draw(diagram), stem.with_name(stem.name + ".x"))
    title = f"{diagram.color} over {diagram.x} and {diagram.y}"
    reading = (
        f"Each cell is one value of {diagram.x} and one of {diagram.y}; cells are equally large, whatever the steps "
        f"between values. Pale grey: no run there has a value of {diagram.color}; a cell in which only some have says "
        "how many. Hatched: no run there. Crosses: some run there failed; its row says why."
    )
    rows = [
        [
            _shown(diagram.ys[row]),
            _shown(diagram.xs[column]),
            _shown(diagram.values[row, column]),
            int(diagram.seen[row, column]),
            *map(int, counts),
        ]
        for row in range(len(diagram.ys))
        for column in range(len(diagram.xs))
        if any(counts := (diagram.runs[row, column], diagram.failed[row, column]))
    ]
    columns = [diagram.y, diagram.x, diagram.color, "runs with one", "runs done", "failed"]
    return render(
        stem.with_name(stem.name + ".html"),
        "sweep.html",
        title=f"{out.resolve().name}: {title}",
        sentence=diagram.describe(),
        figures=[figure_section("diagram", "Phase diagram", reading, drawing, label=title)],
        tables=[table_section("Cells", columns, rows)],
    )


def draw(diagram: Diagram) -> Figure:
    """The figure of a phase diagram."""
    (ax,), figure = plot.panels(1, width=max(5.5, min(11.0, 2.5 + 0.45 * len(diagram.xs))), height=4.6)
    ax.grid(False)
    if diagram.values.dtype == object:
        _draw_words(ax, diagram)
    else:
        _draw_numbers(ax, figure, diagram)
    for row, column in np.argwhere(diagram.failed > 0):
        # In a corner, clear of the number; seen on any colour.
        for colour, width in ((LIGHT, 3.0), (FAILED, 1.5)):
            ax.plot(column + 0.36, row + 0.34, "x", color=colour, ms=5, mew=width)
    for axis, values, name in ((ax.xaxis, diagram.xs, diagram.x), (ax.yaxis, diagram.ys, diagram.y)):
        shown = range(0, len(values), -(-len(values) // TICKS))
        names = [_name(values[k]) for k in shown]
        axis.set_ticks(list(shown), names)
        if axis is ax.xaxis and max(map(len, names)) > 10:
            for label in ax.get_xticklabels():
                label.set(rotation=30, ha="right", rotation_mode="anchor")
        axis.set_label_text(name)
    return figure


def _draw_numbers(ax: Axes, figure: Figure, diagram: Diagram) -> None:
    seen = diagram.values[np.isfinite(diagram.values)]
    if not len(seen):
        raise BadParameter(f"no run that is done has a value of {diagram.color}; there is nothing to draw.")
    if np.abs(seen).max() > LARGEST:
        raise BadParameter(f"{diagram.color} goes up to {np.abs(seen).max():.3g}; that is too large to draw.")
    wide = seen.min() > 0 and seen.max() > 30 * seen.min()
    norm = matplotlib.colors.LogNorm() if wide else None
    image = ax.imshow(
        np.ma.masked_invalid(diagram.values),
        origin="lower",
        aspect="auto",
        cmap="viridis",
        norm=norm,
        interpolation="none",
    )
    figure.colorbar(image, ax=ax, label=diagram.color)
    _draw_empty(ax, diagram, np.isnan(diagram.values))
    if diagram.values.size <= MOST_WRITTEN and len(diagram.xs) <= MOST_ACROSS:
        for (row, column), value in np.ndenumerate(diagram.values):
            if np.isfinite(value):
                # Light on dark and dark on light, in colours that stay when the page turns dark.
                light = np.dot(image.to_rgba(value)[:3], (0.3, 0.6, 0.1)) > 0.5
                label = f"{value:.2g}" if abs(value) < 100 else f"{value:.3g}"
                if diagram.seen[row, column] < diagram.runs[row, column]:
                    label += f"\n{diagram.seen[row, column]} of {diagram.runs[row, column]}"
                ax.text(column, row, label, ha="center", va="center", size=8, color=DARK if light else LIGHT)


def _draw_words(ax: Axes, diagram: Diagram) -> None:
    words = sorted({value for value in diagram.values.ravel() if value is not None})
    if not words:
        raise BadParameter(f"no run that is done has a value of {diagram.color}; there is nothing to draw.")
    if len(words) > MOST_WORDS:
        raise BadParameter(f"{diagram.color} has {len(words)} different texts; a picture can tell {MOST_WORDS} apart.")
    colours = _colours(words)
    numbers = np.array(
        [[np.nan if word is None else words.index(word) for word in row] for row in diagram.values], dtype=float
    )
    ax.imshow(
        np.ma.masked_invalid(numbers),
        origin="lower",
        aspect="auto",
        cmap=matplotlib.colors.ListedColormap(colours),
        vmin=-0.5,
        vmax=len(words) - 0.5,
        interpolation="none",
    )
    ax.set_title(diagram.color)
    ax.legend(
        handles=[Patch(color=colour, label=_name(word)) for colour, word in zip(colours, words, strict=True)],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        frameon=False,
    )
    # Neighbours of one colour are still two cells.
    ax.set_xticks(np.arange(1, len(diagram.xs)) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, len(diagram.ys)) - 0.5, minor=True)
    ax.grid(True, which="minor", color=plot.FAINT, lw=0.6)
    ax.tick_params(which="minor", length=0)
    _draw_empty(ax, diagram, np.isnan(numbers))


def _draw_empty(ax: Axes, diagram: Diagram, empty: np.ndarray) -> None:
    """Pale grey where runs are done without a value, hatched where there are none."""
    for row, column in np.argwhere(empty):
        there = diagram.runs[row, column] + diagram.failed[row, column] > 0
        ax.add_patch(
            matplotlib.patches.Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                facecolor=plot.FAINT if there else "none",
                edgecolor=plot.FAINT,
                hatch=None if there else "///",
                lw=0,
            )
        )


def _column(table: pa.Table, name: str) -> str:
    if name not in table.column_names:
        raise BadParameter(f"the sweep has no column {name!r}; {suggestion(name, table.column_names)}")
    if pa.types.is_list(table[name].type):
        raise BadParameter(f"{name} is a list in each row; a picture needs one value.")
    return name


def _sorted(values: Sequence[Any], name: str) -> tuple[Any, ...]:
    different = sorted({value for value in values if value is not None})
    if not different:
        raise BadParameter(f"no run has a value of {name}; there is nothing to draw.")
    if len(different) > MOST_CELLS:
        raise BadParameter(f"{name} has {len(different)} different values; {MOST_CELLS} fit into a picture.")
    return tuple(different)


def _name(value: Any) -> str:
    """A short name for an axis or a legend; of long ones the end, which tells paths apart."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 or abs(value) >= 1e5 else f"{value:.0f}"
    # Signs that a figure cannot show become dots; dollars would begin a formula.
    name = "".join(sign if sign.isprintable() else "·" for sign in str(value)).replace("$", r"\$")
    return name if len(name) <= LONGEST_NAME else "…" + name[-LONGEST_NAME:]


def _colours(words: Sequence[str]) -> list[str]:
    """Colours of words: a verdict has the same one in every diagram, other words by their place."""
    table = matplotlib.colormaps["tab10"]
    free = iter(k for k in range(10) if k not in KNOWN.values())
    return [matplotlib.colors.to_hex(table(KNOWN[word] if word in KNOWN else next(free))) for word in words]


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
