"""Profile of a text inside a model: means of its tokens at a few depths, and how concentrated the clouds are.

Everything comes from hidden states alone, in few passes over them: no attention weights, and no n×n matrix for long
texts. The cost does not grow with the model's depth: at most four clouds are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from frostline.monitoring.token_probes import Probes, States

LEVELS = ("full", "light")
"""Levels of a profile: a full one reads up to four clouds, a light one the output alone.

A judge of level "deep" reads a full profile and looks into two layers besides (``reference_cloud``).
"""
CLOUDS = 4
"""Clouds of a full profile: the input, the output, and two between them."""
STACKED = 2**18
"""Numbers in all states up to which one copy pays: each operation then runs once for all clouds."""
SHORT = 64
"""Tokens up to which a Gram matrix is cheaper on a CPU than reading tokens one by one."""
SHORT_ON_GPU = 512
"""Tokens up to which a Gram matrix is cheaper on a GPU than reading tokens one by one."""
OF_CLOUD = {
    "resultant": "spread",
    "scatter": "spread",
    "farthest": "spread",
    "neighbours": "order",
    "second neighbours": "order",
    "first": "ends",
    "last": "ends",
    "before last": "ends",
}
"""Names of the numbers of one cloud, and the property that each measures.

resultant          length of the mean unit token
scatter, farthest  standard deviation and smallest of the cosines to the mean direction
neighbours         cosine of neighbouring tokens (and of those two apart), above that of all pairs
first, last …      cosine of single tokens to the mean direction

