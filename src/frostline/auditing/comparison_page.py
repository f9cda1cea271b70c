"""A comparison as a folder: the page, the JSON, tables and figures."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from frostline import plot
from frostline.auditing.checkpoints import Series
from frostline.auditing.comparing import Comparison
from frostline.auditing.page import number, rows_of
from frostline.auditing.saving import check_folder, write_table
from frostline.report.page import inlined, render
from frostline.store import as_json, write_atomically

PARTS = ("query", "key", "value", "output")
BADGES = {"unchanged": "holds", "rounding": "undecided", "changed": "fails"}
FACTS = "diff.json"
MEANINGS = (
    "beta: the largest inverse temperature, ‖B‖₂; beta_ratio: tuned over base. kind: what leads in A = VBᵀ. gap_base: "
    "lead over the next eigenvalue of the base's A/‖A‖. spectrum_A, spectrum_V: root mean square distance of the "
    "eigenvalues. angle_A, angle_V: degrees between the leading spaces. A head's numbers take in the norm in front of "
    "it, which may be that of the layer before or of the embeddings."
)
READINGS = {
    "heads": (
        "Heads",
        "A row per layer, a column per head: how much colder (red) or warmer (blue) each head became, how far the "
        "spectrum of A = VBᵀ moved, and by what angle its leading space and that of V turned. Many spectra are close "
        "to a tie (a small gap_base in the table): there a small change of the weights turns the leading direction by "
        "much. 90° also where another number of directions leads than before.",
    ),
    "steps": (
        "Over training",
        "Each line is a layer, light for the first, dark for the last: relative change of the query matrix, "
        "temperature and leading direction against the base.",
    ),
}


def save_comparison(found: Comparison, folder: Path, *, steps: Series | None = None) -> Path:
    """Write everything; the page's path."""
    check_folder(folder, FACTS, "a comparison")
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    facts = found.facts() | ({} if steps is None else {"steps": steps.layers.to_pylist()})
    write_atomically(folder / FACTS, as_json(facts))
    tables = {"layers": found.layers, "heads": found.heads} | ({} if steps is None else {"steps": steps.layers})
    for name, table in tables.items():
        write_table(table, folder / name)
    figures = {"heads": _heads(found)} | ({} if steps is None else {"steps": _steps(steps)})
    for name, figure in figures.items():
        plot.save(figure, folder / "figures" / name)
    return render(
        folder / "index.html",
        "diff.html",
        title=f"{_short(found.base)} against {_short(found.tuned)}",
        sentence=found.sentence,
        outside={**found.outside, "badge": BADGES[found.outside["verdict"]]},
        parts=PARTS,
        layers=[
            {**row, "badge": BADGES[row["verdict"]], **{name: number(row[name]) for name in PARTS}}
            for row in found.layers.to_pylist()
        ],
        figures=[_shown(name, figure) for name, figure in figures.items()],
        tables=[rows_of(name.capitalize(), table, MEANINGS) for name, table in tables.items() if name != "layers"],
    ).absolute()


def _short(name: str) -> str:
    return "/".join(Path(name).parts[-2:])


def _shown(name: str, figure: Figure) -> dict[str, Any]:
    buffer = io.StringIO()
    plot.write_svg(figure, buffer)
    title, reading = READINGS[name]
    return {"name": name, "title": title, "reading": reading, "svg": Markup(inlined(buffer.getvalue(), name, title))}


def _heads(found: Comparison) -> Figure:
    shape = (len(found.layers), -1)
    (one, two, three, four), figure = plot.panels(4, width=3.4)
    ratio = np.log2(np.array(found.heads["beta_ratio"].to_pylist())).reshape(shape)
    far = max(0.1, float(np.abs(ratio).max()))
    for ax, values, title, style in (
        (one, ratio, "β, doublings", {"cmap": "RdBu_r", "vmin": -far, "vmax": far}),
        (two, found.heads["spectrum_A"], "spectrum of A, moved by", {"cmap": "cividis"}),
        (three, found.heads["angle_A"], "A leads elsewhere by, °", {"cmap": "cividis", "vmin": 0, "vmax": 90}),
        (four, found.heads["angle_V"], "V leads elsewhere by, °", {"cmap": "cividis", "vmin": 0, "vmax": 90}),
    ):
        image = ax.imshow(np.asarray(values).reshape(shape), aspect="auto", **style)
        figure.colorbar(image, ax=ax, shrink=0.9)
        ax.set(title=title, xlabel="head", ylabel="layer")
        plot.whole_ticks(ax, *np.asarray(values).reshape(shape).shape)
        ax.grid(False)
    return figure


def _steps(found: Series) -> Figure:
    (left, middle, right), figure = plot.panels(3, width=4.4)
    table = {name: np.array(found.layers[name].to_pylist()) for name in found.layers.column_names}
    layers = np.unique(table["layer"])
    for place, layer in enumerate(layers):
        mine = table["layer"] == layer
        label = f"layer {layer}" if place in (0, len(layers) - 1) else None
        for ax, name in ((left, "query"), (middle, "beta_ratio"), (right, "angle_A")):
            ax.plot(
                table["step"][mine], table[name][mine], "o-", ms=3, color=plot.shade(place, len(layers)), label=label
            )
    left.set(xlabel="step", ylabel="‖ΔW_Q‖/‖W_Q‖", title="change of the query matrix")
    middle.set(xlabel="step", ylabel="β/β of the base (median head)", title="temperature")
    right.set(xlabel="step", ylabel="angle, degrees (median head)", title="A's leading direction")
    for ax in (left, middle, right):
        ax.legend(fontsize=8, frameon=False)
    return figure
