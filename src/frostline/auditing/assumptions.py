"""The theory's assumptions, each beside its value in an audited model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frostline.auditing.controls import Measured
from frostline.auditing.explained import in_percent
from frostline.auditing.headline import EXPLAINED
from frostline.auditing.weights import Weights
from frostline.encoders.fold import FoldedLayer
from frostline.encoders.load import Encoder
from frostline.results import Result


@dataclass(frozen=True, repr=False)
class Assumption(Result):
    """An assumption of the theory, with the value it needs and the value this model has.

    Attributes
    ----------
    what
        The assumption.
    needed, found
        The value that the theory needs, and that of the model, in words.
    holds
        Whether the model meets it.

    Examples
    --------
    >>> Assumption("one head per layer", "1", "12", False)
    Assumption(one head per layer: 12, needed is 1: it does not hold)
    """

    what: str
    needed: str
    found: str
    holds: bool

    def describe(self) -> str:
        """The assumption and its verdict in words."""
        return f"{self.what}: {self.found}, needed is {self.needed}: it {'holds' if self.holds else 'does not hold'}"


def assumptions_of(
    encoder: Encoder, layers: Sequence[FoldedLayer], spectra: Weights, measured: Measured | None
) -> tuple[Assumption, ...]:
    """Those that weights tell, and with text those about the tokens too."""
    d = encoder.dimension
    cold = (d - 1) / 2
    asymmetry = float(np.median(spectra.each("asymmetry")))
    turning, random = (
        f"{sum(kind in ('rotation', 'mixed') for kind in kinds)} of {len(kinds)}"
        for kinds in (spectra.kinds, spectra.control.kind)
    )
    assumptions = [
        Assumption("one head per layer", "1", f"{encoder.heads}", encoder.heads == 1),
        Assumption(
            "VBᵀ symmetric",
            "‖A − Aᵀ‖/2‖A‖ near 0 (a random matrix has 0.71)",
            f"median {asymmetry:.2f}; {turning} heads lead with a complex pair (random heads: {random})",
            asymmetry < 0.1,
        ),
    ]
    local = sum(encoder.window(number) is not None for number in range(encoder.layers))
    if encoder.positions != "added":
        places = f"{encoder.positions} positions"
        assumptions.append(Assumption("attention does not know places", "none", places, False))
    if local:
        assumptions.append(
            Assumption("every token sees all others", "all layers", f"{local} of {encoder.layers} are local", False)
        )
    if measured is None:
        most = max(
            float((spectra.layers[layer.number].beta + np.linalg.norm(layer.key_bias, axis=1)).max())
            for layer in layers
        )
        assumptions.append(
            Assumption(
                "low temperature",
                f"κ well above (d−1)/2 = {cold:.0f}",
                f"at most {most:.0f} (β + |g| of the coldest head); weights alone do not tell",
                False,
            )
        )
        return tuple(assumptions)
    assumptions = [*_of_the_law(measured), *assumptions]
    clouds = measured.clouds
    kappa = float(np.median(clouds.kappa))
    step = float(np.median(clouds.step))
    tokens = float(np.median(clouds.tokens))
    biased = np.median([np.linalg.norm(layer.key_bias, axis=1) for layer in layers])
    assumptions += [
        Assumption("low temperature", f"κ well above (d−1)/2 = {cold:.0f}", f"median κ {kappa:.3g}", kappa > cold),
        Assumption(
            "tokens fill the sphere", f"many more than d = {d}", f"median {tokens:.0f} in a text", tokens > 10 * d
        ),
        Assumption("small steps", "update well below what goes past it", f"ratio {step:.2g}", step < 0.1),
        Assumption(
            "no key bias", "|g| well below κ", f"|g| = {biased:.2g}, κ = {kappa:.3g}", bool(biased < 0.1 * kappa)
        ),
        _on_a_sphere(encoder, measured),
        Assumption("no feed-forward half", "none", "there is one after every attention half", False),
    ]
    return tuple(assumptions)


def _of_the_law(measured: Measured) -> list[Assumption]:
    """What the law at the model's own temperature takes for granted, which comes before zero temperature."""
    shares, freezing = measured.explained, measured.clouds.sums.freezing.mean(0)
    bridge, short = shares.layers["bridge"], f" of texts of {shares.tokens:.0f} tokens" if shares.too_short else ""
    frozen = int((freezing > 1).sum())
    return [
        Assumption(
            "attention sees four tokens and a cut Gaussian cloud",
            f"{100 * EXPLAINED:.0f} % of every layer explained",
            (in_percent(bridge) if np.isfinite(bridge).any() else "nothing to explain") + short,
            bool((bridge >= EXPLAINED).all()) and not shares.too_short,
        ),
        Assumption(
            "clouds are tilted, not frozen",
            "σ of the logits below σ_N = √(2 ln N)",
            f"median σ/σ_N {np.median(freezing):.2f}; frozen in {frozen} of {freezing.size} heads",
            frozen == 0,
        ),
    ]


def _on_a_sphere(encoder: Encoder, measured: Measured) -> Assumption:
    what = "tokens on a sphere"
    if encoder.family.pre_norm:
        sizes = measured.clouds.size.mean(0)
        range_of_sizes = f"what goes past attention has sizes from {sizes.min():.2g} to {sizes.max():.2g}"
        return Assumption(what, "one size throughout", range_of_sizes, bool(sizes.max() < 1.1 * sizes.min()))
    radius = float(np.median(measured.clouds.radius, axis=0).max())
    return Assumption(what, "radius 1", f"off by {radius:.1e} in the worst cloud", radius < 1e-3)
