"""The mean field on the circle, against plain sums, weighted tokens, closed forms at t = 0 and at zero temperature."""

import numpy as np
import pytest
from scipy.special import i1e, ive

import frostline as fl
from frostline.dynamics.circle_mean_field import circle_mean_field
from frostline.dynamics.label_panels import NODES, Panels
from frostline.dynamics.panel_sums import panel_sums
from frostline.errors import BadArray, BadParameter

B, V = np.diag([1.0, 0.5]), np.diag([1.0, 1.5])
TILT = np.array([0.0, 0.48])


def head_at(beta, v=V):
    return fl.Attention.from_matrices(B, v, beta)


def even(x):
    return x @ TILT


def uniform(x):
    return 0 * x[:, 0]


def states(beta, until, density=even, v=V, **options):
    return list(circle_mean_field(head_at(beta, v), density, until=until, **options))


def on_circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize("kappa", [0.3, 40.0, 3e4])
@pytest.mark.parametrize("mirrored", [False, True])
def test_sums_are_those_of_plain_loops(kappa, mirrored):
    rng = np.random.default_rng(5)
    low, high = (-np.pi / 2, np.pi / 2) if mirrored else (-np.pi, np.pi)
    angles = np.sort(rng.uniform(low, high, 40 * NODES))
    # A gap wider than half the circle, and masses that differ by e^{60}.
    angles[: 4 * NODES] = np.sort(rng.uniform(low, low + 0.01, 4 * NODES))
    weights = np.exp(rng.uniform(-60, 0, len(angles)))
    weights /= weights.sum()
    y = on_circle(angles)
    p = kappa * rng.uniform(0.5, 1.0, 60)[:, None] * on_circle(rng.uniform(low, high, 60))
    p[0] = [1e-13, kappa]
    means, exponents = panel_sums(p, y, angles, weights, mirrored=mirrored)
    sources, masses = (np.vstack([y, y * [-1, 1]]), np.r_[weights, weights]) if mirrored else (y, weights)
    logits = p @ sources.T + np.log(masses)
    top = logits.max(1, keepdims=True)
    parts = np.exp(logits - top)
    np.testing.assert_allclose(means[1:], ((parts @ sources) / parts.sum(1, keepdims=True))[1:], atol=3e-11)
    lengths = np.linalg.norm(p, axis=1)
    np.testing.assert_allclose(exponents, lengths - top[:, 0] - np.log(parts.sum(1)), atol=1e-10)
    if mirrored:
        # An odd component that the plain sum loses: to first order in p₁ it is p₁⟨y₁²⟩.
        row = 2 * weights * np.exp(p[0, 1] * (y[:, 1] - 1))
        assert means[0, 0] / p[0, 0] == pytest.approx(2 * (row @ y[:, 0] ** 2) / (2 * row.sum()), rel=1e-10)


def test_panels_split_and_join_without_changing_a_polynomial():
    panels = Panels.uniform(-1.0, 1.0, 4)
    cubic = panels.with_values(panels.labels() ** 3 + 5 * panels.labels())
    halves = cubic.split(np.array([True, False, True, True]))
    assert len(halves.edges) == 7
    np.testing.assert_allclose(halves.values, halves.labels() ** 3 + 5 * halves.labels(), atol=1e-13)
    np.testing.assert_allclose(halves.slopes(), 3 * halves.labels() ** 2 + 5, atol=1e-11)
    joined = halves.join(lambda panels, error: error < 1e-12)
    np.testing.assert_allclose(joined.edges, cubic.edges)
    np.testing.assert_allclose(joined.values, cubic.values, atol=1e-13)
    # A function with a kink is not joined over it.
    kink = halves.with_values(halves.labels() + np.abs(halves.labels() + 0.75))
    assert len(kink.join(lambda panels, error: error < 1e-3).edges) == len(halves.edges) - 2


def test_at_the_start_a_uniform_density_has_its_bessel_functions():
    (first, *_) = states(300.0, 0.05, uniform, mirrored=True)
    kappa = 300 * np.linalg.norm(first.tokens @ B, axis=1)
    np.testing.assert_allclose(first.exponents, -np.log(ive(0, kappa)), atol=1e-9)
    np.testing.assert_allclose(first.log_density, -np.log(2 * np.pi), atol=1e-9)
    # ẋ = P_x m with m = I₁/I₀·u, V = diag(1, 1.5).
    m = (i1e(kappa) / ive(0, kappa) / (kappa / 300))[:, None] * (first.tokens @ B)
    x, push = first.tokens, m @ V.T
    np.testing.assert_allclose(-first.velocity, x[:, 0] * push[:, 1] - x[:, 1] * push[:, 0], atol=1e-9)


def test_the_quadrature_converges_far_faster_than_its_nodes_grow():
    def error(spacing):
        (first, *_) = states(1000.0, 0.05, uniform, spacing=spacing)
        kappa = 1000 * np.linalg.norm(first.tokens @ B, axis=1)
        return np.abs(first.exponents + np.log(ive(0, kappa))).max()

    errors = [error(spacing) for spacing in (2.0, 1.0, 0.5)]
    # Eight Gauss nodes a panel: order 16 before rounding.
    assert errors[1] < errors[0] / 100 and errors[2] < 1e-8


