"""One tensor against another: equal, equal up to rounding, or changed.

The coarse side is the rounded fine side only where every value lies within half a *local* step: the unit in the last
place of its float format at that value, or the step of its tensor's, row's or block's grid. Out of reach of that rule
are the ends of a format: values beyond the largest are clipped, and some hardware sets the smallest to zero.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from frostline.auditing.comparison.quantization_grids import Grid, code_book, evenly_spaced, grouped, groups
from frostline.errors import BadModel

Verdict = Literal["unchanged", "rounding", "changed"]
"""Verdicts on a tensor or on a part, from the least to the worst."""
CASTS = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
"""Formats that a cast may round to."""
CUT_OFF = 0.01
"""Share of the values that may lie beyond a format's ends, since quantisers that clip cut off the outermost 0.1 to 1 %.
All other values have no such allowance: rounding to the nearest never leaves half a step."""
EDGE = 1e-3
"""Slack at half a step, in steps: quantisers decide in float32, and this module in float64."""
MEAN = 0.20
"""Steps that n values on a grid are off by in the mean, at least, but for ``SPREAD``/√n: rounding is off by a quarter
of a step, a small change of values on the grid by less."""
SPREAD = 0.72
"""Steps, five standard deviations (0.144 each) of the error of rounding."""


@dataclass(frozen=True)
class Moved:
    """One tensor, or some together: the verdict, the relative change ‖ΔW‖/‖W‖, and why.

    ``beyond``: the share of values beyond half a step of the nearest grid either side is on; None where there is none.
    """

    verdict: Verdict
    change: float
    why: str
    beyond: float | None = None

    @classmethod
    def together(cls, parts: "Sequence[Moved]") -> "Moved":
        """The worst verdict with its reason, and the change of the first part, a module's weight."""
        verdict = worst(part.verdict for part in parts)
        return cls(verdict, parts[0].change, next(part.why for part in parts if part.verdict == verdict))


@dataclass(frozen=True)
class Explanation:
    """A format that one side is stored in, as an explanation of a change.

    beyond  share of the values beyond half a step
    cut     share of the values cut off at the format's ends
    enough  whether the others moved by as many steps as rounding would move them
    """

    name: str
    beyond: float
    cut: float
    enough: bool

    @property
    def holds(self) -> bool:
        """Whether rounding to the format explains the change."""
        return self.beyond == 0 and self.cut <= CUT_OFF and self.enough


def compare(base: Tensor, tuned: Tensor, name: str = "tensor") -> Moved:
    """One tensor against another: equal, equal up to a cast or a quantisation, or changed."""
    if base.shape != tuned.shape:
        raise BadModel(f"{name} has shape {tuple(base.shape)} and {tuple(tuned.shape)}: these are different models.")
    a, b = (finite(tensor, name, which) for tensor, which in ((base, "base"), (tuned, "tuned")))
    change = relative_change(a, b)
    if torch.equal(a, b):
        return Moved("unchanged", 0.0, "equal to the last bit")
    best: Explanation | None = None
    for explanation in explanations(a, b):
        if explanation.holds:
            cut = f", {explanation.cut:.2g} of the values cut off at its ends" if explanation.cut else ""
            return Moved("rounding", change, f"within half a step of {explanation.name}{cut}", 0.0)
        best = explanation if best is None or explanation.beyond < best.beyond else best
    why = f"‖ΔW‖/‖W‖ = {change:.2g}, more than rounding"
    if best is None:
        return Moved("changed", change, why)
    if best.beyond == 0:
        what = "too many values cut off at its ends" if best.enough else "moved by far less than rounding does"
        return Moved("changed", change, f"‖ΔW‖/‖W‖ = {change:.2g}, on the grid of {best.name}, {what}", 0.0)
    return Moved(
        "changed", change, f"{why} ({best.beyond:.2g} of the values beyond half a step of {best.name})", best.beyond
    )


def finite(tensor: Tensor, name: str, which: str) -> Tensor:
    """In float64; refused where numbers are not finite."""
    values = tensor.detach().to("cpu", torch.float64)
    if not torch.isfinite(values).all():
        raise BadModel(f"{name} of the {which} model has entries that are NaN or infinite.")
    return values


