"""Tokens on the sphere at several times of a run, with the predicted limit."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from frostline.analysis.distance import OFF_CLUSTER, Target
from frostline.arrays import as_float64, evenly_spread
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter, BadRun
from frostline.plot.captions import NOTHING_KEPT, check_run, headline
from frostline.plot.style import BLUE, FAINT, INK, NOWHERE, ORANGE, SOFT, new_figure
from frostline.theory.limits import Limit

MOST_DOTS = 4000
"""Tokens that are drawn; of more, every k-th is drawn, and the figure says so."""
MOST_RINGS = 12
"""Points of a limit that are drawn as rings; more are drawn as small dots along a curve."""


def tokens(run: Trajectory, *, target: Any | None = None, panels: int = 5) -> list[Axes]:
    """Draw the tokens of a run at some of the times it kept, in the plane of the limit; rings mark the limit.

    d = 2: the circle. d = 3: the sphere seen from the side, tokens behind it pale. d > 3: the projection on a plane.
    A token has one colour in all panels: it shows its predicted limit (or, without a limit, its start).

    Parameters
    ----------
    run : Trajectory
        A run of tokens (n, d).
    target : array (n, d) or Target, optional
        The point each token should reach, NaN for none; the limit of the run by default.
    panels : int
        Number of times, at most.

    Returns
    -------
    list of matplotlib.axes.Axes
        One for each time; ``axes[0].figure`` is the figure.

    Raises
    ------
    BadParameter
        This is not a run of tokens (n, d).
    BadRun
        The run kept no times.

    Examples
    --------
    >>> from frostline import Attention, sample, simulate
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> run = simulate(head, sample.uniform(50, 2, seed=0), until=2.0, save_at=[0.0, 2.0])
    >>> [ax.get_title() for ax in tokens(run)]
    ['t = 0', 't = 2']
    """
    check_run(run)
    cloud = as_float64(run.tokens)
    if cloud.ndim != 3:
        raise BadParameter(f"plot.tokens draws one run (k, n, d); this one has shape {cloud.shape}: pick a member.")
    if not len(cloud):
        raise BadRun(NOTHING_KEPT)
    start = as_float64(run.initial)
    prediction = target if isinstance(target, Target) else Target.of(run.layers, start, run.weights)
    limit, goal = prediction.limit, prediction.tokens
    if target is not None and target is not prediction:
        goal = np.asarray(target)
    frame = _view(limit, cloud)
    chosen = evenly_spread(len(cloud), panels)
    thin = max(1, -(-cloud.shape[1] // MOST_DOTS))
    shown = slice(None, None, thin)
    if goal is not None and not np.isfinite(goal).any():
        goal = None
    marks = None if goal is None else _distinct(goal[shown] @ frame.T)
    colours = _colours((start if goal is None else goal)[shown] @ frame.T)
    # Wide enough for the sentence below even when there is only one panel.
    figure = new_figure(max(2.9 * len(chosen), 9.0), 3.7)
    axes = [figure.add_subplot(1, len(chosen), k + 1) for k in range(len(chosen))]
    for ax, index in zip(axes, chosen, strict=True):
        _globe(ax)
        _dots(ax, cloud[index, shown] @ frame.T, colours, depth=cloud.shape[2] == 3)
        if marks is not None and goal is not None:
            _rings(ax, marks)
            _shares(ax, cloud[index], goal, frame, run.weights)
        ax.set_title(f"t = {run.times[index]:.4g}", color=INK, fontsize=11)
    figure.suptitle(headline(run, limit), fontsize=11, color=INK, y=0.985)
    note = _explain(cloud.shape[2], limit, 0 if marks is None else len(marks), thin)
    figure.text(0.5, 0.025, note, ha="center", va="bottom", fontsize=8, color=SOFT)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.12, top=0.83, wspace=0.04)
    return axes


def _view(limit: Limit | None, cloud: np.ndarray) -> np.ndarray:
    """Up to three orthonormal rows to draw along: directions of the limit first, then those of the largest variance."""
    d = cloud.shape[2]
    leading = np.zeros((0, d)) if limit is None or limit.basis is None else as_float64(limit.basis)[:2]
    rest = cloud[0] - cloud[0] @ leading.T @ leading
    rows = [*leading]
    for vector in np.linalg.svd(rest - rest.mean(0), full_matrices=True)[2]:
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
    """The disc on which tokens are drawn."""
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.fill(np.cos(turn), np.sin(turn), color="#f5f8fa", zorder=0)
    ax.plot(np.cos(turn), np.sin(turn), color=FAINT, lw=1, zorder=1)
    ax.set_aspect("equal")
    ax.set_xlim(-1.12, 1.12)
    ax.set_ylim(-1.12, 1.12)
    ax.axis("off")


def _dots(ax: Axes, shadow: np.ndarray, colours: np.ndarray, *, depth: bool) -> None:
    """The tokens; with ``depth`` those on the far side are pale."""
    front = shadow[:, 2] >= 0 if depth else np.ones(len(shadow), dtype=bool)
    size = float(np.clip(2400 / len(shadow), 3, 28))
    for side, alpha, order in ((~front, 0.22, 2), (front, 0.75, 3)):
        ax.scatter(
            shadow[side, 0], shadow[side, 1], s=size, c=colours[side], alpha=alpha, lw=0, zorder=order, rasterized=True
        )


def _distinct(shadow: np.ndarray) -> np.ndarray:
    """The different points of the limit, as far as the picture can show them."""
    return np.unique(shadow[np.isfinite(shadow).all(1)][:, :2].round(6), axis=0)


def _shares(ax: Axes, x: np.ndarray, goal: np.ndarray, frame: np.ndarray, weights: np.ndarray | None) -> None:
    """Write the mass within 0.3 rad of each of two points: a tight cluster is one dot, whatever its mass."""
    points = np.unique(goal[np.isfinite(goal).all(1)].round(6), axis=0)
    if len(points) > 2:
        return
    for point in points:
        near = x @ point >= np.cos(OFF_CLUSTER)
        share = near.mean() if weights is None else weights[near].sum()
        place = frame[:2] @ point
        side = "right" if place[0] > 0 else "left"
        x_at, y_at = 0.8 * place
        ax.text(x_at, y_at, f"{100 * share:.0f} %", ha=side, va="center", color=INK, fontsize=8)


def _rings(ax: Axes, points: np.ndarray) -> None:
    """The distinct points of the limit: open rings when they are few, small dots along a curve when they are many."""
    if len(points) <= MOST_RINGS:
        ax.scatter(
            points[:, 0], points[:, 1], s=150, facecolors="none", edgecolors=INK, lw=1.4, zorder=4, clip_on=False
        )
        return
    # On the rim they would cover the tokens: draw them just outside.
    rim = np.linalg.norm(points, axis=1).min() > 0.999
    place = points * (1.06 if rim else 1.0)
    ax.scatter(place[:, 0], place[:, 1], s=1.5, color=INK, alpha=0.5, lw=0, zorder=1.5, rasterized=True)


def _explain(d: int, limit: Limit | None, marks: int, thin: int) -> str:
    """The sentences below the picture."""
    how = {2: "The circle.", 3: "Orthographic view; tokens on the far side are pale."}
    words = [how.get(d, "Shadow on a plane: tokens inside the disc have other components.")]
    if marks:
        sign = "Rings" if marks <= MOST_RINGS else "Small black dots"
        words.append(f"{sign}: the predicted zero-temperature limit; colour: where a token is sent (grey: nowhere).")
        if marks == 2:
            words.append("%: tokens within 0.3 rad.")
    else:
        words.append(f"Colour: where a token began{'' if limit is None else ' (no limit here)'}.")
    if thin > 1:
        words.append(f"One token in {thin} is drawn.")
    return " ".join(words)