Norms of tokens, and how far they move from cloud to cloud, add no information (docs/monitoring.md).
"""
PASSAGES = 4
"""Number of parts of equal length that a text is cut into, to find a foreign one."""
LAGS = 6
"""Largest distance, in places, at which tokens are compared to find repetition."""


@dataclass(frozen=True, eq=False)
class Profile:
    """Second station of a text: its numbers at some clouds, one row per text; ``names(clouds)`` names ``numbers``.

    means     mean token at every cloud, side by side
    passages  mean tokens of four parts of the text, at the last two clouds, as unit vectors
    words     evidence of every probe, in the log-mean over the tokens
    tokens    the same token by token, for reasons; None in profiles of many batches, whose lengths differ
    """

    means: Float[Tensor, "b m"]
    numbers: Float[Tensor, "b k"]
    passages: Float[Tensor, "b 4 e"]
    words: Float[Tensor, "b kinds"]
    tokens: Float[Tensor, "b kinds n"] | None = None

    def without_tokens(self) -> "Profile":
        """The same profile, smaller."""
        return replace(self, tokens=None)

    @classmethod
    def joined(cls, parts: "Sequence[Profile]") -> "Profile":
        """Profiles of several batches as one, without tokens."""
        columns = ("means", "numbers", "passages", "words")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in columns))

    def __len__(self) -> int:
        return len(self.means)

    def __getitem__(self, rows: Tensor | slice) -> "Profile":
        tokens = None if self.tokens is None else self.tokens[rows]
        return Profile(self.means[rows], self.numbers[rows], self.passages[rows], self.words[rows], tokens)

    @property
    def lengths(self) -> Float[Tensor, " b"]:
        """Logarithms of the numbers of tokens."""
        return self.numbers[:, 0]

    @property
    def features(self) -> Float[Tensor, "b f"]:
        """Means and numbers side by side: the input of the corruption directions."""
        return torch.cat([self.means, self.numbers], 1)


def clouds_of(layers: int, level: str) -> tuple[int, ...]:
    """Numbers of the clouds that a profile reads, 0 being before the first layer; ``level`` is full or light."""
    if level == "light":
        return (layers,)
    return tuple(sorted({round(place) for place in np.linspace(0, layers, CLOUDS)}))


def names(clouds: Sequence[int]) -> list[tuple[str, str, int]]:
    """Name, property and cloud of every number, in their order; length and repetition of a text come first."""
    of_clouds = [(name, of, cloud) for cloud in clouds for name, of in OF_CLOUD.items()]
    return [("length", "length", clouds[0]), ("repetition", "order", clouds[0]), *of_clouds]


def resultants(numbers: Float[Tensor, "n k"]) -> Float[Tensor, "n clouds"]:
    """Resultant lengths among the numbers: after two numbers of the whole text, the first of every cloud."""
    return numbers[:, 2 :: len(OF_CLOUD)]


def profile(
    states: Sequence[Float[Tensor, "b n d"]], present: Bool[Tensor, "b n"], probes: Probes | None = None
) -> Profile:
    """The profile of every text in a batch; ``present`` is False for padding."""
    mask = present.to(states[0].dtype)
    count = mask.sum(1).clamp_min(1)
    # The place where the text begins: padding may be on the left.
    start = mask.argmax(1, keepdim=True)
    inside = _inside(mask, start, count)
    x: States = states
    if states[0].numel() * len(states) <= STACKED:
        # States are so small that starting an operation costs more than the operation: one copy, and each runs once.
        x = torch.stack(tuple(states))
        sums = inside @ x
    else:
        sums = torch.stack([inside @ state for state in states])
    short = SHORT if mask.device.type == "cpu" else SHORT_ON_GPU
    cosines = _cosines_from_grams(x, mask) if mask.shape[1] <= short else _cosines_token_by_token(x, mask)
    apart = cosines.lags / (count[:, None] - torch.arange(1, LAGS + 1, device=mask.device)).clamp_min(1)
    of_clouds = _numbers_of_clouds(cosines, apart[..., :2], mask, start, count)
    whole = sums.sum(2)
    tokens = mask.new_zeros(len(mask), 0, mask.shape[1])
    if probes is not None:
        tokens = probes(x).masked_fill(mask[:, None] == 0, -torch.inf)
    return Profile(
        (whole / count[:, None]).transpose(0, 1).flatten(1),
        torch.cat([count.log()[:, None], apart[0].amax(-1, keepdim=True), of_clouds.transpose(0, 1).flatten(1)], 1),
        _passages(sums[-2:], whole[-2:]),
        # Log-odds are bounded: their exponentials are finite.
        (tokens.exp().sum(-1) / count[:, None]).log(),
        tokens,
    )


@dataclass(frozen=True, eq=False)
class _Cosines:
    """Sums of cosines of tokens at every cloud; the rest is arithmetic on small arrays. u_i = x_i/|x_i|.

    rows     u_i · Σ_j u_j, zero for padding
    lags     Σ_i u_i · u_{i+k} for k = 1 to ``LAGS``; beyond the second only at the first cloud, zero elsewhere
    """

    rows: Float[Tensor, "c b n"]
    lags: Float[Tensor, "c b lags"]


def _cosines_from_grams(states: States, mask: Tensor) -> _Cosines:
    """For short texts: all cosines at once."""
    grams = states @ states.mT if isinstance(states, Tensor) else torch.stack([x @ x.mT for x in states])
    inverse = mask * grams.diagonal(0, -2, -1).clamp_min(1e-24).rsqrt()
    cosines = grams * inverse[..., None] * inverse[..., None, :]
    places = torch.arange(mask.shape[1], device=mask.device)
    apart = (places - places[:, None]).flatten()[:, None]
    at_lag = (apart == torch.arange(1, LAGS + 1, device=mask.device)).to(mask.dtype)
    return _Cosines(cosines.sum(-1), cosines.flatten(2) @ at_lag)


def _cosines_token_by_token(states: States, mask: Tensor) -> _Cosines:
    """For long texts, whose Gram matrices would cost too much: one token after the other."""
    inverse = torch.stack([mask / torch.linalg.vector_norm(x, dim=-1).clamp_min(1e-12) for x in states])
    rows = torch.stack([(x @ (weights[:, None] @ x).mT)[..., 0] for x, weights in zip(states, inverse, strict=True)])
    lags = inverse.new_zeros(*inverse.shape[:2], LAGS)
    for cloud, (x, weights) in enumerate(zip(states, inverse, strict=True)):
        for k in range(1, (LAGS if cloud == 0 else 2) + 1):
            dots = torch.linalg.vecdot(x[:, k:], x[:, :-k])
            lags[cloud, :, k - 1] = (dots * weights[:, k:] * weights[:, :-k]).sum(-1)
    return _Cosines(rows * inverse, lags)


def _numbers_of_clouds(
    cosines: _Cosines,
    near: Float[Tensor, "c b 2"],
    mask: Float[Tensor, "b n"],
    start: Int[Tensor, "b 1"],
    count: Float[Tensor, " b"],
) -> Float[Tensor, "c b k"]:
    total = cosines.rows.sum(-1).clamp_min(0)
    lengths = total.sqrt()
    resultant = lengths / count
    usual = (total / count - 1) / (count - 1).clamp_min(1)
    along = cosines.rows / lengths.clamp_min(1e-12)[..., None]
    # The cosines to the mean direction have the resultant length for their mean.
    scatter = (along.square().sum(-1) / count - resultant.square()).clamp_min(0).sqrt()
    farthest = (along + 2 * (1 - mask)).amin(-1)
    # The first token, the last, and the one before it. (torch.tensor([1, 2]) would wait for a GPU to finish.)
    back = (count[:, None] - torch.arange(1, 3, device=mask.device)).clamp_min(0).long()
    ends = torch.cat([start, start + back], 1)
    single = along.gather(-1, ends.expand(len(along), -1, -1))
    alone = torch.stack([resultant, scatter, farthest], -1)
    return torch.cat([alone, near - usual[..., None], single], -1)


def _inside(
    mask: Float[Tensor, "b n"], start: Int[Tensor, "b 1"], count: Float[Tensor, " b"]
) -> Float[Tensor, "b 4 n"]:
    """1 where a token belongs to a passage, else 0."""
    place = torch.arange(mask.shape[1], device=mask.device) - start
    number = (place * PASSAGES / count[:, None]).floor()
    return (number[:, None] == torch.arange(PASSAGES, device=mask.device)[:, None]) * mask[:, None]


def _passages(sums: Float[Tensor, "c b 4 d"], whole: Float[Tensor, "c b d"]) -> Float[Tensor, "b 4 e"]:
    sizes = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
    # Texts of fewer tokens than passages: the whole text takes the place of an empty passage.
    filled = torch.where(sizes > 0, sums, whole[:, :, None])
    directions = torch.nn.functional.normalize(filled, dim=-1)
    return directions.permute(1, 2, 0, 3).flatten(2) / len(sums) ** 0.5
