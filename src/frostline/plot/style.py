"""The look of every figure: colours, empty axes, titles, and files that are the same bytes every time."""

import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import NullLocator

from frostline.errors import BadParameter

INK = "#1b2733"
"""Text, axes and what a theory says."""
SOFT = "#5b6875"
"""Notes below a figure."""
FAINT = "#c3ccd5"
"""Lines that only guide the eye."""
ORANGE = "#d1661d"
"""The first of two things compared."""
BLUE = "#1f6fb2"
"""The second."""
NOWHERE = "#77808a"
"""Controls, and tokens without a limit."""


def save(figure: Figure | SubFigure | None, stem: str | Path) -> None:
    """Write stem.png and stem.svg; the SVG is the same bytes every time."""
    if not isinstance(figure, Figure):
        raise BadParameter(f"plot.save takes a figure (of axes: axes.figure), not {type(figure).__name__}.")
    stem = Path(stem)
    with matplotlib.rc_context({"svg.hashsalt": "frostline"}):
        figure.savefig(stem.with_suffix(".png"), dpi=150, metadata={"Software": None})
    write_svg(figure, stem.with_suffix(".svg"))


def write_svg(figure: Figure, target: Path | io.StringIO) -> None:
    """The figure as SVG, the same bytes every time."""
    with matplotlib.rc_context({"svg.hashsalt": "frostline"}):
        figure.savefig(target, format="svg", dpi=150, metadata={"Date": None, "Creator": None})


def panels(count: int, *, width: float = 5.2, height: float = 3.9) -> tuple[list[Axes], Figure]:
    """Empty axes side by side, in the style of all figures here."""
    figure = new_figure(width * count, height)
    figure.set_layout_engine("constrained")
    axes = [figure.add_subplot(1, count, k + 1) for k in range(count)]
    for ax in axes:
        ax.grid(alpha=0.25, which="major", lw=0.5)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(INK)
        ax.tick_params(colors=INK, labelsize=9)
        for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
            text.set(color=INK, fontsize=10 if count < 3 else 11)
    return axes, figure


def x_ticks(ax: Axes, values: np.ndarray) -> None:
    """Ticks where the data are: on a short logarithmic axis matplotlib's own run into each other."""
    ax.set_xticks(values.tolist(), [f"{value:.3g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())


def whole_ticks(ax: Axes, rows: int, columns: int) -> None:
    """Ticks of a map of so many rows and columns: whole numbers, at most about eight."""
    ax.set_yticks(range(0, rows, max(1, rows // 8)))
    ax.set_xticks(range(0, columns, max(1, columns // 8)))


def shade(number: int, count: int) -> tuple[float, float, float, float]:
    """Colours for a sequence (of temperatures, say), from warm to cold; readable on light and dark."""
    found = matplotlib.colormaps["plasma_r"](0.15 + 0.65 * number / max(1, count - 1))
    return found[0], found[1], found[2], found[3]


class NotebookFigure(Figure):
    """A figure that notebooks show, although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """A figure outside pyplot: no global state, no window, safe in threads."""
    figure = NotebookFigure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure
