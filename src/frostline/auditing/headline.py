"""The headline of an audit: the law and how much it explains, then depth and heads, each beside random weights."""

from collections.abc import Iterable, Mapping

import numpy as np

from frostline.arrays import evenly_spread
from frostline.auditing.controls import Measured
from frostline.auditing.explained import Explained, in_percent
from frostline.auditing.findings import FEW
from frostline.auditing.frost_line import FrostLine
from frostline.auditing.weights import Weights
from frostline.encoders.load import Encoder

EXPLAINED = 0.9
"""Share of a layer's update from which on the law is said to hold there."""
DEPTHS = 6
"""Depths at which the headline says how much of the way is left."""


def sentence_of(
    encoder: Encoder, spectra: Weights, measured: Measured | None, controls: Mapping[str, Measured], warning: str = ""
) -> str:
    """The headline; it begins with a ``warning`` about texts that the model cannot read in full."""
    if measured is None:
        return _of_weights(encoder, spectra)
    random = controls["random weights"]
    shared = f"{encoder.heads_in_words}." if encoder.family.shared else ""
    law, cold = _of_law(measured.explained, random.explained), _of_cold(measured, random)
    depth, heads = _of_depth(measured.line, random.line), _of_heads(encoder, measured, random)
    return " ".join(sentence for sentence in (warning, shared, law, cold, depth, heads) if sentence)


def _of_weights(encoder: Encoder, spectra: Weights) -> str:
    beta, random = spectra.each("beta"), spectra.beta_control
    asymmetry = float(np.median(spectra.each("asymmetry")))
    return (
        f"{encoder.heads_in_words}: β from {_range(beta)} (random factors of the same norms: "
        f"{_range(random)}); the median asymmetry of VBᵀ is {asymmetry:.2f} (random weights: "
        f"{spectra.reference('asymmetry').median:.2f}); how cold the heads are at work, weights alone do not tell."
    )


def _range(values: np.ndarray) -> str:
    return f"{values.min():.3g} to {values.max():.3g}, median {np.median(values):.3g}"


def _of_law(shares: Explained, random: Explained) -> str:
    """How much of attention the law explains, layer by layer, and where it fails."""
    bridge = shares.layers["bridge"]
    if not np.isfinite(bridge).any():
        return "Attention gives every token the same: there is nothing to explain."
    low = np.flatnonzero(~(bridge >= EXPLAINED)).tolist()
    short = ""
    if shares.too_short:
        short = (
            f" The texts have {shares.tokens:.0f} tokens (median), hardly more than these four: that they explain much "
            "says little."
        )
    where = f", below {100 * EXPLAINED:.0f} % in layer{'s' * (len(low) > 1)} {_listed(low)}" if low else ""
    return (
        f"{in_percent(bridge)} of what attention does here, layer by layer{where}, is explained by four tokens (the "
        f"first, the last, the token itself, the best other one) and the mean and covariance of the rest (random "
        f"weights: {in_percent(random.layers['bridge'])}, but there the mean of the text alone explains "
        f"{in_percent(random.layers['mean'])}, here {in_percent(shares.layers['mean'])}).{short}"
    )


def _of_depth(line: FrostLine | None, random: FrostLine | None) -> str:
    if line is None:
        return "It does not move tokens at all."
    last = len(line.share) - 1
    if last == 1:
        return line.describe()
    depths = [1 + depth for depth in evenly_spread(last - 1, DEPTHS)]
    other = "they do not move it" if random is None else _percent(random.share[depths])
    return (
        f"Of the way from the first token cloud to the last (W₂), {_percent(line.share[depths])} is still to come "
        f"after {_listed(depths)} of {last} layers (random weights: {other}); {_freezing(line, random)}."
    )


def _freezing(line: FrostLine, random: FrostLine | None) -> str:
    """Where the cloud freezes, in this model and in its control."""
    last = len(line.share) - 1
    still = random is None or random.depth == last
    if line.depth == last:
        return "nothing freezes before the end" + (", nor with random weights" if still else f" ({_frozen(random)})")
    low, high = line.interval
    other = "random weights: nothing freezes" if still else _frozen(random)
    return (
        f"from {line.depth} layers on (95 %: {low} to {high}) it stays below {100 * line.fraction:g} %: it is frozen "
        f"({other})"
    )


def _frozen(random: FrostLine | None) -> str:
    return "" if random is None else f"random weights: frozen from {random.depth} layers on"


def _of_heads(encoder: Encoder, measured: Measured, random: Measured) -> str:
    cold = (encoder.dimension - 1) / 2
    kappa, other = (float(np.median(each.clouds.kappa)) for each in (measured, random))
    few, few_random = (int((each.clouds.attended.mean(0) <= FEW).sum()) for each in (measured, random))
    count, attend = measured.clouds.attended[0].size, "attends" if few == 1 else "attend"
    heads = f"{count} passes of heads" if encoder.family.shared else f"{count}"
    return (
        f"Its heads are {'cold' if kappa > cold else 'warm'} in the median (κ {kappa:.3g}, random weights {other:.3g}; "
        f"the theory's low temperature needs well above {cold:.0f}); {few} of {heads} {attend} to {FEW:g} tokens "
        f"or fewer in the mean (random weights: {few_random})."
    )


def _of_cold(measured: Measured, random: Measured) -> str:
    """The cold end of the same picture."""
    best, best_random, full, full_random = (
        float(np.median(getattr(each.clouds, name).mean(0)))
        for name in ("layer_fidelity_argmax", "layer_fidelity_full")
        for each in (measured, random)
    )
    token, token_random = (in_percent(each.explained.layers["token"]) for each in (measured, random))
    return (
        f"The cold end of this law, the best token alone, explains {token} (random weights: {token_random}; cosine of "
        f"the updates {best:.2f}, random weights {best_random:.2f}; with the limit for a full sphere {full:.2f} and "
        f"{full_random:.2f})."
    )


def _percent(shares: Iterable[float]) -> str:
    return f"{_listed([f'{100 * share:.0f}' for share in shares])} %"


def _listed(things: Iterable[object]) -> str:
    *first, last = map(str, things)
    return f"{', '.join(first)} and {last}" if first else last
