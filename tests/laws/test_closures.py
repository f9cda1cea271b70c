"""Laws of the closure: order of tokens, rotations, halved atoms, and bounds of what it returns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.experiments.random_heads import random_axes
from tests.tolerances import LARGE_LOGITS

problems = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "d": st.integers(2, 6),
        "count": st.integers(3, 40),
        "atoms": st.integers(0, 3),
        "beta": st.floats(1e-3, 1e3),
        "keep": st.booleans(),
        "bias": st.booleans(),
    }
)


def problem(seed, d, count, atoms, beta, keep, bias):
    rng = np.random.default_rng(seed)
    B, V = rng.standard_normal((2, d, d))
    g = rng.standard_normal(d) if bias else None
    tokens, places = rng.standard_normal((count, d)) / 2, rng.standard_normal((atoms, d)) / 2
    return rng, B, V, g, tokens, places, rng.uniform(0.5, 3.0, atoms), fl.sample.uniform(3, d, seed=rng)


def law(B, V, g, beta, x, cloud):
    return fl.closure(fl.Attention.from_matrices(B, V, beta, key_bias=g), x, cloud)


@given(problems)
def test_tokens_and_atoms_in_another_order(given):
    rng, B, V, g, tokens, atoms, weights, x = problem(**given)
    order = rng.permutation(len(atoms))
    one = law(B, V, g, given["beta"], x, fl.Cloud.of(tokens, atoms, weights, keep=given["keep"]))
    shuffled = fl.Cloud.of(rng.permutation(tokens), atoms[order], weights[order], keep=given["keep"])
    other = law(B, V, g, given["beta"], x, shuffled)
    assert np.allclose(one.mean, other.mean, atol=LARGE_LOGITS)
    assert np.allclose(one.log_mass, other.log_mass, rtol=LARGE_LOGITS, atol=LARGE_LOGITS)
    assert np.allclose(one.atom_shares[:, order], other.atom_shares, atol=LARGE_LOGITS)


@given(problems)
def test_rotations(given):
    """x → Rx, y → Ry, B → RBRᵀ, g → Rg: the mean turns, everything else stays."""
    rng, B, V, g, tokens, atoms, weights, x = problem(**given)
    R = random_axes(given["d"], rng)
    one = law(B, V, g, given["beta"], x, fl.Cloud.of(tokens, atoms, weights, keep=given["keep"]))
    turned = fl.Cloud.of(tokens @ R.T, atoms @ R.T, weights, keep=given["keep"])
    bias = None if g is None else R @ g
    other = law(R @ B @ R.T, R @ V @ R.T, bias, given["beta"], fl.sphere.normalise(x @ R.T), turned)
    assert np.allclose(one.mean @ R.T, other.mean, atol=LARGE_LOGITS)
    for name in ("log_mass", "cloud_share", "best_share", "sigma", "participation"):
        assert np.allclose(getattr(one, name), getattr(other, name), rtol=LARGE_LOGITS, atol=LARGE_LOGITS), name


@given(problems.filter(lambda given: given["atoms"] > 0))
def test_an_atom_split_into_two_of_half_its_weight(given):
    _, B, V, g, tokens, atoms, weights, x = problem(**given)
    one = law(B, V, g, given["beta"], x, fl.Cloud.of(tokens, atoms, weights, keep=given["keep"]))
    halves = fl.Cloud.of(
        tokens, np.vstack([atoms, atoms[:1]]), np.append(np.r_[weights[0] / 2, weights[1:]], weights[0] / 2),
        keep=given["keep"],
    )  # fmt: skip
    other = law(B, V, g, given["beta"], x, halves)
    assert np.allclose(one.mean, other.mean, atol=LARGE_LOGITS)
    assert np.allclose(one.log_mass, other.log_mass, rtol=LARGE_LOGITS, atol=LARGE_LOGITS)
    assert np.allclose(one.error, other.error, rtol=1e-6, atol=LARGE_LOGITS)
    assert np.allclose(one.atom_shares[:, 0], other.atom_shares[:, 0] + other.atom_shares[:, -1], atol=LARGE_LOGITS)


@given(problems)
def test_shares_are_shares(given):
    _, B, V, g, tokens, atoms, weights, x = problem(**given)
    got = law(B, V, g, given["beta"], x, fl.Cloud.of(tokens, atoms, weights, keep=given["keep"]))
    total = got.atom_shares.sum(1) + got.best_share + got.cloud_share
    assert np.allclose(total, 1, atol=LARGE_LOGITS) and (got.cloud_share >= 0).all()
    assert ((got.participation > 0) & (got.participation <= 1 + LARGE_LOGITS)).all()
    assert np.isfinite(got.mean).all() and np.isfinite(got.error).all() and (got.error >= 0).all()
