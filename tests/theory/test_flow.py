"""The zero-temperature path against a high-order ODE solver, closed forms and its own invariances."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad, solve_ivp

import frostline as fl
from frostline.errors import BadArray, BadParameter
from frostline.theory.flow import at_clocks
from tests.problems import head_with, similar, symmetric, turning
from tests.tolerances import ROUNDING, ZERO_TEMPERATURE

TIMES = np.array([0.0, 0.3, 1.0, 4.0, 15.0])


def oracle(field, x0, times):
    """DOP853 at rtol 1e-13, one token at a time, on the velocity extended off the sphere."""

    def extended(_, x):
        x = x / np.linalg.norm(x)
        v = field(x)
        return v - (x @ v) * x

    paths = [
        solve_ivp(extended, (0, times[-1]), x, method="DOP853", rtol=1e-13, atol=1e-14, t_eval=times).y.T for x in x0
    ]
    return np.stack(paths, axis=1)


def zero_field(*heads):
    def field(x):
        total = 0.0
        for head in heads:
            B, V, _, g = head.matrices
            key = B.T @ x + (0.0 if g is None else g)
            total = total + V @ key / np.linalg.norm(key)
        return total

    return field


@pytest.mark.parametrize("d", [2, 3, 4, 6, 10, 16, 32, 64])
@pytest.mark.parametrize("shape", ["symmetric", "general", "low rank"])
@pytest.mark.parametrize("seed", [0, 1])
def test_path_agrees_with_a_high_order_solver(d, shape, seed):
    rng = np.random.default_rng([d, seed])
    if shape == "symmetric":
        head = head_with(symmetric(rng.uniform(-1, 1, d), rng), rng)
    elif shape == "general":
        head = fl.Attention.from_matrices(*rng.standard_normal((2, d, d)) / np.sqrt(d), beta=1.0)
    else:
        k = max(2, d // 2)
        head = fl.Attention(*rng.standard_normal((2, k, d)) / np.sqrt(d), rng.standard_normal((d, d)), 1.0)
    x0 = fl.sample.uniform(4, d, seed=rng)
    path = fl.zero_temperature(head, x0, times=TIMES)
    # Paths that run into ker Bᵀ have no successor for the solver to agree on; here none does.
    assert np.isinf(path.ended).all()
    assert np.abs(path.tokens - oracle(zero_field(head), x0, TIMES)).max() <= ZERO_TEMPERATURE


def test_stable_for_very_long_clocks(rng):
    """‖A‖τ in the thousands: no overflow, still on the sphere, at the limit."""
    head = head_with(similar([[[1.0]], [[0.5]], turning(0.2, 3.0)], rng), rng)
    x0 = fl.sample.uniform(20, 4, seed=0)
    path = fl.zero_temperature(head, x0, times=[0, 1e3, 1e4])
    assert path.clocks[-1].min() * np.linalg.norm(head.A, 2) > 5000
    assert np.abs(np.linalg.norm(path.tokens, axis=-1) - 1).max() < ROUNDING
    assert np.abs(path.tokens[-1] - fl.limit(head)(x0)).max() < ZERO_TEMPERATURE


def test_a_fast_rotation_stays_accurate_for_hundreds_of_turns():
    """d = 2, B = I, V a rotation: x turns with angular speed ω exactly, for ever."""
    omega = 7.0
    head = fl.Attention.from_matrices(np.eye(2), turning(0.3, omega), beta=1.0)
    t = np.array([0.0, 1.0, 300.0])
    path = fl.zero_temperature(head, [[1.0, 0.0]], times=t)
    assert np.abs(path.tokens[:, 0] - np.stack([np.cos(omega * t), np.sin(omega * t)], axis=1)).max() < ZERO_TEMPERATURE


def test_clock_and_time_agree_with_direct_quadrature(rng):
    """t(τ) = ∫|Bᵀx|dτ with scipy's adaptive quadrature on the closed form of x(τ)."""
    head = head_with(symmetric([1.0, 0.2, -0.5], rng), rng)
    x0 = fl.sample.uniform(3, 3, seed=1)
    path = fl.zero_temperature(head, x0, times=[2.5], tolerance=1e-12)
    for token, clock in zip(x0, path.clocks[0], strict=True):
        speed = lambda tau, token=token: np.linalg.norm(head.B.T @ at_clocks(head, token[None], [tau])[0, 0])  # noqa: E731
        assert quad(speed, 0, clock, epsabs=1e-12, epsrel=1e-12)[0] == pytest.approx(2.5, abs=1e-10)


