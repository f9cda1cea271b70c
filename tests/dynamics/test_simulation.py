"""The simulator: closed forms, statuses, plans, what is kept."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import frostline as fl
from frostline.dynamics.walking import Resume, plan
from frostline.errors import BadArray, BadParameter, BadWeights, OffSphere
from tests.problems import plain_velocity, turning
from tests.tolerances import ON_SPHERE, ROUNDING

steppers = pytest.mark.parametrize(
    "stepper", [fl.Euler(0.05), fl.RK4(0.05), fl.Adaptive(1e-6)], ids=["euler", "rk4", "adaptive"]
)


def fine(stepper):
    """The same method, accurate enough for a closed form."""
    return fl.Adaptive(1e-12) if isinstance(stepper, fl.Adaptive) else type(stepper)(1e-3)


def random_layer(rng, d, heads, beta=20.0):
    return [
        fl.Attention(*rng.standard_normal((2, 2, d)), rng.standard_normal((d, d)) / d, beta, key_bias=bias)
        for bias in ([None] + [rng.standard_normal(d) for _ in range(heads - 1)])
    ]


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_euler_step_is_the_plain_double_loop(rng, heads, weighted):
    layer = random_layer(rng, 4, heads)
    x0 = fl.sample.uniform(15, 4, seed=0)
    weights = rng.dirichlet(np.ones(15)) if weighted else None
    run = fl.simulate([layer], x0, until=0.1, weights=weights, stepper=fl.Euler(0.1))
    expected = fl.sphere.normalise(x0 + 0.1 * plain_velocity(layer, x0, weights))
    assert run.steps == 1 and np.abs(run.tokens[-1] - expected).max() < ROUNDING


@steppers
def test_a_single_token_follows_its_value_matrix(stepper):
    """n = 1: m = x, so ẋ = P_xVx, solved by e^{tV}x₀/|·| for every V and every β."""
    V = np.array([[0.3, -1.0], [1.0, 0.3]])
    head = fl.Attention.from_matrices(np.diag([2.0, 0.1]), V, beta=1e4)
    run = fl.simulate(head, [[1.0, 0.0]], until=2.0, stepper=fine(stepper))
    assert np.abs(run.tokens[-1] - [[np.cos(2.0), np.sin(2.0)]]).max() < (2e-3 if stepper.order == 1 else 1e-10)


@steppers
def test_two_tokens_have_a_closed_form(stepper):
    """V = B = I, two tokens at angle φ: φ' = −2 sin φ·e^{β cos φ}/(e^β + e^{β cos φ}), the midpoint stays."""
    beta = 2.0
    head = fl.Attention.from_matrices(np.eye(3), np.eye(3), beta)
    x0 = np.array([[np.cos(0.7), np.sin(0.7), 0.0], [np.cos(0.7), -np.sin(0.7), 0.0]])
    run = fl.simulate(head, x0, until=1.5, stepper=fine(stepper))
    rate = lambda _, phi: -2 * np.sin(phi) / (1 + np.exp(beta * (1 - np.cos(phi))))  # noqa: E731
    phi = solve_ivp(rate, (0, 1.5), [1.4], rtol=1e-12, atol=1e-12).y[0, -1]
    a, b = run.tokens[-1]
    assert fl.sphere.geodesic(a[None], b[None])[0] == pytest.approx(phi, abs=2e-3 if stepper.order == 1 else 1e-10)
    assert np.abs((a + b)[1:]).max() < ROUNDING


@steppers
def test_tokens_stay_on_the_sphere(stepper, rng):
    layer = random_layer(rng, 5, 2, beta=100.0)
    run = fl.simulate([layer], fl.sample.uniform(64, 5, seed=1), until=10.0, stepper=stepper, save_at=[0, 3.21, 10])
    assert np.abs(np.linalg.norm(run.tokens, axis=-1) - 1).max() <= ON_SPHERE


