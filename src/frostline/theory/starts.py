"""Starting densities as a tube needs them: a lower bound, and how much mass starts within an angle of E."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import integrate, special

from frostline.arrays import as_number
from frostline.errors import BadParameter
from frostline.theory.densities import Mixture
from frostline.theory.von_mises_fisher import log_normaliser

ROOM = 1e-11
"""Room for the rounding of Bessel and Beta functions."""
PAIRED = 1e-12
"""Parameters of a mixture this close to opposite count as opposite."""


@dataclass(frozen=True, eq=False)
class Start:
    """A density known from below, against the uniform one.

    Attributes
    ----------
    log_ratio : float
        λ₀: the density is at least e^{−λ₀} of the uniform one.
    shares : ndarray
        Lower bounds of the mass within the angles asked for, rising, the last one 1.
    even : bool
        Whether the density is known to be the same at x and −x.
    words : str
        The density, in words.
    """

    log_ratio: float
    shares: Float[np.ndarray, "n"]
    even: bool
    words: str


def start_of(density: object, angles: Float[np.ndarray, "n"], E: Float[np.ndarray, "d m"]) -> Start:
    """The start from "uniform", a Mixture, or a number: the smallest value of an otherwise unknown density.

    ``angles`` rise to π/2; shares are those of tokens at most that far from E.
    """
    d, m = E.shape
    uniform = uniform_share(angles, d, m)
    if isinstance(density, str):
        if density != "uniform":
            raise BadParameter(f'start is {density!r}; as a word only "uniform" is known.')
        return Start(0.0, _rising(uniform), True, "the uniform density")
    if isinstance(density, Mixture):
        if density.dimension != d:
            raise BadParameter(f"the start has dimension {density.dimension}, the head {d}; they must agree.")
        if not np.any(density.parameters):
            return start_of("uniform", angles, E)
        return _start_of_mixture(density, angles, E, uniform)
    if hasattr(density, "mean_map"):
        raise BadParameter(
            "no lower bound is known of a density that is given as a function; pass a mixture of von Mises–Fisher "
            'densities, its smallest value as a number, or growth="measured".'
        )
    least = as_number(density, "start")
    if not (0 < least <= 1):
        raise BadParameter(
            f"start is {least:g}; a number is the smallest value of the density against the uniform one, in (0, 1]. A "
            "density that vanishes somewhere keeps no bound on its mean map."
        )
    # The rest of the mass may be anywhere: all of it at the equator is the worst.
    shares = least * uniform
    shares[-1] = 1.0
    return Start(
        -float(np.log(least)), _rising(shares), False, f"a density of at least {least:g} times the uniform one"
    )


def uniform_share(angles: Float[np.ndarray, "n"], d: int, m: int) -> Float[np.ndarray, "n"]:
    """The uniform mass within these angles of an m-dimensional space: sin² θ is Beta((d−m)/2, m/2)."""
    return np.asarray(special.betainc((d - m) / 2, m / 2, np.sin(angles) ** 2))


def uniform_distance(d: int, m: int, p: float) -> float:
    """W_p from the uniform density to its image under the nearest-point map to an m-dimensional space's unit sphere.

    >>> round(uniform_distance(3, 1, 2.0), 12)  # E|x − e|² = 2 − 2E|⟨x,e⟩| = 1
    1.0
    """
    if m >= d:
        return 0.0
    # sin^{d−m−1}θ cos^{m−1}θ, normalised by the Beta function.
    norm = special.beta((d - m) / 2, m / 2) / 2
    total, _ = integrate.quad(
        lambda t: (2 * np.sin(t / 2)) ** p * np.sin(t) ** (d - m - 1) * np.cos(t) ** (m - 1), 0, np.pi / 2, epsabs=1e-13
    )
    return float((total / norm) ** (1 / p))


def _start_of_mixture(
    density: Mixture, angles: Float[np.ndarray, "n"], E: Float[np.ndarray, "d m"], uniform: Float[np.ndarray, "n"]
) -> Start:
    """Rings between the angles: in x = cos θ·η + sin θ·ω a component is e^{⟨c_E,η⟩cos θ}e^{⟨c_W,ω⟩sin θ}, averaged over
    η and ω."""
    d, m = E.shape
    size = np.linalg.norm(density.parameters, axis=1)
    base = log_normaliser(size, d)
    least = special.logsumexp(np.log(density.weights) - size - base)
    inside = np.linalg.norm(density.parameters @ E, axis=1)
    outside = np.sqrt(np.maximum(size**2 - inside**2, 0.0)) + 1e-13 * size
    edges = np.concatenate([[0.0], angles])
    masses = np.diff(np.concatenate([[0.0], uniform]))
    scale = [np.log(density.weights) - base]
    lower = _averages(inside, np.cos(edges[1:]), m) + _averages(outside, np.sin(edges[:-1]), d - m) + scale[0]
    upper = _averages(inside, np.cos(edges[:-1]), m) + _averages(outside, np.sin(edges[1:]), d - m) + scale[0]
    least_mass, most_mass = (masses * np.exp(logs).sum(1) for logs in (lower, upper))
    below = np.cumsum(least_mass)
    above = np.concatenate([np.cumsum(most_mass[::-1])[::-1][1:], [0.0]])
    shares = np.clip(np.maximum(below, 1 - above) - ROOM, 0.0, 1.0)
    shares[-1] = 1.0
    pairs = np.linalg.norm(density.parameters[:, None] + density.parameters, axis=2) <= PAIRED * (1 + size.max())
    even = bool((np.abs(pairs @ density.weights - density.weights) <= PAIRED).all())
    words = f"a mixture of {len(size)} von Mises–Fisher densities" if len(size) > 1 else "a von Mises–Fisher density"
    return Start(max(-float(least), 0.0) + ROOM, _rising(shares), even, words)


def _averages(size: Float[np.ndarray, "K"], factor: Float[np.ndarray, "n"], d: int) -> Float[np.ndarray, "n K"]:
    """log of the mean of e^{κ⟨u,y⟩} over the unit sphere in d dimensions (two points for d = 1), κ = factor·size."""
    kappa = factor[:, None] * size
    return np.logaddexp(kappa, -kappa) - np.log(2) if d == 1 else log_normaliser(kappa, d)


def _rising(shares: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    shares = np.maximum.accumulate(np.clip(shares - ROOM, 0.0, 1.0))
    shares[-1] = 1.0
    return shares