def test_in_the_clock_the_path_is_the_matrix_exponential(rng):
    from scipy.linalg import expm

    A = similar([turning(0.5, 1.0), [[0.2]], [[-1.0]]], rng)
    x0 = fl.sample.uniform(8, 4, seed=2)
    for clock in (0.0, 1e-9, 0.7, 5.0):
        z = x0 @ expm(clock * A).T
        exact = z / np.linalg.norm(z, axis=1, keepdims=True)
        assert np.abs(at_clocks(head_with(A, rng), x0, [clock])[0] - exact).max() < 1e-11


def test_adding_a_multiple_of_the_identity_to_A_changes_nothing(rng):
    """THEORY section 3: paths are the same under A → A + cI (same B)."""
    A, B = similar([[[0.9]], turning(0.1, 1.0)], rng), symmetric([1.0, 0.7, 0.4], rng)
    x0 = fl.sample.uniform(12, 3, seed=3)
    plain, shifted = (fl.zero_temperature(head_with(A + c * np.eye(3), rng, B=B), x0, times=TIMES) for c in (0, -40.0))
    assert np.abs(plain.tokens - shifted.tokens).max() < 1e-10


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150])
def test_the_scale_of_B_only_changes_the_clock(scale):
    """B → sB leaves F as it is: the same path in t."""
    x0 = fl.sample.uniform(5, 3, seed=7)
    plain, scaled = (
        fl.zero_temperature(fl.Attention.from_matrices(np.diag([1, 0.5, 0.2]) * s, np.eye(3), 1.0), x0, times=TIMES)
        for s in (1.0, scale)
    )
    assert np.abs(plain.tokens - scaled.tokens).max() < ROUNDING


def test_fast_heads_are_integrated_as_well_as_slow_ones():
    """V → sV is time → time/s, also for the integrated flow."""
    x0, bias = fl.sample.uniform(50, 3, seed=8), [0.3, -0.2, 0.1]
    plain, fast = (
        fl.zero_temperature(
            fl.Attention.from_matrices(np.diag([1, 0.5, 0.2]), s * np.eye(3), 1.0, key_bias=bias),
            x0,
            times=[1 / s, 3 / s],
        )
        for s in (1.0, 1e8)
    )
    assert np.abs(plain.tokens - fast.tokens).max() < 1e-8


