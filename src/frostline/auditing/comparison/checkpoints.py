"""Comparisons over training: a folder of checkpoints against one base, and a logger for live training."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from frostline.auditing.comparison.compare import Comparison, diff
from frostline.encoders.fold import folded
from frostline.encoders.load import load
from frostline.encoders.model_folders import models_in
from frostline.encoders.spectra import Factors, spectra
from frostline.errors import BadModel, BadParameter
from frostline.extras import need
from frostline.progress import ProgressFunction, telling
from frostline.results import Result


@dataclass(frozen=True, eq=False, repr=False)
class Series(Result):
    """Checkpoints of a training against their base.

    Attributes
    ----------
    layers
        A row per step and layer.
    last
        The comparison of the last checkpoint, in full.
    others
        Models in the folder that were not compared, since their names do not end in a number.
    """

    layers: pa.Table
    last: Comparison
    others: tuple[str, ...] = ()

    def describe(self) -> str:
        """The number of rows, and the last comparison."""
        return f"{self.layers.num_rows} rows; the last one: {self.last.sentence}"

    def facts(self) -> dict[str, Any]:
        """The rows, and the facts of the last comparison."""
        return {"steps": self.layers.to_pylist(), "last": self.last.facts(), "others": list(self.others)}


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Subfolders that hold a model, by the number at the end of their name; empty when there are none."""
    steps = []
    for path in folder.iterdir():
        number = re.search(r"(\d+)$", path.name)
        if number is not None and (path / "config.json").is_file():
            steps.append((int(number[1]), path))
    return sorted(steps)


def series(
    base: "str | Path | nn.Module",
    folder: Path,
    *,
    texts: Sequence[str] | None = None,
    progress: ProgressFunction | None = None,
) -> Series:
    """Compare every checkpoint of a folder with the base; ``texts`` with the last one only."""
    steps = checkpoints(folder)
    if not steps:
        raise BadModel(f"{folder} holds no checkpoints: subfolders with a config.json whose names end in a number.")
    tell = telling(progress)
    rows: list[dict[str, Any]] = []
    for place, (step, path) in enumerate(steps):
        tell("checkpoints", path.name, place, len(steps))
        last = diff(base, path, texts=texts if place == len(steps) - 1 else None)
        rows += [{"step": step, **row} for row in _by_layer(last)]
    compared = {path for _, path in steps}
    others = tuple(path.name for path in models_in(folder) if path not in compared)
    return Series(pa.Table.from_pylist(rows), last, others)


def _by_layer(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows of the layers, with medians over their heads."""
    heads = {name: np.array(comparison.heads[name].to_pylist()) for name in comparison.heads.column_names}
    rows = []
    for row in comparison.layers.to_pylist():
        inside = heads["layer"] == row["layer"]
        medians = {
            name: float(np.median(heads[name][inside]))
            for name in ("beta_ratio", "spectrum_A", "angle_A", "angle_A_rounded", "angle_V", "angle_V_rounded")
        }
        rows.append(row | medians)
    return rows


class SpectraLogger:
    """Records temperatures and spectra of a model while it trains.

    In a plain loop call ``record(model, step)``; for ``transformers.Trainer`` pass ``callback()``. ``table`` has a row
    per step, layer and head.

    Parameters
    ----------
    every
        Steps between two records.

    Raises
    ------
    BadParameter
        ``every`` is less than 1.

    Examples
    --------
    >>> SpectraLogger(every=100).every
    100
    """

    def __init__(self, *, every: int = 100):
        if isinstance(every, bool) or every < 1:
            raise BadParameter(f"every is {every}; it counts steps, 1 or more.")
        self.every = every
        self._rows: list[dict[str, Any]] = []

    def record(self, model: nn.Module, step: int) -> None:
        """Add a row per head, when ``step`` is a multiple of ``every``."""
        if step % self.every:
            return
        encoder = load(model)
        for layer in range(encoder.layers):
            heads = spectra(Factors.of(folded(encoder, layer)))
            for head in range(encoder.heads):
                self._rows.append(
                    {
                        "step": step,
                        "layer": layer,
                        "head": head,
                        "beta": float(heads.beta[head]),
                        "kind": heads.kind[head],
                        "gap": float(heads.gap[head]),
                        "leading_real": float(heads.eigenvalues[head, 0].real),
                        "leading_imag": float(abs(heads.eigenvalues[head, 0].imag)),
                        "rate": float(heads.rate[head]),
                        "value_rank": float(heads.value_rank[head]),
                        "value_leading_real": float(heads.value_eigenvalues[head, 0].real),
                    }
                )

    @property
    def table(self) -> pa.Table:
        """The rows so far."""
        return pa.Table.from_pylist(self._rows)

    def callback(self) -> Any:
        """A callback for ``transformers.Trainer``."""
        base = need("transformers").TrainerCallback
        logger = self

        class Callback(base):  # type: ignore[misc, valid-type]
            def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **others: Any) -> None:
                logger.record(model, 0)

            def on_step_end(self, args: Any, state: Any, control: Any, model: nn.Module, **others: Any) -> None:
                logger.record(model, int(state.global_step))

        return Callback()
