"""Random heads and matrices with known structure, shared by the tests."""

import numpy as np
from scipy import linalg

from frostline.experiments.random_heads import head_of, random_axes, symmetric_matrix


def head_with(A, rng, *, beta=1.0, B=None):
    """A head with a given A = VBᵀ and a random well-conditioned B."""
    d = len(A)
    if B is None:
        left, right = (random_axes(d, rng) for _ in range(2))
        B = left @ np.diag(rng.uniform(0.5, 2.0, d)) @ right
    return head_of(A, B, beta)


def similar(blocks, rng, *, condition=10.0):
    """S·blockdiag·S⁻¹ with a random S of the given condition number: a non-normal matrix with that spectrum."""
    J = linalg.block_diag(*blocks)
    left, right = (random_axes(len(J), rng) for _ in range(2))
    S = left @ np.diag(np.geomspace(1, condition, len(J))) @ right
    return S @ J @ np.linalg.inv(S)


def symmetric(values, rng):
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    return symmetric_matrix(values, random_axes(len(values), rng))


def jordan(value, size):
    return value * np.eye(size) + np.diag(np.ones(size - 1), 1)


def turning(real, omega):
    return np.array([[real, -omega], [omega, real]])


def plain_velocity(layer, x, weights=None):
    """Σ_h P_x V_h m_h(x) by explicit loops over tokens: the reference for every fast path (THEORY eq. 1, 2)."""
    n = len(x)
    weights = np.full(n, 1 / n) if weights is None else weights
    velocity = np.zeros_like(x)
    for i in range(n):
        for head in layer:
            B, V, _, g = head.matrices
            logits = np.array([head.beta * (x[i] @ B @ x[j] + (0.0 if g is None else g @ x[j])) for j in range(n)])
            shares = weights * np.exp(logits - logits.max())
            mean = sum(shares[j] * x[j] for j in range(n)) / shares.sum()
            push = V @ mean
            velocity[i] += push - (x[i] @ push) * x[i]
    return velocity
