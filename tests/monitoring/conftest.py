"""One tiny model and its baseline, for all tests of this folder."""

import pytest

import frostline as fl
from frostline.encoders.live_model import open_model
from frostline.encoders.load import load
from frostline.encoders.tokenization import open_tokenizer
from tests.encoders import tiny
from tests.monitoring.sentences import sentences


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tiny.save(tiny.model("BERT", spread=0.1), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def base(folder):
    return fl.baseline(folder, sentences(900, seed=0))


@pytest.fixture(scope="session")
def live(folder):
    encoder = load(folder)
    return open_model(encoder), open_tokenizer(encoder)


@pytest.fixture(scope="session")
def frost(base, tmp_path_factory):
    return base.save(tmp_path_factory.mktemp("frost") / "enc.frost")
