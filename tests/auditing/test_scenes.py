"""Token clouds that an audit keeps: the model's own, along directions that are what they are called."""

import json

import numpy as np
import pytest

import frostline as fl
from frostline.auditing.scenes import FRAMES
from frostline.encoders.fold import folded
from frostline.encoders.load import load
from frostline.encoders.spectra import Factors
from frostline.exploring.messages import unpack
from frostline.exploring.saved_folders import open_folder
from tests.encoders import tiny

TEXTS = ["the ice melts in the ground", "water", "the frost line moves below the cloud and the ice"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save(tiny.model("BERT"), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def audit(folder):
    return fl.audit(folder, TEXTS, keep_texts=2, perturbations=False)


def test_words_and_clouds_are_those_of_the_model(audit, folder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    assert len(audit.scenes) == 2
    clouds = []
    for scene, text in zip(audit.scenes, TEXTS, strict=False):
        inputs = tokenizer(text, return_tensors="pt")
        assert list(scene.words) == tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        with torch.no_grad():
            last = model(**inputs).last_hidden_state[0].double().numpy()
        norm = model.encoder.layer[-1].output.LayerNorm
        raw = (last - norm.bias.detach().numpy()) / norm.weight.detach().numpy()
        unit = raw - raw.mean(1, keepdims=True)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        clouds.append(unit)
        close = unit @ unit.T > np.cos(0.3)
        same = scene.clusters[-1][:, None] == scene.clusters[-1]
        assert (same | ~close).all()
    # Seen along the directions in which the kept tokens are longest; a direction may point either way.
    longest = np.linalg.svd(np.concatenate(clouds))[2][:3]
    for scene, unit in zip(audit.scenes, clouds, strict=True):
        assert np.abs(scene.places["tokens"][-1]) == pytest.approx(np.abs(unit @ longest.T), abs=1e-4)


def test_the_dominant_space_is_invariant_and_has_the_leading_eigenvalue(folder):
    layer = folded(load(folder), 0)
    basis = Factors.of(layer).leading_of_sum(3).T
    assert basis @ basis.T == pytest.approx(np.eye(3), abs=1e-9)
    A = np.asarray(sum(head.beta * head.matrices.A for head in layer.heads()))
    values = np.linalg.eigvals(A)
    # The restriction of A to the first direction(s) has the leading eigenvalue.
    lead = values[np.argmax(values.real)]
    plane = basis[: 1 if lead.imag == 0 else 2]
    inside = np.linalg.eigvals(plane @ A @ plane.T)
    assert inside[np.argmax(inside.real)].real == pytest.approx(lead.real, rel=1e-6)
    # And the space is invariant: A leads nowhere out of it.
    assert plane.T @ (plane @ A @ plane.T) == pytest.approx(A @ plane.T, abs=1e-9 * np.abs(A).max())


def test_a_saved_audit_opens_and_a_second_one_without_texts_leaves_none(audit, folder, tmp_path):
    audit.save(tmp_path)
    opened = open_folder(tmp_path)
    messages = list(unpack(b"".join(opened.messages())))
    assert [facts["words"] for facts, _ in messages] == [list(scene.words) for scene in audit.scenes]
    for (_, arrays), scene in zip(messages, audit.scenes, strict=True):
        for name, array in zip(FRAMES, arrays, strict=True):
            assert array == pytest.approx(scene.places[name], abs=1e-5)
    assert opened.about["frost"] is None  # three texts do not tell
    assert "words" in json.loads((tmp_path / "scenes.json").read_text())[0]
    fl.audit(folder).save(tmp_path)
    assert not (tmp_path / "scenes.json").exists()


def test_texts_that_are_not_there_cannot_be_kept(folder):
    with pytest.raises(fl.errors.FrostlineError, match="none is given"):
        fl.audit(folder, keep_texts=2)
    assert len(fl.audit(folder, TEXTS[:1], keep_texts=9, perturbations=False).scenes) == 1
