"""Limits of every kind of THEORY section 4, against long exact integration and closed forms."""

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.errors import BadArray, BadParameter, NoLimit
from frostline.theory.flow import at_clocks
from tests.problems import head_with, jordan, similar, symmetric, turning
from tests.tolerances import ROUNDING, SPECTRUM, ZERO_TEMPERATURE


@pytest.mark.parametrize(("d", "m"), [(2, 1), (3, 1), (3, 2), (8, 1), (8, 2), (8, 3), (32, 1), (32, 3)])
@pytest.mark.parametrize("normal", [True, False])
def test_points_and_subspaces_against_long_integration(rng, d, m, normal):
    values = np.concatenate([np.full(m, 0.7), rng.uniform(-1, 0.3, d - m)])
    A = symmetric(values, rng) if normal else similar([[[v]] for v in values], rng)
    head = head_with(A, rng)
    found = fl.limit(head)
    assert (found.kind, found.dimension) == ("points" if m == 1 else "subspace", m)
    assert found.leading == pytest.approx(0.7, abs=SPECTRUM)
    assert found.gap == pytest.approx(0.7 - values[m:].max(), abs=SPECTRUM)
    assert found.resolution > 1e6
    assert np.allclose(found.basis @ found.basis.T, np.eye(m), atol=ROUNDING)
    x0 = fl.sample.uniform(40, d, seed=1)
    assert np.abs(found(x0) - at_clocks(head, x0, [60 / found.gap])[0]).max() < ZERO_TEMPERATURE
    # In time t as well, through quadrature.
    path = fl.zero_temperature(head, x0, times=[60 / found.rate])
    assert np.abs(found(x0) - path.tokens[-1]).max() < ZERO_TEMPERATURE


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("d", [3, 6])
def test_defective_limit_is_reached_like_one_over_tau(rng, size, d):
    head = head_with(similar([jordan(0.4, size), np.diag(rng.uniform(-1, 0, d - size))], rng, condition=3.0), rng)
    found = fl.limit(head)
    assert (found.kind, found.dimension) == ("defective", 1)
    x0 = fl.sample.uniform(40, d, seed=2)
    clocks = np.array([300.0, 600.0])
    off = np.linalg.norm(at_clocks(head, x0, clocks) - found(x0), axis=2)
    near = off[0] < 0.05  # tokens whose N^{k−1}𝒫x is not tiny have begun to follow the law
    assert near.sum() > 20
    assert np.median(off[0, near] / off[1, near]) == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("d", [2, 3, 7])
def test_rotation_has_a_plane_and_a_period_and_no_limit(rng, d):
    A = similar([turning(0.5, 1.3), np.diag(rng.uniform(-1, 0.2, d - 2))], rng)
    head = head_with(A, rng)
    found = fl.limit(head)
    assert found.kind == "rotation" and found.leading == pytest.approx(0.5 + 1.3j, abs=SPECTRUM)
    assert np.linalg.norm(A @ found.plane.T - found.plane.T @ (found.plane @ A @ found.plane.T)) < SPECTRUM
    # After one period every token that has reached the plane is back where it was.
    x0 = fl.sample.uniform(10, d, seed=3)
    start = 40 / min(found.gap, 1.0) if d > 2 else 1.0
    path = fl.zero_temperature(head, x0, times=[start, start + found.period])
    with pytest.raises(NoLimit, match="rotation"):
        found(x0)
    assert np.abs(path.tokens[1] - path.tokens[0]).max() < 1e-8


@pytest.mark.parametrize(
    "blocks",
    [
        [turning(1.0, 2.0), [[1.0]], [[0.3]]],
        [turning(1.0, 2.0), turning(1.0, 0.5)],
        [np.block([[turning(1.0, 2.0), np.eye(2)], [np.zeros((2, 2)), turning(1.0, 2.0)]])],
    ],
)
def test_several_kinds_at_mu_are_mixed_and_refused(rng, blocks):
    found = fl.limit(head_with(similar(blocks, rng, condition=3.0), rng))
    assert found.kind == "mixed"
    with pytest.raises(NoLimit, match="mixed"):
        found(np.eye(4))


