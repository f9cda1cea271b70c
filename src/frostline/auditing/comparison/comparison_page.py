"""A comparison as a folder: its page, JSON, tables and figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from frostline import plot
from frostline.auditing.comparison.checkpoints import Series
from frostline.auditing.comparison.compare import Comparison
from frostline.auditing.comparison.outer_tensors import name_of
from frostline.auditing.comparison.parts import SHOWN, shown
from frostline.auditing.comparison.rounding import Verdict
from frostline.auditing.page import rows_of
from frostline.auditing.save import PAGE, check_folder, save_figures, write_table
from frostline.encoders.model_folders import short_name
from frostline.files.atomic import write_atomically
from frostline.files.plain_json import as_json
from frostline.report.html import cell, figure_section, render

AT_WORK = (
    ("frost_line", "frost line, cloud"),
    ("frost_line_interval", "its interval (95 %)"),
    ("kappa", "κ, median"),
    ("fidelity_argmax", "fidelity of zero temperature, median"),
)
"""Numbers of a model at work, and their names on the page."""
PARTS = ("query", "key", "value", "output")
"""Matrices of a layer whose change is shown."""
BADGES = {"unchanged": "holds", "rounding": "undecided", "changed": "fails"}
"""The style of each verdict."""
FACTS = "diff.json"
"""The result as JSON; a folder that has it is known as a comparison."""
MEANINGS = (
    "beta: the largest inverse temperature, ‖B‖₂; beta_ratio: tuned over base. kind: what leads in A = VBᵀ. gap_base: "
    "lead over the next eigenvalue of the base's A/‖A‖. spectrum_A, spectrum_V: root mean square distance of the "
    "eigenvalues. angle_A, angle_V: degrees between the leading spaces; angle_A_rounded, angle_V_rounded, "
    "kind_rounded: the same for the base and the base with every weight moved at random by up to half a step of the "
    "format it is stored in (the coarser of the two models), the larger of two draws. A head's numbers take in the "
    "norm in front of it, which may be that of the layer before or of the embeddings."
)
"""Columns of the tables."""
DRAWN = {
    "spectrum_A": "spectrum of A, moved by",
    "angle_A": "A leads elsewhere by, °",
    "angle_A_rounded": "A, by rounding alone, °",
    "angle_V": "V leads elsewhere by, °",
    "angle_V_rounded": "V, by rounding alone, °",
}
"""Columns of the heads that are drawn, and their titles."""
READINGS = {
    "heads": (
        "Heads",
        "A row per layer, a column per head: how much colder (red) or warmer (blue) each head became, how far the "
        "spectrum of A = VBᵀ moved, and by what angle its leading space and that of V turned. Many spectra are close "
        "to a tie (a small gap_base in the table): there a small change of the weights turns the leading direction by "
        "much. Beside each angle is that by which rounding of these very weights alone turns the same direction: an "
        "angle no larger than it says nothing. 90° also where another number of directions leads than before.",
    ),
    "work": (
        "At work on the text",
        "Blue: the base; orange: the tuned model; both read the same tokens. Left: the mean angle by which a token "
        "moves in each layer. Middle: cosine between the real update and what zero temperature says. Right: κ, the "
        "inverse temperature that a token has on this text, median over heads and texts.",
    ),
    "steps": (
        "Over training",
        "Each line is a layer, light for the first, dark for the last: relative change of the query matrix, "
        "temperature and leading direction against the base; dotted, how far rounding alone turns that direction.",
    ),
}
"""Title of each figure, and how to read it."""


def save_comparison(comparison: Comparison, folder: Path, *, steps: Series | None = None) -> Path:
    """Write everything; the page's path."""
    check_folder(folder, FACTS, "a comparison")
    folder.mkdir(parents=True, exist_ok=True)
    facts = comparison.facts() | ({} if steps is None else {"steps": steps.layers.to_pylist()})
    write_atomically(folder / FACTS, as_json(facts))
    tables = {"layers": comparison.layers, "heads": comparison.heads} | (
        {} if steps is None else {"steps": steps.layers}
    )
    for name, table in tables.items():
        write_table(table, folder / name)
    figures = {"heads": _heads(comparison)} | ({} if steps is None else {"steps": _steps(steps)})
    figures |= {} if comparison.text is None else {"work": _work(comparison)}
    drawn = save_figures(figures, folder / "figures", READINGS.keys())
    return render(
        folder / PAGE,
        "diff.html",
        title=f"{short_name(comparison.base)} against {short_name(comparison.tuned)}",
        sentence=comparison.sentence,
        outside=[
            {"name": name, "verdict": verdict, "evidence": evidence, "badge": BADGES[verdict]}
            for name, verdict, evidence in _beside(comparison)
        ],
        not_compared=comparison.not_compared,
        rows=[_row(row) for row in comparison.rows],
        text=comparison.text,
        work=[] if comparison.text is None else [_worked(comparison.text, *number) for number in AT_WORK],
        parts=PARTS,
        layers=[
            {**row, "badge": BADGES[row["verdict"]], **{name: cell(row[name]) for name in PARTS}}
            for row in comparison.layers.to_pylist()
        ],
        figures=[figure_section(name, *READINGS[name], drawing) for name, drawing in drawn.items()],
        tables=[rows_of(name.capitalize(), table, MEANINGS) for name, table in tables.items() if name != "layers"],
    ).absolute()


