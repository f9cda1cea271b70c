"""wasserstein: laws of a distance, problems made with their answers, every method against every other."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.errors import BadArray, BadParameter, BadWeights, OffSphere
from frostline.theory.flow import at_clocks
from frostline.transport.index_coupling import index_coupling
from frostline.transport.sliced import sliced
from tests.problems import head_with, symmetric
from tests.tolerances import EXACT_DISTANCE, ROUNDING

ORDERS = st.sampled_from([1.0, 1.5, 2.0, 4.0])
SEEDS = st.integers(0, 10**6)
METRIC = st.sampled_from(["euclidean", "geodesic"])


def cloud(rng, n, d):
    """Points with ties and clusters: repeated points and near-repeated ones are ordinary."""
    x = fl.sample.uniform(n, d, seed=rng)
    if n > 3 and rng.random() < 0.5:
        x[: n // 2] = x[0]
    if n > 3 and rng.random() < 0.3:
        x[n // 2 :] = fl.sphere.normalise(x[-1] + 1e-9 * rng.standard_normal((n - n // 2, d)))
    return x


def weights(rng, n):
    w = rng.dirichlet(np.ones(n))
    if n > 2 and rng.random() < 0.3:
        w[0] = 0.0
    return w / w.sum()


@given(SEEDS, ORDERS, METRIC)
def test_laws_of_a_distance(seed, p, metric):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 6))
    x, y, z = (cloud(rng, int(rng.integers(1, 12)), d) for _ in range(3))
    a, b, c = (weights(rng, len(w)) for w in (x, y, z))

    def W(u, v, s, t, order=p):
        return fl.wasserstein(u, v, p=order, x_weights=s, y_weights=t, metric=metric).value

    order = rng.permutation(len(x))
    assert W(x, x[order], a, a[order]) <= 1e-7
    assert W(x, y, a, b) == pytest.approx(W(y, x, b, a), abs=EXACT_DISTANCE)
    assert W(x, z, a, c) <= W(x, y, a, b) + W(y, z, b, c) + EXACT_DISTANCE
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    assert W(x @ Q, y @ Q, a, b) == pytest.approx(W(x, y, a, b), abs=1e-7)
    assert W(x, y, a, b) <= W(x, y, a, b, order=p + 1) + EXACT_DISTANCE
    # A point cut in two is the same point.
    twice, halves = np.concatenate([x, x]), np.concatenate([0.3 * a, 0.7 * a])
    assert W(twice, y, halves, b) == pytest.approx(W(x, y, a, b), abs=EXACT_DISTANCE)


@given(SEEDS, ORDERS)
def test_diracs(seed, p):
    rng = np.random.default_rng(seed)
    x, y = fl.sample.uniform(1, 4, seed=rng), fl.sample.uniform(6, 4, seed=rng)
    w = weights(rng, 6)
    expected = float((w @ np.linalg.norm(y - x, axis=1) ** p) ** (1 / p))
    assert fl.wasserstein(x, y, p=p, y_weights=w).value == pytest.approx(expected, rel=ROUNDING)


@given(SEEDS, ORDERS, st.floats(-0.3, 0.3))
def test_a_rotation_along_the_circle(seed, p, angle):
    """Points within a half-circle, turned by less than they are apart from it: everyone moves by the angle."""
    rng = np.random.default_rng(seed)
    s = rng.uniform(0, 2.5, 9)
    x, y = (np.stack([np.cos(t), np.sin(t)], axis=1) for t in (s, s + angle))
    found = fl.wasserstein(x, y, p=p, metric="geodesic")
    assert found.method == "circle" and found.value == pytest.approx(abs(angle), abs=1e-7)


@given(SEEDS, ORDERS)
def test_points_on_a_short_arc_are_sorted(seed, p):
    """On an arc the geodesic problem is the one of a line: order statistics are coupled."""
    rng = np.random.default_rng(seed)
    s, t = np.sort(rng.uniform(0, 3.0, 8)), np.sort(rng.uniform(0, 3.0, 8))
    plane = np.linalg.qr(rng.standard_normal((5, 2)))[0]
    x, y = (np.stack([np.cos(u), np.sin(u)], axis=1) @ plane.T for u in (s, t))
    expected = float((np.abs(s - t) ** p).mean() ** (1 / p))
    assert fl.wasserstein(x, y, p=p, metric="geodesic").value == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("values", [(1.0, 0.4, 0.1), (1.0, 1.0, 0.2)])
def test_a_zero_temperature_cloud_against_its_own_limit(rng, values, p):
    """Symmetric A: the index coupling is optimal (THEORY section 10), in whatever order the limit is listed."""
    head = head_with(symmetric(values, rng), rng)
    x0 = fl.sample.uniform(200, 3, seed=rng)
    # A one-dimensional limit is two atoms to the last bit, whatever the eigenvectors.
    x, limit = at_clocks(head, x0, [0.7])[0], fl.limit(head)(x0)
    if values[1] < 1:
        assert len(np.unique(limit, axis=0)) == 2
    plain = float((np.linalg.norm(x - limit, axis=1) ** p).mean() ** (1 / p))
    assert float(index_coupling(x, limit, p=p)) == pytest.approx(plain, rel=ROUNDING)
    assert fl.wasserstein(x, limit[rng.permutation(200)], p=p).value == pytest.approx(plain, rel=EXACT_DISTANCE)


@given(SEEDS, ORDERS, METRIC)
def test_every_method_against_every_other(seed, p, metric):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 5))
    x, y = cloud(rng, int(rng.integers(2, 40)), d), cloud(rng, int(rng.integers(1, 40)), d)
    a, b = weights(rng, len(x)), weights(rng, len(y))
    kept = {"p": p, "metric": metric, "x_weights": a, "y_weights": b}
    methods = ["exact", "bracket", "atoms"] + (["circle"] if d == 2 and metric == "geodesic" else [])
    found = [fl.wasserstein(x, y, method=method, **kept) for method in methods]
    for one in found:
        assert one.value == pytest.approx(found[0].value, abs=1e-8)
        assert one.lower <= found[0].value + 1e-10 and found[0].value <= one.upper + 1e-10


@given(SEEDS, METRIC)
def test_plans_have_the_marginals_and_the_cost(seed, metric):
    rng = np.random.default_rng(seed)
    x, y = cloud(rng, 20, 3), cloud(rng, 15, 3)
    a, b = weights(rng, 20), weights(rng, 15)
    for method in ("exact", "bracket", "atoms"):
        found = fl.wasserstein(x, y, x_weights=a, y_weights=b, metric=metric, method=method, plan=True)
        rows, columns, mass = found.plan
        for w, places in ((a, rows), (b, columns)):
            assert np.abs(np.bincount(places, weights=mass, minlength=len(w)) - w).max() < EXACT_DISTANCE
        again = fl.wasserstein(x, y, x_weights=a, y_weights=b, metric=metric, method="bracket", coupling=found.plan)
        assert again.upper <= found.upper * (1 + 1e-9) + 1e-12
        chords = np.linalg.norm(x[rows] - y[columns], axis=1)
        costs = 2 * np.arcsin(np.minimum(1, chords / 2)) if metric == "geodesic" else chords
        assert float((mass @ costs**2) ** 0.5) == pytest.approx(found.upper, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("p, metric", [(1.0, "euclidean"), (2.0, "euclidean"), (2.0, "geodesic"), (3.0, "euclidean")])
def test_brackets_of_larger_clouds_contain_the_exact_value(rng, p, metric):
    """n = 1200 with only 512 cells: summaries, halvings and regroupings are really used."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), 1.0)
    x = fl.sample.uniform(1200, 3, seed=rng)
    y = at_clocks(head, x, [1.0])[0][rng.permutation(1200)]
    a, b = rng.dirichlet(np.ones(1200)), rng.dirichlet(np.ones(1200))
    kept = {"p": p, "metric": metric, "x_weights": a, "y_weights": b}
    found = fl.wasserstein(x, y, method="bracket", tolerance=0.2, **kept)
    true = fl.wasserstein(x, y, method="exact", **kept).value
    assert found.lower <= true <= found.upper and found.width < 0.2
    assert found.lower > 0.8 * true and found.upper < 1.2 * true


