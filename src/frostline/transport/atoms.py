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
    costs = np.linalg.norm(x[:, None, :] - atoms, axis=2) ** p
    order = np.argsort(costs[:, 0] - costs[:, 1], kind="stable")
    filled = np.clip(share - (np.cumsum(weights[order]) - weights[order]), 0.0, weights[order])
    total = (filled * costs[order, 0]).sum() + ((weights[order] - filled) * costs[order, 1]).sum()
    return float(max(total, 0.0) ** (1 / p))
