"""The proven tube from the inside: its comparison equation, what it follows, and starts known from below."""

import mpmath
import numpy as np
import pytest

import frostline as fl
from frostline.theory.rings import Rings
from frostline.theory.shrinking_caps import ShrinkingCaps
from frostline.theory.side_keeping import AngleBounds, first_angles
from frostline.theory.sides import Sides
from frostline.theory.starts import start_of, uniform_share
from tests.problems import head_with, symmetric


def ingredients(head, density="uniform"):
    sides = Sides.of(head)
    _, V, A, _ = head.matrices
    angles = first_angles(sides.basis)
    return sides, Rings.of(sides, A, V), angles, start_of(density, angles, sides.basis)


def circle_run(head, until, count=2000, **settings):
    """Nodes on the circle, equal weights, at a few times, as angles that rise."""
    x, weights = fl.sample.nodes(count, 2, **settings)
    times = np.linspace(0.0, until, 5)
    return fl.simulate(head, x, weights=weights, until=until, save_at=times, stepper=fl.Adaptive(1e-6))


@pytest.mark.parametrize("error", [0.02, 0.1])
def test_the_comparison_equation_is_that_of_mpmath(error):
    """B = I: |Bᵀx| = 1, so θ' = −½ sin 2θ·g + ‖V‖·error with constants, which mpmath integrates to 15 digits."""
    head = fl.Attention.from_matrices(np.eye(3), np.diag([1.0, 0.4, 0.1]), beta=100.0)
    _, rings, _, _ = ingredients(head)
    first = np.array([0.1, 0.8, 1.3])
    tokens = AngleBounds(rings, first.copy(), even=True)
    h, errors = 0.005, np.full(rings.low.shape, error)
    for _ in range(200):
        tokens.advance(h, errors)
    for begin, bound in zip(first, tokens.angles, strict=True):
        exact = mpmath.odefun(lambda t, y: [-0.3 * mpmath.sin(2 * y[0]) + error], 0, [begin])(1)[0]
        assert exact <= bound <= exact + 0.01


def test_tokens_of_a_run_stay_below_their_bounds_and_inside_their_caps(rng):
    """On the circle the density is weight over spacing: neither a token nor the density escapes what was proven."""
    for head in (
        fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e4),
        head_with(symmetric([0.9, -0.3], rng), rng, beta=1e5),
    ):
        sides, rings, angles, start = ingredients(head)
        caps, tokens = ShrinkingCaps(rings, start.log_ratio), AngleBounds(rings, angles, start.even)
        until = 0.8 if head.beta < 1e5 else 0.4
        run = circle_run(head, until)
        begin, checked, time = sides.angles(run.initial), 0, 0.0
        spacing = 2 * np.pi / len(run.initial)
        for frame, save in zip(run.tokens, run.times, strict=True):
            while time < save:
                h = min(caps.step(0.025), 0.02, save - time)
                tokens.advance(h, caps.advance(h))
                time += h
            seen = sides.angles(frame)
            bound = tokens.angles[np.minimum(np.searchsorted(angles, begin), len(angles) - 1)]
            assert (seen <= bound + 1e-5).all()
            # −log density between neighbours, relative to the uniform one, and the caps that hold both of them.
            gap = np.linalg.norm(np.roll(frame, -1, 0) - frame, axis=1)
            log = np.log(2 * np.arcsin(gap / 2) / spacing)
            both = np.maximum(seen, np.roll(seen, -1))
            for angle, most in zip(caps.angles, caps.logs, strict=True):
                assert (log[both <= angle] <= most + 1e-3).all()
            checked += int(np.isfinite(caps.logs).sum())
        assert checked > 30 and tokens.critical > 1.0
        # The bound is of use: the median token has come in, by no less than half of what the run shows.
        assert np.median(begin) - np.median(tokens.angles) > 0.5 * (np.median(begin) - np.median(seen)) > 0.05


def test_nothing_enters_a_shrinking_cap(rng):
    """Tokens that start outside a cap stay outside of it, and it is no smaller than it need be by more than a tenth."""
    for head in (
        fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=1e4),
        head_with(symmetric([0.9, -0.3], rng), rng, beta=1e5),
    ):
        sides, rings, _, start = ingredients(head)
        caps, time, until = ShrinkingCaps(rings, start.log_ratio), 0.0, 0.04
        first = caps.angles.copy()
        while time < until:
            h = min(caps.step(0.025), until - time)
            caps.advance(h)
            time += h
        # No cap has been given up by now, and new ones come last.
        assert len(caps.angles) >= len(first) and np.isfinite(caps.logs).all()
        run = circle_run(head, until)
        begin, seen = sides.angles(run.initial), sides.angles(run.tokens[-1])
        for before, after in zip(first[1:], caps.angles[1:], strict=False):
            nearest = seen[begin >= before].min()
            assert nearest - 0.1 < after <= nearest


