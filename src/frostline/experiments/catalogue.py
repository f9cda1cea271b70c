"""All claims, in the order of the paper."""

from frostline.errors import BadParameter
from frostline.experiments import (
    laplace_principle,
    mean_field,
    metastability,
    subspaces,
    terminal_phase,
    theorem,
    time_scale,
    wasserstein_stability,
    zero_temperature,
)
from frostline.experiments.claim import Claim

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
    )
}


def chosen(names: list[str]) -> list[Claim]:
    """The claims of these names, in the order of the paper; all of them when none is named."""
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        raise BadParameter(f"there is no claim {unknown[0]!r}; there are: {', '.join(CLAIMS)}.")
    return [claim for name, claim in CLAIMS.items() if not names or name in names]
