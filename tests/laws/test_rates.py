"""Rates at zero temperature (THEORY sections 4, 5): eq. 8, eq. 8′, the exponents of eq. 9 and of Jordan blocks."""

import numpy as np
import pytest
from scipy.linalg import block_diag, eig, expm

import frostline as fl
from frostline.sphere import unit_rows
from frostline.theory.flow import at_clocks
from frostline.theory.rates import rates
from frostline.transport.atoms import two_atoms
from frostline.transport.index_coupling import index_coupling
from tests.problems import head_with, jordan, symmetric
from tests.tolerances import SLOPE

CLOCKS = [0.3, 1.0, 3.0, 8.0]


def angle_to(basis, x):
    inside = np.linalg.norm(x @ basis.T, axis=-1)
    outside = np.linalg.norm(x - x @ basis.T @ basis, axis=-1)
    return outside / inside


@pytest.mark.parametrize("seed", range(20))
def test_lyapunov_estimate_token_by_token(seed):
    """Eq. 8 for symmetric A: tan θ(τ) ≤ e^{−gτ} tan θ(0), for every token and every clock; for one between the leading
    eigenspace and the next, equal."""
    rng = np.random.default_rng([8, seed])
    d = int(rng.integers(2, 9))
    m = int(rng.integers(1, d))
    values = np.sort(np.concatenate([np.full(m, 0.5), rng.uniform(-1, 0.4, d - m)]))[::-1]
    head = head_with(symmetric(values, rng), rng)
    found = fl.limit(head)
    assert found.dimension == m
    following = np.linalg.eigh(head.A)[1][:, -1 - m]
    x0 = np.concatenate([unit_rows(found.basis[:1] + following), fl.sample.uniform(60, d, seed=rng)])
    start, rate = angle_to(found.basis, x0), rates(head).token_in_clock
    for clock, x in zip(CLOCKS, at_clocks(head, x0, CLOCKS), strict=True):
        angle, allowed = angle_to(found.basis, x), np.exp(-rate * clock) * start
        # Below 1e-13 the angle is rounding.
        assert (angle <= allowed * (1 + 1e-9) + 1e-13).all()
        assert angle[0] == pytest.approx(allowed[0], rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_transient_bound_for_non_normal_matrices(seed):
    """Eq. 8′: sin∠(x(τ), Πx₀) ≤ |e^{τ(A−μ)}(I−𝒫)x₀|/|𝒫x₀|, 𝒫 from eigenvectors and the exponential from scipy."""
    rng = np.random.default_rng([88, seed])
    d = int(rng.integers(2, 9))
    A = rng.standard_normal((d, d))
    A[0] += 5 * rng.standard_normal(d)  # a strong lean: far from normal
    head = head_with(A, rng)
    found = fl.limit(head)
    if found.kind != "points":
        # A complex pair leads: add a dominant real eigenvalue along a random direction instead of dropping the seed.
        w, v = rng.standard_normal((2, d))
        A = A + 10 * np.linalg.norm(A, 2) * np.outer(v, w) / (v @ w)
        head = head_with(A, rng)
        found = fl.limit(head)
    assert found.kind == "points"
    values, left, right = eig(head.A, left=True)
    v, w = right[:, values.real.argmax()].real, left[:, values.real.argmax()].real
    P = np.outer(v, w) / (v @ w)
    x0 = fl.sample.uniform(60, d, seed=rng)
    goal = found(x0)
    for clock, x in zip(CLOCKS, at_clocks(head, x0, CLOCKS), strict=True):
        sine = np.linalg.norm(x - (x * goal).sum(1, keepdims=True) * goal, axis=1)
        rest = (x0 - x0 @ P.T) @ expm(clock * (head.matrices.A - found.leading * np.eye(d))).T
        bound = np.linalg.norm(rest, axis=1) / np.linalg.norm(x0 @ P.T, axis=1)
        assert (sine <= bound * (1 + 1e-8) + 1e-12).all()
        # A sine does not tell one side from the other: where the remainder is the smaller part, it is the limit's.
        assert ((x * goal).sum(1)[bound < 1] > 0).all()
        assert (bound < 1).any() or clock < CLOCKS[-1]


def test_the_lyapunov_estimate_is_false_for_non_normal_matrices():
    """THEORY section 5 says so; this documents the disagreement: a token that first turns away from its limit."""
    head = fl.Attention.from_matrices(np.eye(2), [[1.0, -20.0], [0.0, 0.5]], beta=1.0)
    found = fl.limit(head)
    x0 = np.array([[np.cos(0.1), np.sin(0.1)]])
    x = at_clocks(head, x0, [0.3])[0]
    assert angle_to(found.basis, x)[0] > 1.5 * np.exp(-found.gap * 0.3) * angle_to(found.basis, x0)[0]


@pytest.mark.parametrize(("m", "p"), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (3, 6), (4, 8)])
def test_wasserstein_exponents_at_a_common_clock(m, p):
    """Eq. 9: W_p ~ e^{−g·min(1, m/p)·τ}, times τ^{1/p} at m = p; index coupling is exact here (THEORY section 10).

    Tokens near the equator of E decide, so they are drawn by strata of |𝒫x|: given r = |𝒫x|² ~ Beta(m/2, (d−m)/2), the
    distance is known, and a quantile grid of r with n = 200,000 leaves no statistical error to speak of.
    """
    from scipy.stats import beta as beta_law

    d, g, n = m + 2, 0.7, 200_000
    # Logarithmic strata: r from 1e-14 up, each with its probability.
    edges = np.concatenate([[0.0], np.geomspace(1e-14, 1.0, n)])
    weights = np.diff(beta_law.cdf(edges, m / 2, (d - m) / 2))
    r = np.sqrt(edges[1:] * np.maximum(edges[:-1], 1e-15))
    rng = np.random.default_rng([9, m, p])
    inside = fl.sample.uniform(n, m, seed=rng) if m > 1 else rng.choice([-1.0, 1.0], (n, 1))
    outside = fl.sample.uniform(n, d - m, seed=rng)
    x0 = fl.sphere.normalise(np.concatenate([np.sqrt(r)[:, None] * inside, np.sqrt(1 - r)[:, None] * outside], axis=1))
    A = np.diag([0.4] * m + [0.4 - g] * (d - m))
    head = fl.Attention.from_matrices(np.eye(d), A, beta=1.0)
    goal = fl.limit(head)(x0)
    clocks = np.linspace(6.0, 12.0, 7) / g
    values = np.array(
        [index_coupling(x, goal, p=p, weights=weights / weights.sum()) for x in at_clocks(head, x0, clocks)]
    )
    if m == p:
        values = values / clocks ** (1 / p)
    rate = -np.polyfit(clocks, np.log(values), 1)[0]
    assert rate == pytest.approx(g * min(1, m / p), rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_exponent_on_random_tokens(seed):
    """The same for plain random tokens, m = 1, p = 2: rate g/2. n = 200,000 leaves e^{−gτ}n ≥ 500 late tokens, so the
    slope scatters by about 2 %; 15 % is more than five standard errors (false failures below 1e-6)."""
    head = fl.Attention.from_matrices(np.eye(3), np.diag([1.0, 0.3, 0.3]), beta=1.0)
    x0 = fl.sample.uniform(200_000, 3, seed=[99, seed])
    clocks = np.linspace(3.0, 6.0, 5) / 0.7
    values = index_coupling(at_clocks(head, x0, clocks), fl.limit(head)(x0))
    assert -np.polyfit(clocks, np.log(values), 1)[0] == pytest.approx(0.35, rel=0.15)


BLOCKS = [
    ("one block of 2", (2,), 1),
    ("one block of 3", (3,), 1),
    ("2 and 1", (2, 1), 1),
    ("2 and 2", (2, 2), 2),
    ("2, 2 and 2", (2, 2, 2), 3),
]


def tokens_near_the_small_top(blocks, n, rng):
    """Uniform tokens on the sphere, in strata of s = |N^{k−1}x| from 1e-7 up, with their weights."""
    ends = np.cumsum(blocks) - 1
    top = ends[np.array(blocks) == max(blocks)]
    d, r = sum(blocks), len(top)
    rest = np.setdiff1d(np.arange(d), top)
    s = np.geomspace(1e-7, 1.0, n, endpoint=False)
    weights = s**r * (1 - s**2) ** ((d - r) / 2 - 1)
    x = np.zeros((n, d))
    x[:, top] = s[:, None] * fl.sphere.normalise(rng.standard_normal((n, r)))
    x[:, rest] = np.sqrt(1 - s**2)[:, None] * fl.sphere.normalise(rng.standard_normal((n, d - r)))
    return x, weights / weights.sum()


def moved(head, x0, clocks):
    """Tokens at common clocks by scipy's matrix exponential: a Jordan block asks for no care of a gap."""
    return [fl.sphere.normalise(x0 @ expm(clock * (head.matrices.A - 0.3 * np.eye(x0.shape[1]))).T) for clock in clocks]


def defective_head(blocks):
    return fl.Attention.from_matrices(np.eye(sum(blocks)), block_diag(*[jordan(0.3, k) for k in blocks]), beta=1.0)


@pytest.mark.parametrize(("blocks", "r"), [case[1:] for case in BLOCKS], ids=[case[0] for case in BLOCKS])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_index_coupling_at_a_defective_eigenvalue(blocks, r, p):
    """THEORY section 4: τ^{−min(1, r/p)}, r = rank N^{k−1}; at r = p a logarithm comes on top, except for a block on
    its own (two points, and no smaller block at μ). 20,000 strata leave 1 % of noise in a slope (seed fixed)."""
    rng = np.random.default_rng([44, r, len(blocks)])
    x0, weights = tokens_near_the_small_top(blocks, 20_000, rng)
    head, clocks = defective_head(blocks), np.geomspace(30, 3000, 7)
    goal = fl.limit(head)(x0)
    assert fl.limit(head).dimension == r
    values = np.array([index_coupling(x, goal, p=p, weights=weights) for x in moved(head, x0, clocks)])
    slope = np.polyfit(np.log(clocks), np.log(values), 1)[0]
    scaled = (values * clocks ** min(1, r / p)) ** p
    if r == p and len(blocks) > 1:
        # W^p τ^p rises by the same for every factor of τ.
        rises = np.diff(scaled)
        assert rises.min() > 0.85 * rises.max() and scaled[-1] > 1.4 * scaled[0]
    else:
        assert slope == pytest.approx(-min(1, r / p), abs=SLOPE) and scaled.max() / scaled.min() < 1.2


def test_the_distance_itself_falls_faster_where_errors_cancel():
    """Uniform tokens. Two points: the errors of both sides cancel, W_p ~ max(τ^{−1}, τ^{−2/p}); a tilt undoes that. Two
    blocks of 2: by symmetry the images on E fill the circle evenly, so W_p is the distance to it, τ^{−1} up to p = 3,
    although the coupling by index still has τ^{−2/3} there."""
    rng, clocks = np.random.default_rng(45), np.geomspace(30, 1000, 7)

    def slope(values):
        return np.polyfit(np.log(clocks), np.log(values), 1)[0]

    x0, weights = tokens_near_the_small_top((2,), 100_000, rng)
    x0, weights = np.concatenate([x0, -x0]), np.concatenate([weights, weights]) / 2
    tilted = weights * np.exp(x0[:, 0])
    head, atoms = defective_head((2,)), np.array([[1.0, 0.0], [-1.0, 0.0]])
    tilted = tilted / tilted.sum()
    # A share 1/τ² of the tokens is just then between the points; with a tilt they matter less and less.
    for w, p, law, when in (
        (weights, 2, -1.0, 1),
        (weights, 4, -0.5, 1),
        (tilted, 2, -0.5, 100),
        (tilted, 4, -0.25, 1),
    ):
        share = float(w[fl.limit(head)(x0)[:, 0] > 0].sum())
        found = [two_atoms(x, w, atoms, share, p=p) for x in moved(head, x0, when * clocks)]
        assert slope(found) == pytest.approx(law, abs=SLOPE)
    x0, weights = tokens_near_the_small_top((2, 2), 20_000, rng)
    head = defective_head((2, 2))
    basis = fl.limit(head).basis
    frames = moved(head, x0, clocks)
    outside = [np.linalg.norm(x - fl.sphere.normalise(x @ basis.T @ basis), axis=1) for x in frames]
    assert slope([(weights @ far**3) ** (1 / 3) for far in outside]) == pytest.approx(-1.0, abs=SLOPE)
    goal = fl.limit(head)(x0)
    assert slope([index_coupling(x, goal, p=3, weights=weights) for x in frames]) == pytest.approx(-2 / 3, abs=SLOPE)
