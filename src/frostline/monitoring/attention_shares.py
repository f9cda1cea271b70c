"""Shares of attention by the law of atoms and a cloud, from the queries and keys of a layer (THEORY eq. 17 and 18).

For every token the first token of the text, the last, the token itself and its two neighbours are single atoms; all
others are one cloud, known by the mean and the covariance that the reference's tokens have. No attention weight is
computed: the cost grows with the number of tokens, not with its square.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Places:
    """Places of the tokens of a batch, whichever side the padding is on.

    start, last  of the first and the last token of every text
    atoms        whether the first token, the last, the token itself, the one before and the one after it are atoms of
                 their own for a token; no token is two atoms
    cloud        number of the tokens that are none of its atoms
    """

    present: Bool[Tensor, "b n"]
    start: Int[Tensor, " b"]
    last: Int[Tensor, " b"]
    atoms: Bool[Tensor, "5 b n"]
    cloud: Float[Tensor, "b n"]

    @classmethod
    def of(cls, present: Bool[Tensor, "b n"]) -> "Places":
        start = present.int().argmax(1)
        last = (start + present.sum(1) - 1).clamp_min(0)
        inner = inside(present)
        around = pad(inner, (1, 1))
        ends = (torch.ones_like(inner), (last != start)[:, None].expand_as(inner))
        atoms = torch.stack([*ends, inner, around[:, :-2], around[:, 2:]])
        count = inner.sum(1, keepdim=True) - atoms[2:].sum(0)
        return cls(present, start, last, atoms, count.float())

    def mean(self, values: Float[Tensor, "b n *more"]) -> Float[Tensor, "b *more"]:
        """Mean over the tokens of every text."""
        weights = self.present.float() / self.present.sum(1, keepdim=True).clamp_min(1)
        return (weights[:, None] @ values.flatten(2)).reshape(len(values), *values.shape[2:])


def inside(present: Bool[Tensor, "b n"]) -> Bool[Tensor, "b n"]:
    """True for the inner tokens of every text: all but the first and the last."""
    around = pad(present, (1, 1))
    return present & around[:, :-2] & around[:, 2:]


@dataclass(frozen=True, eq=False)
class Shares:
    """Attention of every token in every head: its weights on the atoms and, last, on the cloud, and how that tilts.

    The mean of the cloud moves by ``tilt`` times the covariance of values and logits: f of eq. 17.
    """

    weights: Float[Tensor, "6 b n h"]
    tilt: Float[Tensor, "b n h"]


def shares(
    query: Float[Tensor, "b n h k"],
    key: Float[Tensor, "b n h k"],
    mean: Float[Tensor, "h k"],
    covariance: Float[Tensor, "h k k"],
    places: Places,
) -> Shares:
    """Shares of attention when the keys of the cloud have this mean and covariance in every head."""
    scale = query.shape[-1] ** -0.5
    rows = torch.arange(len(key), device=key.device)
    dot = torch.linalg.vecdot
    logits = [
        dot(query, key[rows, places.start][:, None]),
        dot(query, key[rows, places.last][:, None]),
        dot(query, key),
        pad(dot(query[:, 1:], key[:, :-1]), (0, 0, 1, 0)),
        pad(dot(query[:, :-1], key[:, 1:]), (0, 0, 0, 1)),
    ]
    sigma = scale * dot(query, per_head(query, covariance)).clamp_min(0).sqrt()
    count = places.cloud[..., None]
    edge = (2 * count.clamp_min(1).log()).sqrt()
    frozen = sigma > edge
    mass = torch.where(frozen, sigma * edge - edge.square() / 2, sigma.square() / 2)
    atoms = (scale * torch.stack(logits)).masked_fill(~places.atoms[..., None], -torch.inf)
    cloud = count.log() + scale * dot(query, mean) + mass
    return Shares(
        torch.cat([atoms, cloud[None]]).softmax(0),
        torch.where(frozen, edge / sigma.clamp_min(1e-12), 1.0),
    )


def per_head(x: Float[Tensor, "b n h k"], matrices: Float[Tensor, "h k m"]) -> Float[Tensor, "b n h m"]:
    """x times the matrix of its head."""
    product = x.flatten(0, 1).transpose(0, 1) @ matrices
    return product.transpose(0, 1).reshape(*x.shape[:3], -1)


def mean_value(
    paid: Shares,
    query: Float[Tensor, "b n h k"],
    value: Float[Tensor, "b n h k"],
    mean: Float[Tensor, "h k"],
    covariance: Float[Tensor, "h k k"],
    places: Places,
) -> Float[Tensor, "b n h k"]:
    """The mean that every head returns, with the values' mean and their covariance with the keys (key, value)."""
    rows = torch.arange(len(value), device=value.device)
    weights = paid.weights[..., None]
    moved = paid.tilt[..., None] * query.shape[-1] ** -0.5 * per_head(query, covariance)
    total = weights[5] * (mean + moved)
    total += weights[0] * value[rows, places.start][:, None]
    total += weights[1] * value[rows, places.last][:, None]
    total += weights[2] * value
    total[:, 1:] += weights[3, :, 1:] * value[:, :-1]
    total[:, :-1] += weights[4, :, :-1] * value[:, 1:]
    return total
