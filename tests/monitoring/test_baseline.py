"""Baselines of a tiny model: what they notice, what they promise, what they refuse; watching changes nothing."""

import copy
import json
import logging
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import frostline as fl
from frostline.encoders import capture, loading
from frostline.monitoring.baseline import load_baseline
from frostline.monitoring.watching import watch
from tests.encoders import tiny
from tests.monitoring.sentences import sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save(tiny.model("BERT", spread=0.1), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def base(folder):
    return fl.baseline(folder, texts=sentences(900, seed=0))


@pytest.fixture(scope="module")
def live(folder):
    encoder = loading.load(folder)
    return capture.open_model(encoder), capture.open_tokenizer(encoder)


@pytest.fixture(scope="module")
def frost(base, tmp_path_factory):
    return base.save(tmp_path_factory.mktemp("frost") / "enc.frost")


def fresh(count):
    known = set(sentences(900, seed=0))
    return [text for text in sentences(2 * count, seed=1) if text not in known][:count]


def batch(tokenizer, texts):
    return tokenizer(texts, padding=True, return_tensors="pt")


def test_fresh_text_is_normal_and_other_text_is_not(base, folder):
    """Of 300 fresh texts about 5 % have p ≤ 5 %: the number lies in a 99.9 % interval for 180 calibration texts."""
    normal = base.score(folder, texts=fresh(300)).p_values
    assert 0.005 < (normal <= 0.05).mean() < 0.12
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(tiny.WORDS, 12)) for _ in range(100)]
    strange = base.score(folder, texts=noise)
    assert np.median(strange.p_values) < 0.02
    assert all(reasons for reasons, p in zip(strange.reasons, strange.p_values, strict=True) if p < 0.01)
    assert set(strange.parts) == {"broken", "foreign", "passage", "concentration"}


def test_scores_do_not_depend_on_batches(base, folder):
    texts = fresh(40)
    together = base.score(folder, texts=texts).scores
    alone = np.concatenate([base.score(folder, texts=[text]).scores for text in texts[:6]])
    assert np.allclose(together[:6], alone, atol=1e-3)


def test_a_file_gives_the_same_scores(base, frost, folder):
    again = load_baseline(frost)
    texts = fresh(30)
    one, other = base.score(folder, texts=texts), again.score(folder, texts=texts)
    assert np.array_equal(one.scores, other.scores) and np.array_equal(one.p_values, other.p_values)
    assert again.about["texts"] == 900 and fl.load_baseline(frost).about == again.about


def test_watching_changes_no_bit_and_sees_what_scoring_sees(base, live, folder):
    model, tokenizer = live
    texts = fresh(20)
    with torch.inference_mode():
        before = model(**batch(tokenizer, texts)).last_hidden_state
        with watch(model, base) as seen:
            after = model(**batch(tokenizer, texts)).last_hidden_state
    assert torch.equal(before, after) and seen.failures == 0 and seen.texts == 20
    assert np.allclose(seen.last.p_values, base.score(folder, texts=texts).p_values)
    with torch.inference_mode():
        model(**batch(tokenizer, texts))
    assert seen.texts == 20  # closed: no hooks are left
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_shifted_text_rings_the_alarm_and_normal_text_does_not(base, live):
    model, tokenizer = live
    rng = np.random.default_rng(1)
    noise = [" ".join(rng.choice(tiny.WORDS, 10)) for _ in range(64)]
    with watch(model, base, false_alarm_every=10_000) as seen, torch.inference_mode():
        model(**batch(tokenizer, fresh(64)))
        assert seen.alarms == 0 and not seen.last.alarm
        model(**batch(tokenizer, noise))
        assert seen.alarms >= 1 and seen.last.alarm


def test_an_error_in_a_hook_never_reaches_the_caller(base, live, monkeypatch, caplog):
    model, tokenizer = live
    texts = fresh(3)
    with watch(model, base) as seen, torch.inference_mode(), caplog.at_level(logging.WARNING, "frostline"):
        monkeypatch.setattr(seen.baseline.__class__, "judge", lambda self, texts: 1 / 0)
        for _ in range(3):
            assert model(**batch(tokenizer, texts)).last_hidden_state is not None
    assert seen.failures == 3 and seen.last is None
    assert len(caplog.records) == 1 and "watching failed" in caplog.text


