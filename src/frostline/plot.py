"""Figures as matplotlib axes: tokens on the sphere, distance over time."""

import base64
import html
import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import NullLocator

from frostline.analysis.certificates import Certificate
from frostline.analysis.curves import Measure
from frostline.analysis.phases import Phases
from frostline.arrays import as_float64
from frostline.attention import as_one_layer
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter, BadRun, FrostlineError
from frostline.sphere import unit_rows
from frostline.theory.bounds import Bound
from frostline.theory.limits import Limit, limit

INK, FAINT, ORANGE, BLUE, NOWHERE = "#1b2733", "#c3ccd5", "#d1661d", "#1f6fb2", "#77808a"
# More dots than this only make a figure heavy; every k-th token is drawn, and the figure says so.
MOST_DOTS = 4000
MOST_RINGS = 12
NOTHING_KEPT = "the run kept no times, so there is nothing to draw; ask for some with save_at."


def tokens(run: Trajectory, *, target: Any | None = None, panels: int = 5) -> list[Axes]:
    """Tokens at up to ``panels`` of the saved times, in the plane where the limit shows; rings mark the limit.

    d = 2: the circle. d = 3: the sphere seen from the side, tokens behind it pale. d > 3: shadow on a plane.
    Colour follows a token through all panels: it shows where the theory sends it (or, without a limit, where it began).
    """
    _check_run(run)
    cloud = as_float64(run.tokens)
    if cloud.ndim != 3:
        raise BadParameter(f"plot.tokens draws one run (k, n, d); this one has shape {cloud.shape}: pick a member.")
    if not len(cloud):
        raise BadRun(NOTHING_KEPT)
    found = _limit(run)
    start = as_float64(run.initial)
    goal = _goal(found, start) if target is None else np.asarray(target)
    frame = _view(found, cloud)
    chosen = np.unique(np.linspace(0, len(cloud) - 1, min(panels, len(cloud))).round().astype(int))
    thin = max(1, -(-cloud.shape[1] // MOST_DOTS))
    shown = slice(None, None, thin)
    if goal is not None and not np.isfinite(goal).any():
        goal = None
    marks = None if goal is None else _distinct(goal[shown] @ frame.T)
    colours = _colours((start if goal is None else goal)[shown] @ frame.T)
    # Wide enough for the sentence below even when there is only one panel.
    figure = _figure(max(2.9 * len(chosen), 9.0), 3.7)
    axes = [figure.add_subplot(1, len(chosen), k + 1) for k in range(len(chosen))]
    for ax, index in zip(axes, chosen, strict=True):
        _globe(ax)
        _dots(ax, cloud[index, shown] @ frame.T, colours, depth=cloud.shape[2] == 3)
        if marks is not None and goal is not None:
            _rings(ax, marks)
            _shares(ax, cloud[index], goal, frame, run.weights)
        ax.set_title(f"t = {run.times[index]:.4g}", color=INK, fontsize=11)
    figure.suptitle(_headline(run, found), fontsize=11, color=INK, y=0.985)
    note = _explain(cloud.shape[2], found, 0 if marks is None else len(marks), thin)
    figure.text(0.5, 0.025, note, ha="center", va="bottom", fontsize=8, color="#5b6875")
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.12, top=0.83, wspace=0.04)
    return axes


BANDS = {"concentration": "#dbe9f6", "plateau": "#e3f1e0", "terminal": "#fbe6d6"}


def distance(
    run: Trajectory,
    *,
    curve: np.ndarray | None = None,
    p: float = 2.0,
    phases: Phases | None = None,
    certificate: Certificate | None = None,
    bound: Bound | None = None,
) -> Axes:
    """W_p from the tokens to their predicted limit over time (THEORY section 10).

    It is exact when the limit is two points, and an upper bound by index coupling otherwise.

    ``curve`` (k, 2) of times and distances (W₂) is drawn instead of the saved times when given. Optional extras:
    ``phases`` as coloured bands, a ``certificate`` (proven for this run) and a ``bound`` (eq. 11, fitted or an order of
    magnitude) as lines.
    """
    _check_run(run)
    found = _limit(run)
    if not len(run.times) and curve is None:
        raise BadRun(NOTHING_KEPT)
    if certificate is not None and (certificate.p != p or certificate.target != "limit"):
        raise BadParameter(
            f"the certificate is one of W{certificate.p:g} to the {certificate.target}; the picture shows W{p:g} to "
            "the limit."
        )
    if phases is not None and phases.curve is not None and phases.curve.p != p:
        raise BadParameter(f"the phases were read off W{phases.curve.p:g}; the picture shows W{p:g}.")
    if curve is None and phases is not None and phases.curve is not None:
        curve = np.stack([phases.curve.times, phases.curve.distance], axis=1)
    if found is None:
        if curve is None:
            raise BadParameter("a stack of layers has no single limit to measure the distance to.")
        method = "index coupling"
    else:
        start = unit_rows(as_float64(run.initial))
        if start.ndim != 2:
            raise BadParameter(f"the distance is drawn for one run (n, d), not for tokens of shape {start.shape}.")
        measure = Measure.of(
            found, start, np.full(len(start), 1 / len(start)) if run.weights is None else run.weights, p
        )
        method = measure.method
        if curve is None:
            curve = np.array([(t, measure.distance(as_float64(x))) for t, x in zip(run.times, run.tokens, strict=True)])
    figure = _figure(6.4, 4.0)
    ax = figure.add_subplot()
    if phases is not None:
        _bands(ax, phases)
    t, w = curve[:, 0], np.maximum(curve[:, 1], 1e-16)
    ax.semilogy(t, w, color=BLUE, lw=2, marker="o" if len(t) < 30 else None, ms=4, label="measured")
    best = int(np.argmin(w))
    smallest = f"smallest: {w[best]:.3g} at t = {t[best]:.3g}"
    ax.plot(t[best], w[best], "o", mfc="white", mec=ORANGE, mew=1.8, ms=8, zorder=3, label=smallest)
    top = max(2.2, w.max() * 1.3)
    if certificate is not None:
        told = np.where(certificate.vacuous, np.nan, certificate.values)
        ax.plot(
            certificate.times, told, color=INK, lw=1.4, ls="--", marker="s", ms=3, label="certified (proven, this run)"
        )
    if bound is not None:
        beta = run.layers[0][0].beta
        ax.plot(
            t, np.minimum(bound(t, beta), 2 * top), color="#8a3ffc", lw=1.2, ls=":", label=f"eq. 11, {bound.origin}"
        )
    ax.set_xlabel("time t (depth × step)", color=INK)
    ax.set_ylabel(f"$W_{p:g}$ to the predicted limit", color=INK)
    # Zero, or rounding, must not stretch the axis over sixteen decades.
    ax.set_ylim(max(w.min() / 2, 1e-6 * w.max()), top)
    ax.grid(alpha=0.25, which="both", lw=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", loc="best")
    ax.set_title(_headline(run, found), fontsize=11, color=INK)
    exact = (
        "Exact transport to two points." if method == "two atoms" else "Index coupling: an upper bound of the distance."
    )
    figure.text(0.5, 0.02, exact, ha="center", fontsize=8, color="#5b6875")
    figure.subplots_adjust(left=0.16, right=0.97, bottom=0.19, top=0.9)
    return ax


def _bands(ax: Axes, phases: Phases) -> None:
    """The phases as coloured stretches of the time axis, each with its name."""
    for name, colour in BANDS.items():
        phase = getattr(phases, name)
        if phase is not None:
            ax.axvspan(phase.begin, phase.end, color=colour, lw=0, zorder=0)
            middle = (phase.begin + phase.end) / 2
            place = ax.get_xaxis_transform()
            ax.text(middle, 0.02, name, transform=place, ha="center", va="bottom", fontsize=8, color="#5b6875")


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


def trajectory_html(run: Trajectory) -> str:
    """What a notebook shows for a run: its status in words and its tokens as a picture."""
    text = f"<p><b>{html.escape(repr(run))}</b><br>{html.escape(run.message)}</p>"
    try:
        figure = tokens(run)[0].figure
        text += f"<p>{html.escape(run.regime.describe())}</p>"
    except FrostlineError as error:
        return f"{text}<p>{html.escape(str(error))}</p>"
    buffer = io.BytesIO()
    assert isinstance(figure, Figure)
    figure.savefig(buffer, format="png", dpi=110)
    return f'{text}<img alt="tokens at the saved times" src="data:image/png;base64,{_base64(buffer)}">'


def panels(count: int, *, width: float = 5.2, height: float = 3.9) -> tuple[list[Axes], Figure]:
    """Empty axes side by side, in the style of all figures here."""
    figure = _figure(width * count, height)
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


def _check_run(run: object) -> None:
    if not isinstance(run, Trajectory):
        raise BadParameter(f"plot draws a run of simulate (a Trajectory), not {type(run).__name__}.")


class _Picture(Figure):
    """A figure that notebooks show, although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def _figure(width: float, height: float) -> Figure:
    """A figure outside pyplot: no global state, no window, safe in threads."""
    figure = _Picture(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _base64(buffer: io.BytesIO) -> str:
    return base64.b64encode(buffer.getvalue()).decode()


def _limit(run: Trajectory) -> Limit | None:
    try:
        return limit([list(as_one_layer([list(layer) for layer in run.layers], "the limit"))])
    except BadParameter:
        return None


def _goal(found: Limit | None, start: np.ndarray) -> np.ndarray | None:
    if found is None or found.kind in ("rotation", "mixed"):
        return None
    return as_float64(found(unit_rows(start)))


def _view(found: Limit | None, cloud: np.ndarray) -> np.ndarray:
    """(≤3, d) orthonormal rows to draw along: the limit's own directions first, then where the tokens vary most."""
    d = cloud.shape[2]
    own = np.zeros((0, d)) if found is None or found.basis is None else as_float64(found.basis)[:2]
    rest = cloud[0] - cloud[0] @ own.T @ own
    spread = np.linalg.svd(rest - rest.mean(0), full_matrices=True)[2]
    rows = [*own]
    for vector in spread:
        vector = vector - sum((vector @ row) * row for row in rows)
        if len(rows) < min(3, d) and np.linalg.norm(vector) > 1e-6:
            rows.append(vector / np.linalg.norm(vector))
    frame = np.array(rows)
    # Signs are arbitrary in an eigenbasis; fix them, so that the same run is the same picture.
    return frame * np.where(frame[np.arange(len(frame)), np.abs(frame).argmax(1)] < 0, -1.0, 1.0)[:, None]


def _colours(shadow: np.ndarray) -> np.ndarray:
    """Colour by direction in the picture: two colours for two points, a colour wheel for a circle."""
    known = np.isfinite(shadow[:, 0])
    if (np.abs(np.abs(shadow[known, 0]) - 1) < 1e-6).all():
        colours = np.array([to_rgba(ORANGE if x > 0 else BLUE) for x in shadow[:, 0]])
    else:
        turn = (np.arctan2(shadow[:, 1], shadow[:, 0]) + np.pi) / (2 * np.pi)
        colours = np.asarray(matplotlib.colormaps["hsv"](np.where(known, turn, 0.0))) * [0.85, 0.85, 0.85, 1.0]
    colours[~known] = to_rgba(NOWHERE)
    return colours


def _globe(ax: Axes) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.fill(np.cos(turn), np.sin(turn), color="#f5f8fa", zorder=0)
    ax.plot(np.cos(turn), np.sin(turn), color=FAINT, lw=1, zorder=1)
    ax.set_aspect("equal")
    ax.set_xlim(-1.12, 1.12)
    ax.set_ylim(-1.12, 1.12)
    ax.axis("off")


def _dots(ax: Axes, shadow: np.ndarray, colours: np.ndarray, *, depth: bool) -> None:
    front = shadow[:, 2] >= 0 if depth else np.ones(len(shadow), dtype=bool)
    size = float(np.clip(2400 / len(shadow), 3, 28))
    for side, alpha, order in ((~front, 0.22, 2), (front, 0.75, 3)):
        ax.scatter(
            shadow[side, 0], shadow[side, 1], s=size, c=colours[side], alpha=alpha, lw=0, zorder=order, rasterized=True
        )


def _distinct(shadow: np.ndarray) -> np.ndarray:
    """The different places a token is sent to, as far as the picture can show."""
    return np.unique(shadow[np.isfinite(shadow).all(1)][:, :2].round(6), axis=0)


def _shares(ax: Axes, x: np.ndarray, goal: np.ndarray, frame: np.ndarray, weights: np.ndarray | None) -> None:
    """How much of the tokens is within 0.3 rad of each of two points: a tight cluster is one dot, whatever its mass."""
    points = np.unique(goal[np.isfinite(goal).all(1)].round(6), axis=0)
    if len(points) > 2:
        return
    for point in points:
        near = x @ point >= np.cos(0.3)
        share = near.mean() if weights is None else weights[near].sum()
        place = frame[:2] @ point
        side = "right" if place[0] > 0 else "left"
        x_at, y_at = 0.8 * place
        ax.text(x_at, y_at, f"{100 * share:.0f} %", ha=side, va="center", color=INK, fontsize=8)


def _rings(ax: Axes, few: np.ndarray) -> None:
    """The distinct limits, as open rings when they are few, as small dots along a curve when they are many."""
    if len(few) <= MOST_RINGS:
        ax.scatter(few[:, 0], few[:, 1], s=150, facecolors="none", edgecolors=INK, lw=1.4, zorder=4, clip_on=False)
        return
    # On the rim the tokens would lie under them: draw them just outside.
    rim = np.linalg.norm(few, axis=1).min() > 0.999
    place = few * (1.06 if rim else 1.0)
    ax.scatter(place[:, 0], place[:, 1], s=1.5, color=INK, alpha=0.5, lw=0, zorder=1.5, rasterized=True)


def _headline(run: Trajectory, found: Limit | None) -> str:
    heads = [head for layer in run.layers for head in layer]
    betas = sorted({head.beta for head in heads})
    beta = f"β = {betas[0]:g}" if len(betas) == 1 else f"β = {betas[0]:g} … {betas[-1]:g}"
    n, d = as_float64(run.initial).shape[-2:]
    kind = "" if found is None else f", limit: {found.kind}"
    return f"{n} tokens on S$^{{{d - 1}}}$, {beta}{kind}"


def _explain(d: int, found: Limit | None, marks: int, thin: int) -> str:
    how = {2: "The circle.", 3: "Orthographic view; tokens on the far side are pale."}
    words = [how.get(d, "Shadow on a plane: tokens inside the disc have other components.")]
    if marks:
        sign = "Rings" if marks <= MOST_RINGS else "Small black dots"
        words.append(f"{sign}: the predicted zero-temperature limit; colour: where a token is sent (grey: nowhere).")
        if marks == 2:
            words.append("%: tokens within 0.3 rad.")
    else:
        words.append(f"Colour: where a token began{'' if found is None else ' (no limit here)'}.")
    if thin > 1:
        words.append(f"One token in {thin} is drawn.")
    return " ".join(words)
