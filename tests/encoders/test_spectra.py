"""Spectra from factors against the same from d×d matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.auditing import weights
from frostline.encoders.fold import folded
from frostline.encoders.load import load
from frostline.encoders.spectra import Factors, effective_rank, spectra, triangle
from tests.encoders import tiny


def dense(given_, h):
    B = given_.query[h].T @ given_.key[h]
    V = given_.output[h] @ given_.value[h]
    return B, V, V @ B.T


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(7, 14))
def test_all_numbers_against_the_matrices(seed, k, d):
    heads = Factors.drawn(3, k, d, np.random.default_rng(seed))
    found = spectra(heads)
    for h in range(3):
        B, V, A = dense(heads, h)
        sizes = np.linalg.svd(B, compute_uv=False)
        assert found.beta[h] == pytest.approx(sizes[0])
        assert found.logit_rank[h] == pytest.approx(effective_rank(sizes[:k]), rel=1e-6)
        assert found.logit_stable_rank[h] == pytest.approx((sizes**2).sum() / sizes[0] ** 2)
        assert found.value_norm[h] == pytest.approx(np.linalg.norm(V, 2))
        norm = np.linalg.norm(A)
        symmetric = np.linalg.norm((A + A.T) / 2) ** 2 / norm**2
        assert found.symmetric_share[h] == pytest.approx(symmetric)
        assert found.asymmetry[h] == pytest.approx(np.linalg.norm(A - A.T) / 2 / norm, abs=1e-6)
        values = np.linalg.eigvals(A)
        henrici = np.sqrt(max(0.0, 1 - (np.abs(values) ** 2).sum() / norm**2))
        assert found.non_normality[h] == pytest.approx(henrici, abs=1e-5)
        largest = np.sort(np.abs(values))[-k:] / np.linalg.norm(A, 2)
        assert np.allclose(np.sort(np.abs(found.eigenvalues[h])), largest, atol=1e-6)


@given(st.integers(0, 10_000))
def test_kinds_and_rates_are_those_of_limit(seed):
    """What leads, how far ahead, and how fast, against ``fl.limit`` of the same head."""
    heads = Factors.drawn(4, 4, 9, np.random.default_rng(seed))
    found = spectra(heads)
    for h in range(4):
        B, V, A = dense(heads, h)
        limit = fl.limit(fl.Attention.from_matrices(B, V, 1.0))
        if found.kind[h] == "kernel":
            # Ahead of the kernel by less than rounding of float32 weights could make of it.
            assert np.linalg.eigvals(A).real.max() < 0.01 * np.linalg.norm(A, 2)
            continue
        assert limit.kind == found.kind[h]
        assert found.gap[h] * np.linalg.norm(A, 2) == pytest.approx(limit.gap, rel=1e-5)
        if found.kind[h] == "points":
            assert abs(found.leading[h][:, 0] @ limit.basis[0]) == pytest.approx(1, abs=1e-6)
            assert found.rate[h] == pytest.approx(limit.gap / np.linalg.norm(B.T @ limit.basis[0]), rel=1e-5)


def planted(A):
    """Factors with B = I and V = A, as a head of full size."""
    d = len(A)
    eye = np.eye(d)[None]
    return Factors(eye, eye, np.asarray(A, dtype=float)[None], eye, 1.0)


@pytest.mark.parametrize(
    ("A", "kind"),
    [
        (np.diag([1.0, 0.5, 0.2]), "points"),
        (np.diag([1.0, 1.0, 0.2]), "subspace"),
        (np.array([[1.0, 0.5, 0], [-0.5, 1.0, 0], [0, 0, 0.3]]), "rotation"),
        (np.array([[1.0, 0.5, 0], [-0.5, 1.0, 0], [0, 0, 1.0]]), "mixed"),
        (np.array([[1.0, 1.0, 0], [0, 1.0, 0], [0, 0, 0.3]]), "defective"),
    ],
)
def test_planted_kinds(A, kind):
    assert spectra(planted(A)).kind == (kind,)


def test_a_head_that_only_pushes_away_has_the_kernel_in_the_lead():
    rng = np.random.default_rng(0)
    frame = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    heads = Factors(frame.T[None], frame.T[None], frame.T[None], -frame[None], 1.0)
    found = spectra(heads)
    assert found.kind == ("kernel",) and np.isnan(found.rate[0]) and found.leading[0].shape == (6, 0)


def test_effective_rank():
    assert effective_rank(np.ones(7)) == pytest.approx(7)
    assert effective_rank(np.array([3.0, 0.0, 0.0])) == pytest.approx(1)


def test_triangles_are_as_good_as_an_orthogonal_decomposition():
    """Lengths through the Gram matrix, to 1e-8 of the largest singular value times the vector; any conditioning."""
    rng = np.random.default_rng(0)
    sizes = np.stack([np.logspace(0, -exponent, 8) for exponent in (0, 1, 2, 3, 4, 6, 8, 12, 15)] + [np.zeros(8)])
    left = np.linalg.qr(rng.standard_normal((10, 40, 8)))[0]
    right = np.linalg.qr(rng.standard_normal((10, 8, 8)))[0]
    matrix = left * sizes[:, None, :] @ right
    for each in (matrix, *matrix[:, None]):  # together, where zeros make the Gram matrix fail, and one by one
        R = triangle(each)
        own, exact = (np.linalg.svd(x, compute_uv=False) for x in (R, each))
        assert np.allclose(own, exact, rtol=1e-7, atol=1e-15)


def test_numbers_of_a_whole_layer():
    """Score and rank of the value path, computed in single precision, against plain double: to 1e-5."""
    encoder = load(tiny.model("BERT"))
    layers = [folded(encoder, number) for number in range(3)]
    found = weights.read(encoder, layers, seed=0)
    for number, layer in enumerate(layers):
        W = encoder.weight(encoder.family.query, number).T @ encoder.weight(encoder.family.key, number)
        symmetric = (W + W.T) / 2
        score = 2 * np.linalg.norm(symmetric) ** 2 / np.linalg.norm(W) ** 2 - 1
        assert found.score[number] == pytest.approx(score, abs=1e-5)
        centred = layer.output - layer.output.mean(1, keepdims=True)
        V = sum(one @ other for one, other in zip(centred, layer.value, strict=True))
        assert found.path_rank[number] == pytest.approx(effective_rank(np.linalg.svd(V, compute_uv=False)), rel=1e-4)
