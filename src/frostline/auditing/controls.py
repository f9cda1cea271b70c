"""An encoder at work on text, beside its controls: the same architecture with random weights, and shuffled tokens."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from frostline.arrays import evenly_spread
from frostline.auditing.clouds import Clouds, measure
from frostline.auditing.explained import Explained, explained
from frostline.auditing.frost_line import FrostLine, frost_line
from frostline.auditing.perturbations import Perturbations, perturb
from frostline.auditing.plateau import Plateau, plateau
from frostline.auditing.population import Population, every_second, population
from frostline.auditing.warm_maps import WarmMaps, warm_maps
from frostline.encoders.fold import FoldedLayer, folded, norm_before
from frostline.encoders.live_model import Model, open_model
from frostline.encoders.load import Encoder, load
from frostline.encoders.tokenization import Tokenized
from frostline.progress import Tell

Measuring = Callable[..., Clouds]
"""``clouds.measure``, or a function like it that splits the work over processes."""
CONTROL_TEXTS = 64
"""Texts that controls are measured on, at most."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on a text: its clouds, what explains its attention, where clouds freeze or pause, how changes travel.

    ``perturbations`` is None where they were not asked for.
    """

    layers: Sequence[FoldedLayer]
    clouds: Clouds
    population: Population
    explained: Explained
    line: FrostLine | None
    plateau: Plateau | None
    perturbations: Perturbations | None

    @cached_property
    def warm(self) -> WarmMaps:
        """The maps that its warm heads apply, computed when somebody asks: of controls nobody does."""
        return warm_maps(self.layers, self.population)


def measured_on(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    model: Model,
    tokenized: Tokenized,
    *,
    reference: Tokenized | Population | None,
    perturbations: bool,
    seed: int,
    name: str = "text",
    tell: Tell,
    measuring: Measuring = measure,
) -> Measured:
    """One model on one text; ``reference``: its population, or texts of it; None: every second one of the texts."""

    def tick(done: int, of: int) -> None:
        tell(name, f"text {done} of {of}", done, of)

    def tick_reference(done: int, of: int) -> None:
        tell(name, f"reference text {done} of {of}", done, of)

    if isinstance(reference, Tokenized):
        reference = population(encoder, layers, model, reference, tick=tick_reference)
    last = norm_before(encoder, encoder.layers)
    among = every_second(len(tokenized.ids)) if reference is None else ()
    clouds = measuring(encoder, layers, last, model, tokenized, reference=among, tick=tick)
    usual = clouds.population if reference is None else reference
    assert usual is not None
    moved = None
    if perturbations:
        tell(name, "perturbations", 1, 1)
        moved = perturb(encoder, layers, last, model, tokenized, seed=seed)
    line, pause = frost_line(clouds.to_last, seed=seed), plateau(clouds.to_previous, seed=seed)
    shares = explained(clouds.sums, clouds.tokens, layers, usual, seed=seed)
    return Measured(layers, clouds, usual, shares, line, pause, moved)


def controls_of(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    model: Model,
    tokenized: Tokenized,
    *,
    reference: Tokenized | None,
    known: Population,
    perturbations: bool,
    seed: int,
    tell: Tell,
    measuring: Measuring = measure,
) -> dict[str, Measured]:
    """The same on some of the texts for random weights, and for shuffled tokens.

    ``known`` is the population of the model itself, which shuffled tokens are compared with too.
    """
    few = some_of(tokenized, CONTROL_TEXTS)
    fresh = open_model(encoder, random=seed)
    other = load(fresh)
    folds = [folded(other, number) for number in range(encoder.layers)]
    options: dict[str, Any] = {"seed": seed, "tell": tell, "measuring": measuring}
    options |= {"perturbations": perturbations, "name": "random weights"}
    usual = None if reference is None else some_of(reference, CONTROL_TEXTS)
    random = measured_on(other, folds, fresh, few, reference=usual, **options)
    shuffled = _shuffled(few, seed)
    options |= {"perturbations": False, "name": "shuffled tokens", "reference": known}
    return {
        "random weights": random,
        "shuffled tokens": measured_on(encoder, layers, model, shuffled, **options),
    }


def some_of(tokenized: Tokenized, count: int) -> Tokenized:
    """Up to so many of the texts, evenly spread."""
    chosen = evenly_spread(len(tokenized.ids), count)
    return dataclasses.replace(tokenized, ids=tuple(tokenized.ids[number] for number in chosen))


def _shuffled(tokenized: Tokenized, seed: int) -> Tokenized:
    """The same tokens in another order, first and last (the special ones) in place."""
    rng = np.random.default_rng([9, seed])

    def shuffled(ids: tuple[int, ...]) -> tuple[int, ...]:
        return (ids[0], *rng.permutation(ids[1:-1]).tolist(), ids[-1]) if len(ids) > 3 else ids

    return dataclasses.replace(tokenized, ids=tuple(map(shuffled, tokenized.ids)))
