"""Figures of an audit: curves through the layers with their controls, heat maps of heads, spectra."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, SymLogNorm, to_rgb
from matplotlib.figure import Figure

from frostline import plot
from frostline.auditing.audit import Audit
from frostline.auditing.explanations import PLACES
from frostline.auditing.head_roles import WORDS

RANDOM = ", random weights"
"""Ending of the names of columns of this control."""
SHUFFLED = ", shuffled tokens"
"""Ending of the names of columns of this control."""
RICHNESS = {
    "token": "best\ntoken",
    "mean": "mean of\nthe text",
    "cloud": "tilted\ncloud",
    "atoms": "+ first,\nlast, self",
    "neighbours": "+ both\nneighbours",
    "bridge": "first, last,\nself, best,\ncut cloud",
    "matched": "the same,\nmatched\ncloud",
}
"""Descriptions of attention from the cold end to the law, as the axis says them."""
LOWEST = -0.5
"""Smallest share explained that figures show; smaller ones are drawn there."""
PLACE_COLOURS = ("#1f6fb2", "#6fb2e0", "#8a4fa3", "#d1661d", "#e8b07a", "#3f9b6c", "#c2b02c", "#b9c2ca")
"""The colour of each of the places that attention is paid to."""
WIDEST = 16
"""Heads of a layer up to which the cells of a map have room for a number."""
ON_LIGHT, ON_DARK = "#1b2734", "#fefefe"
"""Colours of numbers in coloured cells, which stay as they are on a dark page."""
SPREADS = "VΣBᵀ: spreads (+), gathers (−)"
"""Title of the map of what warm heads do to the cloud."""
SPREADING = 1e-3
"""Growth of the cloud in a layer below which its colours are in equal steps, and above in steps of its logarithm."""
KINDS = ("points", "subspace", "rotation", "mixed", "defective", "kernel")
"""Kinds of what leads in VBᵀ, in the order of the legend."""
KIND_COLOURS = ("#1f6fb2", "#6fb2e0", "#d1661d", "#e8b07a", "#8a4fa3", "#b9c2ca")
"""The colour of each kind."""


def concentration(audit: Audit) -> Figure:
    """Resultant length and distance to the last cloud, with the controls."""
    table, x = _columns(audit.clouds), audit.clouds["cloud"].to_numpy()
    (left, right), figure = plot.panels(2)
    left.fill_between(x, table["resultant_low"], table["resultant_high"], color=plot.BLUE, alpha=0.15, lw=0)
    _three(left, x, table, "resultant")
    left.set(xlabel="cloud (0: input)", ylabel="resultant length", title="how concentrated the tokens are", ylim=(0, 1))
    if "share" in table:
        right.fill_between(x, table["share_low"], table["share_high"], color=plot.BLUE, alpha=0.2, lw=0)
        _three(right, x, table, "share")
        assert audit.frost is not None
        right.axhline(audit.frost.fraction, color=plot.INK, lw=1, ls=":")
        right.axvline(audit.frost.depth, color=plot.INK, lw=1)
    else:
        right.text(0.5, 0.5, "the cloud does not move", ha="center", transform=right.transAxes)
    right.set(xlabel="cloud (0: input)", ylabel="share of the way left", title="the frost line", ylim=(0, None))
    for ax in (left, right):
        ax.set_xticks(x)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=8, frameon=False)
    return figure


def law(audit: Audit) -> Figure:
    """Share explained against how rich the description is, layer by layer, from the cold end to the law."""
    table, layers = _columns(audit.layers), len(audit.layers)
    x = np.arange(len(RICHNESS))
    (left, right), figure = plot.panels(2)
    for control, style, colour in ((RANDOM, "s:", plot.NOWHERE), (SHUFFLED, "^--", plot.INK)):
        median = np.median([table[f"explained_{name}{control}"] for name in RICHNESS], axis=1)
        name = f"{control.removeprefix(', ')}, median layer"
        left.plot(x, np.maximum(median, LOWEST), style, ms=4, lw=1, color=colour, label=name)
    for number in range(layers):
        shares = np.array([table[f"explained_{name}"][number] for name in RICHNESS])
        label = f"layer {number}" if number in (0, layers - 1) else None
        left.plot(x, np.maximum(shares, LOWEST), "o-", ms=4, lw=1, color=plot.shade(number, layers), label=label)
    left.set_xticks(x, RICHNESS.values(), fontsize=8)
    left.set(ylabel="share explained", title="what it takes to say what attention does", ylim=(LOWEST - 0.05, 1.02))
    left.axhline(0, color=plot.FAINT, lw=1, zorder=0)
    left.legend(fontsize=8, frameon=False, loc="lower right")
    places = audit.layers["layer"].to_numpy()
    errors = np.stack(
        [
            table["explained_bridge"] - table["explained_bridge_low"],
            table["explained_bridge_high"] - table["explained_bridge"],
        ]
    )
    right.errorbar(
        places,
        table["explained_bridge"],
        np.maximum(errors, 0),
        fmt="o-",
        ms=4,
        capsize=2,
        color=plot.BLUE,
        label="four tokens and a cut cloud (95 %)",
    )
    right.plot(
        places, table["explained_flat"], "s--", ms=4, lw=1, color=plot.ORANGE, label="… with the cloud's plain mean"
    )
    right.plot(
        places,
        np.maximum(table["explained_bare"], LOWEST),
        "^:",
        ms=4,
        lw=1,
        color=plot.INK,
        label="… without the cloud",
    )
    right.plot(
        places,
        np.maximum(table["explained_mean" + RANDOM], LOWEST),
        "s:",
        ms=3,
        lw=1,
        color=plot.NOWHERE,
        label="mean of the text, random weights",
    )
    right.set(xlabel="layer", ylabel="share explained", title="the law and what it needs", ylim=(LOWEST - 0.05, 1.02))
    right.set_xticks(places)
    right.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def expected(audit: Audit) -> Figure:
    """Concentration after every attention half, observed beside what the law and zero temperature expect."""
    table, x = _columns(audit.layers), audit.layers["layer"].to_numpy()
    (left, right), figure = plot.panels(2)
    left.plot(x, table["before"], "o:", ms=4, color=plot.NOWHERE, label="before attention")
    left.errorbar(
        x,
        table["resultant_after"],
        table["resultant_deviation"],
        fmt="o-",
        capsize=2,
        color=plot.BLUE,
        label="after, observed (± between texts)",
    )
    left.errorbar(
        x,
        table["resultant_expected"],
        table["resultant_error"],
        fmt="x",
        ms=8,
        capsize=4,
        color=plot.INK,
        label="after, by the law (± its error per text)",
    )
    left.plot(x, table["expected_argmax"], "s--", ms=3, lw=1, color=plot.ORANGE, label="after, best token alone")
    left.plot(x, table["expected_full"], "^:", ms=3, lw=1, color=plot.FAINT, label="after, full sphere")
    left.set(xlabel="layer", ylabel="resultant length", title="expected against observed", ylim=(0, 1), xticks=x)
    right.plot(x, table["covariance_before"], "o:", ms=4, color=plot.NOWHERE, label="the covariance before attention")
    right.plot(x, table["covariance_expected"], "x-", color=plot.INK, label="by the law")
    right.set(xlabel="layer", ylabel="distance / norm", title="error in the covariance after attention", xticks=x)
    right.set_ylim(0, None)
    for ax in (left, right):
        ax.legend(fontsize=8, frameon=False)
    return figure


def changes(audit: Audit) -> Figure:
    """Growth of small changes of the input."""
    table, x = _columns(audit.clouds), audit.clouds["cloud"].to_numpy()
    (left, right), figure = plot.panels(2)
    for name, colour, label in (("worst_change", plot.ORANGE, "worst"), ("random_change", plot.BLUE, "random")):
        left.semilogy(x, table[name], "o-", color=colour, label=label)
        left.semilogy(x, table[name + RANDOM], "o:", lw=1, ms=3, color=colour, label=f"{label}, random weights")
    if audit.frost is not None:
        left.axvline(audit.frost.depth, color=plot.INK, lw=1)
    left.axhline(1, color=plot.FAINT, lw=1)
    left.set(xlabel="cloud (0: input)", ylabel="size, relative to the first cloud", title="a small change of the input")
    left.set_xticks(x)
    left.legend(fontsize=8, frameon=False)
    layers = audit.layers["layer"].to_numpy()
    cold = _columns(audit.layers)["cold_growth"]
    before = table["random_change"][:-1]
    real = table["random_change"][1:] / np.where(before > 0, before, np.nan)
    right.plot(layers, real, "o-", color=plot.BLUE, label="random change, this layer")
    half = _columns(audit.layers)
    right.plot(layers, half["attention_growth"], "s-", ms=4, color=plot.ORANGE, label="its attention half")
    right.plot(layers, half["expected_growth"], "x", ms=8, color=plot.INK, label="its attention half, by the law")
    right.plot(layers, cold, "^:", ms=3, lw=1, color=plot.NOWHERE, label="its attention half at zero temperature")
    right.axhline(1, color=plot.FAINT, lw=1)
    right.set(xlabel="layer", ylabel="growth", title="layer by layer", xticks=layers)
    right.legend(fontsize=8, frameon=False)
    return figure


def maps(audit: Audit) -> Figure:
    """Layer × head: temperature, kind, ranks, and (with text) κ, what it looks at, freezing, share explained."""
    layers = len(audit.layers)
    heads = len(audit.heads) // layers
    table = _columns(audit.heads)
    wanted = [("log10 β", np.log10(np.maximum(table["beta"], 1e-3))), ("V's rank, share of random", _rank_share(audit))]
    if "kappa" in table:
        wanted = [
            ("log10 β", np.log10(np.maximum(table["beta"], 1e-3))),
            ("log10 κ on text", np.log10(np.maximum(table["kappa"], 1e-3))),
            ("σ/σ_N: frozen above 1", np.minimum(table["freezing"], 2.0)),
            ("share explained by the law", np.maximum(table["explained_bridge"], 0.0)),
            ("V's rank, share of random", _rank_share(audit)),
            (SPREADS, table["warm_growth"]),
        ]
    columns, first = 3, 2 if "kappa" in table else 1
    rows = -(-(len(wanted) + first) // columns)
    figure = Figure(figsize=(13.2, 1.0 + rows * max(2.2, 0.24 * layers + 1.2)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    shared = audit.weights.shared
    _kinds(axes[0], np.array(audit.heads["kind"].to_pylist()).reshape(layers, heads), counted=not shared)
    if "kappa" in table:
        _places(axes[1], np.reshape([table[f"paid_{place}"] for place in PLACES], (len(PLACES), layers, heads)))
    for ax, (title, values) in zip(axes[first:], wanted, strict=False):
        most = max(float(np.abs(values).max()), 2 * SPREADING)
        signed = {"cmap": "PuOr", "norm": SymLogNorm(SPREADING, vmin=-most, vmax=most)}
        look = signed if title == SPREADS else {"cmap": "cividis"}
        image = ax.imshow(values.reshape(layers, heads), aspect="auto", **look)
        figure.colorbar(image, ax=ax, shrink=0.9)
        ax.set(title=title, xlabel="head", ylabel="layer")
    for ax in axes[len(wanted) + first :]:
        ax.remove()
    for ax in axes[: len(wanted) + first]:
        plot.whole_ticks(ax, layers, heads)
        if shared:
            ax.set_ylabel("pass")
    return figure


def _kinds(ax: Axes, kinds: np.ndarray, *, counted: bool) -> None:
    numbers = np.array([[KINDS.index(kind) for kind in row] for row in kinds])
    ax.imshow(numbers, aspect="auto", cmap=ListedColormap(KIND_COLOURS), vmin=-0.5, vmax=len(KINDS) - 0.5)
    ax.set(title="what leads in VBᵀ", xlabel="head", ylabel="layer")
    for kind, colour in zip(KINDS, KIND_COLOURS, strict=True):
        if (kinds == kind).any():
            # A head that is shared by all passes is one head: its cells are not counted.
            ax.plot([], [], "s", color=colour, label=f"{kind} ({(kinds == kind).sum()})" if counted else kind)
    ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncol=3)


def _places(ax: Axes, paid: np.ndarray) -> None:
    """The kind of token that each head pays most to, and how much of its attention, in percent, where there is room."""
    most = paid.argmax(0)
    if most.shape[1] <= WIDEST:
        for (layer, head), share in np.ndenumerate(paid.max(0)):
            light = sum(to_rgb(PLACE_COLOURS[most[layer, head]])) > 1.7
            colour = ON_LIGHT if light else ON_DARK
            ax.text(head, layer, f"{100 * share:.0f}", ha="center", va="center", fontsize=6, color=colour)
    ax.imshow(most, aspect="auto", cmap=ListedColormap(PLACE_COLOURS), vmin=-0.5, vmax=len(PLACES) - 0.5)
    ax.set(title="what it pays most to", xlabel="head", ylabel="layer")
    for number, (place, colour) in enumerate(zip(PLACES, PLACE_COLOURS, strict=True)):
        if (most == number).any():
            ax.plot([], [], "s", color=colour, label=WORDS[place])
    ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncol=3)


def spectra(audit: Audit) -> Figure:
    """Eigenvalues of A and V of all heads, coloured by layer, over those of random heads."""
    (left, right), figure = plot.panels(2)
    control = audit.weights.control.eigenvalues.reshape(-1)
    left.plot(control.real, control.imag, ".", ms=2, color=plot.NOWHERE, rasterized=True, label="random weights")
    count = len(audit.weights.layers)
    for number, layer in enumerate(audit.weights.layers):
        colour = plot.shade(number, count)
        label = f"{'pass' if audit.weights.shared else 'layer'} {number}" if number in (0, count - 1) else None
        for ax, values in ((left, layer.eigenvalues), (right, layer.value_eigenvalues)):
            flat = values.reshape(-1)
            ax.plot(flat.real, flat.imag, ".", ms=3, color=colour, label=label, rasterized=True)
    left.set(xlabel="Re λ/‖A‖", ylabel="Im λ/‖A‖", title="A = VBᵀ, all heads")
    right.set(xlabel="Re λ", ylabel="Im λ", title="V on the unit sphere, all heads")
    for ax in (left, right):
        ax.axhline(0, color=plot.FAINT, lw=0.8, zorder=0)
        ax.axvline(0, color=plot.FAINT, lw=0.8, zorder=0)
        ax.legend(fontsize=8, frameon=False, markerscale=3)
    return figure


def _three(ax: Axes, x: np.ndarray, table: dict[str, np.ndarray], name: str) -> None:
    ax.plot(x, table[name], "o-", color=plot.BLUE, label="this model")
    for control, style, colour in ((RANDOM, "s:", plot.NOWHERE), (SHUFFLED, "^--", plot.ORANGE)):
        if name + control in table:
            ax.plot(x, table[name + control], style, ms=4, lw=1, color=colour, label=control.removeprefix(", "))


def _rank_share(audit: Audit) -> np.ndarray:
    return np.asarray(audit.heads["value_rank"].to_numpy() / audit.references["value_rank"].median)


def _columns(table: object) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy() for name in table.column_names}  # type: ignore[attr-defined, index]