def test_the_index_coupling_helps_where_it_is_good(rng):
    x = fl.sample.uniform(3000, 3, seed=rng)
    y = fl.sphere.normalise(x + 1e-4 * rng.standard_normal(x.shape))
    found = fl.wasserstein(x, y, method="bracket", coupling="index", tolerance=0.5)
    assert found.upper <= float(np.sqrt((np.linalg.norm(x - y, axis=1) ** 2).mean())) * (1 + 1e-9)


def test_auto_chooses_and_says_why(rng):
    x, y = fl.sample.uniform(30, 3, seed=rng), fl.sample.uniform(30, 3, seed=rng)
    assert fl.wasserstein(x, y[:2]).why == "one side has 2 atoms"
    assert fl.wasserstein(x, np.repeat(y[:1], 30, axis=0)).why == "one side has 1 atom"
    assert fl.wasserstein(x, y).why == "30 × 30 points are few"
    many = fl.sample.uniform(3000, 3, seed=rng)
    assert fl.wasserstein(many, many[::-1] * [1, 1, -1], tolerance=0.9).method == "bracket"
    assert fl.wasserstein(many, y[:3], tolerance=0.9).method == "exact"


@pytest.mark.parametrize("method", ["exact", "bracket", "atoms"])
def test_float32_is_nearly_float64(rng, method):
    """|ΔW| ≤ 1e-4·W + 1e-6, torch and numpy alike."""
    x, y = fl.sample.uniform(50, 3, seed=rng), fl.sample.uniform(40, 3, seed=rng)
    wide = fl.wasserstein(x, y, method=method).value
    narrow = fl.wasserstein(torch.from_numpy(x).float(), y.astype(np.float32), method=method).value
    assert abs(narrow - wide) <= 1e-4 * wide + 1e-6
    same = fl.wasserstein(x.astype(np.float32), x[::-1].astype(np.float32), method=method).value
    assert same <= 1e-6


