"""What a text looks like inside a model: means of its tokens at every layer, and how concentrated the clouds are.

Everything comes from hidden states alone, in few passes over them: no attention weights, no n×n matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

STACKED = 2**20
"""Numbers in all states up to which one copy pays: each operation then runs once for all layers."""
OF_CLOUD = {
    "resultant": "spread",
    "scatter": "spread",
    "farthest": "spread",
    "neighbours": "order",
    "second neighbours": "order",
    "first": "ends",
    "last": "ends",
    "before last": "ends",
    "size": "spread",
}
"""Numbers of one cloud, and the part of the score they belong to.

resultant          length of the mean unit token
scatter, farthest  standard deviation and smallest of the cosines to the mean direction
neighbours         cosine of neighbouring tokens (and of those two apart), above that of all pairs
first, last …      cosine of single tokens to the mean direction
size               mean norm of the tokens
"""
OF_STEP = {"moved": "motion", "moved unevenly": "motion", "moved most": "motion"}
"""Numbers of one layer: 1 − cosine between a token before and after it, its mean, standard deviation and maximum."""


PASSAGES = 4
"""Parts of equal length that a text is cut into, to find a foreign one."""
LAGS = 6
"""Places apart at which tokens are compared to find repetition."""


@dataclass(frozen=True, eq=False)
class Profile:
    """Of b texts at L + 1 clouds: mean tokens, the numbers whose names are ``names(L)``, and directions of passages.

    ``passages``: mean tokens of four parts of the text, at two thirds of the depth and at the end, as unit vectors.
    """

    means: Float[Tensor, "b clouds d"]
    numbers: Float[Tensor, "b k"]
    passages: Float[Tensor, "b 4 e"]


def names(layers: int) -> list[tuple[str, str, int]]:
    """Name, part and cloud of every number, in their order; length and repetition of a text come first."""
    clouds = [(name, part, cloud) for cloud in range(layers + 1) for name, part in OF_CLOUD.items()]
    steps = [(name, part, cloud) for cloud in range(1, layers + 1) for name, part in OF_STEP.items()]
    return [("length", "length", 0), ("repetition", "order", 0), *clouds, *steps]


def profile(states: Sequence[Float[Tensor, "b n d"]], present: Bool[Tensor, "b n"]) -> Profile:
    """The profile of every text in a batch; ``present`` tells tokens from padding."""
    if states[0].dtype in (torch.float16, torch.bfloat16):
        states = [state.float() for state in states]
    mask = present.to(states[0].dtype)
    count = mask.sum(1)
    if states[0].numel() * len(states) <= STACKED:
        x = torch.stack(tuple(states))
        means, clouds = _clouds(x, mask, count)
        steps = _steps(x[:-1], x[1:], mask, count)
    else:
        pairs = [_clouds(x[None], mask, count) for x in states]
        means, clouds = (torch.cat(part) for part in zip(*pairs, strict=True))
        steps = torch.cat([_steps(x[None], y[None], mask, count) for x, y in pairwise(states)])
    texts = len(count)
    numbers = torch.cat(
        [
            count.log()[:, None],
            _repetition(states[0], mask, count)[:, None],
            clouds.transpose(0, 1).reshape(texts, -1),
            steps.transpose(0, 1).reshape(texts, -1),
        ],
        1,
    )
    return Profile(means.transpose(0, 1), numbers, _passages(states, mask, count))


def _passages(states: Sequence[Tensor], mask: Tensor, count: Tensor) -> Tensor:
    place = torch.arange(mask.shape[1], device=mask.device)
    number = (place * PASSAGES / count[:, None]).floor()
    inside = (number[:, None] == torch.arange(PASSAGES, device=mask.device)[:, None]) * mask[:, None]
    # Texts of fewer tokens than passages: what is empty is the whole text.
    inside = torch.where(inside.sum(-1, keepdim=True) > 0, inside, mask[:, None])
    layers = len(states) - 1
    both = [torch.nn.functional.normalize(inside @ states[one], dim=-1) for one in (round(2 * layers / 3), layers)]
    return torch.cat(both, -1) / 2**0.5


def _repetition(x: Tensor, mask: Tensor, count: Tensor) -> Tensor:
    """The largest mean cosine between tokens one to six places apart, at the input."""
    inverse = (mask / torch.linalg.vector_norm(x, dim=-1).clamp_min(1e-12))[None]
    found = [_apart(x[None], inverse, lag, (count - 1).clamp_min(1))[0] for lag in range(1, LAGS + 1)]
    return torch.stack(found).amax(0)


def _clouds(
    x: Float[Tensor, "l b n d"], mask: Float[Tensor, "b n"], count: Float[Tensor, " b"]
) -> tuple[Float[Tensor, "l b d"], Float[Tensor, "l b k"]]:
    size = torch.linalg.vector_norm(x, dim=-1).clamp_min(1e-12)
    inverse = mask / size
    # Both means in one pass: of the tokens, and of their directions.
    sums = torch.stack([mask.expand_as(size), inverse], 2) @ x / count[:, None, None]
    mean, centre = sums[:, :, 0], sums[:, :, 1]
    resultant = torch.linalg.vector_norm(centre, dim=-1)
    others = (count - 1).clamp_min(1)
    usual = (count * resultant**2 - 1) / others
    along = (x @ centre[..., None])[..., 0] * inverse / resultant.clamp_min(1e-12)[..., None]
    scatter = (((along - resultant[..., None]) * mask).square().sum(-1) / count).sqrt()
    ends = count.long() - 1
    picked = torch.stack([torch.zeros_like(ends), ends, (ends - 1).clamp_min(0)], -1)
    single = along.gather(-1, picked.expand(len(x), -1, -1))
    near = [_apart(x, inverse, apart, others) - usual for apart in (1, 2)]
    farthest = along.masked_fill(mask == 0, 2.0).amin(-1)
    found = [resultant, scatter, farthest, *near, *single.unbind(-1), (size * mask).sum(-1) / count]
    return mean, torch.stack(found, -1)


def _apart(x: Tensor, inverse: Tensor, apart: int, others: Tensor) -> Tensor:
    """Mean cosine of tokens this many places apart."""
    if x.shape[2] <= apart:
        return torch.zeros_like(inverse[..., 0])
    dots = torch.linalg.vecdot(x[:, :, apart:], x[:, :, :-apart])
    return (dots * inverse[..., apart:] * inverse[..., :-apart]).sum(-1) / (others - apart + 1).clamp_min(1)


def _steps(
    before: Float[Tensor, "l b n d"],
    after: Float[Tensor, "l b n d"],
    mask: Float[Tensor, "b n"],
    count: Float[Tensor, " b"],
) -> Float[Tensor, "l b k"]:
    sizes = (torch.linalg.vector_norm(before, dim=-1) * torch.linalg.vector_norm(after, dim=-1)).clamp_min(1e-12)
    moved = (1 - torch.linalg.vecdot(before, after) / sizes) * mask
    mean = moved.sum(-1) / count
    uneven = (((moved - mean[..., None]) * mask).square().sum(-1) / count).sqrt()
    return torch.stack([mean, uneven, moved.amax(-1)], -1)
