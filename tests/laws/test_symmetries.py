"""What must hold for every head, every cloud and every stepper."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.theory.flow import at_clocks

problems = st.tuples(st.integers(2, 6), st.integers(1, 15), st.floats(0.01, 1e3), st.integers(0, 2**31))
methods = st.sampled_from([fl.Euler(0.1), fl.RK4(0.25)])
# Rounding grows along a path by the flow's own stretching; over t = 1 with ‖V‖ ~ 1 and β ≤ 1e3 that is ≤ e^{β·…}
# only near ties, which a random cloud avoids; 1e-7 leaves room for them.
CLOSE = 1e-7


def draw(problem):
    d, n, beta, seed = problem
    rng = np.random.default_rng(seed)
    B, V = rng.standard_normal((2, d, d)) / np.sqrt(d)
    g = rng.standard_normal(d) / d if seed % 2 else None
    return rng, B, V, g, fl.sample.uniform(n, d, seed=rng), rng.dirichlet(np.ones(n)), beta


def run(B, V, g, beta, x, w, method):
    return fl.simulate(
        fl.Attention.from_matrices(B, V, beta, key_bias=g), x, weights=w, until=0.5, stepper=method
    ).tokens[-1]


@given(problems, methods)
def test_rotation_equivariance(problem, method):
    """Rotate tokens and matrices together: the run rotates."""
    rng, B, V, g, x, w, beta = draw(problem)
    R = np.linalg.qr(rng.standard_normal(B.shape))[0]
    turned = run(R @ B @ R.T, R @ V @ R.T, None if g is None else R @ g, beta, fl.sphere.normalise(x @ R.T), w, method)
    assert np.abs(turned - run(B, V, g, beta, x, w, method) @ R.T).max() < CLOSE


@given(problems, methods)
def test_permutation_equivariance(problem, method):
    rng, B, V, g, x, w, beta = draw(problem)
    order = rng.permutation(len(x))
    assert (
        np.abs(run(B, V, g, beta, x[order], w[order], method) - run(B, V, g, beta, x, w, method)[order]).max() < CLOSE
    )


@given(problems, methods, st.floats(0.05, 0.95))
def test_a_token_of_weight_w_is_two_of_its_parts(problem, method, part):
    """One token alone is cut in two, unevenly: if all were, no weights and their squares would pass as well."""
    _, B, V, g, x, w, beta = draw(problem)
    cut = np.concatenate([[part * w[0]], w[1:], [(1 - part) * w[0]]])
    split = run(B, V, g, beta, np.concatenate([x, x[:1]]), cut, method)
    whole = run(B, V, g, beta, x, w, method)
    assert np.abs(split[: len(x)] - whole).max() < CLOSE and np.abs(split[len(x) :] - whole[:1]).max() < CLOSE


@given(problems)
def test_beta_and_B_enter_only_through_their_product(problem):
    _, B, V, g, x, w, beta = draw(problem)
    scaled = run(2 * B, V, None if g is None else 2 * g, beta / 2, x, w, fl.RK4(0.25))
    assert np.abs(scaled - run(B, V, g, beta, x, w, fl.RK4(0.25))).max() < CLOSE


@given(problems)
def test_zero_temperature_is_rotation_equivariant_and_a_semigroup(problem):
    rng, B, V, _, x, _, _ = draw(problem)
    head = fl.Attention.from_matrices(B, V, 1.0)
    R = np.linalg.qr(rng.standard_normal(B.shape))[0]
    turned = fl.Attention.from_matrices(R @ B @ R.T, R @ V @ R.T, 1.0)
    y = fl.sphere.normalise(x @ R.T)
    assert np.abs(at_clocks(turned, y, [2.0])[0] - at_clocks(head, x, [2.0])[0] @ R.T).max() < CLOSE
    twice = at_clocks(head, at_clocks(head, x, [0.7])[0], [1.3])[0]
    assert np.abs(twice - at_clocks(head, x, [2.0])[0]).max() < CLOSE
