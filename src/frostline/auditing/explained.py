"""Shares explained: how much of what attention does each description accounts for, by layer and by head."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.auditing.attention_sums import AttentionSums
from frostline.auditing.explanations import DESCRIPTIONS
from frostline.auditing.population import Population
from frostline.encoders.fold import FoldedLayer

DRAWS = 400
"""Resamples of the texts, for intervals."""
SHORTEST = 7
"""Texts of fewer tokens leave no cloud: four tokens and at most two others, which explain all there is."""
QUANTILES = (0.025, 0.975)
"""Quantiles over resamples that are an interval's ends."""


@dataclass(frozen=True, eq=False)
class Explained:
    """Shares explained of the squared deviation from v̄, after the output matrix; 1 − what is left over what there is.

    tokens           median number of tokens in the texts
    layers, heads    by the names of ``DESCRIPTIONS``: of whole layers, and of every head by itself
    low, high        95 % interval of ``layers["bridge"]``, texts resampled
    paid             attention paid to each of ``PLACES``, sums to one
    met              attention paid to each place by those tokens that have such a one
    """

    tokens: float
    layers: dict[str, Float[np.ndarray, " layers"]]
    heads: dict[str, Float[np.ndarray, "layers heads"]]
    low: Float[np.ndarray, " layers"]
    high: Float[np.ndarray, " layers"]
    paid: Float[np.ndarray, "layers heads places"]
    met: Float[np.ndarray, "layers heads places"]

    @property
    def too_short(self) -> bool:
        """Whether the texts have hardly more tokens than the law's four, so that much explained says little."""
        return self.tokens < SHORTEST


def explained(
    sums: AttentionSums,
    tokens: Float[np.ndarray, " t"],
    layers: Sequence[FoldedLayer],
    population: Population,
    *,
    seed: int,
) -> Explained:
    """Shares explained, from what was measured of single texts and the population's mean value.

    ``tokens``: how many each text has.
    """
    count = sums.asked[:, 0]
    of_layers, of_heads = [], []
    for number, layer in enumerate(layers):
        value = layer.value @ population.mean[number]
        output = layer.centred_output
        seen = sums.seen_sum[:, number]
        # Σ|y − ȳ|² = Σ|y|² − 2⟨ȳ, Σy⟩ + n|ȳ|², per head and for all heads together.
        usual = np.einsum("hdk,hk->hd", output, value)
        each = np.einsum("hkd,hd->hk", output.transpose(0, 2, 1), usual)
        of_heads.append(
            sums.head_square[:, number] - 2 * np.einsum("chk,hk->ch", seen, each) + count[:, None] * (usual**2).sum(-1)
        )
        whole = usual.sum(0)
        together = np.einsum("hdk,d->hk", output, whole)
        of_layers.append(
            sums.update_square[:, number] - 2 * np.einsum("chk,hk->c", seen, together) + count * float(whole @ whole)
        )
    there, there_heads = np.stack(of_layers, 1), np.stack(of_heads, 1)
    shares = _share(sums.left.sum(0), there.sum(0)[:, None])
    heads = _share(sums.head_left.sum(0), there_heads.sum(0)[..., None])
    rng = np.random.default_rng([12, seed])
    bridge = list(DESCRIPTIONS).index("bridge")
    drawn = rng.multinomial(len(count), np.full(len(count), 1 / len(count)), size=DRAWS)
    resampled = _share(drawn @ sums.left[..., bridge], drawn @ there)
    low, high = np.quantile(resampled, QUANTILES, axis=0)  # NaN where there is nothing to explain
    met = sums.met.sum(0)[:, None]
    return Explained(
        float(np.median(tokens)),
        {name: shares[:, place] for place, name in enumerate(DESCRIPTIONS)},
        {name: heads[..., place] for place, name in enumerate(DESCRIPTIONS)},
        low,
        high,
        sums.paid.mean(0),
        np.divide(sums.paid.sum(0), met, out=np.zeros(sums.paid.shape[1:]), where=met > 0),
    )


def in_percent(shares: Float[np.ndarray, " layers"]) -> str:
    """The range over the layers in words; what is worse than the usual update explains nothing."""
    if not np.isfinite(shares).any():
        return "nothing"
    low, high = (max(round(100 * float(end)), 0) for end in (np.nanmin(shares), np.nanmax(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _share(left: np.ndarray, there: np.ndarray) -> np.ndarray:
    """1 − left/there; NaN where there is nothing to explain."""
    return np.asarray(1 - left / np.where(there > 0, there, np.nan))
