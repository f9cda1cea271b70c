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
from frostline.sweeping.columns import MEANINGS
from frostline.sweeping.dataset import read_table

SHORT = {"n": "tokens", "d": "dimension", "t": "until", "β": "beta"}
MOST_CELLS = 200
"""In one direction."""
MOST_KINDS = 7
TICKS = 12
LONGEST_NAME = 24
MOST_WRITTEN, MOST_ACROSS = 150, 15
"""Cells whose numbers are written into them."""
LARGEST = 1e300
KNOWN = {"yes": 2, "holds": 2, "no": 3, "fails": 3, "unknown": 1, "undecided": 1}
"""Green, red, orange."""
FAILED = "#b3261e"
DARK, LIGHT = "#101418", "#fcfdff"


@dataclass(frozen=True, eq=False)
class Diagram:
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

    def draw(self) -> Figure:
        """The picture."""
        (ax,), figure = plot.panels(1, width=max(5.5, min(11.0, 2.5 + 0.45 * len(self.xs))), height=4.6)
        ax.grid(False)
        if self.values.dtype == object:
            self._kinds(ax)
        else:
            self._numbers(ax, figure)
        for row, column in np.argwhere(self.failed > 0):
            # In a corner, clear of the number; seen on any colour.
            for colour, width in ((LIGHT, 3.0), (FAILED, 1.5)):
                ax.plot(column + 0.36, row + 0.34, "x", color=colour, ms=5, mew=width)
        for axis, values, name in ((ax.xaxis, self.xs, self.x), (ax.yaxis, self.ys, self.y)):
            shown = range(0, len(values), -(-len(values) // TICKS))
            names = [_name(values[k]) for k in shown]
            axis.set_ticks(list(shown), names)
            if axis is ax.xaxis and max(map(len, names)) > 10:
                for label in ax.get_xticklabels():
                    label.set(rotation=30, ha="right", rotation_mode="anchor")
            axis.set_label_text(name)
        return figure

    def _numbers(self, ax: Axes, figure: Figure) -> None:
        seen = self.values[np.isfinite(self.values)]
        if not len(seen):
            raise BadParameter(f"no run that is done has a value of {self.color}; there is nothing to draw.")
        if np.abs(seen).max() > LARGEST:
            raise BadParameter(f"{self.color} goes up to {np.abs(seen).max():.3g}; that is too large to draw.")
        wide = seen.min() > 0 and seen.max() > 30 * seen.min()
        norm = matplotlib.colors.LogNorm() if wide else None
        image = ax.imshow(
            np.ma.masked_invalid(self.values),
            origin="lower",
            aspect="auto",
            cmap="viridis",
            norm=norm,
            interpolation="none",
        )
        figure.colorbar(image, ax=ax, label=self.color)
        self._empty(ax, np.isnan(self.values))
        if self.values.size <= MOST_WRITTEN and len(self.xs) <= MOST_ACROSS:
            for (row, column), value in np.ndenumerate(self.values):
                if np.isfinite(value):
                    # Light on dark and dark on light, in colours that do not follow the page.
                    light = np.dot(image.to_rgba(value)[:3], (0.3, 0.6, 0.1)) > 0.5
                    told = f"{value:.2g}" if abs(value) < 100 else f"{value:.3g}"
                    if self.seen[row, column] < self.runs[row, column]:
                        told += f"\n{self.seen[row, column]} of {self.runs[row, column]}"
                    ax.text(column, row, told, ha="center", va="center", size=8, color=DARK if light else LIGHT)

    def _kinds(self, ax: Axes) -> None:
        found = sorted({value for value in self.values.ravel() if value is not None})
        if not found:
            raise BadParameter(f"no run that is done has a value of {self.color}; there is nothing to draw.")
        if len(found) > MOST_KINDS:
            raise BadParameter(f"{self.color} has {len(found)} different texts; a picture can tell {MOST_KINDS} apart.")
        colours = _colours(found)
        numbers = np.array([[np.nan if v is None else found.index(v) for v in row] for row in self.values], dtype=float)
        ax.imshow(
            np.ma.masked_invalid(numbers),
            origin="lower",
            aspect="auto",
            cmap=matplotlib.colors.ListedColormap(colours),
            vmin=-0.5,
            vmax=len(found) - 0.5,
            interpolation="none",
        )
        ax.set_title(self.color)
        ax.legend(
            handles=[Patch(color=colour, label=_name(text)) for colour, text in zip(colours, found, strict=True)],
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            frameon=False,
        )
        # Neighbours of one colour are still two cells.
        ax.set_xticks(np.arange(1, len(self.xs)) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, len(self.ys)) - 0.5, minor=True)
        ax.grid(True, which="minor", color=plot.FAINT, lw=0.6)
        ax.tick_params(which="minor", length=0)
        self._empty(ax, np.isnan(numbers))

    def _empty(self, ax: Axes, empty: np.ndarray) -> None:
        for row, column in np.argwhere(empty):
            there = self.runs[row, column] + self.failed[row, column] > 0
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

    def describe(self) -> str:
        """What is in the cells."""
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


def diagram(table: pa.Table, *, x: str, y: str, color: str) -> Diagram:
    """The phase diagram of a sweep's table."""
    own = table.column_names
    x, y, color = (_column(table, name if name in own else SHORT.get(name, name)) for name in (x, y, color))
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
    for place, found in cells.items():
        seen[place] = len(found)
        values[place] = max(sorted(set(found)), key=found.count) if text else float(np.median(found))
    return Diagram(x, y, color, xs, ys, values, runs, seen, failed)


def write_diagram(out: Path, *, x: str, y: str, color: str, table: pa.Table | None = None) -> Path:
    """The page in the dataset, with SVG and PNG of the same name; its path. ``table``: some of the rows; else all."""
    found = diagram(read_table(out) if table is None else table, x=x, y=y, color=color)
    figure = found.draw()
    stem = out / f"_diagram-{found.x}-{found.y}-{found.color}"
    # Names of columns have dots in them, which are no endings here.
    plot.save(figure, stem.with_name(stem.name + ".x"))
    title = f"{found.color} over {found.x} and {found.y}"
    reading = (
        f"Each cell is one value of {found.x} and one of {found.y}; cells are equally large, whatever the steps "
        f"between values. Pale grey: no run there has a value of {found.color}; a cell in which only some have says "
        "how many. Hatched: no run there. Crosses: some run there failed; its row says why."
    )
    rows = [
        [
            _told(found.ys[row]),
            _told(found.xs[column]),
            _told(found.values[row, column]),
            int(found.seen[row, column]),
            *map(int, counts),
        ]
        for row in range(len(found.ys))
        for column in range(len(found.xs))
        if any(counts := (found.runs[row, column], found.failed[row, column]))
    ]
    columns = [found.y, found.x, found.color, "runs with one", "runs done", "failed"]
    return render(
        stem.with_name(stem.name + ".html"),
        "sweep.html",
        title=f"{out.resolve().name}: {title}",
        sentence=found.describe(),
        figures=[figure_section("diagram", "Phase diagram", reading, figure, label=title)],
        tables=[table_section("Cells", columns, rows)],
    )


def _column(table: pa.Table, name: str) -> str:
    if name not in table.column_names:
        raise BadParameter(f"the sweep has no column {name!r}; {suggestion(name, table.column_names)}")
    if pa.types.is_list(table[name].type):
        raise BadParameter(f"{name} is a list in each row; a picture needs one value.")
    return name


def _sorted(values: Sequence[Any], name: str) -> tuple[Any, ...]:
    found = sorted({value for value in values if value is not None})
    if not found:
        raise BadParameter(f"no run has a value of {name}; there is nothing to draw.")
    if len(found) > MOST_CELLS:
        raise BadParameter(f"{name} has {len(found)} different values; {MOST_CELLS} fit into a picture.")
    return tuple(found)


def _name(value: Any) -> str:
    """Short, for an axis or a legend: of paths the end tells them apart."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 or abs(value) >= 1e5 else f"{value:.0f}"
    # Signs that a picture cannot show, and those that would be read as mathematics.
    told = "".join(sign if sign.isprintable() else "·" for sign in str(value)).replace("$", r"\$")
    return told if len(told) <= LONGEST_NAME else "…" + told[-LONGEST_NAME:]


def _colours(found: Sequence[str]) -> list[str]:
    """The same for the same word in every diagram, where it is a word of verdicts; others by their place."""
    table = matplotlib.colormaps["tab10"]
    free = iter(k for k in range(10) if k not in KNOWN.values())
    return [matplotlib.colors.to_hex(table(KNOWN[text] if text in KNOWN else next(free))) for text in found]


def _told(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