def _beside(comparison: Comparison) -> Iterator[tuple[str, Verdict, str]]:
    """Name, verdict and evidence of everything that is in no layer."""
    yield "outside the layers", comparison.outside["verdict"], comparison.outside["evidence"]
    for part in comparison.parts:
        yield part.name, part.verdict, "; ".join(part.differences[:SHOWN]) + _more(part.differences) or "equal"
    settings = comparison.outside["settings"]
    yield "settings", "changed" if settings else "unchanged", "; ".join(settings) or "equal"


def _more(differences: Sequence[str]) -> str:
    return f"; and {len(differences) - SHOWN} more, in {FACTS}" if len(differences) > SHOWN else ""


def _row(table: Mapping[str, Any]) -> dict[str, Any]:
    """An embedding table in words: rows that are new, rows that moved most."""
    more = table["rows_tuned"] - table["rows_base"]
    named = [f"{name_of(row)} ({row['change']:.2g})" for row in table["most"]]
    which = "tuned" if more > 0 else "base"
    return {
        "table": shown(table["table"]),
        "more": f"{abs(more)} only in the {which} model" if more else "none",
        "median": cell(table["median"]),
        "most": ", ".join(named) or "none moved",
    }


def _worked(text: Mapping[str, Any], name: str, title: str) -> list[str]:
    """A row of the table of the two models at work."""
    values = (text["base"][name], text["tuned"][name])
    return [title, *(" to ".join(map(cell, np.atleast_1d(value).tolist())) for value in values)]


def _heads(comparison: Comparison) -> Figure:
    shape = (len(comparison.layers), -1)
    axes, figure = plot.panels(6, width=2.8)
    ratio = np.log2(np.array(comparison.heads["beta_ratio"].to_pylist())).reshape(shape)
    far = max(0.1, float(np.abs(ratio).max()))
    doublings: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -far, "vmax": far}
    turned: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": 90}
    for ax, values, title, style in zip(
        axes,
        (ratio, *(comparison.heads[name] for name in DRAWN)),
        ("β, doublings", *DRAWN.values()),
        (doublings, {"cmap": "cividis"}, turned, turned, turned, turned),
        strict=True,
    ):
        image = ax.imshow(np.asarray(values).reshape(shape), aspect="auto", **style)
        figure.colorbar(image, ax=ax, shrink=0.9)
        ax.set(title=title, xlabel="head", ylabel="layer")
        plot.whole_ticks(ax, *np.asarray(values).reshape(shape).shape)
        ax.grid(False)
    return figure


def _work(comparison: Comparison) -> Figure:
    axes, figure = plot.panels(3, width=4.4)
    for ax, name, title in zip(
        axes, ("travelled", "fidelity", "kappa"), ("angle travelled", "fidelity", "κ"), strict=True
    ):
        for place, (which, colour) in enumerate((("base", plot.BLUE), ("tuned", plot.ORANGE))):
            values = np.array(comparison.layers[f"{name}_{which}"].to_pylist(), dtype=float)
            ax.plot(np.arange(len(values)), values, "os"[place] + "-", ms=3, color=colour, label=which)
        ax.set(xlabel="layer", title=title)
        ax.set_xticks(range(0, len(values), max(1, len(values) // 8)))
        ax.legend(fontsize=8, frameon=False)
    return figure


def _steps(steps: Series) -> Figure:
    (left, middle, right), figure = plot.panels(3, width=4.4)
    table = {name: np.array(steps.layers[name].to_pylist()) for name in steps.layers.column_names}
    layers = np.unique(table["layer"])
    for place, layer in enumerate(layers):
        rows = table["layer"] == layer
        label = f"layer {layer}" if place in (0, len(layers) - 1) else None
        for ax, name in ((left, "query"), (middle, "beta_ratio"), (right, "angle_A")):
            ax.plot(
                table["step"][rows], table[name][rows], "o-", ms=3, color=plot.shade(place, len(layers)), label=label
            )
    left.set(xlabel="step", ylabel="‖ΔW_Q‖/‖W_Q‖", title="change of the query matrix")
    middle.set(xlabel="step", ylabel="β/β of the base (median head)", title="temperature")
    for place, layer in enumerate(layers):
        rows = table["layer"] == layer
        label = "by rounding alone" if place == 0 else None
        right.plot(
            table["step"][rows], table["angle_A_rounded"][rows], ":", color=plot.shade(place, len(layers)), label=label
        )
    right.set(xlabel="step", ylabel="angle, degrees (median head)", title="A's leading direction")
    for ax in (left, middle, right):
        ax.legend(fontsize=8, frameon=False)
    return figure