def test_it_follows_many_weighted_tokens():
    """400 equispaced weighted nodes at β = 30, while neighbours near ±e₂ are within half a kernel width: to 1e-5."""
    x, weights = fl.sample.nodes(400, 2, log_density=lambda x: x @ [0.36, 0.48])
    run = fl.simulate(head_at(30.0), x, weights=weights, until=2.0, stepper=fl.RK4(0.05))
    last = states(30.0, 2.0, lambda x: x @ [0.36, 0.48], tolerance=1e-5)[-1]
    for moment in (lambda y: y[:, 0], lambda y: y[:, 1], lambda y: y[:, 0] ** 2, lambda y: y[:, 0] * y[:, 1]):
        assert last.weights @ moment(last.tokens) == pytest.approx(weights @ moment(run.tokens[-1]), abs=1e-5)


def test_half_a_circle_is_the_whole_one():
    whole, half = states(150.0, 9.0)[-1], states(150.0, 9.0, mirrored=True)[-1]
    tokens, weights = half.whole()
    for k in range(2):
        ours, theirs = weights @ tokens[:, k] ** 2, whole.weights @ whole.tokens[:, k] ** 2
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert weights @ tokens[:, 1] == pytest.approx(whole.weights @ whole.tokens[:, 1], abs=1e-4)
    assert 2 * half.weights @ half.exponents == pytest.approx(whole.weights @ whole.exponents, abs=1e-4)


def test_labels_keep_their_order_and_mass_is_kept():
    for state in states(300.0, 12.0, mirrored=True):
        assert (np.diff(state.panels.values.ravel()) > 0).all()
        assert 2 * state.weights.sum() == pytest.approx(1, abs=1e-9)
        # No neighbours further apart than the spacing, in kernel widths (κ of a source y is β/|B⁻¹y|).
        angles = np.arctan2(state.tokens[:, 0], state.tokens[:, 1])
        widths = np.sqrt(300 / np.linalg.norm(state.tokens @ np.linalg.inv(B), axis=1))
        assert (np.diff(angles) * widths[1:]).max() < 0.6
        mass = np.exp(state.log_density) @ np.gradient(angles)
        assert mass == pytest.approx(0.5, abs=0.03)


def test_cold_it_is_the_zero_temperature_flow_up_to_one_over_beta():
    def apart(beta):
        last = states(beta, 2.0, mirrored=True, reach=14.0, tolerance=1e-5)[-1]
        start = last.chart.tokens(last.panels.labels()).reshape(-1, 2)
        path = fl.zero_temperature(head_at(beta), start, times=np.array([2.0])).tokens[-1]
        return np.abs(path - last.tokens).max()

    errors = [apart(beta) for beta in (300.0, 3000.0)]
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.02)


def test_the_density_at_the_separatrix_is_that_of_zero_temperature():
    """V = I, β = 10⁵: at e₂ ρ falls like e^{−Γt}, Γ = (λ₁ − λ₂)/b₂ = 1."""
    last = states(1e5, 2.0, uniform, v=np.eye(2), mirrored=True, reach=25.0, spacing=1.0)[-1]
    assert -last.log_density.min() - np.log(2 * np.pi) == pytest.approx(2.0, abs=1e-3)


def test_the_mean_of_exponentials_is_at_most_a_covering_number_where_queries_look_at_themselves():
    """B = I: ∫e^Λdρ ≤ √e·N for every ρ, N cells of diameter κ^{−1/2}; adversarial: one atom in every cell."""
    rng = np.random.default_rng(3)
    for kappa in (5.0, 300.0):
        cells = int(np.ceil(np.pi / np.arcsin(kappa**-0.5 / 2)))
        count = NODES * int(np.ceil(cells / NODES))
        for angles in (np.linspace(0, 2 * np.pi, count, endpoint=False), np.sort(rng.uniform(0, 2 * np.pi, count))):
            for weights in (np.ones(count), np.exp(rng.uniform(-20, 0, count))):
                weights = weights / weights.sum()
                y = on_circle(angles)
                _, exponents = panel_sums(kappa * y, y, angles, weights)
                total = weights @ np.exp(exponents)
                assert 1 - 1e-9 <= total <= np.sqrt(np.e) * cells


def test_bad_input_is_refused():
    head = head_at(10.0)
    of = fl.Attention.from_matrices
    for wrong, words in [
        (lambda: circle_mean_field([[head, head]], even, until=1.0), "one head"),
        (lambda: circle_mean_field(of(np.eye(3), np.eye(3), 1.0), even, until=1.0), "dimension 2"),
        (lambda: circle_mean_field(head, even, until=np.nan), "until is nan"),
        (lambda: circle_mean_field(head, even, until=1.0, spacing=0.0), "spacing is 0"),
        (lambda: circle_mean_field(of(np.diag([1.0, 0]), V, 1.0), even, until=1.0), "no inverse"),
        (lambda: circle_mean_field(head_at(0.0), even, until=1.0), "beta is 0"),
        (lambda: circle_mean_field(head, lambda x: x[:, 0], until=1.0, mirrored=True), "not even"),
        (lambda: circle_mean_field(of(B, V + 0.1, 1.0), even, until=1.0, mirrored=True), "diagonal"),
        (lambda: circle_mean_field(head_at(1e9), even, until=1.0, spacing=0.01), "more than 200,000 nodes"),
    ]:  # fmt: skip
        with pytest.raises(BadParameter, match=words):
            wrong()
    for density in (lambda x: x, lambda x: np.where(x[:, 0] > 0, 0.0, -np.inf), lambda x: np.nan * x[:, 0]):
        with pytest.raises(BadArray, match="positive density"):
            circle_mean_field(head, density, until=1.0)
