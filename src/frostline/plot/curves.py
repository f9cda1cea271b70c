"""The distance of a run to its predicted limit over time, with phases, certificate and bound where asked."""

import numpy as np
from matplotlib.axes import Axes

from frostline.analysis.certificates import Certificate
from frostline.analysis.distance import Measure
from frostline.analysis.phases import Phases
from frostline.arrays import as_float64
from frostline.dynamics.simulation import Trajectory
from frostline.errors import BadParameter, BadRun
from frostline.plot.captions import NOTHING_KEPT, check_run, headline, limit_of
from frostline.plot.style import BLUE, INK, ORANGE, SOFT, new_figure
from frostline.sphere import unit_rows
from frostline.theory.bounds import Bound

BANDS = {"concentration": "#dbe9f6", "plateau": "#e3f1e0", "terminal": "#fbe6d6"}
"""A colour for each phase."""


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
    check_run(run)
    found = limit_of(run)
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
        measure = Measure.of(found, start, run.weights, p)
        method = measure.method
        if curve is None:
            curve = np.stack([run.times, measure.along(run)], axis=1)
    figure = new_figure(6.4, 4.0)
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
    ax.set_title(headline(run, found), fontsize=11, color=INK)
    exact = (
        "Exact transport to two points." if method == "two atoms" else "Index coupling: an upper bound of the distance."
    )
    figure.text(0.5, 0.02, exact, ha="center", fontsize=8, color=SOFT)
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
            ax.text(middle, 0.02, name, transform=place, ha="center", va="bottom", fontsize=8, color=SOFT)
