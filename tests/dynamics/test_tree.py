"""The tree engine keeps its promise, |m − m_exact| ≤ tolerance, whatever the cloud; its parts are what they claim."""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import frostline as fl
from frostline.dynamics.mean_map import choose
from frostline.dynamics.mean_map.boxes import HALF, LEVELS, build_boxes, lift
from frostline.dynamics.mean_map.groups import Group, bound_weight
from frostline.dynamics.mean_map.pairs import exponential
from frostline.dynamics.mean_map.proxies import build_proxies
from frostline.dynamics.mean_map.proxy_errors import RATIOS, bound_errors
from frostline.dynamics.mean_map.tree import TreePlan, tree
from frostline.errors import BadParameter
from frostline.theory.flow import at_clocks
from tests.tolerances import FLOAT32_LOW_D, MEAN_MAP, ROUNDING


def exact(p, y, w=None):
    """Sums by numpy, every pair, logits shifted."""
    found = np.empty_like(p)
    for at in range(0, len(p), 500):
        logits = p[at : at + 500] @ y.T
        shares = np.exp(logits - logits.max(1, keepdims=True)) * (1.0 if w is None else w)
        found[at : at + 500] = shares @ y / shares.sum(1, keepdims=True)
    return found


def gap(p, y, tolerance, w=None):
    logs = None if w is None else torch.from_numpy(np.log(w))
    m = tree(torch.from_numpy(p), torch.from_numpy(y), logs, tolerance).numpy()
    return np.linalg.norm(m - exact(p, y, w), axis=1).max()


def clouds(kind, n, d, rng):
    """Tokens as they come: spread out, frozen in part or altogether, equal, in two places, with one far away."""
    x = fl.sample.uniform(n, d, seed=rng)
    if kind.startswith("clock"):
        head = fl.Attention.from_matrices(np.diag([1, 0.5, 0.2, 0.1][:d]), np.eye(d), 1.0)
        return np.ascontiguousarray(at_clocks(head, x, [float(kind[5:])])[0])
    if kind == "equal":
        return np.repeat(x[:1], n, 0)
    if kind == "antipodal":
        x = x[0] * np.where(np.arange(n) % 2, 1, -1)[:, None] + 1e-3 * x
    elif kind == "outlier":
        x = np.concatenate([x[:1] + 1e-4 * x[1:], -x[:1]])
    elif kind == "edges":  # where faces of the cube meet
        x = np.sign(x) * (1 + 1e-3 * np.abs(x))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


KINDS = ["uniform", "clock2", "clock4", "clock8", "equal", "antipodal", "outlier", "edges"]


@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.1, 30.0, 1e3, 1e5])
def test_the_promise_is_kept(kind, d, beta):
    rng = np.random.default_rng([d, int(beta), KINDS.index(kind)])
    x = clouds(kind, 3000, d, rng)
    B = np.diag([1, 0.5, 0.2, 0.1][:d])
    for tolerance in (1e-3, 1e-6, 1e-10):
        # Logits of size β carry β·1e-16, in the reference too.
        assert gap(beta * x[::5] @ B, x, tolerance) <= tolerance + 40 * beta * 2e-16