def test_only_differences_of_eigenvalues_matter(rng):
    """A → A + cI changes neither the map nor the gap, and negative leading eigenvalues are fine."""
    A = similar([[[0.9]], [[0.2]], [[-0.4]]], rng)
    x0 = fl.sample.uniform(30, 3, seed=4)
    maps = [fl.limit(head_with(A + c * np.eye(3), rng)) for c in (0.0, -3.0, 5.0)]
    for other in maps[1:]:
        assert np.allclose(maps[0](x0), other(x0), atol=SPECTRUM)
        assert other.gap == pytest.approx(maps[0].gap, abs=SPECTRUM)


def test_everything_at_mu_leaves_tokens_where_they_are(rng):
    found = fl.limit(head_with(-2.0 * np.eye(4), rng))
    x0 = fl.sample.uniform(9, 4, seed=5)
    assert (found.kind, found.dimension, found.gap) == ("subspace", 4, np.inf)
    assert np.allclose(found(x0), x0, atol=SPECTRUM)


def test_two_atoms_carry_the_masses_of_the_two_half_spheres(two_clusters):
    x0 = fl.sample.uniform(200, 3, seed=6)
    assert np.array_equal(fl.limit(two_clusters)(x0), np.sign(x0[:, :1]) * [[1.0, 0.0, 0.0]])


def test_tokens_without_a_limit_are_reported_not_moved(two_clusters):
    x0 = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0.6, 0.8], [-0.6, 0, 0.8]])
    found = fl.limit(two_clusters)
    assert found.undefined(x0).tolist() == [1, 2]
    assert np.isnan(found(x0)[[1, 2]]).all() and np.isfinite(found(x0)[[0, 3]]).all()
    assert found.undefined(np.stack([x0, x0])).tolist() == [[0, 1], [0, 2], [1, 1], [1, 2]]


def test_an_eigenvector_of_a_jordan_block_stays(rng):
    """N𝒫x = 0 but 𝒫x ≠ 0: the token still has a limit, the next power down."""
    head = fl.Attention.from_matrices(np.eye(3), [[1, 1, 0], [0, 1, 0], [0, 0, 0.2]], beta=1.0)
    found = fl.limit(head)
    assert np.allclose(found([[-1.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0]]), [[-1, 0, 0], [1, 0, 0], [-1, 0, 0]])
    assert found.undefined([[0, 0, 1.0]]).tolist() == [0]


@pytest.mark.parametrize(
    ("blocks", "kind", "dimension"),
    [
        ([jordan(1.0, 2), [[1.0]], [[0.3]]], "defective", 1),
        ([jordan(1.0, 4), [[0.3]]], "defective", 1),
        ([jordan(1.0, 2), jordan(1.0, 2), [[0.3]]], "defective", 2),
        ([[[1.0]], [[1.0]], [[1.0]], [[0.3]]], "subspace", 3),
    ],
)
def test_jordan_structure_survives_random_similarities(blocks, kind, dimension):
    for seed in range(30):
        rng = np.random.default_rng([3, seed])
        found = fl.limit(fl.Attention.from_matrices(np.eye(sum(map(len, blocks))), similar(blocks, rng), 1.0))
        assert (found.kind, found.dimension) == (kind, dimension)


@pytest.mark.parametrize(
    "A",
    [
        np.diag(np.arange(40.0, 0, -1)) + 40 * np.diag(np.ones(39), 1),
        np.diag(np.linspace(1, 0, 40)) + np.triu(np.random.default_rng(0).standard_normal((40, 40)), 1),
        np.diag(np.linspace(1, 0.5, 40)) + 0.3 * np.diag(np.ones(39), 1),
        np.triu(np.ones((30, 30)), 1) + np.diag(np.linspace(1, 0, 30)),
    ],
)
def test_spectra_beyond_float64_are_never_called_resolved(A):
    """Eigenvalues whose condition number exceeds 1/ε: whatever is answered, it says not to trust it."""
    found = fl.limit(fl.Attention.from_matrices(np.eye(len(A)), A, 1.0))
    assert found.resolution < 10 and found.gap >= 0 and "do not trust it" in found.describe()


