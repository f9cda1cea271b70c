"""Index coupling x_i ↔ y_i: an upper bound of W_p in O(n); exact at zero temperature with symmetric A (THEORY 10)."""

import numpy as np
import torch

from frostline.arrays import Array
from frostline.errors import BadArray
from frostline.sample import as_weights


def index_coupling(x: Array, y: Array, *, p: float = 2.0, weights: Array | None = None) -> np.ndarray:
    """(Σ w_i |x_i − y_i|^p)^{1/p} with the chord distance; leading axes give one number each.

    >>> float(index_coupling(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])).round(6))
    1.414214
    """
    left, right = (torch.as_tensor(a).to(torch.float64) for a in (x, y))
    if left.shape[-2:] != right.shape[-2:]:
        raise BadArray(
            f"index coupling pairs tokens one by one: {tuple(left.shape)} does not match {tuple(right.shape)}."
        )
    n = left.shape[-2]
    shares = (
        torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else torch.from_numpy(as_weights(weights, n))
    )
    chords = torch.linalg.vector_norm(left - right.to(left), dim=-1)
    return power_mean(chords.cpu().numpy(), shares.cpu().numpy(), p)


def power_mean(costs: np.ndarray, weights: np.ndarray, p: float) -> np.ndarray:
    """(Σ w c^p)^{1/p} over the last axis, in units of the largest cost, since c^p under- or overflows for large p."""
    largest = costs.max(-1)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * (weights * (costs / unit[..., None]) ** p).sum(-1) ** (1 / p) * (largest > 0))
