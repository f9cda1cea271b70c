"""Random runs to certify, shared by the fast and the slow tests."""

import numpy as np

import frostline as fl
from tests.problems import symmetric


def random_head(rng, *, even):
    """‖B‖ = ‖V‖ = 1, d = 2…6, β = 1…10⁴; A = VBᵀ symmetric or not."""
    d, beta = int(rng.integers(2, 7)), 10 ** rng.uniform(0, 4)
    B, V = rng.standard_normal((2, d, d))
    if even:
        V = symmetric(rng.uniform(-1, 1, d), rng) @ np.linalg.inv(B).T
    return fl.Attention.from_matrices(B / np.linalg.norm(B, 2), V / np.linalg.norm(V, 2), beta)


def random_run(rng, *, even, stepper, n=100, until=1.0, save_at=(0.5, 1.0)):
    head = random_head(rng, even=even)
    x0 = fl.sample.uniform(n, head.dimension, seed=rng)
    return fl.simulate(head, x0, until=until, stepper=stepper, save_at=save_at)


def true_targets(run, target):
    """(k, n, d): where each token of the run should be, at each kept time."""
    head, x0 = run.layers[0][0], run.initial
    if target == "limit":
        return np.broadcast_to(fl.limit(head)(x0), run.tokens.shape)
    return fl.zero_temperature(head, x0, times=run.times).tokens
