"""Random heads and matrices with known structure, which claims and tests are measured on."""

from collections.abc import Sequence

import numpy as np

from frostline.attention import Attention


def head_of(A: np.ndarray, B: np.ndarray, beta: float = 1.0) -> Attention:
    """The head with these matrices A = VBᵀ and B: V = AB⁻ᵀ."""
    return Attention.from_matrices(B, A @ np.linalg.inv(B).T, beta)


def near_identity(d: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """The identity with normal noise, whose norm is about twice ``spread``."""
    noise: np.ndarray = rng.standard_normal((d, d))
    return np.eye(d) + spread * noise / np.sqrt(d)


def random_axes(d: int, rng: np.random.Generator) -> np.ndarray:
    """A random orthogonal matrix."""
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def symmetric_matrix(values: Sequence[float] | np.ndarray, axes: np.ndarray) -> np.ndarray:
    """The symmetric matrix with these eigenvalues; its eigenvectors are the columns of ``axes``."""
    return axes @ np.diag(values) @ axes.T