class TestKernel:
    def test_checked_example(self):
        """THEORY section 3: B = diag(1, .5, 0), V = −I, from (1,1,1)/√3 the path ends at t = 1.196."""
        head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), -np.eye(3), beta=1.0)
        path = fl.zero_temperature(head, np.ones((1, 3)) / np.sqrt(3), times=[0, 1, 1.2])
        z = lambda tau: np.exp(-tau * np.array([1.0, 0.5, 0.0]))  # noqa: E731
        speed = lambda tau: np.hypot(z(tau)[0], 0.5 * z(tau)[1]) / np.linalg.norm(z(tau))  # noqa: E731
        assert path.ended[0] == pytest.approx(quad(speed, 0, np.inf, epsabs=1e-12)[0], abs=1e-8)
        assert path.ended[0] == pytest.approx(1.196, abs=5e-4)
        assert np.isfinite(path.tokens[:2]).all() and np.isnan(path.tokens[2]).all()

    def test_a_path_towards_the_kernel_has_a_closed_form(self):
        """d = 2, B = e₁e₁ᵀ: Bᵀx = x₁e₁; V = a quarter turn drives x to x₁ = 0 at unit angular speed."""
        head = fl.Attention.from_matrices(np.diag([1.0, 0.0]), turning(0.0, 1.0), beta=1.0)
        start = np.array([[np.cos(0.4), np.sin(0.4)], [-np.cos(0.4), -np.sin(0.4)]])
        path = fl.zero_temperature(head, start, times=[0.5, 3.0])
        # ẋ = P_x V sign(x₁)e₁ = cos(angle)·(unit tangent): angle(t) reaches π/2 only as a limit, so check the angle.
        angle = 2 * np.arctan(np.tanh((0.5 + 2 * np.arctanh(np.tan(0.2))) / 2))
        assert np.abs(path.tokens[0, 0] - [np.cos(angle), np.sin(angle)]).max() < ZERO_TEMPERATURE

    def test_ker_B_is_met_only_as_the_clock_runs_for_ever(self, rng):
        """Bᵀe^{τA}x₀ = e^{τBᵀV}Bᵀx₀, which never vanishes: a path of rank one keeps its y*, however near it comes."""
        key, query = rng.standard_normal((2, 3))
        V = rng.standard_normal((3, 3))
        V = V * -np.sign(query @ V @ key)
        head = fl.Attention.from_matrices(np.outer(query, key), V, beta=1.0)
        x0 = fl.sample.uniform(50, 3, seed=3)
        side = np.sign(x0 @ query)
        for x in at_clocks(head, x0, [1.0, 10.0]):
            assert (np.sign(x @ query) == side).all()
        path = fl.zero_temperature(head, x0, times=np.linspace(0, 20, 41))
        assert np.isfinite(path.ended).all()
        # The clocks of the last times grow without bound: linearly in log(end − t), at the rate of A's eigenvalue.
        near = [1e-3, 1e-6]
        clocks = [fl.zero_temperature(head, x0[:1], times=[path.ended[0] - gap]).clocks[0, 0] for gap in near]
        rate = -float(query @ V @ key)
        assert (clocks[1] - clocks[0]) * rate == pytest.approx(np.log(near[0] / near[1]), rel=1e-2)

    def test_a_path_that_ends_is_found_with_its_time(self):
        """Rank one, B = e₁e₁ᵀ, V = e₂e₁ᵀ·s + …: choose V e₁ = −e₁ − e₂ so that tokens run into x₁ = 0."""
        V = np.array([[-1.0, 0.0], [-1.0, 0.0]])
        head = fl.Attention.from_matrices(np.diag([1.0, 0.0]), V, beta=1.0)
        start = np.array([[np.cos(0.3), np.sin(0.3)], [np.cos(-0.3), np.sin(-0.3)]])
        path = fl.zero_temperature(head, start, times=[0.1, 50.0])
        # Angle φ: φ' = ⟨(−sin φ, cos φ), (−1, −1)⟩ = sin φ − cos φ: falls to −π/2 in finite time when φ < π/4.
        speed = lambda phi: 1 / (np.cos(phi) - np.sin(phi))  # noqa: E731
        for token, phi in zip(path.ended, (0.3, -0.3), strict=True):
            assert token == pytest.approx(quad(speed, -np.pi / 2, phi)[0], abs=ZERO_TEMPERATURE)
        assert np.isnan(path.tokens[1]).all()

    def test_a_token_that_starts_in_the_kernel_ends_at_once(self):
        head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.0]), np.eye(3), beta=1.0)
        path = fl.zero_temperature(head, [[0.0, 0, 1], [0.6, 0, 0.8]], times=[0, 1])
        assert path.ended.tolist() == [0.0, np.inf]
        assert np.isfinite(path.tokens[:, 1]).all() and np.isnan(path.tokens[1, 0]).all()

    def test_a_near_miss_goes_on(self):
        """Passing ker Bᵀ at distance 1e-6 turns y* by almost 180° within τ ≈ 1e-6, smoothly."""
        V = np.array([[-1.0, 0, 0], [-1.0, 0, 0], [0, 1e-6, 0]])
        B = np.diag([1.0, 0.0, 1.0])
        head = fl.Attention.from_matrices(B, V, beta=1.0)
        x0 = fl.sphere.normalise([[np.cos(0.3), np.sin(0.3), 1e-6]])
        path = fl.zero_temperature(head, x0, times=TIMES)
        assert np.isinf(path.ended).all() and np.isfinite(path.tokens).all()


