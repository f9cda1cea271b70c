"""Token distributions on the sphere and quadrature nodes; every function takes a seed and returns float64 numpy."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy import special, stats
from scipy.spatial.transform import Rotation

from frostline.arrays import Array, as_count, as_float64, as_number, as_tensor
from frostline.errors import BadArray, BadParameter, BadWeights
from frostline.sphere import normalise, unit_rows

__all__ = ["Nodes", "antipodal", "caps", "generator", "mixture", "nodes", "uniform", "vmf"]

Tokens: TypeAlias = Float[np.ndarray, "n d"]
"""n unit vectors as rows."""
Seed: TypeAlias = int | Sequence[int] | np.random.Generator
"""A whole number ≥ 0, several, or a generator, which is used as it is."""
SMALLEST_SHARE = 1e-250
"""The share of the sphere below which a cap is sampled by another rule: inversion of its law underflows near 1e-300."""
SUM_TOLERANCE = 1e-6
"""The sum of weights may differ from one by this; they are then divided by their sum."""


def generator(seed: Seed) -> np.random.Generator:
    """The numpy generator of a seed.

    Parameters
    ----------
    seed
        A whole number ≥ 0, several, or a generator.

    Returns
    -------
    numpy.random.Generator
        The generator; one that is given is passed through.

    Raises
    ------
    BadParameter
        The seed is neither.

    Examples
    --------
    >>> generator(0).integers(10, size=3)
    array([8, 6, 5])
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise BadParameter(f"seed is {seed!r}; a whole number ≥ 0 is needed ({error}).") from None


class Nodes(NamedTuple):
    """A weighted quadrature of a density: ∫ f dρ ≈ Σ weights·f(tokens).

    Attributes
    ----------
    tokens : ndarray
        Unit vectors (n, d).
    weights : ndarray
        Positive weights (n,) with sum 1.
    """

    tokens: Float[np.ndarray, "n d"]
    weights: Float[np.ndarray, "n"]


def uniform(n: int, d: int, *, seed: Seed) -> Tokens:
    """n independent tokens, uniform on S^{d−1}.

    Parameters
    ----------
    n : int
        Number of tokens, at least 1.
    d : int
        Dimension, at least 2.
    seed : int, sequence of int, or numpy Generator
        The same seed gives the same tokens.

    Returns
    -------
    ndarray
        Tokens (n, d).

    Raises
    ------
    BadParameter
        ``n``, ``d`` or ``seed`` is outside its range.

    Examples
    --------
    >>> uniform(2, 3, seed=0).shape
    (2, 3)
    """
    _check_size(n, d)
    return unit_rows(generator(seed).standard_normal((n, d)))


def vmf(n: int, mean: Array, concentration: float, *, seed: Seed) -> Tokens:
    """n independent von Mises–Fisher tokens: density ∝ e^{concentration·⟨mean, x⟩}, in any d ≥ 2.

    Parameters
    ----------
    n : int
        Number of tokens, at least 1.
    mean : Array
        The mean direction (d,), of any length but zero.
    concentration : float
        Finite and ≥ 0; 0 is the uniform density.
    seed : int, sequence of int, or numpy Generator
        The same seed gives the same tokens.

    Returns
    -------
    ndarray
        Tokens (n, d).

    Raises
    ------
    BadArray
        ``mean`` is not one non-zero vector.
    BadParameter
        ``n``, ``concentration`` or ``seed`` is outside its range.

    Examples
    --------
    >>> print(vmf(1000, [0, 0, 1], 50.0, seed=0).mean(0)[2].round(2))  # coth κ − 1/κ
    0.98
    """
    centre = as_direction(mean, "mean")
    _check_size(n, len(centre))
    as_concentration(concentration)
    rng = generator(seed)
    if concentration == 0:
        return uniform(n, len(centre), seed=rng)
    law = stats.vonmises_fisher(centre, concentration)  # type: ignore[arg-type]  # scipy's stubs ask for an int
    draws = law.rvs(n, random_state=rng)
    return unit_rows(np.asarray(draws).reshape(n, len(centre)))


def caps(n: int, centres: Array, angle: float, *, seed: Seed) -> Tokens:
    """n independent tokens, uniform in equally likely spherical caps around one or several centres.

    Parameters
    ----------
    n : int
        Number of tokens, at least 1.
    centres : Array
        One centre (d,) or several (c, d), of any length but zero.
    angle : float
        Half-angle of every cap, in (0, π] radians.
    seed : int, sequence of int, or numpy Generator
        The same seed gives the same tokens.

    Returns
    -------
    ndarray
        Tokens (n, d).

    Raises
    ------
    BadArray
        A centre is zero or not finite.
    BadParameter
        ``n``, ``angle`` or ``seed`` is outside its range.

    Examples
    --------
    >>> tokens = caps(100, [[1, 0, 0], [-1, 0, 0]], 0.1, seed=0)
    >>> bool((abs(tokens[:, 0]) >= np.cos(0.1)).all())
    True
    """
    directions = np.atleast_2d(as_float64(normalise(as_tensor(centres, "centres")[0].double())))
    d = directions.shape[1]
    _check_size(n, d)
    if not (0 < as_number(angle, "angle") <= np.pi):
        raise BadParameter(f"angle is {angle}; a cap's half-angle lies in (0, π].")
    rng = generator(seed)
    # s = (1 − cos θ)/2 is Beta((d−1)/2, (d−1)/2) on the whole sphere; a cap truncates it at sin²(angle/2).
    # Working with s, not cos θ, keeps tiny caps accurate.
    shape = (d - 1) / 2
    widest = np.sin(angle / 2) ** 2
    top = special.betainc(shape, shape, widest)
    if top > SMALLEST_SHARE:
        s = special.betaincinv(shape, shape, rng.random(n) * top)[:, None]
    else:
        s = _tiny_cap(n, shape, widest, rng)[:, None]
    centre = directions[rng.integers(len(directions), size=n)]
    around = rng.standard_normal((n, d))
    around = unit_rows(around - (around * centre).sum(1, keepdims=True) * centre)
    return unit_rows((1 - 2 * s) * centre + 2 * np.sqrt(s * (1 - s)) * around)


def mixture(
    n: int, components: Sequence[Callable[[int, np.random.Generator], Tokens]], weights: Array, *, seed: Seed
) -> Tokens:
    """n tokens drawn from components with given probabilities, in random order.

    Parameters
    ----------
    n : int
        Number of tokens, at least 1.
    components : sequence of callables
        Each is ``component(n, rng)`` and returns tokens (n, d).
    weights : Array
        The probability of each component; they sum to 1.
    seed : int, sequence of int, or numpy Generator
        The same seed gives the same tokens.

    Returns
    -------
    ndarray
        Tokens (n, d).

    Raises
    ------
    BadWeights
        ``weights`` are not as many probabilities as there are components.
    BadArray
        The components differ in dimension.

    Examples
    --------
    >>> north = lambda n, rng: vmf(n, [0, 0, 1], 50, seed=rng)
    >>> mixture(3, [north, lambda n, rng: uniform(n, 3, seed=rng)], [0.8, 0.2], seed=0).shape
    (3, 3)
    """
    shares = as_weights(weights, len(components))
    as_count(n, "the number of tokens")
    rng = generator(seed)
    counts = rng.multinomial(n, shares)
    drawn = [draw(int(count), rng) for draw, count in zip(components, counts, strict=True) if count]
    if len({part.shape[1] for part in drawn}) != 1:
        raise BadArray(f"the components have dimensions {[part.shape[1] for part in drawn]}; they must agree.")
    return rng.permutation(np.concatenate(drawn))


def antipodal(tokens: Array) -> Float[np.ndarray, "twice_n d"]:
    """The tokens and their antipodes: a reflection-symmetric start (THEORY section 9).

    Parameters
    ----------
    tokens : Array
        Tokens (n, d).

    Returns
    -------
    ndarray
        Tokens (2n, d): the given ones, then their antipodes.

    Raises
    ------
    BadArray
        ``tokens`` is not a finite array.

    Examples
    --------
    >>> antipodal([[0.6, 0.8]])
    array([[ 0.6,  0.8],
           [-0.6, -0.8]])
    """
    half = as_float64(as_tensor(tokens, "tokens")[0])
    return np.concatenate([half, -half])


