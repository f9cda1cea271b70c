"""Which eigenvalues of A are "at μ", and the spectral projector on them (THEORY section 4).

The question is numerical: a relative error η in A moves an eigenvalue with condition number s by about η·s·‖A‖, so
eigenvalues closer than that cannot be told apart. That one rule groups the split eigenvalues of a Jordan block (large
s) and still resolves a gap of 1e-12 in a symmetric matrix (s = 1).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Complex, Float
from scipy import linalg

# The relative error assumed in A, in units of machine epsilon: room for how A was formed (a product, a similarity).
BACKWARD_ERROR = 100.0
# Larger blocks spread their eigenvalue so far (η^{1/5} = 2e-3) that everything badly conditioned would look like one.
LARGEST_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Dominant:
    """The part of A at the largest real part μ."""

    mu: float
    eigenvalues: Complex[np.ndarray, "m"]
    basis: Float[np.ndarray, "d m"]
    """Orthonormal columns spanning the range of the projector."""
    block: Float[np.ndarray, "m m"]
    """A restricted to that range, in that basis."""
    projector: Float[np.ndarray, "d d"]
    next_real: float
    """The largest real part below the group; −inf when the group is everything."""
    tolerance: float
    """Eigenvalues at least this close (absolute) were taken to be at μ."""
    rounding: float
    """Entries of ``block`` this small may be rounding."""
    resolution: float
    """The gap over how far rounding may have moved the mean of the group or the next eigenvalue."""


def dominant(A: Float[np.ndarray, "d d"], *, epsilon: float, tolerance: float | None) -> Dominant:
    """The dominant group of A. ``tolerance`` (relative to ‖A‖) replaces the automatic rule."""
    size = scale_of(A)
    found = _dominant(A / size, epsilon, tolerance)
    return Dominant(
        mu=found.mu * size,
        eigenvalues=found.eigenvalues * size,
        basis=found.basis,
        block=found.block * size,
        projector=found.projector,
        next_real=found.next_real * size,
        tolerance=found.tolerance * size,
        rounding=found.rounding * size,
        resolution=found.resolution,
    )


def scale_of(matrix: Float[np.ndarray, "d d"]) -> float:
    """The power of two below the largest entry: dividing by it is exact, and safe from over- and underflow."""
    largest = float(np.abs(matrix).max())
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def _dominant(A: Float[np.ndarray, "d d"], epsilon: float, tolerance: float | None) -> Dominant:
    values, left, right = linalg.eig(A, left=True, right=True)
    size = float(np.linalg.norm(A, 2)) or 1.0
    distance = values.real.max() - values.real
    if tolerance is None:
        radius = _radii(distance / size, left, right, epsilon) * size
        inside = _closed(values, distance <= radius, radius)
    else:
        radius = np.full(len(A), tolerance * size)
        inside = distance <= radius
    used = float(max(radius[inside].max(), distance[inside].max()))
    # The Schur form must cut at the same place: halfway into the gap under the group.
    outside = values.real[~inside]
    next_real = float(outside.max()) if outside.size else -np.inf
    cut = (values.real[inside].min() + next_real) / 2
    schur, basis, count = linalg.schur(A, output="real", sort=lambda re, im: re > cut)
    m = int(count)
    block = schur[:m, :m]
    projector = basis[:, :m] @ basis[:, :m].T
    if m < len(A):
        # Range [I; 0] along [X; I], with T₁₁X − XT₂₂ = −T₁₂ (the invariant complement in Schur coordinates).
        X = linalg.solve_sylvester(block, -schur[m:, m:], -schur[:m, m:])
        projector = projector - basis[:, :m] @ X @ basis[:, m:].T
    group = linalg.eigvals(block)
    overlap = np.abs((left.conj() * right).sum(0))[~inside & (values.real == next_real)]
    eta = BACKWARD_ERROR * epsilon * size
    uncertainty = eta * max(float(np.linalg.norm(projector, 2)), *(1 / max(s, 1e-300) for s in overlap), 1.0)
    rounding = eta * float(np.linalg.norm(projector, 2))
    # The mean of a group is far better determined than its members (a Jordan block spreads them by η^{1/k}).
    mu = float(np.trace(block)) / m
    resolution = (mu - next_real) / uncertainty
    return Dominant(mu, group, basis[:, :m], block, projector, next_real, used, rounding, resolution)


def _closed(
    values: Complex[np.ndarray, "d"], inside: Bool[np.ndarray, "d"], radius: Float[np.ndarray, "d"]
) -> Bool[np.ndarray, "d"]:
    """The group, with every eigenvalue that lies among the split ones of a Jordan block.

    A simple eigenvalue beside a Jordan block of the same value is well-conditioned, so it alone would stay outside,
    although the block's eigenvalues have been scattered all around it.
    """
    lead = values[np.argmax(values.real)]
    cluster = inside & (np.abs(values - lead) <= 2 * radius.max())
    centre = values[cluster].mean()
    spread = np.abs(values[cluster] - centre).max()
    inside = inside | (np.abs(values - centre) <= 2 * spread)
    # Nothing above a member may stay outside.
    return inside | (values.real >= values.real[inside].min())


def _radii(
    distance: Float[np.ndarray, "d"],
    left: Complex[np.ndarray, "d d"] | Float[np.ndarray, "d d"],
    right: Complex[np.ndarray, "d d"] | Float[np.ndarray, "d d"],
    epsilon: float,
) -> Float[np.ndarray, "d"]:
    """How far (relative to ‖A‖) each eigenvalue may have been moved by rounding."""
    eta = BACKWARD_ERROR * epsilon
    overlap = np.abs((left.conj() * right).sum(0))
    sensitivity = eta / np.maximum(overlap, np.finfo(float).tiny)
    # A Jordan block of size k spreads its eigenvalue by η^{1/k} and no further; take the largest k that explains
    # at least k eigenvalues.
    for k in range(min(LARGEST_BLOCK, len(distance)), 0, -1):
        radius = 2 * np.minimum(sensitivity, eta ** (1 / k))
        if (distance <= radius).sum() >= k:
            return radius
    return 2 * np.minimum(sensitivity, eta)
