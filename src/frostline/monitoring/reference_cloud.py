"""The cloud of the reference in two layers of a model, and how a text should gather if its own is the same (THEORY 12).

The atoms of the text and the population's cloud give the shares of attention in every head, and the mean that it
returns. Through the output matrix and with the tokens that enter the layer they give the tokens after its attention
half, and how much these should gather.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from frostline.encoders.load import Encoder
from frostline.monitoring.attention_shares import Places, inside, mean_value, shares

PARTS = ("query", "key", "value", "output")
"""Modules of a layer whose results are read, by the names that a family has for them."""
SMALLEST_SPREAD = 1e-6
"""Smallest spread of the law's error: below it is rounding."""
LEARNED = ("keys", "values", "keys_keys", "keys_values", "line", "spread")
"""Tensors of a reference cloud that are learned; the others are the model's."""
AT_ONCE = 512
"""Tokens of a portion on a CPU: twice as fast as thousands at once."""
LAYERS = 2
"""Number of layers whose inside is read, whatever the depth of the model."""


def layers_of(encoder: Encoder, clouds: Sequence[int]) -> tuple[int, ...]:
    """Numbers of the layers whose inside a deep profile reads: the last two that a cloud enters.

    No layer where positions act inside attention (relative, rotary): moments of keys without places say nothing there.
    """
    return tuple(clouds[:-1][-LAYERS:]) if encoder.positions == "added" and encoder.family.reads == "text" else ()


@dataclass(frozen=True, eq=False)
class Inside:
    """What one layer did with a batch of texts: its tokens, queries, keys, values, and what attention added."""

    tokens: Float[Tensor, "b n d"]
    query: Float[Tensor, "b n h k"]
    key: Float[Tensor, "b n h k"]
    value: Float[Tensor, "b n h k"]
    update: Float[Tensor, "b n d"]

    @classmethod
    def of(cls, tokens: Tensor, parts: Sequence[Tensor], heads: int) -> "Inside":
        """From the results of the modules ``PARTS``."""
        query, key, value = (part.float().reshape(*part.shape[:2], heads, -1) for part in parts[:3])
        return cls(tokens.float(), query, key, value, parts[3].float())

    def __getitem__(self, rows: slice) -> "Inside":
        return Inside(*(getattr(self, field.name)[rows] for field in fields(self)))


def insides(layers: Sequence[int], heads: int, clouds: Sequence[int], states: Sequence[Tensor]) -> tuple[Inside, ...]:
    """The inside of these layers, from the states of clouds and of ``PARTS`` that hooks hand over."""
    parts = states[len(clouds) :]
    return tuple(
        Inside.of(states[clouds.index(layer)], parts[number * len(PARTS) : (number + 1) * len(PARTS)], heads)
        for number, layer in enumerate(layers)
    )


@dataclass(frozen=True, eq=False)
class Gathering:
    """How much the tokens of a text gather after the attention half of two layers, and what is expected there."""

    observed: Float[Tensor, "b layers"]
    expected: Float[Tensor, "b layers"]

    @classmethod
    def joined(cls, parts: "Sequence[Gathering]") -> "Gathering":
        """Those of several batches as one."""
        return cls(torch.cat([part.observed for part in parts]), torch.cat([part.expected for part in parts]))

    def __getitem__(self, rows: Tensor | slice) -> "Gathering":
        return Gathering(self.observed[rows], self.expected[rows])


