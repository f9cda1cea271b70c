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
VIOLET = "#8a3ffc"
"""Bounds that hold for other reasons than this run."""
NOWHERE = "#77808a"
"""Controls, and tokens without a limit."""
SCREEN_DPI = 110
"""Dots per inch of a picture in a notebook."""


def save(figure: Figure | SubFigure | None, stem: str | Path) -> str:
    """Write ``stem``.png and ``stem``.svg, with the same bytes every time.

    Parameters
    ----------
    figure : matplotlib figure
        The figure of some axes is ``axes.figure``.
    stem : path
        The path of both files without their suffix.

    Returns
    -------
    str
        The SVG, for a page that shows the same figure: drawing it takes long.

    Raises
    ------
    BadParameter
        ``figure`` is not a figure.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     svg = save(panels(1)[1], Path(folder) / "empty")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['empty.png', 'empty.svg']
    """
    if not isinstance(figure, Figure):
        raise BadParameter(f"plot.save takes a figure (of axes: axes.figure), not {type(figure).__name__}.")
    stem = Path(stem)
    with matplotlib.rc_context({"svg.hashsalt": "frostline"}):
        figure.savefig(stem.with_suffix(".png"), dpi=150, metadata={"Software": None})
    svg = as_svg(figure)
    stem.with_suffix(".svg").write_text(svg, encoding="utf-8")
    return svg


def as_svg(figure: Figure) -> str:
    """The figure as SVG, the same text every time.

    Parameters
    ----------
    figure : matplotlib figure
        The figure to draw.

    Returns
    -------
    str
        The SVG.

    Examples
    --------
    >>> "<svg" in as_svg(panels(1)[1])
    True
    """
    drawing = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "frostline"}):
        figure.savefig(drawing, format="svg", dpi=150, metadata={"Date": None, "Creator": None})
    return drawing.getvalue()


def panels(count: int, *, width: float = 5.2, height: float = 3.9) -> tuple[list[Axes], Figure]:
    """Empty axes side by side, in the style of all figures here.

    Parameters
    ----------
    count : int
        Number of axes.
    width, height : float
        Size of each in inches.

    Returns
    -------
    list of Axes, Figure
        The axes from left to right, and their figure.

    Examples
    --------
    >>> axes, figure = panels(2)
    >>> len(axes), figure.get_size_inches().tolist()
    (2, [10.4, 3.9])
    """
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
    """Put ticks at the data: on a short logarithmic axis matplotlib's own ticks overlap.

    Parameters
    ----------
    ax : Axes
        The axes, changed in place.
    values : array (k,)
        Positions of the ticks.

    Examples
    --------
    >>> (ax,), _ = panels(1)
    >>> x_ticks(ax, np.array([1.0, 10.0]))
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['1', '10']
    """
    ax.set_xticks(values.tolist(), [f"{value:.3g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())


def whole_ticks(ax: Axes, rows: int, columns: int) -> None:
    """Put ticks at whole numbers on the axes of a map, about eight on each at most.

    Parameters
    ----------
    ax : Axes
        The axes, changed in place.
    rows, columns : int
        Size of the map.

    Examples
    --------
    >>> (ax,), _ = panels(1)
    >>> whole_ticks(ax, 3, 24)
    >>> ax.get_xticks().tolist()
    [0, 3, 6, 9, 12, 15, 18, 21]
    """
    ax.set_yticks(range(0, rows, max(1, rows // 8)))
    ax.set_xticks(range(0, columns, max(1, columns // 8)))


def shade(number: int, count: int) -> tuple[float, float, float, float]:
    """The colour of one member of a sequence (of temperatures, say), readable on light and dark.

    Parameters
    ----------
    number : int
        Which member, from 0 (warm) on.
    count : int
        Length of the sequence.

    Returns
    -------
    tuple of four floats
        Red, green, blue and opacity.

    Examples
    --------
    >>> [round(part, 2) for part in shade(0, 3)]
    [0.99, 0.73, 0.17, 1.0]
    """
    red, green, blue, opacity = map(float, matplotlib.colormaps["plasma_r"](0.15 + 0.65 * number / max(1, count - 1)))
    return red, green, blue, opacity


class NotebookFigure(Figure):
    """A figure that notebooks show, although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return png_bytes(self)


def png_bytes(figure: Figure) -> bytes:
    """The figure as a PNG at the resolution of a notebook."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=SCREEN_DPI)
    return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """A figure outside pyplot: no global state, no window, safe in threads."""
    figure = NotebookFigure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure
