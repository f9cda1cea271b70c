"""Heads of one layer in two models: temperatures, spectra, by how many degrees leading directions turned.

Beside every angle stands that of rounding alone, between the base's heads and the same heads with each weight moved at
random by up to half a step of the format it is stored in (that of the coarser of the two models).
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from frostline.auditing.comparison.rounding import half_steps
from frostline.encoders.fold import folded
from frostline.encoders.load import Encoder
from frostline.encoders.spectra import Factors, HeadSpectra, spectra
from frostline.encoders.tensors import Renamed

DRAWS = 2
"""Random moves of the weights within their rounding; the largest angle counts."""
KEPT = 32
"""Tensors whose steps are kept in memory: those of one layer."""


@dataclass(frozen=True, eq=False)
class Blurred(Renamed):
    """The tensors of a model, each number moved at random by up to ``half`` of its tensor."""

    half: Callable[[str], Tensor]
    seed: int

    def __getitem__(self, name: str) -> Tensor:
        tensor = super().__getitem__(name).to("cpu")
        if not tensor.is_floating_point():
            return tensor
        draw = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {name}".encode()))
        return tensor.double() + self.half(name) * (
            2 * torch.rand(tensor.shape, generator=draw, dtype=torch.float64) - 1
        )


def blurred(base: Encoder, tuned: Encoder, seed: int) -> tuple[Encoder, ...]:
    """The base with its weights moved within their rounding, or that of the other model where it is coarser."""
    tensors = base.tensors

    @functools.lru_cache(maxsize=KEPT)
    def half(name: str) -> Tensor:
        before, tuned_name = tensors[name], tuned.prefix + name.removeprefix(base.prefix)
        half_before = half_steps(before.to("cpu", torch.float64))
        after = tuned.tensors[tuned_name] if tuned_name in tuned.tensors.names else before
        if after.shape != before.shape or torch.equal(before, after):
            return half_before
        return torch.maximum(half_before, half_steps(after.to("cpu", torch.float64)))

    return tuple(
        dataclasses.replace(base, tensors=Blurred(tensors.tensors, tensors.stored, half, DRAWS * seed + draw))
        for draw in range(DRAWS)
    )


def compare_heads(base: Encoder, tuned: Encoder, rounded: tuple[Encoder, ...], layer: int) -> list[dict[str, Any]]:
    """A row per head."""
    before, after, *alike = (spectra(Factors.of(folded(encoder, layer))) for encoder in (base, tuned, *rounded))
    return [{"layer": layer} | _head(before, after, alike, head) for head in range(len(before.beta))]


def _head(before: HeadSpectra, after: HeadSpectra, alike: list[HeadSpectra], head: int) -> dict[str, Any]:
    unit = max(float(before.value_norm[head]), 1e-300)
    return {
        "head": head,
        "beta_base": float(before.beta[head]),
        "beta_tuned": float(after.beta[head]),
        "gap_base": float(before.gap[head]),
        "beta_ratio": float(after.beta[head] / before.beta[head]) if before.beta[head] > 0 else np.nan,
        "kind_base": before.kind[head],
        "kind_tuned": after.kind[head],
        "kind_rounded": alike[0].kind[head],
        "spectrum_A": _apart(before.eigenvalues[head], after.eigenvalues[head]),
        "spectrum_V": _apart(before.value_eigenvalues[head], after.value_eigenvalues[head]) / unit,
        "angle_A": _angle(before.leading[head], after.leading[head]),
        "angle_A_rounded": max(_angle(before.leading[head], each.leading[head]) for each in alike),
        "angle_V": _angle(before.terminal[head], after.terminal[head]),
        "angle_V_rounded": max(_angle(before.terminal[head], each.terminal[head]) for each in alike),
    }


def heads_in_words(heads: Mapping[str, list[Any]], layers: list[int], there: str, *, shared: bool) -> str:
    """Changes of the heads of these layers, beside those of rounding alone.

    ``shared``: the layers share their weights, so that rows are passes of the same few heads.
    """
    inside = np.isin(heads["layer"], layers)
    ratio = np.array(heads["beta_ratio"])[inside]
    ratio = ratio[np.isfinite(ratio)]
    factor = "from 0"
    if ratio.size:
        factor = f"by a factor {ratio.min():.2f} to {ratio.max():.2f} (median {np.median(ratio):.2f})"
    base, tuned, rounded = (np.array(heads[f"kind_{name}"])[inside] for name in ("base", "tuned", "rounded"))
    angle, alone = (float(np.median(np.array(heads[name])[inside])) for name in ("angle_A", "angle_A_rounded"))
    counted = "passes of heads" if shared else "heads"
    return (
        f"β{there} {factor}, "
        f"{int((base != tuned).sum())} of {int(inside.sum())} {counted} lead in another way (rounding alone: "
        f"{int((base != rounded).sum())}), A's leading direction turns by {angle:.0f}° in the median (rounding alone: "
        f"{alone:.2g}°)."
    )


def _apart(base: np.ndarray, tuned: np.ndarray) -> float:
    """Root mean square distance between two spectra, for the best pairs of eigenvalues."""
    cost = np.abs(base[:, None] - tuned[None]) ** 2
    return float(np.sqrt(cost[linear_sum_assignment(cost)].mean()))


def _angle(base: np.ndarray, tuned: np.ndarray) -> float:
    """The largest principal angle between two spaces, in degrees; a right one when their dimensions differ."""
    if base.shape[1] != tuned.shape[1]:
        return 90.0
    if not base.shape[1]:
        return 0.0
    # From the sine: the cosine of a small angle rounds to one.
    sines = np.linalg.svd(tuned - base @ (base.T @ tuned), compute_uv=False)
    return float(np.degrees(np.arcsin(np.clip(sines.max(), 0, 1))))