@settings(max_examples=60)
@given(
    st.integers(2, 4),
    st.sampled_from(KINDS),
    st.floats(-1, 6),
    st.floats(-12, -1),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_the_promise_is_kept_by_any_query(d, kind, log_beta, log_tolerance, seed, weighted):
    """Queries of any size and direction, sources that have nothing to do with them, weights over ten decades."""
    rng = np.random.default_rng(seed)
    y = clouds(kind, 1200, d, rng)
    p = fl.sample.uniform(200, d, seed=rng) * 10 ** (log_beta * rng.random((200, 1)))
    p[0] = 0.0
    w = 10 ** rng.uniform(-10, 0, 1200) if weighted else None
    tolerance = 10**log_tolerance
    assert gap(p, y, tolerance, w) <= tolerance + 40 * 10**log_beta * 2e-16


def test_the_lightest_source_counts_where_it_is_nearest():
    """Weights of 1e-30 beside 1: lost in any running sum, and all that a cold query sees."""
    rng = np.random.default_rng(0)
    heavy, light = clouds("outlier", 2000, 3, rng), fl.sample.uniform(200, 3, seed=rng)
    y, w = np.concatenate([heavy, light]), np.repeat([1.0, 1e-30], [2000, 200])
    for kappa in (1e2, 1e3, 1e4):
        assert gap(kappa * light, y, MEAN_MAP, w) <= MEAN_MAP


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("beta", [10.0, 1e3, 1e4])
@pytest.mark.parametrize("tau", [0, 2, 4, 8])
def test_large_clouds_with_proxies(d, beta, tau):
    """60,000 sources, so that boxes are dense and proxies are used; a thousand queries are checked."""
    x = clouds("uniform" if tau == 0 else f"clock{tau}", 60_000, d, np.random.default_rng(d))
    p = beta * x @ np.diag([1, 0.5, 0.2, 0.1][:d])
    some = np.random.default_rng(0).choice(len(x), 1000, replace=False)
    m = tree(torch.from_numpy(p), torch.from_numpy(x), None, 1e-6).numpy()
    assert np.linalg.norm(m[some] - exact(p[some], x), axis=1).max() <= 1e-6


@given(st.integers(2, 4), st.floats(-1, 6), st.floats(0, 3), st.integers(0, 2**31))
def test_weights_are_bounded_in_the_difference_form(d, log_kappa, spread, seed):
    """log e^{⟨p, y − y*⟩} = κ(|u − y*|² − |u − y|²)/2 (THEORY eq. 4); for all queries within a spread of p, a bound."""
    rng = np.random.default_rng(seed)
    kappa, (u, y, star) = 10**log_kappa, fl.sample.uniform(3, d, seed=rng)
    away, across, chord = np.linalg.norm(u - y), np.linalg.norm(star - y), np.linalg.norm(u - star)
    rounding = 1e-14 * (kappa + spread)
    alone = Group(kappa, u, 0.0, 0.0, star, chord, 0.0)
    assert bound_weight(alone, away, across) == pytest.approx(kappa * u @ (y - star), abs=rounding)
    shift = 2 * spread / (2 * kappa - spread) if spread < kappa else 2.0
    several = kappa * u + spread * fl.sample.uniform(200, d, seed=rng)
    bound = bound_weight(Group(kappa, u, spread, shift, star, chord, 0.0), away, across)
    assert (several @ (y - star)).max() <= bound + rounding


@pytest.mark.parametrize("d", [2, 3, 4])
def test_boxes_hold_their_points_once(d):
    y = clouds("clock2", 5000, d, np.random.default_rng(d))
    w = np.random.default_rng(0).random(5000)
    boxes = build_boxes(y, w)
    assert np.array_equal(boxes.points.T, y[boxes.order]) and np.array_equal(boxes.weights, w[boxes.order])
    leaves = np.flatnonzero(boxes.children == 0)
    assert sorted(np.concatenate([np.arange(boxes.start[b], boxes.stop[b]) for b in leaves])) == list(range(5000))
    for box in range(1, len(boxes.start)):
        own = slice(boxes.start[box], boxes.stop[box])
        inside = np.abs(boxes.angles[:, own] - boxes.middle[box][:, None]) <= HALF * 2.0 ** -boxes.level[box] + 1e-12
        assert inside.all() and boxes.mass[box] == pytest.approx(w[boxes.order][own].sum())
        far = np.linalg.norm(boxes.points[:, own] - boxes.centre[box][:, None], axis=0)
        assert far.max() <= boxes.radius[box] + 1e-12


@pytest.mark.parametrize(("d", "order"), [(2, 9), (3, 7), (4, 5)])
def test_proxies_integrate_polynomials_exactly(d, order):
    """Σ q T(θ) = Σ w T(θ) for polynomials of degree below the order, in boxes large and small."""
    y = clouds("uniform", 8000, d, np.random.default_rng(d))
    boxes = build_boxes(y, np.random.default_rng(0).random(8000))
    found = build_proxies(boxes, (order - 2, order))
    powers = np.random.default_rng(1).integers(0, order - 2, (5, d - 1))
    assert (found.first[1] >= 0).sum() > 10
    for row in (0, 1):
        for box in np.flatnonzero(found.first[row] >= 0):
            own = slice(boxes.start[box], boxes.stop[box])
            first = found.first[row, box]
            at = slice(found.start[first], found.start[first + found.blocks[row]])
            major = boxes.face[box] // 2
            theirs = np.arctan(np.delete(found.points[:, at], major, 0) / found.points[major, at])
            for power in powers:
                asked = [np.prod(angles ** power[:, None], 0) for angles in (boxes.angles[:, own], theirs)]
                assert (boxes.weights[own] * asked[0]).sum() == pytest.approx(
                    (found.weights[at] * asked[1]).sum(), abs=1e-11 * boxes.mass[box]
                )


@given(
    st.integers(1, 3), st.integers(0, 7), st.integers(4, 16), st.floats(0, 4), st.floats(0, 5), st.integers(0, 2**31)
)
def test_the_bound_of_interpolation_holds(e, level, order, log_kappa, widths, seed):
    """e^{⟨p,y⟩} interpolated on a random box, anywhere on a face: within ``bound_errors`` for the best ρ."""
    rng = np.random.default_rng(seed)
    half = HALF * 2.0**-level
    middle = -HALF + half * (2 * rng.integers(0, 2**level, e) + 1)
    kappa = 10**log_kappa
    centre, point = np.empty(e + 1), np.empty(e + 1)
    lift(0, middle, centre)
    u = centre + widths * half * rng.normal(size=e + 1)
    u /= np.linalg.norm(u)
    nodes = np.cos((2 * np.arange(order) + 1) * np.pi / (2 * order))
    grid = np.stack(np.meshgrid(*[nodes] * e, indexing="ij"), -1).reshape(-1, e)

    def values(places):
        found = []
        for place in places:
            lift(0, middle + half * place, point)
            found.append(np.exp(kappa * (point @ u - 1)) * np.append(point, 1.0))
        return np.array(found)

    def basis(s):
        angles = np.arccos(nodes)
        row = np.cos(np.outer(np.arange(order), angles)) * np.cos(np.arange(order) * np.arccos(s))[:, None]
        return (2 * row.sum(0) - 1) / order

    here = rng.uniform(-1, 1, (6, e))
    lagrange = np.array([np.prod(np.meshgrid(*[basis(s) for s in place], indexing="ij"), 0).ravel() for place in here])
    error = np.abs(lagrange @ values(grid) - values(here))
    table = bound_errors((order,), e, 7)
    # The largest weight that the ellipse comes near to; numerator and denominator together are what the bound is of.
    near = np.maximum(0.0, np.linalg.norm(u - centre) - table.reach[level])
    worst = (kappa * (table.growth[level] - near**2 / 2)).max(1)
    allowed = np.exp(np.minimum(table.error[0, level] + worst, 700)).min()
    assert (np.linalg.norm(error[:, :-1], axis=1) + error[:, -1]).max() <= allowed + 1e-12 + 40 * kappa * 2e-16
    assert len(RATIOS) == table.growth.shape[1] and LEVELS[e] >= level


def test_the_exponential():
    t = np.linspace(-700, 700, 50_001)
    assert max(abs(exponential(one) / np.exp(one) - 1) for one in t) < 1e-13


def test_it_sums_far_fewer_pairs():
    """At β = 1000 and n = 100,000 the list of a query is a tenth of the cloud, and shorter at a looser tolerance."""
    x = clouds("clock4", 100_000, 3, np.random.default_rng(0))
    p = 1000 * x @ np.diag([1, 0.5, 0.2])
    pairs = [TreePlan.of(p, x, None, tolerance).cost()[1] for tolerance in (1e-3, 1e-6, 1e-9)]
    assert pairs[0] < pairs[1] < pairs[2] < 20_000


def test_auto_says_what_it_takes_and_why(caplog):
    head = fl.Attention.from_matrices(np.diag([1, 0.5, 0.2]), np.eye(3), beta=1e4)
    x = fl.sample.uniform(12_000, 3, seed=0)
    assert choose(head, x[:20]).engine == "dense" and "few" in choose(head, x[:20]).reason
    with caplog.at_level(logging.DEBUG, "frostline"):
        m = fl.mean_map(head, x)
    assert choose(head, x).engine == "tree" and "instead of 12,000 sources" in caplog.text
    assert np.abs(m - fl.mean_map(head, x, engine="dense")).max() <= MEAN_MAP
    assert choose(head, x, tolerance=1e-15).engine == "dense"
    wide = fl.Attention.from_matrices(np.eye(8), np.eye(8), 1.0)
    assert choose(wide, fl.sample.uniform(2000, 8, seed=0)).reason == "d = 8"
    # Kernels that are wide and clouds that are thin, in four dimensions: nothing can be left out, little be merged.
    flat = fl.Attention.from_matrices(np.eye(4), np.eye(4), 30.0)
    taken = choose(flat, fl.sample.uniform(17_000, 4, seed=0))
    assert taken.engine == "dense" and "a tree would sum about" in taken.reason


@pytest.mark.parametrize("d", [5, 40])
def test_too_many_dimensions_are_refused(d):
    head = fl.Attention.from_matrices(np.eye(d), np.eye(d), 1.0)
    with pytest.raises(BadParameter, match=f"not {d}: boxes would need more proxies"):
        fl.mean_map(head, np.eye(d), engine="tree")


def test_half_precision_and_strides():
    """Whatever the memory looks like: reversed views, float32 and float16 tokens."""
    head = fl.Attention.from_matrices(np.diag([1, 0.5, 0.2]), np.eye(3), beta=100.0)
    x = fl.sample.uniform(4000, 3, seed=0)
    plain = fl.mean_map(head, x, engine="tree")
    assert np.abs(fl.mean_map(head, x[::-1], engine="tree")[::-1] - plain).max() <= 2e-8
    turned = np.asfortranarray(x)
    assert np.abs(fl.mean_map(head, turned, engine="tree") - plain).max() <= 2e-8
    low = fl.mean_map(head, x.astype(np.float32), engine="tree")
    assert low.dtype == np.float32 and np.abs(low - plain).max() < FLOAT32_LOW_D


def test_a_run_by_the_tree_is_the_run():
    """Sixty steps: the same tokens as with every pair summed, to the tolerance of the mean map times the time."""
    head = fl.Attention.from_matrices(np.diag([1, 0.5, 0.2]), np.eye(3), beta=300.0)
    x = fl.sample.uniform(2000, 3, seed=0)
    runs = [
        fl.simulate(head, x, until=3.0, stepper=fl.Euler(0.05), engine=name).tokens[-1] for name in ("tree", "dense")
    ]
    assert np.abs(runs[0] - runs[1]).max() < 1e-7


def test_weights_too_far_apart_for_compiled_loops():
    """A source of weight 1e-304 next to the query, one of weight 1 far away: the near one is all that counts."""
    y = np.array([[1, 0], [np.cos(0.5), np.sin(0.5)]])
    weights = np.array([1e-304, 1.0])
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), 1e5)
    many = np.repeat(y[:1], 300_000, axis=0)
    assert np.abs(fl.mean_map(head, many, sources=y, weights=weights) - many).max() <= MEAN_MAP
    with pytest.raises(BadParameter, match="too little for the tree engine"):
        fl.mean_map(head, many, sources=y, weights=weights, engine="tree")
    weights[0] = 1e-250
    assert np.abs(fl.mean_map(head, many[:9], sources=y, weights=weights, engine="tree") - many[:9]).max() <= MEAN_MAP


