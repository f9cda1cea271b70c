"""An encoder at work on text, beside its controls: the same architecture with random weights, and shuffled tokens."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from frostline.auditing.clouds import Clouds, measure
from frostline.auditing.frost import FrostLine, frost_line
from frostline.auditing.perturbing import Perturbations, perturb
from frostline.encoders.capture import Model, Tokenized, open_model
from frostline.encoders.folding import FoldedLayer, Norm, folded, norm_before
from frostline.encoders.loading import Encoder, load

Report = Callable[[str, str, float, float], None]
"""Called with the part of the work, what it does, work done and work in all."""
CONTROL_TEXTS = 64


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on a text: its clouds, its frost line, and (when asked for) how changes of the input travel."""

    clouds: Clouds
    line: FrostLine | None
    perturbations: Perturbations | None


def at_work(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    model: Model,
    tokenized: Tokenized,
    perturbations: bool,
    seed: int,
    tell: Report,
) -> tuple[Measured, dict[str, Measured]]:
    last = norm_before(encoder, encoder.layers)
    random_model = open_model(encoder, random=seed)
    random_encoder = load(random_model)
    random_layers = [folded(random_encoder, number) for number in range(encoder.layers)]
    random_last = norm_before(random_encoder, encoder.layers)
    few = _some(tokenized, CONTROL_TEXTS)

    def measured(
        name: str, who: Encoder, what: Sequence[FoldedLayer], end: Norm, run: Model, ids: Tokenized
    ) -> Measured:
        clouds = measure(who, what, end, run, ids, tick=lambda done, of: tell(name, f"text {done} of {of}", done, of))
        moved = None
        if perturbations and name != "shuffled tokens":
            tell(name, "perturbations", 1, 1)
            moved = perturb(what, end, run, ids, seed=seed)
        return Measured(clouds, frost_line(clouds.to_last, seed=seed), moved)

    found = measured("text", encoder, layers, last, model, tokenized)
    controls = {
        "random weights": measured("random weights", random_encoder, random_layers, random_last, random_model, few),
        "shuffled tokens": measured("shuffled tokens", encoder, layers, last, model, _shuffled(few, seed)),
    }
    return found, controls


def _some(tokenized: Tokenized, count: int) -> Tokenized:
    chosen = np.unique(np.linspace(0, len(tokenized.ids) - 1, min(count, len(tokenized.ids))).round().astype(int))
    return dataclasses.replace(tokenized, ids=tuple(tokenized.ids[number] for number in chosen))


def _shuffled(tokenized: Tokenized, seed: int) -> Tokenized:
    """The same tokens in another order, first and last (the special ones) in place."""
    rng = np.random.default_rng([9, seed])
    ids = [(own[0], *rng.permutation(own[1:-1]).tolist(), own[-1]) if len(own) > 3 else own for own in tokenized.ids]
    return dataclasses.replace(tokenized, ids=tuple(ids))
