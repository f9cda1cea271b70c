"""The same comparison over training: a folder of checkpoints against one base, and a logger for live training."""

import re
from collections.abc import Callable, Sequence
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
from frostline.printable import one_line


@dataclass(frozen=True, eq=False)
class Series:
    """Checkpoints against their base: ``layers`` has a row per step and layer; ``last`` is the last one in full.

    ``others``: models in the folder that were not compared, since their names do not end in a number.
    """

    layers: pa.Table
    last: Comparison
    others: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{self.layers.num_rows} rows; the last one: {self.last.sentence}")


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Subfolders that hold a model, by the number at the end of their name; empty when there are none."""
    found = []
    for path in folder.iterdir():
        number = re.search(r"(\d+)$", path.name)
        if number is not None and (path / "config.json").is_file():
            found.append((int(number[1]), path))
    return sorted(found)


def series(
    base: "str | Path | nn.Module",
    folder: Path,
    *,
    texts: Sequence[str] | None = None,
    report: Callable[[str, str, float, float], None] | None = None,
) -> Series:
    """Compare every checkpoint of a folder with the base; ``texts`` with the last one only."""
    found = checkpoints(folder)
    if not found:
        raise BadModel(f"{folder} holds no checkpoints: subfolders with a config.json whose names end in a number.")
    rows: list[dict[str, Any]] = []
    for place, (step, path) in enumerate(found):
        if report is not None:
            report("checkpoints", path.name, place, len(found))
        last = diff(base, path, texts=texts if place == len(found) - 1 else None)
        rows += [{"step": step, **row} for row in _by_layer(last)]
    steps = {path for _, path in found}
    others = tuple(path.name for path in models_in(folder) if path not in steps)
    return Series(pa.Table.from_pylist(rows), last, others)


def _by_layer(comparison: Comparison) -> list[dict[str, Any]]:
    heads = {name: np.array(comparison.heads[name].to_pylist()) for name in comparison.heads.column_names}
    rows = []
    for row in comparison.layers.to_pylist():
        mine = heads["layer"] == row["layer"]
        medians = {
            name: float(np.median(heads[name][mine]))
            for name in ("beta_ratio", "spectrum_A", "angle_A", "angle_A_rounded", "angle_V", "angle_V_rounded")
        }
        rows.append(row | medians)
    return rows


class SpectraLogger:
    """Records temperatures and spectra of a model while it trains.

    In a plain loop call ``record(model, step)``; for ``transformers.Trainer`` pass ``callback()``. ``table`` has a row
    per step, layer and head.

    >>> SpectraLogger(every=100).every
    100
    """

    def __init__(self, *, every: int = 100):
        if isinstance(every, bool) or every < 1:
            raise BadParameter(f"every is {every}; it counts steps, 1 or more.")
        self.every = every
        self._rows: list[dict[str, Any]] = []

    def record(self, model: nn.Module, step: int) -> None:
        """Add what the weights say now, when the step is one of those to look at."""
        if step % self.every:
            return
        encoder = load(model)
        for layer in range(encoder.layers):
            found = spectra(Factors.of(folded(encoder, layer)))
            for head in range(encoder.heads):
                self._rows.append(
                    {
                        "step": step,
                        "layer": layer,
                        "head": head,
                        "beta": float(found.beta[head]),
                        "kind": found.kind[head],
                        "gap": float(found.gap[head]),
                        "leading_real": float(found.eigenvalues[head, 0].real),
                        "leading_imag": float(abs(found.eigenvalues[head, 0].imag)),
                        "rate": float(found.rate[head]),
                        "value_rank": float(found.value_rank[head]),
                        "value_leading_real": float(found.value_eigenvalues[head, 0].real),
                    }
                )

    @property
    def table(self) -> pa.Table:
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