def nodes(
    n: int,
    d: int,
    *,
    log_density: Callable[[Tokens], Float[np.ndarray, "n"]] | None = None,
    seed: Seed = 0,
) -> Nodes:
    """About n weighted nodes for a density on S^{d−1}: quadrature in place of sampling.

    In d = 2 these are n equispaced angles (the trapezoidal rule, spectrally accurate for smooth densities); in d = 3
    Gauss–Legendre in height times equispaced longitudes, L×2L nodes with L ≈ √(n/2); in d ≥ 4 a scrambled Sobol
    sequence through the Gaussian, with antipodes, so that odd moments are exact.

    Parameters
    ----------
    n : int
        Number of nodes wanted; ``len(result.weights)`` is the number made.
    d : int
        Dimension, at least 2.
    log_density : callable, optional
        Takes tokens (n, d) and returns n numbers, up to a common constant; −inf where the density vanishes. The
        uniform density by default.
    seed : int, sequence of int, or numpy Generator
        Of the Sobol sequence; without effect in d ≤ 3.

    Returns
    -------
    Nodes
        The named tuple ``(tokens, weights)``.

    Raises
    ------
    BadParameter
        ``n`` or ``d`` is outside its range.
    BadArray
        ``log_density`` does not return n numbers below +inf, or is −inf at every node.

    Examples
    --------
    >>> tokens, weights = nodes(200, 3)
    >>> print(tokens.shape, (weights @ tokens[:, 0] ** 2).round(12))
    (200, 3) 0.333333333333
    """
    _check_size(n, d)
    if d == 2:
        # An irrational offset: no node falls on an axis, where a limit may be undefined.
        angles = 2 * np.pi * (np.arange(n) + 1 / np.pi) / n
        tokens, weights = np.stack([np.cos(angles), np.sin(angles)], axis=1), np.full(n, 1 / n)
    elif d == 3:
        tokens, weights = _gauss_sphere(max(1, round(np.sqrt(n / 2))))
    else:
        half = (n + 1) // 2
        if d > stats.qmc.Sobol.MAXDIM:
            raise BadParameter(f"nodes go up to d = {stats.qmc.Sobol.MAXDIM}, not {d}; sample uniform tokens instead.")
        sobol = stats.qmc.Sobol(d, rng=generator(seed)).random_base2(max(0, (half - 1).bit_length()))[:half]
        gaussian = special.ndtri(np.clip(sobol, 2.0**-60, 1 - 2.0**-53))
        tokens = antipodal(unit_rows(gaussian))
        weights = np.full(len(tokens), 1 / len(tokens))
    if log_density is not None:
        logs = np.asarray(log_density(tokens), dtype=np.float64)
        if logs.shape != weights.shape or not (logs < np.inf).all():
            raise BadArray(
                f"log_density returned shape {logs.shape} (needed {weights.shape}) or NaN or +inf values; "
                "it takes tokens (n, d) and returns n finite numbers (−inf where the density vanishes)."
            )
        if not logs.max() > -np.inf:
            raise BadArray("log_density is −inf at every node: the density vanishes there, or needs more nodes.")
        weights = weights * np.exp(logs - logs.max())
        weights = weights / weights.sum()
    return Nodes(tokens, weights)


def as_weights(weights: Array, n: int) -> Float[np.ndarray, "n"]:
    """Weights, checked: n finite numbers ≥ 0 with sum one, divided by their sum to make that exact."""
    values = as_float64(as_tensor(weights, "weights")[0])
    if values.shape != (n,) or n == 0:
        raise BadWeights(f"weights has shape {values.shape}; {n} tokens need ({n},).")
    if not (values >= 0).all():
        raise BadWeights(f"{int((values < 0).sum())} weights are negative, the least is {values.min():.3g}.")
    total = float(values.sum())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise BadWeights(f"weights sum to {total:.6g}, not 1; divide them by their sum if only proportions matter.")
    return values / total


def as_concentration(concentration: float) -> float:
    """The concentration of a von Mises–Fisher density, checked: finite and ≥ 0."""
    if not (0 <= as_number(concentration, "concentration") < np.inf):
        raise BadParameter(f"concentration is {concentration}; it must be finite and ≥ 0 (0 is uniform).")
    return float(concentration)


def as_direction(vector: Array, name: str) -> Float[np.ndarray, "d"]:
    """One vector (d,), checked, as a unit vector in float64."""
    direction = as_float64(normalise(as_tensor(vector, name)[0].double()))
    if direction.ndim != 1:
        raise BadArray(f"{name} has shape {direction.shape}; one vector (d,) is needed.")
    return direction


def _gauss_sphere(levels: int) -> tuple[Tokens, Float[np.ndarray, "n"]]:
    heights, height_weights = np.polynomial.legendre.leggauss(levels)
    longitudes = np.pi * (np.arange(2 * levels) + 0.5) / levels
    z, phi = (grid.ravel() for grid in np.meshgrid(heights, longitudes, indexing="ij"))
    radius = np.sqrt(1 - z**2)
    weights = np.repeat(height_weights / height_weights.sum() / (2 * levels), 2 * levels)
    grid = np.stack([radius * np.cos(phi), radius * np.sin(phi), z], axis=1)
    # Turned by a generic rotation: no node falls on a coordinate plane, where a limit may be undefined.
    return unit_rows(grid @ Rotation.from_rotvec([0.3, 0.5, 0.7]).as_matrix()), weights


def _tiny_cap(n: int, shape: float, widest: float, rng: np.random.Generator) -> Float[np.ndarray, "n"]:
    """s of a cap whose share of the sphere underflows: s^{shape−1} by inversion, (1−s)^{shape−1} by rejection."""
    accepted = np.empty(0)
    while len(accepted) < n:
        s = widest * rng.random(2 * n) ** (1 / shape)
        # Underflow happens only for shape > 1, where (1 − s)^{shape−1} ≤ 1.
        accepted = np.concatenate([accepted, s[rng.random(2 * n) < (1 - s) ** max(shape - 1, 0)]])
    return accepted[:n]


def as_dimension(d: int) -> int:
    """The dimension d of a sphere S^{d−1}, checked: at least 2."""
    if as_count(d, "dimension") < 2:
        raise BadParameter(f"dimension is {d}; the sphere S^(d-1) needs d ≥ 2.")
    return d


def _check_size(n: int, d: int) -> None:
    as_count(n, "the number of tokens")
    as_dimension(d)