def test_a_weak_jordan_block_is_still_one():
    head = fl.Attention.from_matrices(np.eye(3), [[1, 1e-6, 0], [0, 1, 0], [0, 0, 0.2]], beta=1.0)
    x0 = fl.sample.uniform(5, 3, seed=0)
    found = fl.limit(head)
    assert found.kind == "defective"
    assert np.abs(found(x0) - fl.zero_temperature(head, x0, times=[1e9]).tokens[-1]).max() < 0.05


@pytest.mark.parametrize("scale", [1e-300, 1e-154, 1e154, 1e300])
def test_the_scale_of_the_matrices_does_not_matter(scale):
    found = fl.limit(fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]) * scale, np.eye(3), beta=1.0))
    assert found.kind == "points" and found.gap == pytest.approx(0.5 * scale, rel=ROUNDING)


@pytest.mark.parametrize(("gap", "resolved"), [(1e-6, True), (1e-10, True), (1e-12, True), (1e-15, False)])
def test_symmetric_gaps_are_resolved_down_to_rounding(rng, gap, resolved):
    found = fl.limit(head_with(symmetric([1.0, 1.0 - gap, 0.3], rng), rng, B=np.eye(3)))
    assert found.dimension == (1 if resolved else 2)
    if resolved:
        assert found.gap == pytest.approx(gap, abs=2e-15)


def test_a_user_tolerance_merges_and_splits(rng):
    head = head_with(symmetric([1.0, 0.95, 0.3], rng), rng)
    assert fl.limit(head).dimension == 1
    merged = fl.limit(head, tolerance=0.1)
    assert merged.dimension == 2 and merged.gap == pytest.approx(0.675, abs=1e-9)
    for bad in (-0.1, 1.0, np.nan):
        with pytest.raises(BadParameter, match="tolerance"):
            fl.limit(head, tolerance=bad)


def test_float32_matrices_are_judged_by_float32_rounding(rng):
    A = symmetric([1.0, 1.0, 0.3], rng).astype(np.float32)
    found = fl.limit(fl.Attention.from_matrices(np.eye(3, dtype=np.float32), A, beta=1.0))
    assert (found.kind, found.dimension) == ("subspace", 2) and found.basis.dtype == np.float32


