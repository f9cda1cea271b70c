"""A target of two atoms: exact transport by sorting (THEORY section 10)."""

import numpy as np
from jaxtyping import Float


def two_atoms(
    x: Float[np.ndarray, "n d"],
    weights: Float[np.ndarray, "n"],
    atoms: Float[np.ndarray, "2 d"],
    share: float,
    *,
    p: float = 2.0,
) -> float:
    """W_p from Σ w_i δ_{x_i} to share·δ_{atoms[0]} + (1 − share)·δ_{atoms[1]}, chord distance, exact.

    The first atom is filled by the tokens for which it is cheapest compared with the second; the token at the cut is
    split.
    """
    chords = np.linalg.norm(x[:, None, :] - atoms, axis=2)
    # In units of the largest chord: for large p its power under- or overflows.
    unit = float(chords.max()) or 1.0
    costs = (chords / unit) ** p
    order = np.argsort(costs[:, 0] - costs[:, 1], kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    # A share that was summed in another order differs by rounding from where the cut belongs; moving that sliver of
    # mass across the sphere would cost the root of it.
    nearest = sums[np.abs(sums - share).argmin()]
    cut = nearest if abs(nearest - share) <= 4 * len(x) * np.finfo(float).eps else share
    filled = np.clip(cut - sums[:-1], 0.0, weights[order])
    total = (filled * costs[order, 0]).sum() + ((weights[order] - filled) * costs[order, 1]).sum()
    return unit * float(max(total, 0.0) ** (1 / p))
