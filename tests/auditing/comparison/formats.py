"""Formats that weights are stored in. Each takes weights and gives them rounded, with half the step at every value."""

import torch


def float16(weight):
    return weight.half().float(), half_of_places(weight, 10, -14)


def bfloat16(weight):
    return weight.bfloat16().float(), half_of_places(weight, 7, -126)


def half_of_places(weight, bits, least):
    """Half a unit in the last of so many places after the first one; ``least``: the exponent of the smallest normal."""
    exponent = torch.floor(torch.log2(weight.double().abs())).clamp_min(least)
    return torch.exp2(exponent - bits - 1)


def on_steps(weight, step, most):
    return (weight / step).round().clamp(-most, most) * step, (step / 2).expand_as(weight).double()


def int8_per_tensor(weight):
    return on_steps(weight, weight.abs().max() / 127, 127)


def affine_int8(weight):
    """As torch's dynamic quantisation: 256 values from the smallest to the largest, zero among them."""
    return on_steps(weight, (weight.max() - weight.min()) / 255, 300)


def int8_per_row(weight):
    return on_steps(weight, weight.abs().amax(1, keepdim=True) / 127, 127)


def int8_per_column(weight):
    rounded, half = int8_per_row(weight.T)
    return rounded.T, half.T


def int4_in_blocks(weight):
    blocks = weight.reshape(-1, 32)
    rounded, half = on_steps(blocks, blocks.abs().amax(1, keepdim=True) / 7, 7)
    return rounded.reshape(weight.shape), half.reshape(weight.shape)


def int4_from_the_least(weight):
    """Blocks of 64 from their smallest value to their largest, in 15 steps; zero is not among them."""
    blocks = weight.reshape(-1, 64)
    least = blocks.amin(1, keepdim=True)
    rounded, half = on_steps(blocks - least, (blocks.amax(1, keepdim=True) - least) / 15, 15)
    return (rounded + least).reshape(weight.shape), half.reshape(weight.shape)


def int8_kept_in(dtype):
    def rounded(weight):
        values, half = int8_per_row(weight)
        places = {torch.float16: 10, torch.bfloat16: 7}[dtype]
        return values.to(dtype).float(), half + half_of_places(values, places, -14)

    return rounded


NORMAL_FLOAT = (-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0)
NORMAL_FLOAT += (0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0)


def normal_float4(weight):
    """A code book: 16 levels, closer together near zero, times the largest value of each block of 64."""
    blocks, levels = weight.reshape(-1, 64), torch.tensor(NORMAL_FLOAT)
    peak = blocks.abs().amax(1, keepdim=True)
    place = ((blocks / peak)[..., None] - levels).abs().argmin(-1)
    middle = torch.cat([levels[:1] - 1, (levels[1:] + levels[:-1]) / 2, levels[-1:] + 1])
    rounded = levels[place] * peak
    below, above = (levels[place] - middle[place]) * peak, (middle[place + 1] - levels[place]) * peak
    half = torch.where(blocks > rounded, above, below).double()
    return rounded.reshape(weight.shape), half.reshape(weight.shape)


ASKED = (float16, bfloat16, int8_per_tensor, int8_per_row, int4_in_blocks)
OTHERS = {
    "affine": affine_int8,
    "column": int8_per_column,
    "from the least": int4_from_the_least,
    "int8 in float16": int8_kept_in(torch.float16),
    "int8 in bfloat16": int8_kept_in(torch.bfloat16),
    "normal float": normal_float4,
}
FORMATS = {one.__name__: one for one in ASKED} | OTHERS
