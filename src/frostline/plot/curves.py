"""The distance of a run to its predicted limit over time, with its phases, certificate and bound where given."""

import numpy as np
from matplotlib.axes import Axes

from frostline.analysis.certificates import Certificate
from frostline.analysis.distance import Measure, common_limit
from frostline.analysis.phases import Phases
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter, BadRun
from frostline.plot.captions import NOTHING_KEPT, check_run, headline
from frostline.plot.style import BLUE, INK, ORANGE, SOFT, VIOLET, new_figure
from frostline.theory.bounds import Bound

BANDS = {"concentration": "#dbe9f6", "plateau": "#e3f1e0", "terminal": "#fbe6d6"}
"""The colour of each phase."""
FEW_TIMES = 30
"""A curve of fewer times shows a marker at each of them."""
LEAST_DRAWN = 1e-16
"""Smaller distances are drawn at this height on the logarithmic axis."""


def distance(
    run: Trajectory,
    *,
    curve: np.ndarray | None = None,
    p: float = 2.0,
    phases: Phases | None = None,
    certificate: Certificate | None = None,
    bound: Bound | None = None,
) -> Axes:
    """Draw W_p from the tokens of a run to their predicted limit over time (THEORY section 10).

    It is exact when the limit is two points, and an upper bound by index coupling otherwise.

    Parameters
    ----------
    run : Trajectory
        A run of tokens (n, d).
    curve : array (k, 2), optional
        Times and distances to draw. By default those of ``phases``, else the distances at the kept times.
    p : float
        Order of the distance.
    phases : Phases, optional
        Drawn as coloured bands.
    certificate : Certificate, optional
        Proven for this run; drawn as a line.
    bound : Bound, optional
        THEORY eq. 11, fitted or an order of magnitude; drawn as a line.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; ``axes.figure`` is the figure.

    Raises
    ------
    BadParameter
        The run is a stack of layers or a batch, or an extra belongs to another distance.
    BadRun
        The run kept no times.
    NoLimit
        The tokens have no limit.

    Examples
    --------
    >>> from frostline import Attention, sample, simulate
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> run = simulate(head, sample.uniform(50, 2, seed=0), until=2.0, save_at=[0.0, 1.0, 2.0])
    >>> distance(run).get_xlabel()
    'time t (depth × step)'
    """
    check_run(run)
    if not len(run.times) and curve is None:
        raise BadRun(NOTHING_KEPT)
    _check_extras(p, phases, certificate)
    if curve is None and phases is not None and phases.curve is not None:
        curve = np.stack([phases.curve.times, phases.curve.distance], axis=1)
    limit = common_limit(run.layers)
    if limit is None:
        if curve is None:
            raise BadParameter("a stack of layers has no single limit to measure the distance to.")
        exact = False
    else:
        if len(run.initial.shape) != 2:
            shape = tuple(run.initial.shape)
            raise BadParameter(f"the distance is drawn for one run (n, d), not for tokens of shape {shape}.")
        measure = Measure.of_run(run, p, limit)
        exact = measure.exact
        if curve is None:
            curve = np.stack([run.times, measure.along(run)], axis=1)
    figure = new_figure(6.4, 4.0)
    ax = figure.add_subplot()
    if phases is not None:
        _draw_bands(ax, phases)
    t, w = curve[:, 0], np.maximum(curve[:, 1], LEAST_DRAWN)
    top = max(2.2, w.max() * 1.3)
    _draw_curve(ax, t, w)
    if certificate is not None:
        values = np.where(certificate.vacuous, np.nan, certificate.values)
        label = "certified (proven, this run)"
        ax.plot(certificate.times, values, color=INK, lw=1.4, ls="--", marker="s", ms=3, label=label)
    if bound is not None:
        values = np.minimum(bound(t, run.layers[0][0].beta), 2 * top)
        ax.plot(t, values, color=VIOLET, lw=1.2, ls=":", label=f"eq. 11, {bound.origin}")
    ax.set_xlabel("time t (depth × step)", color=INK)
    ax.set_ylabel(f"$W_{p:g}$ to the predicted limit", color=INK)
    # Zero, or rounding, must not stretch the axis over sixteen decades.
    ax.set_ylim(max(w.min() / 2, 1e-6 * w.max()), top)
    ax.grid(alpha=0.25, which="both", lw=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", loc="best")
    ax.set_title(headline(run, limit), fontsize=11, color=INK)
    note = "Exact transport to two points." if exact else "Index coupling: an upper bound of the distance."
    figure.text(0.5, 0.02, note, ha="center", fontsize=8, color=SOFT)
    figure.subplots_adjust(left=0.16, right=0.97, bottom=0.19, top=0.9)
    return ax


def _check_extras(p: float, phases: Phases | None, certificate: Certificate | None) -> None:
    """Raise BadParameter when an extra belongs to another distance than the one drawn."""
    if certificate is not None and (certificate.p != p or certificate.target != "limit"):
        raise BadParameter(
            f"the certificate is one of W{certificate.p:g} to the {certificate.target}; the picture shows W{p:g} to "
            "the limit."
        )
    if phases is not None and phases.curve is not None and phases.curve.p != p:
        raise BadParameter(f"the phases were read off W{phases.curve.p:g}; the picture shows W{p:g}.")


def _draw_curve(ax: Axes, t: np.ndarray, w: np.ndarray) -> None:
    """The distance over time, with a mark at its smallest value."""
    ax.semilogy(t, w, color=BLUE, lw=2, marker="o" if len(t) < FEW_TIMES else None, ms=4, label="measured")
    best = int(np.argmin(w))
    label = f"smallest: {w[best]:.3g} at t = {t[best]:.3g}"
    ax.plot(t[best], w[best], "o", mfc="white", mec=ORANGE, mew=1.8, ms=8, zorder=3, label=label)


def _draw_bands(ax: Axes, phases: Phases) -> None:
    """The phases as coloured stretches of the time axis, each with its name."""
    for name, colour in BANDS.items():
        phase = getattr(phases, name)
        if phase is not None:
            ax.axvspan(phase.begin, phase.end, color=colour, lw=0, zorder=0)
            middle = (phase.begin + phase.end) / 2
            place = ax.get_xaxis_transform()
            ax.text(middle, 0.02, name, transform=place, ha="center", va="bottom", fontsize=8, color=SOFT)
