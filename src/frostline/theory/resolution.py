"""The kind of the group of eigenvalues at μ, and the smallest change of A that would make it another kind.

Everything is computed from the sorted Schur form: the group's block first, then the rest.
"""

from math import comb
from typing import Any

import numpy as np
from jaxtyping import Complex, Float
from scipy import linalg

HEIGHTS = 4
"""Imaginary parts at which the line between the group and the rest is examined.

They are those of the eigenvalues that small changes move most of the way to the line.
"""
COEFFICIENTS = 8
"""Coefficients of a group's characteristic polynomial that are compared; more add no information."""
WITHIN = 10
"""A nilpotent part is rounding up to this many times the size assumed for rounding."""


def kind_of(group: Complex[np.ndarray, "m"], powers: int, tolerance: float) -> str:
    """The kind, from the eigenvalues of the group and the number of powers of its nilpotent part."""
    turning = np.abs(group.imag) > tolerance
    if not turning.any():
        return "defective" if powers > 1 else "points" if len(group) == 1 else "subspace"
    return "rotation" if turning.all() and len(group) == 2 else "mixed"


def nilpotent_powers(
    block: Float[np.ndarray, "m m"], group: Complex[np.ndarray, "m"], rounding: float
) -> tuple[list[Float[np.ndarray, "m m"]], float]:
    """I, N, N², … of the nilpotent part N at μ while above rounding, and the size of rounding in the last one."""
    nilpotent = block - np.trace(block) / len(block) * np.eye(len(block))
    size = float(np.linalg.norm(nilpotent, 2))
    spread = float(np.abs(group - group.mean()).max())
    powers = [np.eye(len(block))]
    # N itself is rounding when it is no larger than that, or than how far rounding has spread the eigenvalue; of N^k,
    # k ≥ 2, rounding that spreads the eigenvalue by r leaves r·‖N‖^{k−1} where it should vanish.
    noise = WITHIN * max(rounding, spread)
    while size > noise and len(powers) < len(block):
        following = powers[-1] @ nilpotent
        if not np.linalg.norm(following, 2) > noise * size ** (len(powers) - 1):
            break
        powers.append(following)
    return powers, noise * size ** max(len(powers) - 2, 0)


def crossing(
    schur: Float[np.ndarray, "n n"],
    line: float,
    values: Complex[np.ndarray, "v"],
    conditions: Float[np.ndarray, "v"],
) -> float:
    """The smallest change of A (in norm) that moves an eigenvalue onto the line Re z = ``line``.

    It is the minimum over ω of σ_min(A − line − iω), exact for Jordan blocks too, whose condition numbers are infinite.
    The condition numbers only choose the ω that are tried.
    """
    reach = conditions / np.maximum(np.abs(line - values.real), np.finfo(float).tiny)
    heights = np.unique(np.abs(values.imag[np.argsort(-reach)]), return_index=True)
    first = heights[0][np.argsort(heights[1])][:HEIGHTS]
    eye = np.eye(len(schur))
    return min(float(np.linalg.svd(schur - complex(line, w) * eye, compute_uv=False)[-1]) for w in first)


def turning(block: Float[np.ndarray, "2 2"]) -> float:
    """The smallest change of the block that makes its complex pair meet on the real axis."""
    return float(np.linalg.svd(block - np.trace(block) / 2 * np.eye(2), compute_uv=False)[-1])


def tie(
    block: Float[np.ndarray, "m m"],
    group: Complex[np.ndarray, "m"],
    rounding: float,
    tolerance: float,
    *,
    semisimple: bool,
) -> float:
    """Infinite when rounding explains why the group's eigenvalues differ (in real part), else the share it explains.

    Rounding moves the eigenvalues of a Jordan block far apart, the coefficients of its characteristic polynomial only
    a little: those of N + E with |E| ≤ e differ from N's by at most C(m, j)(Π(σ_i + e) − Πσ_i), σ the singular values
    of N. So coefficients are compared, not eigenvalues.
    """
    worst = np.inf
    mu = float(np.trace(block)) / len(block)
    for centre, part, room in _clusters(block, group, rounding, tolerance):
        shifted = part - complex(mu, centre) * np.eye(len(part))
        sizes = np.linalg.svd(shifted, compute_uv=False)
        if sizes[0] <= WITHIN * room:
            continue
        if semisimple:
            worst = min(worst, room / sizes[0])
        coefficients = np.abs(np.poly(np.diag(shifted)))
        for j in range(1, min(len(part), COEFFICIENTS) + 1):
            explained = comb(len(part), j) * float(np.prod(sizes[:j] + room) - np.prod(sizes[:j]))
            if coefficients[j] > explained:
                worst = min(worst, explained / coefficients[j])
    return worst


def _clusters(
    block: Float[np.ndarray, "m m"], group: Complex[np.ndarray, "m"], rounding: float, tolerance: float
) -> list[tuple[float, Complex[np.ndarray, "q q"], float]]:
    """The parts of the block with about the same imaginary part: its mean, the part, and the rounding in it."""
    heights = np.sort(group.imag)
    clusters = []
    for part in np.split(heights, np.flatnonzero(np.diff(heights) > 2 * tolerance) + 1):
        if part.max() < -tolerance:
            continue  # the mirror image of another
        T, _, q = linalg.schur(
            block, output="complex", sort=_between(part[0] - tolerance / 2, part[-1] + tolerance / 2)
        )
        room = rounding
        if q < len(T):
            X = linalg.solve_sylvester(T[:q, :q], -T[q:, q:], -T[:q, q:])
            room *= float(np.hypot(1.0, np.linalg.norm(X, 2)))
        clusters.append((float(part.mean()), T[:q, :q], room))
    return clusters


def _between(low: float, high: float) -> Any:
    """Whether an imaginary part lies in this range; untyped, because scipy's types know only sorting of real forms."""
    return lambda z: low <= z.imag <= high


def sensitivity(schur: Float[np.ndarray, "n n"], m: int) -> float:
    """The largest angle, in radians, by which the plane of a rotation turns per unit change of A."""
    block, rest = schur[:m, :m], schur[m:, m:]
    if not rest.size:
        return 0.0
    value = linalg.eigvals(block)[0]
    sizes = np.linalg.svd(block - value.real * np.eye(m), compute_uv=False)
    apart = np.linalg.svd(rest - value * np.eye(len(rest)), compute_uv=False)[-1]
    return float(np.sqrt(sizes[0] / sizes[-1]) / apart)