def test_many_threads_give_the_same_numbers(base, live):
    model, tokenizer = live
    texts = fresh(32)
    batches = [batch(tokenizer, texts[k : k + 4]) for k in range(0, 32, 4)]
    with watch(model, base) as alone, torch.inference_mode():
        for one in batches:
            model(**one)
    with watch(model, base) as many:

        def work(own):
            with torch.inference_mode():
                for one in own:
                    model(**one)

        threads = [threading.Thread(target=work, args=(batches[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert many.failures == 0 and many.texts == alone.texts == 32
    assert np.allclose(sorted(many.recent), sorted(alone.recent))


def test_hooks_that_come_while_a_pass_is_under_way(base, live):
    """The pass ends without having begun under watch: it is not seen, and nothing is raised into the model."""
    model, tokenizer = live
    begun = []
    hook = model.encoder.layer[1].register_forward_pre_hook(lambda module, given: begun.append(watch(model, base)))
    try:
        with torch.inference_mode():
            model(**batch(tokenizer, fresh(2)))
    finally:
        hook.remove()
    assert begun[0].texts == 0 and begun[0].failures == 0
    begun[0].close()


def test_a_model_in_training_gives_the_same_scores(base, live, folder):
    model = copy.deepcopy(live[0]).train()
    texts = fresh(5)
    found = base.score(model, live[1], texts)
    assert model.training and np.allclose(found.scores, base.score(folder, texts=texts).scores, atol=1e-4)


def test_a_share_of_the_passes(base, live):
    model, tokenizer = live
    one = batch(tokenizer, fresh(1))
    with watch(model, base, sample_rate=0.25) as seen, torch.inference_mode():
        for _ in range(200):
            model(**one)
    assert 20 <= seen.texts <= 85
    with pytest.raises(fl.errors.BadParameter, match="sample_rate"):
        watch(model, base, sample_rate=0)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "0 different texts"),
        (["the same text"] * 1000, "1 different texts of 1000"),
        (sentences(100, seed=0), "at least 500"),
        ("one string", "give a list"),
    ],
)
def test_texts_that_are_no_reference(folder, texts, words):
    with pytest.raises(fl.errors.BadText, match=words):
        fl.baseline(folder, texts=texts)


def change(frost, tmp_path, *, header=None, tensors=None):
    """A copy of the file with its header or its tensors changed."""
    found = load_file(frost)
    told = json.loads(open_header(frost))
    changed = tmp_path / "changed.frost"
    save_file({**found, **(tensors or {})}, changed, {"frostline": json.dumps(told | (header or {}))})
    return changed


def open_header(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["frostline"]


def test_files_that_are_no_baseline(frost, tmp_path):
    cases = {
        "there is no file": tmp_path / "nothing.frost",
        "newer frostline": change(frost, tmp_path, header={"version": 99}),
    }
    for words, path in cases.items():
        with pytest.raises(fl.errors.BadBaseline, match=words):
            load_baseline(path)
    with pytest.raises(fl.errors.BadBaseline, match="checksum"):
        load_baseline(change(frost, tmp_path, tensors={"centre": torch.zeros(3)}))
    with pytest.raises(fl.errors.BadBaseline, match="checksum"):
        load_baseline(change(frost, tmp_path, header={"kinds": ["typos"]}))
    cut = tmp_path / "cut.frost"
    cut.write_bytes(frost.read_bytes()[:-100])
    with pytest.raises(fl.errors.BadBaseline, match="not a whole baseline"):
        load_baseline(cut)
    save_file({"a": torch.zeros(2)}, tmp_path / "foreign.frost")
    with pytest.raises(fl.errors.BadBaseline, match="not a baseline of frostline"):
        load_baseline(tmp_path / "foreign.frost")


def test_a_copy_in_half_precision_is_the_same_model(base, live):
    model = copy.deepcopy(live[0]).to(torch.bfloat16)
    with watch(model, base) as seen, torch.inference_mode():
        model(**batch(live[1], fresh(8)))
    assert seen.failures == 0 and np.isfinite(seen.last.scores).all()


def test_another_model_or_tokenizer(base, folder, live, tmp_path):
    other = tiny.save(tiny.model("BERT", seed=5), tmp_path / "other")
    with pytest.raises(fl.errors.BadBaseline, match="other weights"):
        base.score(other, texts=fresh(3))
    with pytest.raises(fl.errors.BadBaseline, match="RoBERTa"):
        watch(tiny.model("RoBERTa"), base)
    (tmp_path / "words").mkdir()
    words = tiny.SPECIAL + tiny.WORDS[::-1]
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(words))
    import transformers

    changed = transformers.BertTokenizer(str(tmp_path / "words" / "vocab.txt"))
    with pytest.raises(fl.errors.BadBaseline, match="tokenizer is not the one"):
        base.score(live[0], changed, fresh(3))


def test_models_of_other_families_can_be_watched(tmp_path):
    """A shared layer (ALBERT) and a pre-norm model: as many states as there are clouds."""
    for family in ("ALBERT", "ModernBERT", "DistilBERT"):
        made = tiny.save(tiny.model(family, spread=0.1), tmp_path / family)
        found = fl.baseline(made, texts=sentences(520, seed=2))
        assert np.isfinite(found.score(made, texts=fresh(5)).scores).all()