@dataclass(frozen=True, eq=False)
class ReferenceCloud:
    """The population's cloud in every head of two layers, and how far the law is off on texts of the reference.

    keys, values      means, and covariances cov(key, key) and cov(key, value)
    line              the law's mean error a + b/n for texts of n tokens, which is added to what it expects
    spread            standard deviation of its error over calibration texts
    output, bias      the output projections of the model, once the reference cloud is bound to it
    """

    layers: tuple[int, ...]
    keys: Float[Tensor, "l h k"]
    values: Float[Tensor, "l h k"]
    keys_keys: Float[Tensor, "l h k k"]
    keys_values: Float[Tensor, "l h k k"]
    line: Float[Tensor, "l 2"]
    spread: Float[Tensor, " l"]
    output: Float[Tensor, "l d e"] | None = None
    bias: Float[Tensor, "l d"] | None = None

    def bound(self, encoder: Encoder) -> "ReferenceCloud":
        """The same with the output projections of the model."""
        name = encoder.family.output
        output = torch.stack([torch.from_numpy(encoder.weight(name, layer)).float() for layer in self.layers])
        bias = torch.stack([torch.from_numpy(encoder.bias(name, layer)).float() for layer in self.layers])
        return replace(self, output=output, bias=bias)

    def insides(self, clouds: Sequence[int], states: Sequence[Tensor]) -> tuple[Inside, ...]:
        """The inside of its layers, from the states that hooks hand over."""
        return insides(self.layers, self.keys.shape[1], clouds, states)

    def gather(self, insides: Sequence[Inside], present: Bool[Tensor, "b n"]) -> Gathering:
        """Resultant length of the centred tokens after the attention half, and the one that the law expects."""
        portions = [self._gather([part[rows] for part in insides], present[rows]) for rows in _portions(present)]
        return Gathering.joined(portions)

    def _gather(self, insides: Sequence[Inside], present: Bool[Tensor, "b n"]) -> Gathering:
        assert self.output is not None and self.bias is not None
        places = Places.of(present)
        observed, expected = [], []
        for number, layer in enumerate(insides):
            paid = shares(layer.query, layer.key, self.keys[number], self.keys_keys[number], places)
            means = mean_value(paid, layer.query, layer.value, self.values[number], self.keys_values[number], places)
            update = means.flatten(2) @ self.output[number].T + self.bias[number]
            observed.append(_resultant(layer.tokens + layer.update, places))
            expected.append(_resultant(layer.tokens + update, places))
        raw = torch.stack(expected, 1)
        return Gathering(torch.stack(observed, 1), raw + _one_and_share(present.sum(1).float()) @ self.line.T)

    def calibrated(self, texts: Gathering, lengths: Float[Tensor, " b"], half: int) -> "ReferenceCloud":
        """The same with the line of the error from the first ``half`` texts and its spread from the others.

        The gathering is that of a reference cloud without a line; ``lengths`` are logarithms of numbers of tokens.
        """
        powers, errors = _one_and_share(lengths.exp()), texts.observed - texts.expected
        line = torch.linalg.lstsq(powers[:half], errors[:half]).solution
        spread = (errors - powers @ line)[half:].std(0)
        return replace(self, line=line.T.contiguous(), spread=spread.clamp_min(SMALLEST_SPREAD))


def _portions(present: Bool[Tensor, "b n"]) -> Iterator[slice]:
    """Slices of a batch: on a CPU of few tokens, whose intermediate results then stay in its cache."""
    texts, length = present.shape
    size = max(1, AT_ONCE // max(1, length)) if present.device.type == "cpu" else max(1, texts)
    return (slice(start, start + size) for start in range(0, max(1, texts), size))


def _one_and_share(count: Float[Tensor, " b"]) -> Float[Tensor, "b 2"]:
    """1 and 1/n for texts of n tokens."""
    return torch.stack([torch.ones_like(count), 1 / count.clamp_min(1)], 1)


def _resultant(tokens: Float[Tensor, "b n d"], places: Places) -> Float[Tensor, " b"]:
    """Length of the mean of the tokens, each without its mean over the coordinates and of length 1."""
    centred = tokens - tokens.mean(-1, keepdim=True)
    return torch.linalg.vector_norm(places.mean(torch.nn.functional.normalize(centred, dim=-1)), dim=-1)


class MomentSums:
    """Sums over the inner tokens of a reference, batch by batch, in float64."""

    def __init__(self, layers: tuple[int, ...]):
        self.layers = layers
        self._sums: list[list[Tensor]] = []
        self._count = 0.0

    def add(self, insides: Sequence[Inside], present: Bool[Tensor, "b n"]) -> None:
        """Count the texts of one batch."""
        chosen = inside(present)
        self._count += float(chosen.sum())
        sums = []
        for layer in insides:
            key, value = layer.key[chosen].double(), layer.value[chosen].double()
            keys = key.transpose(0, 1)
            sums.append([key.sum(0), value.sum(0), keys.mT @ keys, keys.mT @ value.transpose(0, 1)])
        before = self._sums or [[torch.zeros_like(new) for new in layer] for layer in sums]
        self._sums = [[old + new for old, new in zip(*pair, strict=True)] for pair in zip(before, sums, strict=True)]

    def cloud(self) -> ReferenceCloud:
        """The reference cloud of these tokens; its error is not known yet."""
        count = max(self._count, 1.0)
        moments = []
        for key, value, keys_keys, keys_values in self._sums:
            mean, other = key / count, value / count
            moments.append(
                (
                    mean,
                    other,
                    keys_keys / count - mean[:, :, None] * mean[:, None],
                    keys_values / count - mean[:, :, None] * other[:, None],
                )
            )
        keys, values, keys_keys, keys_values = (torch.stack(each).float() for each in zip(*moments, strict=True))
        none = torch.zeros(len(self.layers), 2)
        return ReferenceCloud(self.layers, keys, values, keys_keys, keys_values, none, none[:, 0])
