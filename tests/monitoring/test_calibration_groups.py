"""Groups of calibration texts by length: nearly equal, whatever lengths tie; each keeps the promise by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import BadParameter
from frostline.monitoring.baseline import count_calibration_texts
from frostline.monitoring.calibration import FEWEST_PER_GROUP, Conformal, check_alpha, group_sizes, texts_for


@st.composite
def calibrations(draw):
    """Scores and lengths: of continuous length, of few lengths that tie, and of neighbours in float32."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    count = draw(st.one_of(st.integers(1, 900), st.sampled_from([100, 200, 799, 800, 1799, 1800, 3200, 4000])))
    values = draw(st.integers(1, 60))
    kind = draw(st.sampled_from(["continuous", "ties", "one length and some", "neighbours"]))
    if kind == "continuous":
        lengths = rng.uniform(0, 6, count)
    elif kind == "ties":
        lengths = np.log(1 + rng.choice(values, count, p=rng.dirichlet(np.full(values, 0.3))))
    elif kind == "one length and some":
        lengths = np.where(rng.random(count) < rng.random(), 2.5, np.log(rng.integers(1, 500, count)))
    else:
        lengths = 2 + np.float64(np.finfo(np.float32).eps) * 2 * rng.integers(0, values, count)
    return rng.permutation(count) / 7 + 0.25, lengths, rng


def groups_of(fitted, lengths):
    return torch.bucketize(torch.from_numpy(lengths).float(), fitted.edges, right=True).numpy()


@given(calibrations())
def test_no_group_is_small_and_each_ranks_by_its_own_texts(drawn):
    """With n texts every group gives p-values down to 8/(n + 8); a p-value is the rank in the text's own group."""
    scores, lengths, rng = drawn
    count = len(scores)
    fitted = Conformal.fit(scores, lengths)
    group = groups_of(fitted, lengths)
    assert fitted.counts.tolist() == np.bincount(group, minlength=len(fitted.counts)).tolist()
    assert fitted.smallest <= 8 / (count + 8) and fitted.smallest == 1 / (1 + int(fitted.counts.min()))
    assert len(fitted.counts) == 1 or int(fitted.counts.min()) >= FEWEST_PER_GROUP * len(fitted.counts)
    # One value of the length, one group; longer texts are never in an earlier one.
    order = np.argsort(lengths.astype(np.float32), kind="stable")
    assert (np.diff(group[order]) >= 0).all()
    chosen = rng.choice(count, min(20, count), replace=False)
    news = np.concatenate([scores[chosen], scores[chosen] + 0.01])
    p = fitted.p_values(torch.from_numpy(news).float(), torch.from_numpy(np.tile(lengths[chosen], 2)).float())
    for new, place, value in zip(news, np.tile(chosen, 2), p.tolist(), strict=True):
        mates = scores[group == group[place]]
        assert value == (1 + (np.float32(mates) >= np.float32(new)).sum()) / (1 + len(mates))


@given(st.integers(1, 5000))
def test_groups_are_equal_where_lengths_do_not_tie(count):
    fitted = Conformal.fit(np.arange(count) / 3, np.linspace(0, 6, count))
    assert sorted(fitted.counts.tolist(), reverse=True) == list(group_sizes(count))
    assert max(group_sizes(count)) - min(group_sizes(count)) <= 1 and sum(group_sizes(count)) == count


def test_lengths_that_are_neighbours_in_float32_are_parted():
    """Two values with nothing between them: each is a group; the edge is no text's length where there is room."""
    low = np.float32(2.5)
    for high in (np.nextafter(low, np.float32(3)), np.float32(3)):
        fitted = Conformal.fit(np.arange(1000) / 3, np.repeat([low, high], 500).astype(float))
        assert fitted.counts.tolist() == [500, 500] and low < float(fitted.edges[0]) <= high
    assert float(fitted.edges[0]) == 2.75


def test_floors():
    """More texts may split a group, but never lift the floor above 1/(14 √n), nor above that of the split before."""
    floors = {count: 1 / (1 + min(group_sizes(count))) for count in range(1, 8000)}
    assert [round(floors[count], 5) for count in (200, 799, 800, 1800, 3200)] == [
        0.00498,
        0.00125,
        0.00249,
        0.00166,
        0.00125,
    ]
    assert all(floors[count] <= min(1 / (14 * np.sqrt(count)), 8 / (count + 1)) for count in range(200, 3200))
    assert all(floors[count] <= 4 / (count + 1) for count in range(3200, 8000))


def test_every_group_keeps_the_promise():
    """Scores that depend on length, lengths that tie: in 300 resplits each group holds α = 1, 2, 5 % by itself.

    Each share lies within 4 standard errors of resplits of α, or below it: false failure below 1e-3.
    """
    rng = np.random.default_rng(0)
    shares = {alpha: [] for alpha in (0.01, 0.02, 0.05)}
    for _ in range(300):
        lengths = np.log(np.round(np.exp(rng.normal(2.5, 0.6, 1800))).clip(1))
        scores = lengths**2 * rng.standard_normal(1800) + 10 * lengths
        fitted = Conformal.fit(scores[:900], lengths[:900])
        p = fitted.p_values(torch.from_numpy(scores[900:]).float(), torch.from_numpy(lengths[900:]).float()).numpy()
        group = groups_of(fitted, lengths[900:])
        assert len(fitted.counts) >= 2
        for alpha, rows in shares.items():
            rows.append([(p[group == number] <= alpha).mean() for number in (0, len(fitted.counts) - 1)])
    for alpha, rows in shares.items():
        means, errors = np.mean(rows, 0), np.std(rows, 0) / np.sqrt(len(rows))
        assert (means <= alpha + 4 * errors).all() and (means >= 0.7 * alpha).all()


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.008, 0.005, 0.004, 0.0025, 0.002, 0.001])
def test_an_alpha_below_the_floor_is_refused_with_the_texts_it_takes(alpha):
    enough = count_calibration_texts(texts_for(alpha))
    assert all(1 / (1 + min(group_sizes(count))) <= alpha for count in range(enough, 10 * enough))
    fitted = Conformal.fit(np.arange(enough) / 3, np.linspace(0, 6, enough))
    check_alpha(fitted, alpha)
    check_alpha(fitted, 1.0)
    with pytest.raises(BadParameter, match=f"p-values of this baseline go down to {fitted.smallest:.2g} only"):
        check_alpha(fitted, fitted.smallest * 0.99)


def test_advice_on_alpha_is_advice():
    fitted = Conformal.fit(np.arange(600) / 3, np.linspace(0, 6, 600))
    with pytest.raises(BadParameter, match=r"alpha is 0.001, .* an alpha of 0.0017 or more.* about 9,990 texts"):
        check_alpha(fitted, 0.001)
    check_alpha(fitted, 0.0017)
    with pytest.raises(BadParameter, match="no baseline reaches smaller ones"):
        check_alpha(fitted, 1e-6)
    for alpha in (0.0, -1.0, 1.5, np.nan):
        with pytest.raises(BadParameter, match="between 0 and 1"):
            check_alpha(fitted, alpha)