def test_the_side_that_a_token_keeps_is_the_right_one(rng):
    """Tokens below the critical angle end on the side they began on."""
    head = head_with(symmetric([0.9, -0.3], rng), rng, beta=1e4)
    tube = fl.tube(head)
    run = circle_run(head, float(tube.times[-1]), 800)
    e = Sides.of(head).basis[:, 0]
    begin = Sides.of(head).angles(run.initial)
    kept = np.sign(run.tokens[-1] @ e) == np.sign(run.initial @ e)
    assert kept[begin < tube.sides[-1]].all()
    assert (np.diff(tube.sides) <= 0).all() and 0.9 < tube.sides[0] < np.pi / 2


@pytest.mark.parametrize(("d", "m"), [(2, 1), (3, 1), (3, 2), (5, 1), (5, 3)])
def test_shares_of_mixtures_are_those_of_samples_and_from_below(rng, d, m):
    """2·10⁵ tokens: an error of five standard errors, 0.0056, is exceeded once in 10⁶ runs."""
    E = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :m]
    mean = rng.standard_normal(d)
    density = fl.densities.mixture([fl.densities.vmf(mean, 3.0), fl.densities.uniform(d)], [0.7, 0.3])
    angles = first_angles(E)
    start = start_of(density, angles, E)
    x = np.concatenate([fl.sample.vmf(140_000, mean, 3.0, seed=rng), fl.sample.uniform(60_000, d, seed=rng)])
    inside = np.linalg.norm(x @ E, axis=1)
    exact = np.searchsorted(np.sort(np.arccos(np.minimum(inside, 1.0))), angles) / len(x)
    assert (start.shares <= exact + 0.0056).all() and (exact - start.shares).max() < 0.03
    assert not start.even and np.exp(-start.log_ratio) <= np.exp(density.log_density(x)).min()
    opposite = fl.densities.mixture([fl.densities.vmf(mean, 3.0), fl.densities.vmf(-mean, 3.0)], [0.5, 0.5])
    assert start_of(opposite, angles, E).even


def test_a_uniform_start_has_the_shares_of_the_beta_law(rng):
    x = fl.sample.uniform(200_000, 4, seed=rng)
    angle = np.arccos(np.minimum(np.linalg.norm(x[:, :2], axis=1), 1.0))
    assert uniform_share(np.array([0.7]), 4, 2)[0] == pytest.approx((angle <= 0.7).mean(), abs=0.0056)


@pytest.mark.parametrize(("d", "m"), [(2, 1), (3, 1), (3, 2), (5, 1)])
def test_ingredients_of_the_growth_bound_every_token_of_their_ring(rng, d, m):
    """2w/s, −(d−1)xᵀAx/s, the interval of |Bᵀx| and the angle of y*(x), at 20,000 random tokens."""
    values = np.concatenate([np.ones(m), np.linspace(0.5, -0.5, d - m)])
    head = head_with(symmetric(values, rng), rng, beta=1e4)
    B, V, A, _ = head.matrices
    sides, rings, _, _ = ingredients(head)
    x = fl.sample.uniform(20_000, d, seed=rng)
    key = x @ B
    s = np.linalg.norm(key, axis=1)
    ring, place = rings.number(sides.angles(x)), np.searchsorted(rings.bins[1], s)
    assert ((rings.low[ring, place] <= s) & (s <= rings.high[ring, place])).all()
    form = B.T @ V - key[:, :, None] * (x @ V)[:, None, :]
    spread = 2 * np.maximum(np.linalg.eigvalsh((form + form.mT) / 2)[:, -1], 0.0) / s
    bound = rings.spread[ring, place]
    assert (spread <= bound).all()
    assert (-(d - 1) * np.einsum("ni,ij,nj->n", x, A, x) / s <= rings.shape[ring] + 1e-9).all()
    assert (sides.angles(key / s[:, None]) <= rings.needed[ring, place]).all()
    if d <= 3:
        # From cells, the largest value of a bin is reached but for their size.
        assert (spread / bound).max() > 0.95