def relative_change(a: Tensor, b: Tensor) -> float:
    """‖b − a‖/‖a‖; ‖b‖ where a is zero."""
    size = float(a.norm())
    return float((b - a).norm()) / size if size > 0 else float((b - a).norm())


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict; unchanged where there is none."""
    return max(verdicts, key=get_args(Verdict).index, default="unchanged")


def explanations(a: Tensor, b: Tensor) -> Iterator[Explanation]:
    """Every format that one of the two is stored in, as an explanation of the other."""
    for fine, coarse in ((a, b), (b, a)):
        for dtype in CASTS:
            if holds_in(coarse, dtype):
                yield _as_cast(fine, coarse, dtype)
    for fine, coarse in ((a, b), (b, a)):
        if coarse.ndim >= 2 and min(coarse.shape) >= 2:
            matrix = coarse.reshape(len(coarse), -1)
            for grid, key in _grids(matrix):
                yield _as_grid(grouped(fine.reshape(matrix.shape), key), grid, precision(coarse))


def holds_in(values: Tensor, dtype: torch.dtype) -> bool:
    """Whether every value is one of this format."""
    return all(torch.equal(part.to(dtype).double(), part) for part in (values.reshape(-1)[:1024], values))


def precision(values: Tensor) -> float:
    """Relative error of a stored value: half a unit in the last place of the shortest format that holds them all."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if holds_in(values, dtype):
            return torch.finfo(dtype).eps / 2
    return torch.finfo(torch.float64).eps / 2


def half_steps(values: Tensor) -> Tensor:
    """Half the step at each value of the format it is stored in: of its grid, or its last place."""
    if values.ndim == 2 and min(values.shape) >= 2:
        for grid, key in _grids(values):
            half = torch.maximum(grid.below, grid.above)
            return half.T if key == "column" else half.reshape(values.shape)
    binade = torch.exp2(torch.frexp(values)[1].double() - 1)
    return torch.where(values == 0, 0.0, precision(values) * binade)


def _as_cast(fine: Tensor, coarse: Tensor, dtype: torch.dtype) -> Explanation:
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal
    nearest = fine.clamp(-most, most).to(dtype).double()
    # No value of the format is nearer: half its step on that side, also at a power of two and below the normal ones.
    far = (coarse - fine).abs() > (nearest - fine).abs()
    cut = (far & (coarse == 0) & (fine.abs() < least)) | ((fine.abs() > most) & ~far)
    return Explanation(
        str(dtype).removeprefix("torch."), float((far & ~cut).double().mean()), float(cut.double().mean()), True
    )


def _grids(matrix: Tensor) -> Iterator[tuple[Grid, str]]:
    """The grid of the widest groups that share one, and how they are made; none where the matrix is on no grid.

    Narrower groups are on such a grid too, but show its step less well.
    """
    noise = precision(matrix)
    for find, beginning in ((evenly_spaced, "a grid"), (code_book, "a code book")):
        for name, key in groups(matrix.shape):
            grid = find(f"{beginning} per {name}", grouped(matrix, key), noise)
            if grid is not None:
                yield grid, key
                return


def _as_grid(fine: Tensor, grid: Grid, noise: float) -> Explanation:
    off, size = fine - grid.values, grid.values.abs()
    half = torch.where(off > 0, grid.above, grid.below)
    far = off.abs() > half * (1 + 2 * EDGE) + size * (noise + grid.scale)
    cut = far & grid.end & (off * grid.values > 0)
    # Values that round to zero may be small for other reasons.
    counted = ~grid.zero & ~cut & (half > 0)
    count = int(counted.sum())
    steps = float((off.abs() / (2 * half).clamp_min(1e-300))[counted].mean()) if count else MEAN
    enough = steps >= MEAN - SPREAD / max(count, 1) ** 0.5
    return Explanation(grid.name, float((far & ~cut).double().mean()), float(cut.double().mean()), enough)
