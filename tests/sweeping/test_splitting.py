"""One problem on many processes gives what one process gives."""

import numpy as np
import pytest

import frostline as fl
from frostline.sweeping import splitting
from frostline.sweeping.cluster import local
from tests.encoders import tiny
from tests.tolerances import ROUNDING

pytest.importorskip("distributed")
TEXTS = [f"the ice {'melts ' * (k % 5)}water {'frost ' * (k % 7)}line" for k in range(90)]


@pytest.fixture(scope="module")
def client():
    with local(2, 1) as client:
        yield client


@pytest.mark.parametrize("d", [2, 3, 10])
def test_queries_are_split(client, d, rng):
    head = fl.Attention.from_matrices(rng.normal(size=(d, d)), np.eye(d), beta=20.0)
    x, sources = fl.sample.uniform(1501, d, seed=1), fl.sample.uniform(700, d, seed=2)
    weights = rng.random(700)
    weights /= weights.sum()
    for options in ({}, {"sources": sources}, {"sources": sources, "weights": weights}):
        split = splitting.mean_map(head, x, client=client, **options)
        assert np.abs(split - fl.mean_map(head, x, engine="dense", **options)).max() < ROUNDING


@pytest.mark.slow
def test_the_tree_agrees_to_its_tolerance(client):
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=300.0)
    x = fl.sample.uniform(6000, 3, seed=1)
    split = splitting.mean_map(head, x, client=client, engine="tree", tolerance=1e-7)
    assert np.abs(split - fl.mean_map(head, x, engine="dense")).max() < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("live", [False, True], ids=["folder", "live model"])
def test_an_audit_is_split(client, tmp_path, live):
    folder = tiny.save(tiny.model("BERT"), tmp_path / "model")
    model, options = str(folder), {"seed": 3}
    if live:
        from transformers import AutoModel, AutoTokenizer

        model = AutoModel.from_pretrained(folder).eval()
        options["tokenizer"] = AutoTokenizer.from_pretrained(folder)
    here, split = fl.audit(model, TEXTS, **options), splitting.audit(model, TEXTS, client=client, **options)
    assert here.sentence == split.sentence and here.metrics.keys() == split.metrics.keys()
    for name in ("heads", "layers", "clouds"):
        one, other = getattr(here, name), getattr(split, name)
        assert one.column_names == other.column_names
        for column in one.column_names:
            a, b = one[column].to_pylist(), other[column].to_pylist()
            if isinstance(a[0], float):
                assert a == pytest.approx(b, rel=ROUNDING, abs=ROUNDING, nan_ok=True), (name, column)
            else:
                assert a == b


def layers(sent):
    return sent.load().layers


def test_workers_that_have_another_model_there_are_named(client, tmp_path):
    folder = tiny.save(tiny.model("BERT"), tmp_path / "model")
    sent = splitting._Folder.of(folder)
    assert client.submit(layers, sent, pure=False).result() == sent.load().layers > 0
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(fl.errors.BadCluster, match="is not the model that the client has there"):
        client.submit(layers, sent, pure=False).result()


def dies(_):
    import os

    os._exit(1)


@pytest.mark.slow
def test_workers_that_die_are_said():
    with (
        local(1, 1) as client,
        pytest.raises(fl.errors.BadCluster, match="took 4 workers down"),
        splitting._sentences(),
    ):
        client.gather(client.submit(dies, 1))


def test_a_cluster_without_workers_is_said():
    from distributed import Client, LocalCluster

    head = fl.Attention.from_matrices(np.eye(2), np.eye(2), beta=1.0)
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", host="127.0.0.1") as none,
        Client(none) as client,
        pytest.raises(fl.errors.BadParameter, match="no workers"),
    ):
        splitting.mean_map(head, np.eye(2), client=client)
