"""Token clouds through the layers of an encoder: how concentrated, how far moved, how cold, how well predicted."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components

from frostline.arrays import evenly_spread
from frostline.auditing.attention_sums import AttentionSums, covariance_distance, sums_of
from frostline.auditing.explanations import explain, visible_tokens
from frostline.auditing.fidelity import TINY, Glass, on_unit_sphere
from frostline.auditing.population import Population, PopulationSums, only_ends, population_of
from frostline.encoders import heads
from frostline.encoders.fold import FoldedLayer, Norm
from frostline.encoders.forward import Batch, batches, rows, see
from frostline.encoders.live_model import Model
from frostline.encoders.load import Encoder
from frostline.encoders.positions import Positions, positions
from frostline.encoders.tokenization import Tokenized
from frostline.sphere import geodesic

CLOSE_TEXTS = 64
"""Texts that are measured closely: by the heads, and by pairs of tokens."""
CLOSE_TOKENS = 128
"""Tokens of each of them that ask, evenly spread, and whose pairs are measured."""
CLOSE_SOURCES = 512
"""Tokens of each of them that are asked."""
SAME = 0.3
"""Radians within which tokens belong together."""
COLD_TEXTS = 4
"""Texts that are followed to each layer's own limit."""
COLD_TOKENS = 32
"""Tokens of each of them that are followed."""
SETTLED = 1e-3
"""Length of the last step below which a token has reached its limit."""


@dataclass(frozen=True, eq=False)
class Clouds:
    """Measured per text (t), of which some closely (c), for L layers and the L + 1 clouds before, between and after."""

    tokens: Float[np.ndarray, " t"]
    resultant: Float[np.ndarray, "t clouds"]
    cosine: Float[np.ndarray, "t clouds"]
    participation: Float[np.ndarray, "t clouds"]
    travelled: Float[np.ndarray, "t layers"]
    """Mean angle of a token between one cloud and the next."""
    radius: Float[np.ndarray, "t clouds"]
    """Largest distance of a token from the sphere, as heads see it."""
    size: Float[np.ndarray, "c layers"]
    """Median size of the tokens that go past attention, in units of √d."""
    clusters: Float[np.ndarray, "c clouds"]
    to_previous: Float[np.ndarray, "c layers"]
    to_last: Float[np.ndarray, "c clouds"]
    to_limit: Float[np.ndarray, "few layers"]
    """W₂ from the cloud after a layer to where its attention half alone would take the tokens at zero temperature."""
    settled: Float[np.ndarray, "few layers"]
    before: Float[np.ndarray, "c layers"]
    observed: Float[np.ndarray, "c layers"]
    """Resultant length before and after the attention half, from the model's own attention."""
    expected_full: Float[np.ndarray, "c layers"]
    expected_argmax: Float[np.ndarray, "c layers"]
    layer_fidelity_full: Float[np.ndarray, "c layers"]
    layer_fidelity_argmax: Float[np.ndarray, "c layers"]
    step: Float[np.ndarray, "c layers"]
    """Size of the attention update over that of the tokens that go past it."""
    kappa: Float[np.ndarray, "c layers heads"]
    perplexity: Float[np.ndarray, "c layers heads"]
    """exp of the entropy of the attention weights, over the number of tokens that can be seen."""
    attended: Float[np.ndarray, "c layers heads"]
    """exp of the entropy itself: the number of tokens a query attends to, its mean over the queries of a text."""
    fidelity_full: Float[np.ndarray, "c layers heads"]
    fidelity_argmax: Float[np.ndarray, "c layers heads"]
    sums: AttentionSums
    """Sums over tokens that shares explained are made from."""
    population: Population | None
    """The population of those texts that are the reference of all, if they are."""


PER_HEAD = ("kappa", "perplexity", "attended", "fidelity_full", "fidelity_argmax")
"""Measurements that have a number for each head of a layer."""
OTHERS = ("sums", "population")
"""Measurements that are no array."""


@dataclass
class _Growing:
    """Rows of the measurements, by text number, so that batches may come in any order."""

    rows: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)

    def add(self, number: int, **values: object) -> None:
        """Measurements of the text of this number."""
        for name, value in values.items():
            self.rows.setdefault(name, {})[number] = np.asarray(value, dtype=np.float64)

    def clouds(self, population: Population | None, *, layers: int, heads: int) -> Clouds:
        """The rows of each measurement, stacked in the order of the texts."""
        arrays = {}
        for name in (measurement.name for measurement in fields(Clouds) if measurement.name not in OTHERS):
            empty = np.zeros((0, layers, heads) if name in PER_HEAD else (0, layers))
            arrays[name] = self._stacked(name) if name in self.rows else empty
        names = [measurement.name for measurement in fields(AttentionSums)]
        return Clouds(**arrays, sums=AttentionSums(*map(self._stacked, names)), population=population)

    def _stacked(self, name: str) -> np.ndarray:
        return np.stack([self.rows[name][number] for number in sorted(self.rows[name])])


