"""fl.baseline(model, texts), base.score(model, texts): where the tokenizer is found, what wrong calls are told."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadParameter, BadText
from tests.encoders import tiny
from tests.monitoring.sentences import fresh


def test_the_tokenizer_in_the_folder_is_found(base, folder, live):
    texts = fresh(5)
    found = base.score(folder, texts).scores
    assert np.array_equal(base.score(str(folder), texts).scores, found)
    assert np.array_equal(base.score(folder, texts, tokenizer=live[1]).scores, found)
    assert np.array_equal(base.score(folder, (text for text in texts)).scores, found)


def test_the_tokenizer_beside_a_live_model_is_found(base, live):
    model, tokenizer = live
    texts = fresh(5)
    assert np.array_equal(base.score(model, texts).scores, base.score(model, texts, tokenizer=tokenizer).scores)


@pytest.fixture
def bare(live, tmp_path, monkeypatch):
    """A live model that names no folder with a tokenizer, and a hub that must not be asked."""
    import huggingface_hub

    def fetched(*_, **__):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetched)
    return copy.deepcopy(live[0])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "does not say where it is from"),
        ("sentence-transformers/all-MiniLM-L6-v2", "config.name_or_path is 'sentence-transformers/all-MiniLM-L6-v2'"),
        ("/nowhere", "config.name_or_path is '/nowhere', no folder here"),
        (".", "no tokenizer that can be read"),
    ],
)
def test_a_live_model_without_a_tokenizer_is_told_how_to_give_it(base, bare, tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    bare.config.name_or_path = name
    for call in (lambda: base.score(bare, fresh(3)), lambda: fl.baseline(bare, fresh(3))):
        with pytest.raises(BadParameter, match=r"tokenizer=transformers\.AutoTokenizer") as told:
            call()
        assert words in str(told.value)


def test_a_folder_without_a_tokenizer(base, tmp_path):
    model = tiny.model("BERT", spread=0.1)
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(BadParameter, match=r"bare has no tokenizer that can be read.* give it: tokenizer="):
        base.score(tmp_path / "bare", fresh(3))


def test_calls_in_the_old_order_are_answered_with_the_new_one(base, folder, live):
    tokenizer, texts = live[1], fresh(3)
    score, learn = r"base\.score\(model, texts, tokenizer=tokenizer\)", r"fl\.baseline\(model, texts, tokenizer="
    for given in ((folder, tokenizer, texts), (folder, None, texts), (folder, texts, tokenizer), (folder, tokenizer)):
        with pytest.raises(BadParameter, match=score):
            base.score(*given)
        with pytest.raises(BadParameter, match=learn):
            fl.baseline(*given)
    with pytest.raises(BadParameter, match=score):
        base.score(folder, tokenizer, texts=texts)
    with pytest.raises(BadParameter, match=learn):
        fl.baseline(folder, texts=tokenizer)


# Run as users run, without the checker of types that tests have.
WRONG = r"""
import json
import torch
import frostline as fl
from frostline.monitoring.baseline import Baseline

class Pipeline:
    model = None

score = Baseline({}, {}).score
models = [None, 5, ["model"], Pipeline(), torch.nn.Linear(2, 2), "no/such/folder"]
texts = ["one text", b"bytes", None, {"text": 1}, 7, [1, 2], ["fine", None]]
told = []
for call in (score, fl.baseline):
    for given in [(model, ["fine"]) for model in models] + [(".", text) for text in texts]:
        try:
            call(*given)
        except fl.errors.FrostlineError as error:
            told.append(f"{type(error).__name__}: {error}")
print(json.dumps(told))
"""
SAID = (
    "BadModel: the model is a NoneType; give a transformers model",
    "BadModel: the model is a int",
    "BadModel: the model is a list",
    "BadModel: the model is a Pipeline",
    "BadModel: the model, a Linear, has no .config",
    "BadModel: there is no folder no/such/folder",
    "BadText: texts is a str; give a list",
    "BadText: texts is a bytes",
    "BadText: texts is a NoneType",
    "BadText: texts is a dict",
    "BadText: texts is a int",
    "BadText: texts must be strings; text 0 is a int",
    "BadText: texts must be strings; text 1 is a NoneType",
)


def test_models_and_texts_that_are_none():
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == 2 * len(SAID)
    for said, expected in zip(told, 2 * SAID, strict=True):
        assert said.startswith(expected)


@pytest.mark.parametrize("texts", [[], iter(())])
def test_no_texts(base, folder, texts):
    with pytest.raises(BadText, match="no text is given; give a list"):
        base.score(folder, texts)
    with pytest.raises(BadText, match="0 different texts of 0 given; a baseline needs"):
        fl.baseline(folder, texts)


@pytest.mark.parametrize("tokenizer", ["path/to/model", ["a"], type, 5])
def test_tokenizers_that_are_none(base, folder, tokenizer):
    for call in (base.score, fl.baseline):
        with pytest.raises(BadParameter, match=r"tokenizer is a .* give it"):
            call(folder, fresh(3), tokenizer=tokenizer)