class TestSeveralHeads:
    @pytest.mark.parametrize("d", [2, 3, 16])
    def test_agrees_with_a_high_order_solver(self, d):
        rng = np.random.default_rng(d)
        heads = [
            fl.Attention.from_matrices(*rng.standard_normal((2, d, d)), 1.0, key_bias=bias)
            for bias in (None, rng.standard_normal(d))
        ]
        x0 = fl.sample.uniform(4, d, seed=rng)
        path = fl.zero_temperature([heads], x0, times=TIMES[:4])
        going = np.isinf(path.ended)
        assert path.method == "integrated" and path.clocks is None and going.any()
        exact = oracle(zero_field(*heads), x0[going], TIMES[:4])
        assert np.abs(path.tokens[:, going] - exact).max() <= ZERO_TEMPERATURE

    def test_a_plain_head_integrated_is_the_exact_path(self, rng):
        head = head_with(similar([[[1.0]], turning(0.3, 1.0)], rng), rng)
        halves = [fl.Attention.from_matrices(head.B, head.V / 2, 1.0) for _ in range(2)]
        x0 = fl.sample.uniform(10, 3, seed=4)
        exact, integrated = (fl.zero_temperature(h, x0, times=TIMES) for h in (head, [halves]))
        assert np.abs(exact.tokens - integrated.tokens).max() <= ZERO_TEMPERATURE

    def test_a_crossing_is_found_with_its_time(self):
        """The transversal crossing of TestKernel, as two half heads: the integrator must stop there too."""
        V = np.array([[-1.0, 0.0], [-1.0, 0.0]])
        half = fl.Attention.from_matrices(np.diag([1.0, 0.0]), V / 2, beta=1.0)
        path = fl.zero_temperature([[half, half]], [[np.cos(0.3), np.sin(0.3)]], times=[0.1, 50.0])
        assert path.ended[0] == pytest.approx(quad(lambda p: 1 / (np.cos(p) - np.sin(p)), -np.pi / 2, 0.3)[0], abs=1e-8)


def test_tighter_tolerance_is_honoured(rng):
    head = head_with(similar([[[1.0]], turning(0.3, 2.0)], rng), rng)
    x0 = fl.sample.uniform(5, 3, seed=5)
    best = fl.zero_temperature(head, x0, times=[5.0], tolerance=1e-13).tokens
    longest = 5.0 * np.linalg.norm(head.V, 2)  # no token can travel farther
    for tolerance in (1e-4, 1e-7, 1e-10):
        path = fl.zero_temperature(head, x0, times=[5.0], tolerance=tolerance)
        assert np.linalg.norm(path.tokens - best, axis=-1).max() <= tolerance * longest


def test_batches_kinds_and_beta(rng, two_clusters):
    x0 = torch.from_numpy(fl.sample.uniform(12, 3, seed=6)).reshape(3, 4, 3)
    path = fl.zero_temperature(two_clusters, x0, times=[0, 1])
    assert path.tokens.shape == (2, 3, 4, 3) and path.clocks.shape == (2, 3, 4) and path.ended.shape == (3, 4)
    flat = fl.zero_temperature(two_clusters.with_beta(1.0), x0.reshape(12, 3), times=[0, 1])
    assert torch.equal(path.tokens.reshape(2, 12, 3), flat.tokens)
    assert "exact in the clock" in repr(path)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"times": []}, BadParameter, "times"),
        ({"times": [2, 1]}, BadParameter, "ascending"),
        ({"times": [-1, 1]}, BadParameter, "times"),
        ({"times": [np.nan]}, BadParameter, "times"),
        ({"times": [1], "tolerance": 1e-20}, BadParameter, "tolerance"),
        ({"times": [1], "tolerance": np.nan}, BadParameter, "tolerance"),
    ],
)
def test_bad_calls_get_a_sentence(two_clusters, keywords, error, words):
    with pytest.raises(error, match=words):
        fl.zero_temperature(two_clusters, np.eye(3), **keywords)


def test_shapes_must_fit(two_clusters):
    with pytest.raises(BadArray, match="dimension 2, the head 3"):
        fl.zero_temperature(two_clusters, np.eye(2), times=[1])
    with pytest.raises(BadParameter, match="no clock"):
        at_clocks([[two_clusters, two_clusters]], np.eye(3), [1.0])


def test_a_path_that_nears_the_kernel_for_ever_ends_where_rounding_stops_it():
    """The leading eigenvalue belongs to ker Bᵀ, far from orthogonally: |Bᵀx| stays above ε‖B‖ by rounding alone."""
    rng = np.random.default_rng([17, 3, 11])
    d, k = int(rng.choice([2, 3, 4, 5, 8, 16, 24, 32, 48, 64])), int(rng.integers(1, 6))
    head = fl.Attention(*rng.standard_normal((2, k, d)) / np.sqrt(d), rng.standard_normal((d, d)), 1.0)
    path = fl.zero_temperature(head, fl.sample.uniform(3, d, seed=rng), times=[0.0, 30.0])
    assert (d, k) == (5, 2) and (path.ended < 5).all() and np.isnan(path.tokens[1]).all()
