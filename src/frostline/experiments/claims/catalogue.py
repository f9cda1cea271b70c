"""The catalogue of all claims, in the order of the paper."""

from frostline.errors import BadParameter
from frostline.experiments.claim import Claim
from frostline.experiments.claims import (
    asymmetry,
    finite_tokens,
    high_dimension,
    laplace_principle,
    many_heads,
    mean_field,
    metastability,
    staying,
    subspaces,
    terminal_phase,
    theorem,
    time_scale,
    training,
    wasserstein_stability,
    zero_temperature,
)
from frostline.files.suggestions import suggestion

CLAIMS: dict[str, Claim] = {
    module.CLAIM.name: module.CLAIM
    for module in (
        zero_temperature,
        laplace_principle,
        theorem,
        time_scale,
        metastability,
        terminal_phase,
        subspaces,
        wasserstein_stability,
        mean_field,
        finite_tokens,
        staying,
        asymmetry,
        many_heads,
        high_dimension,
        training,
    )
}


def chosen(names: list[str], size: str) -> list[Claim]:
    """The claims of these names, in the order of the paper; all that have this size when none is named."""
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        raise BadParameter(f"there is no claim {unknown[0]!r}; {suggestion(unknown[0], CLAIMS)}")
    without = [name for name in names if size not in CLAIMS[name].sizes]
    if without:
        raise BadParameter(f"{without[0]} is measured with --full only.")
    return [claim for name, claim in CLAIMS.items() if name in names or (not names and size in claim.sizes)]