def measure(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    last: Norm,
    model: Model,
    tokenized: Tokenized,
    *,
    close: int = CLOSE_TEXTS,
    reference: Collection[int] = (),
    tick: Callable[[int, int], None] = lambda done, of: None,
) -> Clouds:
    """Run the texts through the model, one batch in memory at a time.

    ``reference``: numbers of the texts whose population is measured on the way.
    """
    chosen = chosen_of(tokenized, close, reference)
    part = measure_part(encoder, layers, last, model, batches(tokenized), chosen, tick=tick)
    return joined([part], encoder, layers, chosen)


@dataclass(frozen=True)
class Chosen:
    """Numbers of the texts that are measured closely, followed to their limits, or the reference of all.

    ``bare``: no text of the reference has inner tokens.
    """

    texts: int
    closely: frozenset[int]
    to_limits: frozenset[int]
    reference: frozenset[int]
    bare: bool


def chosen_of(tokenized: Tokenized, close: int = CLOSE_TEXTS, reference: Collection[int] = ()) -> Chosen:
    """Evenly spread texts, and the reference as given."""
    closely = evenly_spread(len(tokenized.ids), close)
    few = closely[:: max(1, len(closely) // COLD_TEXTS)]
    bare = only_ends(tokenized.ids[number] for number in reference)
    return Chosen(len(tokenized.ids), frozenset(closely), frozenset(few), frozenset(reference), bare)


@dataclass(frozen=True)
class Measurements:
    """Measurements of some batches; parts may come from any process, and in any order.

    ``population`` has the sums over the reference of each batch, by the number of its first text.
    """

    rows: dict[str, dict[int, np.ndarray]]
    kept: dict[int, list[tuple[np.ndarray, np.ndarray]]]
    population: dict[int, PopulationSums]


def joined(parts: Iterable[Measurements], encoder: Encoder, layers: Sequence[FoldedLayer], chosen: Chosen) -> Clouds:
    """The measurements of all parts together."""
    measured, kept, sums = _Growing(), {}, {}
    for part in parts:
        for name, rows_of in part.rows.items():
            measured.rows.setdefault(name, {}).update(rows_of)
        kept.update(part.kept)
        sums.update(part.population)
    _limits(measured, [Glass(layer) for layer in layers], kept)
    # In the order of the texts, whatever the order of the parts: sums of numbers depend on it.
    population = population_of(len(chosen.reference), [sums[number] for number in sorted(sums)]) if sums else None
    return measured.clouds(population, layers=len(layers), heads=encoder.heads)


def measure_part(
    encoder: Encoder,
    layers: Sequence[FoldedLayer],
    last: Norm,
    model: Model,
    some: Iterable[Batch],
    chosen: Chosen,
    *,
    tick: Callable[[int, int], None] = lambda done, of: None,
) -> Measurements:
    """Run some batches of the texts through the model, and measure them."""
    norms = [layer.norm for layer in layers] + [last]
    glasses = [Glass(layer) for layer in layers]
    kept: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    measured, sums = _Growing(), {}
    done = 0
    for batch in some:
        seen = see(encoder, model, batch)
        states = [list(rows(seen, state)) for state in seen.states]
        reference = []
        for place, number in enumerate(batch.numbers):
            pairs = [norm.on_sphere(state[place]) for norm, state in zip(norms, states, strict=True)]
            u = [pair[0] for pair in pairs]
            radii = [norm.radius(size) for norm, (_, size) in zip(norms, pairs, strict=True)]
            measured.add(number, **_whole(u), radius=[np.abs(r - 1).max() for r in radii])
            if number in chosen.reference:
                reference.append([norm.entering(*pair) for norm, pair in zip(norms[:-1], pairs[:-1], strict=True)])
            if number in chosen.closely:
                # Where tokens enter without a norm, heads see their radius too.
                entering = [norm.entering(*pair)[:CLOSE_SOURCES] for norm, pair in zip(norms, pairs, strict=True)]
                asking = np.array(evenly_spread(len(entering[0]), CLOSE_TOKENS))
                past = [x[place][asking] - x[place][asking].mean(-1, keepdims=True) for x in states[:-1]]
                places = [positions(encoder, model, layer, len(entering[0])) for layer in range(len(layers))]
                ids = _ids(batch, place)[:CLOSE_SOURCES]
                _closely(measured, number, [x[:CLOSE_TOKENS] for x in u])
                _by_heads(measured, number, glasses, [x[asking] for x in u], entering, past, places, asking, ids)
                if number in chosen.to_limits:
                    kept[number] = [(x[:COLD_TOKENS], size[:COLD_TOKENS]) for x, size in pairs]
        if reference:
            sums[min(batch.numbers)] = PopulationSums.of(reference, bare=chosen.bare)
        done += len(batch.numbers)
        tick(done, chosen.texts)
    return Measurements(measured.rows, kept, sums)


def _whole(u: Sequence[np.ndarray]) -> dict[str, object]:
    """Measurements of every text, which take one Gram matrix per cloud at most."""
    n = len(u[0])
    resultant = np.array([np.linalg.norm(x.mean(0)) for x in u])
    return {
        "tokens": n,
        "resultant": resultant,
        "cosine": (n * resultant**2 - 1) / (n - 1) if n > 1 else np.ones(len(u)),
        "participation": [n**2 / max(float(np.linalg.norm(x @ x.T)) ** 2, TINY) for x in u],
        "travelled": [geodesic(x, y).mean() for x, y in itertools.pairwise(u)],
    }


def _closely(measured: _Growing, number: int, u: Sequence[np.ndarray]) -> None:
    """Measurements that take pairs of tokens."""
    measured.add(
        number,
        clusters=[linked(x).max() + 1 for x in u],
        to_previous=[between(x, y) for x, y in itertools.pairwise(u)],
        to_last=[between(x, u[-1]) for x in u],
    )


def _by_heads(
    measured: _Growing,
    number: int,
    glasses: Sequence[Glass],
    u: Sequence[np.ndarray],
    entering: Sequence[np.ndarray],
    pasts: Sequence[np.ndarray],
    places: Sequence[Positions],
    asking: np.ndarray,
    ids: np.ndarray,
) -> None:
    """Measurements that take the heads; ``u`` and ``pasts`` are of the tokens that ask."""
    table: dict[str, list[object]] = {}
    for glass, unit, x, past, at in zip(glasses, u, entering, pasts, places, strict=False):
        attended = heads.attend(glass.layer, x, at, rows=asking)
        visible = visible_tokens(at, asking, len(x))
        explanation = explain(attended, asking, visible)
        kappa, full = glass.full_support(attended.queries)
        real, best, perplexity = attended.mean, attended.best, attended.perplexity
        means = {"real": real, "full": full, "token": best, "bridge": explanation.means["bridge"]}
        updates = {name: glass.update(seen) for name, seen in means.items()}
        after = {name: on_unit_sphere(past + update) for name, update in updates.items()}
        values = {
            "before": np.linalg.norm(unit.mean(0)),
            "observed": np.linalg.norm(after["real"].mean(0)),
            "expected_full": np.linalg.norm(after["full"].mean(0)),
            "expected_argmax": np.linalg.norm(after["token"].mean(0)),
            "layer_fidelity_full": _cosine(updates["real"], updates["full"]).mean(),
            "layer_fidelity_argmax": _cosine(updates["real"], updates["token"]).mean(),
            "size": np.median(np.linalg.norm(past, axis=1)) / np.sqrt(past.shape[1]),
            "step": np.median(np.linalg.norm(updates["real"], axis=1) / np.maximum(np.linalg.norm(past, axis=1), TINY)),
            "kappa": np.median(kappa, axis=1),
            "perplexity": (perplexity / visible.sum(-1)).mean(1),
            "attended": perplexity.mean(1),
            "fidelity_full": glass.fidelity(real, full).mean(1),
            "fidelity_argmax": glass.fidelity(real, best).mean(1),
        }
        values |= sums_of(glass, attended, explanation, asking, ids)
        values |= {
            "resultant_expected": np.linalg.norm(after["bridge"].mean(0)),
            "covariance_before": covariance_distance(unit, after["real"]),
            "covariance_expected": covariance_distance(after["bridge"], after["real"]),
        }
        for name, value in values.items():
            table.setdefault(name, []).append(value)
    measured.add(number, **table)


def _ids(batch: Batch, place: int) -> np.ndarray:
    """The token ids of one text of a batch, without padding."""
    ids = batch.inputs["input_ids"][place]
    return np.asarray((ids if batch.present is None else ids[batch.present[place]]).numpy())


def _limits(measured: _Growing, glasses: Sequence[Glass], kept: dict[int, list[tuple[np.ndarray, np.ndarray]]]) -> None:
    """Each layer's own limit of some texts; every token goes there by itself, so all texts go together."""
    numbers = sorted(kept)
    cuts = np.cumsum([len(kept[number][0][0]) for number in numbers])[:-1]
    distance, settled = np.zeros((len(numbers), len(glasses))), np.zeros((len(numbers), len(glasses)))
    for layer, glass in enumerate(glasses):
        u, size = (np.concatenate([kept[number][layer][part] for number in numbers]) for part in (0, 1))
        ends, moved = glass.cold_limit(u, size)
        for row, (end, step) in enumerate(zip(np.split(ends, cuts), np.split(moved, cuts), strict=True)):
            distance[row, layer] = between(kept[numbers[row]][layer + 1][0], end)
            settled[row, layer] = (step <= SETTLED).mean()
    for row, number in enumerate(numbers):
        measured.add(number, to_limit=distance[row], settled=settled[row])


def between(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d"]) -> float:
    """W₂ between two clouds of as many tokens each: an assignment, exact."""
    cost = np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0)
    return float(np.sqrt(cost[linear_sum_assignment(cost)].mean()))


def linked(x: Float[np.ndarray, "n d"]) -> np.ndarray:
    """The number of each token's group: tokens linked by angles below ``SAME``."""
    return np.asarray(connected_components(x @ x.T > np.cos(SAME), directed=False)[1])


def _cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray((x * y).sum(-1) / np.maximum(np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1), TINY))
