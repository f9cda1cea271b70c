"""Rounding is what lies within half a local step. Planted: parts of an update in every format, and outliers."""

import pytest
import torch

from frostline.auditing.comparison.rounding import compare, half_steps
from tests.auditing.comparison.formats import ASKED, FORMATS, OTHERS, int8_per_row, int8_per_tensor


def matrix(seed, *, outlier=12.0):
    """Weights of an encoder's size, one of them far out."""
    draw = torch.Generator().manual_seed(seed)
    weight = 0.05 * torch.randn(96, 128, generator=draw)
    weight[seed % 96, (7 * seed) % 128] = 0.05 * outlier
    return weight


def update(weight, seed):
    """A change of a fifth of the weights' norm, as fine-tuning makes: of rank 8, and some noise."""
    draw = torch.Generator().manual_seed(seed + 10_000)
    moved = torch.randn(96, 8, generator=draw) @ torch.randn(8, 128, generator=draw)
    moved += torch.randn(96, 128, generator=draw)
    return 0.2 * weight.norm() / moved.norm() * moved


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("stored", [one.__name__ for one in ASKED])
def test_no_part_of_an_update_hides_in_a_format(stored, share):
    """Never rounding where more than 1 % lie beyond half a step, nor where fewer do, whichever side is stored so."""
    for seed in range(2):
        weight = matrix(seed)
        tuned = weight + share * update(weight, seed)
        rounded, half = FORMATS[stored](tuned)
        beyond = float(((rounded.double() - weight.double()).abs() > half * (1 + 1e-9)).double().mean())
        # A hundredth of an update moves so few values in four bits.
        assert beyond > (0.002 if (stored, share) == ("int4_in_blocks", 0.01) else 0.01)
        assert compare(weight, rounded).verdict == "changed", (seed, beyond)
        assert compare(rounded, weight).verdict == "changed", (seed, beyond)


@pytest.mark.parametrize("stored", FORMATS)
def test_copies_in_a_format_are_rounding(stored):
    for seed, outlier in ((0, 1.0), (1, 12.0), (2, 100.0)):
        weight = matrix(seed, outlier=outlier)
        rounded, _ = FORMATS[stored](weight)
        for found in (compare(weight, rounded), compare(rounded, weight)):
            assert found.verdict == "rounding", (outlier, found)


@pytest.mark.parametrize("stored", OTHERS)
def test_nor_in_others(stored):
    weight = matrix(1)
    rounded, half = FORMATS[stored](weight + 0.1 * update(weight, 1))
    assert float(((rounded.double() - weight.double()).abs() > half).double().mean()) > 0.01
    assert compare(weight, rounded).verdict == "changed"


def test_an_outlier_does_not_widen_the_step():
    """The defect: every move up to the widest gap between two levels was called rounding."""
    weight = matrix(0, outlier=60.0)
    rounded, half = int8_per_tensor(weight)
    moved = rounded.clone()
    moved[:48] += 2 * half[:48].float()
    moved[0, 0] = rounded.max()
    assert compare(weight, moved).verdict == "changed"
    assert float(half_steps(rounded.double()).median()) == pytest.approx(float(half[0, 0]), rel=1e-4)


def test_the_step_halves_below_a_power_of_two_and_stays_below_the_smallest_normal():
    """Half a unit in the last place of float16: 2⁻¹² below 1, 2⁻¹¹ above, 2⁻²⁵ for all values below 2⁻¹⁴."""
    at = torch.tensor([[1.0, 1.0, 1 + 2.0**-10], [2.0**-23, 3 * 2.0**-24, 0.1]])
    above = at + torch.tensor([[0.99 * 2**-11, -0.99 * 2**-12, 0.0], [0.0, 0.99 * 2**-25, 0.0]])
    stored = above.half().float()
    assert compare(above, stored).verdict == "rounding"
    for row, column, move in ((0, 1, -1.1 * 2**-12), (0, 0, 1.1 * 2**-11), (1, 1, 1.1 * 2**-25)):
        moved = stored.clone()
        moved[row, column] += move
        assert compare(moved, stored).verdict == "changed", (row, column)


def test_what_a_cast_sets_to_zero_and_what_a_quantiser_clips():
    """Ends of a format: at most 1 % of the values."""
    weight = matrix(2)
    flushed = weight.half().float()
    weight.view(-1)[:50] = 2e-6 * torch.linspace(1, 2, 50)
    flushed.view(-1)[:50] = 0
    found = compare(weight, flushed)
    assert found.verdict == "rounding" and "0.0041 of the values cut off" in found.why
    weight.view(-1)[:500], flushed.view(-1)[:500] = 2e-6, 0
    assert compare(weight, flushed).verdict == "changed"
    for share, verdict in ((0.995, "rounding"), (0.95, "changed")):
        plain = matrix(3)
        step = plain.abs().flatten().quantile(share) / 127
        clipped = (plain / step).round().clamp(-127, 127) * step
        assert compare(plain, clipped).verdict == verdict


def test_few_values_beyond_half_a_step_are_a_change():
    """Rounding to the nearest leaves none: one weight of 12,288 that somebody set is found in every format."""
    for stored in FORMATS.values():
        weight = matrix(4)
        rounded, half = stored(weight)
        # A value of usual size: the outermost of a group may be cut off.
        place = rounded.abs().flatten().kthvalue(6000).indices
        weight.view(-1)[place] = (rounded + 3 * half).flatten()[place]
        assert compare(weight, rounded).verdict == "changed"


def test_small_additions_to_values_of_a_grid_are_no_rounding():
    """Within half a step everywhere, but far less than rounding moves."""
    rounded, half = int8_per_row(matrix(5))
    added = rounded + 0.1 * half.float() * torch.randn(96, 128, generator=torch.Generator().manual_seed(0))
    found = compare(rounded, added)
    assert found.verdict == "changed" and "far less than rounding does" in found.why


def test_the_share_beyond_half_a_step_is_said():
    weight = matrix(6)
    rounded, half = int8_per_tensor(weight + 0.1 * update(weight, 6))
    beyond = float(((rounded - weight).abs() > half).double().mean())
    assert compare(weight, rounded).beyond == pytest.approx(beyond, abs=0.002)
