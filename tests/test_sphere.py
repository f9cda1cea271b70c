import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline import sphere
from frostline.errors import BadArray, OffSphere
from tests.tolerances import ROUNDING


@given(st.integers(2, 9), st.integers(1, 20), st.floats(1e-200, 1e200), st.integers(0, 2**31))
def test_normalise_gives_unit_vectors_of_the_same_direction_at_any_scale(d, n, scale, seed):
    x = np.random.default_rng(seed).standard_normal((n, d)) * scale
    u = sphere.normalise(x)
    assert np.allclose(np.linalg.norm(u, axis=1), 1, atol=ROUNDING)
    assert np.allclose(u * np.linalg.norm(x / scale, axis=1, keepdims=True), x / scale, atol=1e-10)


def test_tangent_is_an_orthogonal_projection(rng):
    x, v = sphere.normalise(rng.standard_normal((50, 6))), rng.standard_normal((50, 6))
    projected = sphere.tangent(x, v)
    assert np.abs((projected * x).sum(1)).max() < ROUNDING
    assert np.allclose(sphere.tangent(x, projected), projected, atol=ROUNDING)


def test_retract_stays_on_the_sphere_and_is_first_order(rng):
    x = sphere.normalise(rng.standard_normal((50, 4)))
    v = sphere.tangent(x, rng.standard_normal((50, 4)))
    assert np.allclose(np.linalg.norm(sphere.retract(x, v), axis=1), 1, atol=ROUNDING)
    assert np.linalg.norm(sphere.retract(x, 1e-6 * v) - (x + 1e-6 * v), axis=1).max() < 1e-10


@pytest.mark.parametrize("angle", [1e-12, 1e-6, 1.0, np.pi / 2, np.pi - 1e-6, np.pi - 1e-12])
def test_geodesic_is_accurate_at_both_ends(angle):
    x, y = np.array([[1.0, 0.0]]), np.array([[np.cos(angle), np.sin(angle)]])
    assert sphere.geodesic(x, y)[0] == pytest.approx(angle, abs=1e-15 * 4, rel=1e-3 if angle < 1e-10 else 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kinds_come_back_as_they_went_in(dtype):
    x = np.ones((3, 2), dtype=dtype)
    assert sphere.normalise(x).dtype == dtype
    tensor = sphere.normalise(torch.from_numpy(x))
    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.from_numpy(x).dtype
    assert sphere.normalise([[1, 1]]).dtype == np.float64


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ([[0.0, 0.0]], BadArray, "zero"),
        ([[1.0, np.nan]], BadArray, "NaN"),
        ([[1.0, np.inf]], BadArray, "infinite"),
        ([["a", "b"]], BadArray, "real numbers"),
        ([[1.0], [1.0, 2.0]], BadArray, "real numbers"),
        (np.ones((2, 2), dtype=complex), BadArray, "complex"),
        (np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2)), BadArray, "masked"),
        ([[1 + 5j, 0.0]], BadArray, "complex"),
        ([], BadArray, "empty"),
        (np.ones((2, 2), dtype=np.float16), BadArray, "float16"),
    ],
)
def test_bad_vectors_get_a_sentence(bad, error, words):
    with pytest.raises(error, match=words):
        sphere.normalise(bad)


def test_tokens_off_the_sphere_are_refused_with_how_much_and_a_way_out():
    with pytest.raises(OffSphere, match=r"1 of 2 tokens are off the unit sphere, by up to 0.5; pass .*normalise"):
        sphere.as_tokens(np.array([[1.0, 0.0], [1.5, 0.0]]))


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0)])
def test_tokens_of_no_shape_are_refused(shape):
    with pytest.raises(BadArray, match="rows"):
        sphere.as_tokens(np.zeros(shape))


def test_dimension_one_is_refused():
    with pytest.raises(BadArray, match="d = 1"):
        sphere.as_tokens(np.ones((4, 1)))