@pytest.mark.parametrize("seed", [1417, 1, 2, 3, 4])
@pytest.mark.parametrize("jitter", [0.0, 1e-16])
def test_equal_points_in_very_small_boxes(seed, jitter):
    rng = np.random.default_rng(seed)
    angles = np.repeat(rng.uniform(0, 6.28, 2), 100) + jitter * rng.standard_normal(200)
    y = np.stack([np.cos(angles), np.sin(angles)], 1)
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), 1.0)
    found = fl.mean_map(head, y, tolerance=1e-12, engine="tree")
    assert np.abs(found - fl.mean_map(head, y, engine="blocks")).max() <= ROUNDING


@pytest.mark.parametrize("engine", ["tree", "dense", "fused"])
def test_lengths_rounded_to_float32_do_not_matter(engine):
    """At β = 5e8 a length that is wrong by 1e-8 would be a factor e^5."""
    noise = 1e-4 * np.random.default_rng(2).normal(size=(3000, 2))
    x = fl.sphere.normalise(np.array([[0.6, 0.8]]) + noise).astype(np.float32)
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), 5e8)
    sure = fl.mean_map(head, fl.sphere.normalise(x.astype(float)), engine="blocks")
    assert np.abs(fl.mean_map(head, x, tolerance=1e-6, engine=engine) - sure).max() <= 1e-6 + 40 * 5e8 * 2e-16


@pytest.mark.parametrize("beta", [1e15, 1e20, 1e100])
@pytest.mark.parametrize("d", [2, 3])
def test_extreme_cold(beta, d):
    """Rounding decides which neighbour is nearest, but the mean stays among them."""
    head = fl.Attention.from_matrices(np.eye(d), np.eye(d), beta)
    x = fl.sample.uniform(3000, d, seed=1)
    assert np.abs(np.linalg.norm(fl.mean_map(head, x), axis=1) - 1).max() < 1e-9


@pytest.mark.parametrize("tolerance", [1e3, 1e30, True])
def test_odd_tolerances(tolerance):
    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), 10.0)
    x = fl.sample.uniform(2500, 2, seed=0)
    off = fl.mean_map(head, x, tolerance=tolerance) - fl.mean_map(head, x, engine="dense")
    assert np.linalg.norm(off, axis=1).max() <= min(float(tolerance), 0.1)
    assert choose(head, x, tolerance=tolerance).engine == "tree"
