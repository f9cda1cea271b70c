import numpy as np
import pytest
import torch

import frostline as fl
from frostline.attention import as_layers, as_one_layer
from frostline.errors import BadArray, BadParameter
from tests.tolerances import ROUNDING, SPECTRUM


def make(rng, k, d, factored=False, bias=False, beta=3.0):
    Q, K = rng.standard_normal((2, k, d))
    V = (
        fl.Factored(rng.standard_normal((d, 2)), rng.standard_normal((2, d)))
        if factored
        else rng.standard_normal((d, d))
    )
    return fl.Attention(Q, K, V, beta, key_bias=rng.standard_normal(d) if bias else None), Q, K, V


@pytest.mark.parametrize(("k", "d"), [(1, 2), (2, 5), (5, 5), (7, 5)])
@pytest.mark.parametrize("factored", [False, True])
def test_products_and_spectra_agree_with_dense_algebra(rng, k, d, factored):
    head, Q, K, V = make(rng, k, d, factored)
    dense = V.left @ V.right if factored else V
    assert np.allclose(head.B, Q.T @ K, atol=ROUNDING)
    assert np.allclose(head.A, dense @ K.T @ Q, atol=ROUNDING)
    assert np.allclose(head.V, dense, atol=ROUNDING)
    assert np.allclose(head.singular_values, np.linalg.svd(Q.T @ K, compute_uv=False), atol=SPECTRUM)
    reference = np.linalg.eigvals(head.A)
    for value in head.eigenvalues:
        assert np.abs(reference - value).min() < 1e-6  # zero is defective when A is rank-deficient: √ε
    assert (np.diff(head.eigenvalues.real) <= 0).all()


def test_factors_are_applied_as_factors(rng):
    head, Q, K, V = make(rng, 2, 6, factored=True, bias=True)
    x = torch.from_numpy(rng.standard_normal((9, 6)))
    assert np.allclose(head.logit_direction(x), x.numpy() @ Q.T @ K + head.key_bias, atol=ROUNDING)
    assert np.allclose(head.apply_value(x), x.numpy() @ (V.left @ V.right).T, atol=ROUNDING)


def test_kind_and_dtype_survive():
    head = fl.Attention(torch.eye(3), torch.eye(3), torch.eye(3), 1.0)
    assert isinstance(head.A, torch.Tensor) and head.A.dtype == torch.float32
    assert fl.Attention.from_matrices([[1, 0], [0, 1]], [[1, 0], [0, 1]], 1).A.dtype == np.float64


def test_the_caller_cannot_change_a_head_afterwards():
    B = np.eye(2)
    head = fl.Attention.from_matrices(B, np.eye(2), 1.0)
    B[0, 0] = 7.0
    head.B[1, 1] = 7.0
    assert np.array_equal(head.B, np.eye(2))


def test_with_beta_changes_only_beta(rng):
    head, *_ = make(rng, 2, 4, factored=True, bias=True)
    colder = head.with_beta(50.0)
    assert colder.beta == 50.0 and np.array_equal(colder.A, head.A) and np.array_equal(colder.key_bias, head.key_bias)


def test_lists_are_layers_and_nested_lists_are_heads(rng):
    head, *_ = make(rng, 2, 4)
    assert as_layers(head) == ((head,),)
    assert as_layers([head, head]) == ((head,), (head,))
    assert as_layers([[head, head]]) == ((head, head),)
    with pytest.raises(BadParameter, match="takes one layer, this stack has 2"):
        as_one_layer([head, head], "limit")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((np.eye(3), np.eye(2), np.eye(3), 1), BadArray, r"query has shape \(3, 3\), key \(2, 2\)"),
        ((np.eye(3), np.eye(3), np.eye(2), 1), BadArray, "value has shape"),
        ((np.eye(3), np.eye(3), np.eye(3), 0), BadParameter, "beta is 0"),
        ((np.eye(3), np.eye(3), np.eye(3), -2), BadParameter, "beta is -2"),
        ((np.eye(3), np.eye(3), np.eye(3), np.nan), BadParameter, "beta is nan"),
        ((np.eye(3), np.eye(3), np.eye(3), np.inf), BadParameter, "beta is inf"),
        ((np.eye(3) * np.nan, np.eye(3), np.eye(3), 1), BadArray, "query has 9 NaN"),
        ((np.ones(3), np.ones(3), np.eye(3), 1), BadArray, "matrix"),
        ((np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)), 1), BadArray, "d = 1"),
        ((np.eye(3), np.eye(3, dtype=np.float32), np.eye(3), 1), BadArray, "dtype"),
    ],
)
def test_bad_matrices_get_a_sentence(arguments, error, words):
    with pytest.raises(error, match=words):
        fl.Attention(*arguments)


def test_bad_stacks_get_a_sentence(rng):
    two, three = make(rng, 2, 2)[0], make(rng, 2, 3)[0]
    for bad, words in (
        ([], "non-empty"),
        ([two, three], "dimensions"),
        ([[]], "non-empty"),
        ([two, "x"], "Attention"),
    ):
        with pytest.raises(BadArray, match=words):
            as_layers(bad)
    with pytest.raises(BadArray, match="square"):
        fl.Attention.from_matrices(np.ones((2, 3)), np.eye(3), 1)
    with pytest.raises(BadArray, match="key_bias"):
        fl.Attention.from_matrices(np.eye(3), np.eye(3), 1, key_bias=[1, 2])
