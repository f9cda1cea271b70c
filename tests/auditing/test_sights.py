"""What heads see of kept texts: the law, recomputed token by token from the model's own attention, and the truth."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.stats import norm

import frostline as fl
from frostline.auditing.explanations import LAW
from frostline.auditing.scene_files import SIGHTS, read_sights
from frostline.auditing.scenes import FRAMES
from frostline.auditing.sights import UPPER, shapes_of
from tests.encoders import tiny
from tests.tolerances import HALF, SIGHT

TEXTS = ["the ice melts in the ground", "water", "the frost line moves below the cloud and the ice", "a token sees"]
FAMILIES = ("BERT", "ALBERT", "MPNet", "ModernBERT")


@pytest.fixture(scope="module", params=FAMILIES)
def kept(request, tmp_path_factory):
    """The scenes of an audit, and the model's own attention weights on each text (layers, heads, n, n)."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = tiny.save(tiny.model(request.param), tmp_path_factory.mktemp("model"))
    scenes = fl.audit(folder, TEXTS, keep_texts=len(TEXTS), perturbations=False).scenes
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval().double()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights = []
    for text in TEXTS:
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            attentions = model(input_ids=ids, output_attentions=True).attentions
        weights.append(np.stack([layer[0].numpy() for layer in attentions]))
    return scenes, weights


def law_of(weights, query, places):
    """The law of one query in plain words: shares, the best token, σ/σ_N, the tilt, and the mean really taken."""
    n = len(weights)
    seen = [j for j in range(n) if weights[j] > 0]
    inner = [j for j in seen if j not in (0, n - 1, query)]
    logit = {j: np.log(weights[j]) for j in seen}
    atoms = [0 if 0 in seen else -1, n - 1 if n - 1 in seen else -1, query if query not in (0, n - 1) else -1]
    best = max(inner, key=lambda j: logit[j], default=-1)
    mass = [np.exp(logit[j]) if j >= 0 else 0.0 for j in [*atoms, best]] + [0.0]
    freezing, tilt, moved = 0.0, np.zeros(places.shape[1:]), np.zeros(places.shape[1:])
    others = [j for j in inner if j != best]
    if others:
        s, y = np.array([logit[j] for j in inner]), places[inner]
        sigma, z = s.std(), (s.max() - s.mean()) / s.std()
        f = 1 - norm.pdf(z - sigma) / norm.cdf(z - sigma) / sigma
        phi = sigma**2 / 2 + norm.logcdf(z - sigma) - norm.logcdf(z)
        mass[4] = len(others) * np.exp(s.mean() + phi)
        freezing = sigma / np.sqrt(2 * np.log(len(inner)))
        tilt = f * np.mean([(s[k] - s.mean()) * (y[k] - y.mean(0)) for k in range(len(inner))], axis=0)
        paid = weights[others] / weights[others].sum()
        moved = np.einsum("j,jfk->fk", paid, places[others]) - y.mean(0)
    really = [weights[j] if j >= 0 else 0.0 for j in [*atoms, best]] + [weights[others].sum()]
    return np.array(mass) / sum(mass), really, best, freezing, tilt, moved


def test_shares_sum_to_one(kept):
    for scene in kept[0]:
        for shares in (scene.sights.law, scene.sights.paid):
            assert shares.sum(-1) == pytest.approx(np.ones(shares.shape[:-1]), abs=1e-12)
            assert (shares >= 0).all()


def test_law_and_truth_are_those_of_the_models_own_attention(kept):
    for scene, weights in zip(*kept, strict=True):
        sights, (layers, heads, n, _) = scene.sights, weights.shape
        assert sights.law.shape == (layers, heads, n, len(LAW)) and scene.length == n
        for layer, head, query in np.ndindex(layers, heads, n):
            places = np.stack([scene.places[name][layer] for name in FRAMES], 1)
            law, really, best, freezing, tilt, moved = law_of(weights[layer, head, query], query, places)
            at = layer, head, query
            assert sights.best[at] == best
            assert sights.paid[at] == pytest.approx(really, abs=SIGHT)
            assert sights.law[at] == pytest.approx(law, abs=SIGHT)
            assert sights.freezing[at] == pytest.approx(freezing, abs=SIGHT)
            assert sights.tilt[at] == pytest.approx(tilt, abs=SIGHT)
            assert sights.moved[at] == pytest.approx(moved, abs=SIGHT)


def test_the_ellipse_is_that_of_the_other_inner_tokens_that_can_be_seen(kept):
    for scene, weights in zip(*kept, strict=True):
        layers, _, n, _ = weights.shape
        for layer, query, (frame, name) in ((*at, each) for at in np.ndindex(layers, n) for each in enumerate(FRAMES)):
            inner = [j for j in range(1, n - 1) if j != query and weights[layer, 0, query, j] > 0]
            assert scene.sights.count[layer, query] == len(inner)
            if inner:
                y = scene.places[name][layer][inner]
                assert scene.sights.mean[layer, query, frame] == pytest.approx(y.mean(0), abs=1e-12)
                spread = np.cov(y.T, bias=True)[UPPER]
                assert scene.sights.covariance[layer, query, frame] == pytest.approx(spread, abs=1e-12)


def test_some_tokens_are_outside_a_window():
    """Otherwise nothing above has looked at windows."""
    model = tiny.model("ModernBERT")
    assert model.config.local_attention // 2 < len(TEXTS[2].split())


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    folder = tiny.save(tiny.model("BERT"), tmp_path_factory.mktemp("model"))
    return fl.audit(folder, TEXTS, keep_texts=3, perturbations=False)


def test_files_hold_the_numbers_rounded(audit, tmp_path):
    audit.save(tmp_path)
    read = read_sights(
        (tmp_path / SIGHTS).read_bytes(), 3, 4, [(len(scene.words), scene.length) for scene in audit.scenes]
    )
    for scene, arrays in zip(audit.scenes, read, strict=True):
        assert arrays.keys() == scene.sights.arrays().keys()
        for name, array in scene.sights.arrays().items():
            assert arrays[name] == pytest.approx(array, rel=HALF, abs=HALF**2)
    assert [scene["length"] for scene in json.loads((tmp_path / "scenes.json").read_text())] == [
        scene.length for scene in audit.scenes
    ]


def test_arrays_of_an_older_audit_do_not_stay(audit, tmp_path):
    audit.save(tmp_path)
    assert (tmp_path / SIGHTS).exists()
    dataclasses.replace(audit, scenes=()).save(tmp_path)
    assert not (tmp_path / SIGHTS).exists()


def test_a_long_text_is_looked_at_whole_and_kept_in_part(tmp_path):
    settings = tiny.config("BERT")
    settings.max_position_embeddings = 256
    folder = tiny.save(tiny.model("BERT", settings=settings), tmp_path)
    told = json.loads((folder / "tokenizer_config.json").read_text()) | {"model_max_length": 256}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (scene,) = fl.audit(folder, [" ".join(["ice water cloud"] * 60)], keep_texts=1, perturbations=False).scenes
    assert len(scene.words) == 128 and scene.length == 182
    assert {name: array.shape for name, array in scene.sights.arrays().items()} == shapes_of(3, 4, 128, len(FRAMES))
    assert (scene.sights.count[:, [0, 1]] == [180, 179]).all()
    # Tokens that are not kept are seen all the same.
    assert scene.sights.best.max() >= 128 and (scene.sights.paid[..., LAW.index("last")] > 0).all()
