import matplotlib.image
import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadParameter, BadRun
from frostline.transport.exact import exact


def run_in(d, n=50, V=None, values=None, **keywords):
    values = np.linspace(1, 0, d) if values is None else values
    head = fl.Attention.from_matrices(np.diag(values), np.eye(d) if V is None else V, beta=30.0)
    return fl.simulate(head, fl.sample.uniform(n, d, seed=0), until=1.0, save_at=[0, 0.5, 1.0], **keywords)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_a_panel_per_time_with_every_token_inside_the_disc(d):
    run = run_in(d)
    axes = fl.plot.tokens(run)
    assert [ax.get_title() for ax in axes] == ["t = 0", "t = 0.5", "t = 1"]
    for ax in axes:
        dots = np.concatenate([np.asarray(c.get_offsets()) for c in ax.collections[:2]])
        assert len(dots) == 50 and np.linalg.norm(dots, axis=1).max() <= 1 + 1e-9


def test_rings_sit_on_the_predicted_points():
    ax = fl.plot.tokens(run_in(3))[0]
    assert np.allclose(sorted(np.asarray(ax.collections[2].get_offsets()).tolist()), [[-1, 0], [1, 0]])


def test_without_a_limit_there_are_no_rings():
    V = np.array([[0, -1.0, 0], [1.0, 0, 0], [0, 0, -1.0]])
    ax = fl.plot.tokens(run_in(3, V=V, values=np.ones(3)))[0]
    assert len(ax.collections) == 2


def test_tokens_without_a_limit_are_grey_and_the_others_keep_their_colours(two_clusters):
    x0 = np.array([[0.6, 0.8, 0], [-0.6, 0.8, 0], [0, 1.0, 0]])
    ax = fl.plot.tokens(fl.simulate(two_clusters, x0, until=0.1, save_at=[0]))[0]
    colours = np.concatenate([c.get_facecolors() for c in ax.collections[:2] if len(c.get_offsets())])
    assert len(np.unique(colours[:, :3], axis=0)) == 3


def test_large_clouds_are_thinned_and_the_figure_says_so():
    axes = fl.plot.tokens(run_in(3, n=9000, max_steps=1, stepper=fl.Euler(0.1)))
    assert len(axes[0].collections[0].get_offsets()) + len(axes[0].collections[1].get_offsets()) == 3000
    assert "One token in 3" in axes[0].figure.texts[-1].get_text()


def test_distance_is_exact_for_two_points():
    run = run_in(3)
    drawn = fl.plot.distance(run).lines[0].get_ydata()
    goal = fl.limit(run.layers[0][0])(run.initial)
    assert np.allclose(drawn, [exact(x, goal) for x in run.tokens])


def test_distance_draws_the_index_coupling_otherwise():
    head = fl.Attention.from_matrices(np.diag([1.0, 1.0, 0.2]), np.eye(3), beta=30.0)
    run = fl.simulate(head, fl.sample.uniform(30, 3, seed=0), until=1.0, save_at=[0, 1])
    ax = fl.plot.distance(run)
    goal = fl.limit(head)(run.initial)
    assert np.allclose(ax.lines[0].get_ydata(), np.sqrt((np.linalg.norm(run.tokens - goal, axis=2) ** 2).mean(1)))
    assert "upper bound" in ax.figure.texts[-1].get_text()


def test_distance_with_phases_certificate_and_bound():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=30.0)
    run = fl.simulate(head, fl.sample.uniform(100, 2, seed=0), until=20.0, save_at=np.linspace(0, 20, 9))
    seen, proven = fl.phases(run), fl.certificate(run)
    ax = fl.plot.distance(run, phases=seen, certificate=proven, bound=fl.bound(head))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "certified (proven, this run)" in labels and "eq. 11, order of magnitude" in labels
    assert {text.get_text() for text in ax.texts} == {"concentration", "plateau"}
    with pytest.raises(BadParameter, match="W1 to the limit; the picture shows W2"):
        fl.plot.distance(run, certificate=fl.certificate(run, p=1))
    with pytest.raises(BadParameter, match="read off W1"):
        fl.plot.distance(run, phases=fl.phases(run, p=1))
    certified = next(line for line in ax.lines if line.get_label().startswith("certified")).get_ydata()
    assert np.array_equal(certified, np.where(proven.vacuous, np.nan, proven.values), equal_nan=True)


def test_distance_leaves_tokens_without_a_limit_out():
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=30.0)
    run = fl.simulate(head, np.eye(3), until=0.1, weights=[0.5, 0.25, 0.25], save_at=[0, 0.1])
    assert np.isfinite(fl.plot.distance(run).lines[0].get_ydata()).all()


def test_saved_pictures_open_and_repeat(tmp_path):
    for name in ("a", "b"):
        fl.plot.save(fl.plot.tokens(run_in(3))[0].figure, tmp_path / name)
    for suffix in (".png", ".svg"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    image = matplotlib.image.imread(tmp_path / "a.png")
    assert image.shape[0] > 400 and 0.01 < (image[..., :3].min(axis=2) < 0.9).mean() < 0.6


def test_what_cannot_be_drawn_gets_a_sentence(two_clusters):
    x0 = fl.sample.uniform(6, 3, seed=0)
    with pytest.raises(BadParameter, match="pick a member"):
        fl.plot.tokens(fl.simulate(two_clusters, x0.reshape(2, 3, 3), until=0.1))
    with pytest.raises(BadParameter, match="stack"):
        fl.plot.distance(fl.simulate([two_clusters, two_clusters], x0, until=0.1))
    empty = fl.simulate(two_clusters, x0, until=1.0, max_steps=1, stepper=fl.Euler(0.1))
    with pytest.raises(BadRun, match="kept no times"):
        fl.plot.tokens(empty)
    with pytest.raises(BadRun, match="kept no times"):
        fl.plot.distance(empty)
    with pytest.raises(BadParameter, match="one run"):
        fl.plot.distance(fl.simulate(two_clusters, x0.reshape(2, 3, 3), until=0.1))
