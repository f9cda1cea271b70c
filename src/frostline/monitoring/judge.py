"""The judge of a model: a detector with its calibration, which turns hidden states into scores and p-values."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from frostline.encoders.load import Encoder
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.detector import Detector, soft_maximum
from frostline.monitoring.hooks import HiddenStates
from frostline.monitoring.profile import Profile, profile
from frostline.monitoring.reference_cloud import Gathering, Inside, ReferenceCloud


@dataclass(frozen=True, eq=False)
class Judge:
    """A detector with its calibration, for profiles of these clouds; only a deep one has a reference cloud."""

    clouds: tuple[int, ...]
    detector: Detector
    conformal: Conformal
    reference_cloud: ReferenceCloud | None = None

    @property
    def inside(self) -> tuple[int, ...]:
        """Numbers of the layers whose inside is read (0 is the first layer)."""
        return () if self.reference_cloud is None else self.reference_cloud.layers

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers that ``Scores.observed`` and ``Scores.expected`` are of, counted from 1; 0 is before the first.

        Those of a deep profile are of the tokens after the attention half of a layer, others of those after the layer.
        """
        return self.clouds if self.reference_cloud is None else tuple(layer + 1 for layer in self.inside)

    @property
    def spread_of_layers(self) -> tuple[float, ...]:
        """Standard deviations of observed minus expected at these layers, for single texts; none unless it is deep."""
        return () if self.reference_cloud is None else tuple(self.reference_cloud.spread.tolist())

    def bound(self, encoder: Encoder) -> "Judge":
        """The same judge with what it needs of the model's own weights."""
        return (
            self if self.reference_cloud is None else replace(self, reference_cloud=self.reference_cloud.bound(encoder))
        )

    def __call__(self, hidden: HiddenStates) -> "Assessment":
        """The assessment of every text, on the device of its hidden states."""
        texts = profile(hidden.states[: len(self.clouds)], hidden.present, self.detector.probes)
        inside = () if self.reference_cloud is None else self.reference_cloud.insides(self.clouds, hidden.states)
        parts, kinds = self.detector(texts)
        score = soft_maximum(parts)
        p_values = self.conformal.p_values(score, texts.lengths)
        return Assessment(
            self, texts, parts, kinds, score, p_values, hidden.ids, hidden.rows, mask=hidden.mask, inside=inside
        )

    def to(self, device: torch.device) -> "Judge":
        """The same judge on another device."""
        return _on_device(self, device)

    @cached_property
    def spread(self) -> Float[Tensor, " k"]:
        """Standard deviation of every layer-wise number in the reference."""
        return torch.linalg.pinv(self.detector.whitening).square().sum(0).sqrt()


@dataclass(frozen=True, eq=False)
class Assessment:
    """Third station of a text: its standard normal scores, its score and its p-value, still tensors on the device.

    parts     of every part of the score
    kinds     of every kind of broken text, then of every kind of changed word
    p_values  on a GPU a pinned copy in the computer's memory, complete once ``event`` has happened
    ids       token ids, where they are known; they name the tokens of reasons
    rows      number of texts in the last pass; None: all texts
    mask      the attention mask, zero for padding; None where there is no padding
    inside    what two layers did with the texts of a deep profile, until the gathering is computed from it
    gathering how much the tokens gather in a deep profile, once somebody has asked; it costs more than the score
    """

    judge: Judge
    profile: Profile
    parts: Float[Tensor, "n 5"]
    kinds: Float[Tensor, "n kinds"]
    score: Float[Tensor, " n"]
    p_values: Float[Tensor, " n"]
    ids: Tensor | None = None
    rows: int | None = None
    event: Any = None
    mask: Tensor | None = None
    inside: tuple[Inside, ...] = ()
    gathering: Gathering | None = None

    def gathered(self) -> "Assessment":
        """The same assessment with the gathering of a deep profile, and without the states that it comes from."""
        cloud = self.judge.reference_cloud
        if cloud is None or not self.inside:
            return self
        present = HiddenStates([self.inside[0].tokens], self.mask, None).present
        return replace(self, gathering=cloud.gather(self.inside, present), inside=())

    def ids_of(self, row: int) -> list[int] | None:
        """Token ids of one text without padding; None where they are not known."""
        if self.ids is None:
            return None
        ids = self.ids[row]
        present: list[int] = (ids if self.mask is None else ids[self.mask[row] != 0]).tolist()
        return present

    def part(self, rows: Sequence[int]) -> "Assessment":
        """A copy of some of the texts, which does not keep the memory of the others."""
        fixed = {"judge": self.judge, "rows": None, "event": None}
        return Assessment(**{field.name: _copy(getattr(self, field.name), rows) for field in fields(self)} | fixed)


def _copy(thing: Any, rows: Sequence[int]) -> Any:
    """Some rows of a tensor, or of all tensors of a profile; other values as they are."""
    if isinstance(thing, Profile | Gathering | Inside):
        return type(thing)(*(_copy(getattr(thing, field.name), rows) for field in fields(thing)))
    if isinstance(thing, tuple):
        return tuple(_copy(each, rows) for each in thing)
    if not isinstance(thing, Tensor):
        return thing
    if thing.device.type == "cpu":
        return thing[list(rows)]
    # Numbers of rows would travel to a GPU after all the work that waits there; slices are known here.
    return torch.cat([thing[row : row + 1] for row in rows])


def _on_device(thing: Any, device: torch.device) -> Any:
    """The same tensors, and dataclasses of tensors, on another device; other values as they are."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    return type(thing)(*(_on_device(getattr(thing, field.name), device) for field in fields(thing)))
