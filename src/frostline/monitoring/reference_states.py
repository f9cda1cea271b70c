"""Reference texts read by a model: their profiles, and the states of single tokens that probes are learned from."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from frostline.encoders.forward import batches
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.tokenization import Tokenized
from frostline.monitoring.hooks import HiddenStates, Tap, unwatched_passes
from frostline.monitoring.profile import Profile, profile
from frostline.monitoring.reference_cloud import Gathering, MomentSums, ReferenceCloud, insides
from frostline.monitoring.token_probes import Probes


@dataclass(frozen=True, eq=False)
class ReferenceStates:
    """Profiles of all texts for every level; of the first few texts the token states too, their clouds side by side.

    ``gathering`` is how much the tokens gather, where a reference cloud was given.
    """

    profiles: Mapping[str, Profile]
    tokens: tuple[Float[Tensor, "_ f"], ...]
    gathering: Gathering | None = None


def read_reference(
    encoder: Encoder,
    model: Model,
    tokenized: Tokenized,
    levels: Mapping[str, tuple[int, ...]],
    *,
    probes: Mapping[str, Probes] | None = None,
    sampled: int = 0,
    moments: MomentSums | None = None,
    reference_cloud: ReferenceCloud | None = None,
) -> ReferenceStates:
    """Run the model once over the texts, with the same hooks that watch a model in use.

    ``levels`` has the clouds of every profile, the widest first; token states of the first ``sampled`` texts are kept.
    ``moments`` counts the keys and values of the texts, and a reference cloud says how much their tokens gather.
    """
    clouds = next(iter(levels.values()))
    inside = () if moments is None else moments.layers
    inside = inside if reference_cloud is None else reference_cloud.layers
    profiles: dict[str, list[Profile]] = {level: [] for level in levels}
    tokens: dict[int, Tensor] = {}
    numbers: tuple[int, ...] = ()
    order: list[int] = []
    gatherings: list[Gathering] = []

    def keep(hidden: HiddenStates) -> None:
        of_clouds = hidden.states[: len(clouds)]
        layers = insides(inside, encoder.heads, clouds, hidden.states)
        if moments is not None:
            moments.add(layers, hidden.present)
        if reference_cloud is not None:
            gatherings.append(reference_cloud.gather(layers, hidden.present))
        for level, wanted in levels.items():
            states = [state for cloud, state in zip(clouds, of_clouds, strict=True) if cloud in wanted]
            texts = profile(states, hidden.present, None if probes is None else probes[level])
            profiles[level].append(texts.without_tokens())
        for row, number in enumerate(numbers):
            if number < sampled:
                tokens[number] = torch.cat([state[row, hidden.present[row]] for state in of_clouds], 1)

    tap = Tap(model, encoder, clouds, keep, inside=inside, strict=True)
    try:
        with torch.no_grad(), unwatched_passes():
            for batch in batches(tokenized):
                numbers = batch.numbers
                model(**batch.inputs)
                order += numbers
    finally:
        tap.close()
    back = torch.tensor(order).argsort()
    return ReferenceStates(
        {level: Profile.joined(parts)[back] for level, parts in profiles.items()},
        tuple(tokens[number] for number in sorted(tokens)),
        Gathering.joined(gatherings)[back] if gatherings else None,
    )