def test_sliced_is_a_statistic_with_its_error(rng):
    """Zero for equal clouds; its error shrinks like the root of the projections; it sees a shift."""
    x = fl.sample.uniform(100, 4, seed=rng)
    assert sliced(x, x[::-1]).value < 1e-6
    shifted = fl.sample.vmf(100, [1, 0, 0, 0], 5.0, seed=rng)
    few, many = sliced(x, shifted, projections=50), sliced(x, shifted, projections=800)
    assert many.value > 10 * many.standard_error
    assert few.standard_error / many.standard_error == pytest.approx(4, rel=0.4)
    assert abs(few.value - many.value) < 4 * np.hypot(few.standard_error, many.standard_error)


def test_bad_calls_get_a_sentence(rng):
    x, y = fl.sample.uniform(5, 3, seed=rng), fl.sample.uniform(4, 3, seed=rng)
    for error, words, call in (
        (BadArray, "x has dimension 3, y 2", lambda: fl.wasserstein(x, y[:, :2])),
        (BadArray, "one or more points", lambda: fl.wasserstein(x, np.zeros((0, 3)))),
        (BadArray, "NaN", lambda: fl.wasserstein(x, np.full((2, 3), np.nan))),
        (BadWeights, "they differ by 0.5", lambda: fl.wasserstein(x, y, y_weights=[0.5, 0, 0, 0])),
        (BadWeights, "not all zero", lambda: fl.wasserstein(x, y, y_weights=np.zeros(4))),
        (BadWeights, "4 points need", lambda: fl.wasserstein(x, y, y_weights=[1.0])),
        (BadParameter, "p is 0.5", lambda: fl.wasserstein(x, y, p=0.5)),
        (BadParameter, "metric 'cosine'", lambda: fl.wasserstein(x, y, metric="cosine")),
        (BadParameter, "method 'fast'", lambda: fl.wasserstein(x, y, method="fast")),
        (OffSphere, "angles have no meaning", lambda: fl.wasserstein(2 * x, y, metric="geodesic")),
        (BadParameter, "one great circle", lambda: fl.wasserstein(x, y, metric="geodesic", method="circle")),
        (BadParameter, "geodesic", lambda: fl.wasserstein(x, y, method="circle")),
        (BadArray, "one by one: 5 do not match 4", lambda: fl.wasserstein(x, y, coupling="index")),
        (BadWeights, "differ", lambda: fl.wasserstein(x, x, x_weights=[1, 0, 0, 0, 0], coupling="index")),
        (BadParameter, "tolerance is 2", lambda: fl.wasserstein(x, y, tolerance=2)),
        (BadParameter, "seconds is 0", lambda: fl.wasserstein(x, y, seconds=0)),
        (BadParameter, "at least 2", lambda: sliced(x, y, projections=1)),
    ):
        with pytest.raises(error, match=words):
            call()
    many = fl.sample.uniform(20_000, 3, seed=rng)
    with pytest.raises(BadParameter, match=r"2\.98 GiB for its costs"):
        fl.wasserstein(many, many[::-1], method="exact")
    with pytest.raises(BadParameter, match="takes up to 64"):
        fl.wasserstein(many, many[::-1], method="atoms")


def test_a_coupling_is_a_result_and_a_tuple():
    plan = fl.wasserstein([[1.0, 0.0], [0.0, 1.0]], np.eye(2)[::-1], method="exact", plan=True).plan
    rows, columns, mass = plan
    assert isinstance(plan, tuple) and plan.describe() == "2 pairs, mass 1"
    assert plan.facts() == {"rows": rows.tolist(), "columns": columns.tolist(), "mass": mass.tolist()}