@steppers
def test_cold_runs_approach_the_predicted_limit(stepper, two_clusters):
    """In the mean-field (2,000 nodes on S¹) at β = 1e4 the distance to Π♯ρ₀ gets small; the theorem's direction."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e4)
    x0, w = fl.sample.nodes(2000, 2)
    run = fl.simulate(head, x0, weights=w, until=12.0, stepper=stepper)
    off = np.linalg.norm(run.tokens[-1] - fl.limit(head)(x0), axis=1)
    assert np.sqrt((w * off**2).sum()) < 0.15


def test_ensembles_run_as_if_alone(rng):
    layer = random_layer(rng, 3, 2)
    x0 = fl.sample.uniform(40, 3, seed=2).reshape(2, 2, 10, 3)
    # The adaptive method takes one step for the whole ensemble, so there members agree to its tolerance only.
    for stepper, close in ((fl.Euler(0.05), ROUNDING), (fl.RK4(0.05), ROUNDING), (fl.Adaptive(1e-9), 1e-6)):
        run = fl.simulate([layer], x0, until=1.0, save_at=[0.5, 1.0], stepper=stepper)
        assert run.tokens.shape == (2, 2, 2, 10, 3)
        alone = fl.simulate([layer], x0[1, 0], until=1.0, save_at=[0.5, 1.0], stepper=stepper)
        assert np.abs(run.tokens[:, 1, 0] - alone.tokens).max() < close


@pytest.mark.parametrize("d", [3, 4])
def test_massless_tokens_are_moved_but_move_nobody(rng, d):
    """500 of them around one pole, 600 weighted tokens around the other, β = 1e5: e^{2β} would overflow."""
    around = [side * np.eye(d)[0] + 0.1 * rng.standard_normal((n, d)) for side, n in ((1, 500), (-1, 600))]
    x0 = fl.sphere.normalise(np.concatenate(around))
    w = np.append(np.zeros(500), rng.dirichlet(np.ones(600)))
    head = fl.Attention.from_matrices(np.eye(d), np.eye(d), beta=1e5)
    run = fl.simulate(head, x0, until=0.5, weights=w)
    assert run.status == "finished"
    plain = fl.simulate(head, x0[500:], until=0.5, weights=w[500:])
    assert np.abs(run.tokens[-1][500:] - plain.tokens[-1]).max() < 1e-6
    # One Euler step by hand: every query goes to the best of the tokens that have mass, as far as float64 can tell.
    step = fl.simulate(head, x0, until=0.1, weights=w, stepper=fl.Euler(0.1)).tokens[-1]
    logits = 1e5 * (x0 @ x0[500:].T) + np.log(w[500:])
    shares = np.exp(logits - logits.max(1, keepdims=True))
    velocity = fl.sphere.tangent(x0, shares @ x0[500:] / shares.sum(1, keepdims=True))
    moved = fl.sphere.normalise(x0 + 0.1 * velocity)
    assert np.abs(step - moved).max() < 1e-9 and np.abs(step[:500] - x0[:500]).max() > 0.01


def test_layers_take_turns(rng):
    """Two layers over [0, 2] are one run of the first to t = 1 followed by one of the second."""
    first, second = random_layer(rng, 3, 1), random_layer(rng, 3, 2)
    x0 = fl.sample.uniform(20, 3, seed=3)
    both = fl.simulate([first, second], x0, until=2.0, stepper=fl.Euler(0.1), save_at=[1.0, 2.0])
    half = fl.simulate([first], x0, until=1.0, stepper=fl.Euler(0.1))
    rest = fl.simulate([second], half.tokens[-1], until=1.0, stepper=fl.Euler(0.1))
    assert np.array_equal(both.tokens[0], half.tokens[-1])
    assert np.abs(both.tokens[1] - rest.tokens[-1]).max() < ROUNDING


def test_without_a_step_one_euler_step_is_one_layer(rng):
    layers = [random_layer(rng, 3, 1) for _ in range(6)]
    run = fl.simulate(layers, fl.sample.uniform(5, 3, seed=4), until=3.0, stepper=fl.Euler())
    assert run.steps == 6 == run.evaluations


@pytest.mark.parametrize(
    ("layers", "until", "step", "saves", "counts"),
    [
        (1, 12.0, 0.05, [0, 4, 8, 12], [80, 80, 80]),
        (1, 1.0, 0.3, [1.0], [4]),
        (3, 1.0, 1.0, [1.0], [1, 1, 1]),
        (2, 1.0, 0.2, [0.25, 1.0], [2, 2, 3]),
        (1, 0.3, 0.1, [0.1, 0.2, 0.3], [1, 1, 1]),
    ],
)
def test_plans_never_straddle_a_boundary(layers, until, step, saves, counts):
    made = plan(layers, until, step, np.array(saves, dtype=float))
    assert [segment[3] for segment in made.segments] == counts
    steps = list(made.steps())
    assert [time for *_, time, save in steps if save] == [s for s in saves if s > 0]
    assert max(h for _, h, *_ in steps) <= step * (1 + 1e-9)
    for layer, h, time, _ in steps:
        assert layer * until / layers - 1e-12 <= time - h and time <= (layer + 1) * until / layers + 1e-12


def test_only_what_is_asked_for_is_kept(two_clusters):
    x0 = fl.sample.uniform(30, 3, seed=5)
    assert fl.simulate(two_clusters, x0, until=1.0).times.tolist() == [1.0]
    run = fl.simulate(two_clusters, x0, until=1.0, save_at=[0.0, 0.33])
    assert run.times.tolist() == [0.0, 0.33] and np.array_equal(run.tokens[0], x0)


def test_beta_1e6_in_float64_does_not_overflow(rng):
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=1e6)
    for stepper in (fl.Euler(0.05), fl.RK4(0.05), fl.Adaptive(1e-3)):
        run = fl.simulate(head, fl.sample.uniform(200, 3, seed=6), until=3.0, stepper=stepper)
        assert run.status == "finished" and np.isfinite(run.tokens).all()


def test_float32_runs_stay_float32_and_close(two_clusters):
    x0 = fl.sample.uniform(100, 3, seed=7)
    low = fl.simulate(two_clusters, torch.from_numpy(x0).float(), until=2.0)
    high = fl.simulate(two_clusters, x0, until=2.0)
    assert low.tokens.dtype == torch.float32
    assert np.abs(low.tokens.numpy() - high.tokens).max() < 1e-4


class TestStatus:
    def test_a_run_at_rest_stalls_and_repeats_itself_exactly(self):
        """One token at a fixed point: not a bit changes, so the run may stop computing but not stop answering."""
        head = fl.Attention.from_matrices(np.eye(2), np.diag([1.0, 0.5]), beta=1.0)
        run = fl.simulate(head, [[1.0, 0.0]], until=1e4, stepper=fl.Euler(0.1), save_at=[0, 1e3, 1e4])
        assert run.status == "stalled" and "came to rest" in run.message
        assert run.times.tolist() == [0, 1e3, 1e4] and (run.tokens == [[1.0, 0.0]]).all()

    def test_rest_in_one_layer_is_not_rest_in_the_next(self):
        still = fl.Attention.from_matrices(np.eye(2), np.eye(2), beta=1.0)
        moving = fl.Attention.from_matrices(np.eye(2), turning(0.0, 1.0), beta=1.0)
        run = fl.simulate([still, moving], [[1.0, 0.0]], until=2.0, stepper=fl.RK4(0.01))
        assert run.status == "finished"
        assert np.abs(run.tokens[-1] - [[np.cos(1), np.sin(1)]]).max() < 1e-9

    def test_a_divergent_run_keeps_what_it_had(self):
        """hV overflows float32: the tokens become NaN in the second layer."""
        calm = fl.Attention.from_matrices(np.eye(9), np.eye(9), beta=1.0)
        wild = fl.Attention.from_matrices(np.eye(9), 1e300 * turning_block(9), beta=1.0)
        x0 = torch.from_numpy(fl.sample.uniform(4, 9, seed=8))
        run = fl.simulate([calm, wild], x0, until=2e10, save_at=[0, 1e10, 2e10], stepper=fl.Euler())
        assert run.status == "diverged" and "smaller step" in run.message
        assert run.times.tolist() == [0, 1e10] and bool(torch.isfinite(run.tokens).all())

    def test_a_norm_that_overflows_is_a_divergence_too(self, two_clusters):
        warm = two_clusters.with_beta(1.0)
        run = fl.simulate(warm, fl.sample.uniform(4, 3, seed=8), until=1e160, stepper=fl.Euler(1e160))
        assert run.status == "diverged"

    def test_rest_under_a_tiny_step_is_not_rest(self):
        """Two saved times 5e-17 apart: nothing moves in between, everything after."""
        head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), 10.0)
        for seed in range(10):
            x0 = fl.sample.uniform(2, 3, seed=seed)
            odd = fl.simulate(head, x0, until=1.0, stepper=fl.Euler(0.05), save_at=[0.3, 0.1 + 0.2, 1.0])
            plain = fl.simulate(head, x0, until=1.0, stepper=fl.Euler(0.05), save_at=[0.3, 1.0])
            assert odd.status == "finished" and np.abs(odd.tokens[-1] - plain.tokens[-1]).max() < ROUNDING

    def test_the_step_limit_ends_a_run_early(self, two_clusters):
        x0 = fl.sample.uniform(10, 3, seed=9)
        run = fl.simulate(two_clusters, x0, until=1.0, stepper=fl.Euler(0.01), save_at=[0.1, 1.0], max_steps=50)
        assert run.status == "step limit" and run.steps == 50 and run.times.tolist() == [0.1]

    def test_the_caller_can_stop_a_run(self, two_clusters):
        run = fl.simulate(two_clusters, np.eye(3), until=1.0, stepper=fl.Euler(0.05), watch=lambda p: p.time > 0.5)
        assert run.status == "interrupted" and 0.5 < run.steps * 0.05 < 0.7


def turning_block(d):
    return np.roll(np.eye(d), 1, axis=0)


@pytest.mark.parametrize("stepper", [fl.RK4(0.1), fl.Adaptive(1e-9)], ids=["rk4", "adaptive"])
def test_a_resumed_run_ends_with_the_same_bits(two_clusters, stepper):
    x0 = fl.sample.uniform(50, 3, seed=10)
    settings = {"until": 2.0, "stepper": stepper, "save_at": [0, 0.7, 2.0]}
    whole = fl.simulate(two_clusters, x0, **settings)
    seen = {}

    def watch(progress):
        seen["at"] = progress
        return progress.steps == 9

    cut = fl.simulate(two_clusters, x0, watch=watch, **settings)
    frames = tuple(torch.from_numpy(frame) for frame in cut.tokens)
    at = seen["at"]
    state = Resume(at.steps, at.time, at.next_step, at.evaluations, at.tokens, frames)
    resumed = fl.simulate(two_clusters, x0, resume=state, **settings)
    assert np.array_equal(resumed.tokens, whole.tokens) and resumed.steps == whole.steps


def test_a_run_shows_itself(two_clusters):
    run = fl.simulate(two_clusters, fl.sample.uniform(10, 3, seed=11), until=0.2, save_at=[0, 0.2])
    assert "finished" in repr(run)
    assert run._repr_html_().count("data:image/png;base64") == 1
    batch = fl.simulate(two_clusters, fl.sample.uniform(10, 3, seed=11).reshape(2, 5, 3), until=0.2)
    assert "pick a member" in batch._repr_html_()


@pytest.mark.parametrize(
    ("x0", "keywords", "error", "words"),
    [
        (np.eye(3), {"until": 0}, BadParameter, "until"),
        (np.eye(3), {"until": np.nan}, BadParameter, "until"),
        (np.eye(3), {"until": 1, "save_at": [2]}, BadParameter, "save_at"),
        (np.eye(3), {"until": 1, "save_at": [0.5, 0.5]}, BadParameter, "ascending"),
        (np.eye(3), {"until": 1, "save_at": []}, BadParameter, "save_at"),
        (np.eye(3), {"until": 1, "save_at": [np.nan]}, BadParameter, "save_at"),
        (np.eye(3), {"until": 1, "max_steps": 0}, BadParameter, "max_steps"),
        (np.eye(3), {"until": 1, "weights": [0.5, 0.5]}, BadWeights, "shape"),
        (np.eye(3), {"until": 1, "weights": [1.0, 1.0, 1.0]}, BadWeights, "sum to 3"),
        (2 * np.eye(3), {"until": 1}, OffSphere, "off the unit sphere, by up to 1"),
        (np.eye(4), {"until": 1}, BadArray, "dimension 4, the head 3"),
        (np.eye(3), {"until": 1, "engine": "x"}, BadParameter, "engine"),
    ],
)
def test_bad_calls_get_a_sentence(two_clusters, x0, keywords, error, words):
    with pytest.raises(error, match=words):
        fl.simulate(two_clusters, x0, **keywords)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_bad_steps_get_a_sentence(bad):
    for stepper in (fl.Euler, fl.RK4):
        with pytest.raises(BadParameter, match="step is"):
            stepper(bad)
