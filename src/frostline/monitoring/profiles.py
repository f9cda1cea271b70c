"""What a text looks like inside a model: means of its tokens at every layer, and how concentrated the clouds are.

Everything comes from hidden states alone, in few passes over them: no attention weights, and no n×n matrix for long
texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

STACKED = 2**20
"""Numbers in all states up to which one copy pays: each operation then runs once for all layers."""
SHORT = 64
"""Tokens up to which a Gram matrix is cheaper than looking at tokens one by one."""
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
    seen = _look(states, mask)
    numbers = [
        count.log()[:, None],
        _repetition(seen, count)[:, None],
        _clouds(seen, mask, count).transpose(0, 1).reshape(len(count), -1),
        _steps(seen, mask, count).transpose(0, 1).reshape(len(count), -1),
    ]
    means = seen.sums.transpose(0, 1) / count[:, None, None]
    return Profile(means, torch.cat(numbers, 1), _passages(states, mask, count))


@dataclass(frozen=True, eq=False)
class _Look:
    """All that is read off the states themselves; the rest is arithmetic on small arrays.

    sums     of the tokens
    inverse  1/|x_i|, zero for padding
    rows     x_i · Σ_j x_j/|x_j|
    dots     x_i · x_{i+k} for k = 1, 2, and at the input up to ``LAGS``
    crossed  x_i before a layer · x_i after it
    """

    sums: Float[Tensor, "l b d"]
    inverse: Float[Tensor, "l b n"]
    rows: Float[Tensor, "l b n"]
    dots: tuple[Float[Tensor, "l b _"], ...]
    first: tuple[Float[Tensor, "b _"], ...]
    crossed: Float[Tensor, "m b n"]


def _look(states: Sequence[Tensor], mask: Tensor) -> _Look:
    """Through Gram matrices for short texts, token by token for long ones, whose Gram matrices would cost too much."""
    n = mask.shape[1]
    if states[0].numel() * len(states) <= STACKED:
        # So small that starting an operation costs more than the operation: one copy, and each runs once.
        x = torch.stack(tuple(states))
        sums = (mask[:, None] @ x)[:, :, 0]
        crossed = torch.linalg.vecdot(x[1:], x[:-1])
        grams = x @ x.mT if n <= SHORT else None
    else:
        sums = torch.cat([mask[:, None] @ x for x in states], 1).transpose(0, 1)
        crossed = torch.stack([torch.linalg.vecdot(x, y) for x, y in pairwise(states)])
        grams = torch.stack([x @ x.mT for x in states]) if n <= SHORT else None
    if grams is not None:
        inverse = mask * grams.diagonal(0, -2, -1).clamp_min(1e-24).rsqrt()
        rows = (grams @ inverse[..., None])[..., 0]
        return _Look(
            sums,
            inverse,
            rows,
            tuple(grams.diagonal(k, -2, -1) for k in (1, 2)),
            tuple(grams[0].diagonal(k, -2, -1) for k in range(1, LAGS + 1)),
            crossed,
        )
    inverse = torch.stack([mask / torch.linalg.vector_norm(x, dim=-1).clamp_min(1e-12) for x in states])
    rows = torch.stack([(x @ (own[:, None] @ x).mT)[..., 0] for x, own in zip(states, inverse, strict=True)])
    dots = tuple(torch.stack([_apart(x, k) for x in states]) for k in (1, 2))
    return _Look(sums, inverse, rows, dots, tuple(_apart(states[0], k) for k in range(1, LAGS + 1)), crossed)


def _apart(x: Float[Tensor, "b n d"], k: int) -> Float[Tensor, "b _"]:
    return torch.linalg.vecdot(x[:, k:], x[:, :-k])


def _clouds(seen: _Look, mask: Float[Tensor, "b n"], count: Float[Tensor, " b"]) -> Float[Tensor, "l b k"]:
    lengths = (seen.inverse * seen.rows).sum(-1).clamp_min(0).sqrt()
    resultant = lengths / count
    others = (count - 1).clamp_min(1)
    usual = (count * resultant**2 - 1) / others
    along = seen.rows * seen.inverse / lengths.clamp_min(1e-12)[..., None]
    scatter = (((along - resultant[..., None]) * mask).square().sum(-1) / count).sqrt()
    ends = count.long() - 1
    picked = torch.stack([torch.zeros_like(ends), ends, (ends - 1).clamp_min(0)], -1)
    single = along.gather(-1, picked.expand(len(along), -1, -1))
    near = [_cosine(dots, seen.inverse, k + 1, count) - usual for k, dots in enumerate(seen.dots)]
    farthest = along.masked_fill(mask == 0, 2.0).amin(-1)
    size = torch.where(mask > 0, 1 / seen.inverse.clamp_min(1e-30), 0.0).sum(-1) / count
    return torch.stack([resultant, scatter, farthest, *near, *single.unbind(-1), size], -1)


def _cosine(dots: Tensor, inverse: Tensor, lag: int, count: Tensor) -> Tensor:
    """Mean cosine of tokens this many places apart; zero where no two are."""
    if not dots.shape[-1]:
        return torch.zeros_like(inverse[..., 0])
    return (dots * inverse[..., lag:] * inverse[..., :-lag]).sum(-1) / (count - lag).clamp_min(1)


def _repetition(seen: _Look, count: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """The largest mean cosine between tokens one to six places apart, at the input."""
    found = [_cosine(dots, seen.inverse[0], k + 1, count) for k, dots in enumerate(seen.first)]
    return torch.stack(found).amax(0)


def _steps(seen: _Look, mask: Float[Tensor, "b n"], count: Float[Tensor, " b"]) -> Float[Tensor, "m b k"]:
    moved = (1 - seen.crossed * seen.inverse[1:] * seen.inverse[:-1]) * mask
    mean = moved.sum(-1) / count
    uneven = (((moved - mean[..., None]) * mask).square().sum(-1) / count).sqrt()
    return torch.stack([mean, uneven, moved.amax(-1)], -1)


def _passages(states: Sequence[Tensor], mask: Tensor, count: Tensor) -> Tensor:
    place = torch.arange(mask.shape[1], device=mask.device)
    number = (place * PASSAGES / count[:, None]).floor()
    inside = (number[:, None] == torch.arange(PASSAGES, device=mask.device)[:, None]) * mask[:, None]
    # Texts of fewer tokens than passages: what is empty is the whole text.
    inside = torch.where(inside.sum(-1, keepdim=True) > 0, inside, mask[:, None])
    layers = len(states) - 1
    both = [torch.nn.functional.normalize(inside @ states[one], dim=-1) for one in (round(2 * layers / 3), layers)]
    return torch.cat(both, -1) / 2**0.5
