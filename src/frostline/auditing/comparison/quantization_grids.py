"""The grid a tensor was quantised to: evenly spaced levels per tensor, row, column or block, or a code book.

The step is the grid's own, found from the levels that occur: levels that are missing, and outliers that leave a wide
gap below them, do not widen it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from frostline.arrays import evenly_spread

LEVELS = 256
"""Values that 8 bits have."""
FEWEST_STEPS = 3
"""Steps from zero to the largest value of the coarsest grid known, that of 3 bits."""
BLOCKS = (256, 128, 64, 32, 16)
"""Sizes of blocks of neighbours in a row that may share a scale."""
OFF_GRID = 1e-3
"""Distance of a value of the grid from a multiple of the step, in steps: float32 arithmetic leaves that much."""
ARITHMETIC = 2.0**-22
"""Relative error of a step times a number, computed in float32."""
SAME = 1e-6
"""Two scales closer than this, relatively, are one: they are found from values in float32."""
TELLING = 12
"""Values other than zero from which a group shows its own step; fewer may all be even multiples of it."""
PROBED = 2
"""Groups that are tried first."""
SAMPLE = 2**14
"""Values of each of them that are tried."""
LOOKED_AT = 48
"""Values of a group that its step is sought from."""
LIKELY = 32
"""Steps that the smallest value of a group is mostly long, at most."""
AT_ONCE = 2**22
"""Numbers in memory while steps are sought."""
CODES_PER_LEVEL = 16
"""Values per level from which few levels are a code book, and not a small tensor."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A tensor on its grid, a row per group.

    below, above  half the step on either side of each value; 0 in a group of zeros
    end           whether the value is the outermost level of its group on its side
    zero          whether it is the level zero
    scale         error of the group's scale over itself: that of float16 where it is a number of that format
    """

    name: str
    values: Tensor
    below: Tensor
    above: Tensor
    end: Tensor
    zero: Tensor
    scale: Tensor


def groups(shape: torch.Size) -> "Iterator[tuple[str, str]]":
    """The ways quantisers divide a matrix into groups that share a scale: a name, and a key for ``grouped``."""
    yield "tensor", "tensor"
    yield "row", "row"
    yield "column", "column"
    for size in BLOCKS:
        if shape.numel() % size == 0 and shape.numel() > size and shape[-1] != size:
            yield f"block of {size}", str(size)


def grouped(matrix: Tensor, key: str) -> Tensor:
    """The matrix with a row for each group."""
    if key == "tensor":
        return matrix.reshape(1, -1)
    if key in ("row", "column"):
        return matrix if key == "row" else matrix.T
    return matrix.reshape(-1, int(key))


def evenly_spaced(name: str, values: Tensor, noise: float) -> Grid | None:
    """The grid of multiples of one step per group, from zero or from the least value; None when there is none.

    ``noise``: relative error of a stored value, half a unit in the last place of the format it is stored in.
    """
    # Most tensors are on no grid: a few values of a few groups show it.
    few = values[evenly_spread(len(values), PROBED), :SAMPLE]
    for floor in (torch.zeros_like, torch.Tensor.clone):
        start = floor(few.amin(1, keepdim=True))
        if _counts((few - start).abs(), few.abs() * noise) is None:
            continue
        start = floor(values.amin(1, keepdim=True))
        step = _steps(values - start, values.abs() * noise)
        if step is not None:
            return _on_multiples(name, values, start, step)
    return None


def _on_multiples(name: str, values: Tensor, start: Tensor, step: Tensor) -> Grid:
    places = ((values - start) / step.clamp_min(1e-300)).round()
    half = (step / 2).expand_as(values)
    ends = (places == places.amax(1, keepdim=True)) | (places == places.amin(1, keepdim=True))
    return Grid(name, values, half, half, ends, (values / step.clamp_min(1e-300)).abs() < 0.5, _kept(step))


def _kept(scale: Tensor) -> Tensor:
    """Relative error that a scale has from being kept in float16, as many quantisers do."""
    short = (scale.half().double() - scale).abs() <= SAME * scale
    return torch.where(short, torch.finfo(torch.float16).eps / 2, 0.0)


def _steps(values: Tensor, error: Tensor) -> Tensor | None:
    """The step of each group (a column), 0 where all is zero."""
    size = values.abs()
    counts = _counts(size, error)
    if counts is None:
        return None
    step = _fitted(size, counts)
    off = (size / step.clamp_min(1e-300) - (size / step.clamp_min(1e-300)).round()).abs()
    if not bool((off <= OFF_GRID + 3 * (error + ARITHMETIC * size) / step.clamp_min(1e-300)).all()):
        return None
    return _told_by_all(size, step, counts)


def _counts(size: Tensor, error: Tensor) -> Tensor | None:
    """Steps from zero to the largest value of each group: the fewest that put its values on a grid; None if none do."""
    counts_of_all = torch.zeros(len(size), dtype=torch.long)
    for start in range(0, len(size), rows := max(1, AT_ONCE // size.shape[1])):
        here = slice(start, start + rows)
        looked, doubt = _looked_at(size[here], error[here])
        # The smallest value is few steps long: this leaves few counts to try, where values are sharp.
        least = looked.clone()
        least[least <= 0] = torch.inf
        tried = (torch.arange(1, LIKELY + 1) / least.amin(1, keepdim=True)).round()
        sharp = bool((doubt * LEVELS <= OFF_GRID).all())
        counts = _first_fit(looked, doubt, tried) if sharp else torch.zeros(len(looked), dtype=torch.long)
        rest = ((counts == 0) & (looked.amax(1) > 0)).nonzero()[:, 0]
        every = torch.arange(1, LEVELS + 1, dtype=torch.float32).expand(1, -1)
        for at in range(0, len(rest), most := max(1, AT_ONCE // (LOOKED_AT * LEVELS))):
            some = rest[at : at + most]
            counts[some] = more = _first_fit(looked[some], doubt[some], every)
            if not bool((more > 0).all()):
                return None
        counts_of_all[here] = counts
    return counts_of_all


def _looked_at(size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Some values of each group over its largest, and how unsure they are.

    The smallest, which tell grids apart best, and some of all sizes.
    """
    ordered, order = torch.where(size > 0, size, torch.inf).sort(1)
    count = (size > 0).sum(1, keepdim=True)
    spread = (torch.linspace(0, 1, LOOKED_AT // 2, dtype=torch.float64) * (count - 1).clamp_min(0)).round().long()
    first = torch.arange(min(LOOKED_AT // 2, size.shape[1])).expand(len(size), -1)
    places = torch.cat([first, spread], 1)
    chosen, doubt = ordered.gather(1, places), error.gather(1, order.gather(1, places))
    chosen, doubt = (torch.where(chosen.isfinite(), part, 0.0) for part in (chosen, doubt))
    peak = size.amax(1, keepdim=True).clamp_min(1e-300)
    return (chosen / peak).float(), ((doubt + 3 * ARITHMETIC * chosen) / peak).float()


def _first_fit(looked: Tensor, doubt: Tensor, tried: Tensor) -> Tensor:
    """The first of the counts that puts all these values on a grid; 0 where none does."""
    at = looked[:, :, None] * tried[:, None, :]
    # The largest value, by which all are divided, is no surer than each of them.
    fits = ((at - at.round()).abs() <= OFF_GRID + 2 * doubt[:, :, None] * tried[:, None, :]).all(1)
    fits &= (tried >= 1) & (tried <= LEVELS)
    first = fits.int().argmax(1, keepdim=True)
    return torch.where(fits.any(1), tried.expand(len(fits), -1).gather(1, first)[:, 0], 0.0).long()


def _fitted(size: Tensor, counts: Tensor) -> Tensor:
    """Steps by least squares, from small values to large ones: a step that is off a little miscounts large ones."""
    step = size.amax(1, keepdim=True) / counts[:, None].clamp_min(1)
    for reach in (8, 16, 32, 64, 128, LEVELS):
        place = (size / step.clamp_min(1e-300)).round()
        place = torch.where(place <= reach, place, 0.0)
        weight = (place**2).sum(1, keepdim=True)
        step = torch.where(weight > 0, (size * place).sum(1, keepdim=True) / weight.clamp_min(1), step)
    return torch.where(counts[:, None] > 0, step, 0.0)


def _told_by_all(size: Tensor, step: Tensor, counts: Tensor) -> Tensor | None:
    """Groups with too few values to show their step take the number of steps that is usual in the others."""
    telling = (size > step / 2).sum(1) >= TELLING
    if not bool(telling.any()):
        return None
    usual = int(counts[telling].median())
    if usual < FEWEST_STEPS:
        return None
    finer = torch.where(~telling & (counts > 0), -(-usual // counts.clamp_min(1)), 1)
    return step / finer[:, None]


def code_book(name: str, values: Tensor, noise: float) -> Grid | None:
    """Few levels of any spacing, the same in every group but for its largest value; None when there are none."""
    peak = values.abs().amax(1, keepdim=True)
    relative = values / peak.clamp_min(1e-300)
    blur = 4 * noise + 1e-6
    few = relative[:: max(1, relative.numel() // SAMPLE), :SAMPLE]
    # Most tensors have no code book: a few groups show it.
    levels = None if _clusters(few, blur) is None else _clusters(relative, blur)
    if levels is None or not FEWEST_STEPS <= len(levels) <= values.numel() // CODES_PER_LEVEL:
        return None
    place = torch.bucketize(relative, (levels[1:] + levels[:-1]) / 2)
    gaps = levels.diff() / 2
    # Beyond the last level a step is as wide as the one before it.
    below, above = torch.cat([gaps[:1], gaps]), torch.cat([gaps, gaps[-1:]])
    ends = (place == place.amax(1, keepdim=True)) | (place == place.amin(1, keepdim=True))
    return Grid(name, values, below[place] * peak, above[place] * peak, ends, levels[place].abs() < 1e-6, _kept(peak))


def _clusters(values: Tensor, blur: float) -> Tensor | None:
    """The places where values lie; None when they are too many, or lie everywhere."""
    seen = torch.unique(values)
    breaks = (seen.diff() > blur).nonzero()[:, 0] + 1
    if len(breaks) >= LEVELS:
        return None
    first = torch.cat([torch.zeros(1, dtype=torch.long), breaks])
    last = torch.cat([breaks, torch.tensor([len(seen)])]) - 1
    return None if bool((seen[last] - seen[first] > 2 * blur).any()) else (seen[first] + seen[last]) / 2