def test_mu_in_the_kernel_is_said_and_the_limit_still_given():
    """THEORY section 3: B = diag(1, .5, 0), V = −I; the limit exists in τ, t ends at 1.196 from (1,1,1)/√3."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), -np.eye(3), beta=1.0)
    found = fl.limit(head)
    assert found.in_kernel and "ker Bᵀ" in found.describe()
    assert np.allclose(found(np.ones((1, 3)) / np.sqrt(3)), [[0, 0, 1]])


def test_a_jordan_block_in_the_kernel_is_approached_for_ever():
    """z = (0.6 + 0.8τ, 0.8): |Bᵀx| falls like 1/τ only, so t ~ log τ has no end; t = asinh(0.75 + τ) − asinh(0.75)."""
    head = fl.Attention.from_matrices(np.diag([0.0, 1.0]), np.array([[0.0, 1.0], [0.0, 0.0]]), beta=1.0)
    found = fl.limit(head)
    assert found.in_kernel and found.kind == "defective"
    path = fl.zero_temperature(head, [[0.6, 0.8]], times=[0.0, 5.0, 15.0])
    assert np.isinf(path.ended).all()
    assert np.allclose(np.arcsinh(0.75 + path.clocks[1:, 0]) - np.arcsinh(0.75), [5, 15], rtol=1e-8)
    assert "finite times" not in found.describe() and "for ever" in found.describe()


def test_low_rank_heads_have_limits(rng):
    """k < d: A = (VKᵀ)Q has d − k zero eigenvalues; here QVKᵀ = diag(0.8, 0.3), so the limit is a pair of points."""
    Q, K = rng.standard_normal((2, 2, 6))
    V = np.linalg.pinv(Q) @ np.diag([0.8, 0.3]) @ np.linalg.pinv(K.T)
    head = fl.Attention(Q, K, V, 1.0)
    assert np.allclose(head.eigenvalues, [0.8, 0.3, 0, 0, 0, 0], atol=ROUNDING)
    found = fl.limit(head)
    x0 = fl.sample.uniform(20, 6, seed=7)
    assert (found.kind, found.in_kernel) == ("points", False) and found.gap == pytest.approx(0.5, abs=SPECTRUM)
    assert np.abs(found(x0) - at_clocks(head, x0, [50 / found.gap])[0]).max() < ZERO_TEMPERATURE
    # With a negative spectrum the kernel wins: μ = 0 has dimension d − k, and paths end in ker Bᵀ.
    down = fl.limit(fl.Attention(Q, K, -V, 1.0))
    assert (down.kind, down.dimension, down.in_kernel) == ("subspace", 4, True)


class TestNumerical:
    def test_one_plain_head_twice_is_the_closed_form(self, rng):
        """Two equal heads add up to one with 2V: the integrated limit must meet the exact one."""
        head = head_with(symmetric([1.0, 0.3, -0.2], rng), rng)
        x0 = fl.sample.uniform(20, 3, seed=8)
        found = fl.limit([[head, head]])
        assert found.kind == "numerical" and "integration" in found.describe()
        assert np.abs(found(x0) - fl.limit(head)(x0)).max() < 1e-6

    def test_limits_are_fixed_points_and_not_those_of_the_summed_matrices(self):
        """THEORY section 3: never sum the A_h; in a random two-head example that limit is some degrees off."""
        rng = np.random.default_rng(0)
        heads = [head_with(symmetric([1.0, 0.3, -0.2], rng), rng) for _ in range(2)]
        x0 = fl.sample.uniform(10, 3, seed=9)
        found = fl.limit([heads])(x0)
        assert np.isfinite(found).all()
        path = fl.zero_temperature([heads], found, times=[5.0])
        assert np.abs(path.tokens[-1] - found).max() < 1e-6
        summed = fl.limit(head_with(sum(head.A for head in heads), rng))(x0)
        angle = np.degrees(fl.sphere.geodesic(found, summed * np.sign((found * summed).sum(1, keepdims=True))))
        assert angle.min() > 0.5

    def test_a_key_bias_moves_the_limit(self, rng):
        plain = head_with(symmetric([1.0, 0.3, -0.2], rng), rng)
        biased = fl.Attention.from_matrices(plain.B, plain.V, 1.0, key_bias=[0.5, 0.0, 0.2])
        x0 = fl.sample.uniform(10, 3, seed=10)
        found = fl.limit(biased)
        assert found.kind == "numerical" and len(found.undefined(x0)) == 0
        assert np.abs(fl.zero_temperature(biased, found(x0), times=[3.0]).tokens[-1] - found(x0)).max() < 1e-6

    def test_tokens_that_never_rest_are_undefined(self):
        turn = fl.Attention.from_matrices(np.eye(2), turning(0.0, 1.0), 1.0, key_bias=[0.1, 0.0])
        assert fl.limit(turn).undefined([[1.0, 0.0]]).tolist() == [0]


def test_kinds_and_devices_come_back(two_clusters):
    x0 = torch.tensor([[0.6, 0.8, 0.0]], dtype=torch.float32)
    assert fl.limit(two_clusters)(x0).dtype == torch.float32


def test_bad_calls_get_a_sentence(two_clusters):
    with pytest.raises(BadArray, match="dimension 2, the head 3"):
        fl.limit(two_clusters)(np.eye(2))
    with pytest.raises(BadParameter, match="one layer"):
        fl.limit([two_clusters, two_clusters])
