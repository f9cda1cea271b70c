"""Watching a model in use: nothing changes, nothing raises, nothing is lost."""

import copy
import gc
import logging
import resource
import threading

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers

import frostline as fl
from frostline.monitoring.judge import Judge
from frostline.monitoring.watch import watch
from tests.encoders import tiny
from tests.monitoring.sentences import fresh
from tests.tolerances import P_VALUE, SAME_TEXT


def batch(tokenizer, texts):
    return tokenizer(texts, padding=True, return_tensors="pt")


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
    with watch(model, base, hold=1) as seen, torch.inference_mode(), caplog.at_level(logging.WARNING, "frostline"):
        monkeypatch.setattr(Judge, "__call__", lambda self, texts: 1 / 0)
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


def test_a_share_of_the_passes(base, live):
    model, tokenizer = live
    one = batch(tokenizer, fresh(1))
    with watch(model, base, sample_rate=0.25) as seen, torch.inference_mode():
        for _ in range(200):
            model(**one)
    assert 20 <= seen.texts <= 85
    with pytest.raises(fl.errors.BadParameter, match="sample_rate"):
        watch(model, base, sample_rate=0)


def test_a_copy_in_half_precision_is_the_same_model(base, live):
    model = copy.deepcopy(live[0]).to(torch.bfloat16)
    with watch(model, base) as seen, torch.inference_mode():
        model(**batch(live[1], fresh(8)))
    assert seen.failures == 0 and np.isfinite(seen.last.scores).all()


def test_single_texts_are_gathered_and_give_the_same_numbers(base, live):
    """Held or scored at once, alone or in a batch with padding: the same p-values, and ``last`` is the last pass."""
    model, tokenizer = live
    texts = fresh(37)
    with watch(model, base) as together, torch.inference_mode():
        model(**batch(tokenizer, texts))
    found = {}
    for hold in (1, 16, 64):
        with watch(model, base, hold=hold) as seen, torch.inference_mode():
            for text in texts:
                model(**batch(tokenizer, [text]))
            assert len(seen.last.p_values) == 1 and seen.texts == 37 and seen.failures == 0
            found[hold] = seen.recent
            assert seen.last.p_values[0] == pytest.approx(together.recent[-1])
    assert (
        np.allclose(found[1], found[16])
        and np.allclose(found[1], found[64])
        and np.allclose(found[1], together.recent, atol=P_VALUE)
    )


def test_what_is_held_is_a_copy(base, live):
    """The caller may overwrite what the model returned before it is looked at."""
    model, tokenizer = live
    one = batch(tokenizer, fresh(3))
    with watch(model, base) as seen, torch.inference_mode():
        model(**one)
        before = seen.last.scores
        model(**one).last_hidden_state.zero_()
        assert np.allclose(seen.last.scores, before)


def test_the_light_profile_is_calibrated_too(base, live, folder):
    model, tokenizer = live
    texts = fresh(300)
    with watch(model, base, profile="light") as seen, torch.inference_mode():
        model(**batch(tokenizer, texts))
    # The number of p-values up to 5 % lies in a 99.9 % interval for 360 calibration texts.
    assert 0.005 < np.mean(np.array(seen.recent) <= 0.05) < 0.12
    assert np.allclose(seen.recent, base.score(folder, texts=texts, profile="light").p_values, atol=P_VALUE)
    with pytest.raises(fl.errors.BadParameter, match="full, light"):
        watch(model, base, profile="heavy")


def noise(count):
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(tiny.WORDS, 10)) for _ in range(count)]


def test_reasons_name_tokens(base, live):
    """With a tokenizer by name, without one by place; a planted foreign word is among them."""
    model, tokenizer = live
    texts = [text + " sees head sees" for text in fresh(20)]
    with watch(model, base, tokenizer=tokenizer) as seen, torch.inference_mode():
        model(**batch(tokenizer, texts))
    reasons = [reason for own in seen.last.reasons for reason in own if reason.part == "words"]
    assert reasons and all(reason.tokens for reason in reasons)
    assert any("'sees'" in reason.says for reason in reasons)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(base, live, dtype):
    """States are rounded, what looks at them is not: scores stay close."""
    model, tokenizer = live
    one = batch(tokenizer, fresh(32))
    with watch(model, base) as exact, torch.inference_mode():
        model(**one)
    with watch(model, base) as seen, torch.inference_mode(), torch.autocast("cpu", dtype=dtype):
        model(**one)
    assert seen.failures == 0 and np.abs(seen.last.scores - exact.last.scores).mean() < 0.5


def test_gradients_flow_as_without_a_watch(base, live):
    model = copy.deepcopy(live[0]).requires_grad_(True)
    one = batch(live[1], fresh(4))

    def gradient():
        model.zero_grad()
        model(**one).last_hidden_state.square().sum().backward()
        return model.embeddings.word_embeddings.weight.grad.clone()

    bare = gradient()
    with watch(model, base) as seen:
        assert torch.equal(gradient(), bare) and seen.texts == 4 and seen.failures == 0


def test_compiled_models_are_watched_whichever_came_first(base, live, folder):
    """Not inductor, which needs a C compiler, but the tracing that all compiled models go through."""
    texts = fresh(20)
    one = batch(live[1], texts)
    expected = base.score(folder, texts=texts).p_values
    with torch.inference_mode():
        model = copy.deepcopy(live[0])
        compiled = torch.compile(model, backend="eager")
        bare = compiled(**one).last_hidden_state
        with watch(compiled, base) as seen:
            assert torch.equal(compiled(**one).last_hidden_state, bare)
            assert seen.failures == 0 and np.allclose(seen.last.p_values, expected, atol=P_VALUE)
        assert torch.equal(compiled(**one).last_hidden_state, bare) and seen.texts == 20
        # Another model of the class, compiled while the first is in use: code is shared, hooks are not.
        model, other = copy.deepcopy(live[0]), copy.deepcopy(live[0])
        with watch(model, base) as seen:
            torch.compile(other, backend="eager")(**one)
            compiled = torch.compile(model, backend="eager")
            assert torch.equal(compiled(**one).last_hidden_state, bare)
            assert seen.failures == 0 and np.allclose(seen.last.p_values, expected, atol=P_VALUE)


def test_pipelines_and_sentence_transformers(base, folder, tmp_path):
    texts = fresh(20)
    expected = base.score(folder, texts=texts).p_values
    pipe = transformers.pipeline("feature-extraction", model=str(folder), tokenizer=str(folder), device="cpu")
    with fl.wrap(pipe, base) as seen:
        pipe(texts)
        assert seen.texts == 20 and np.allclose(seen.recent, expected, atol=P_VALUE)
    sentences = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    before = sentences.encode(texts)
    with fl.wrap(sentences, base) as seen:
        assert np.array_equal(sentences.encode(texts), before)
        assert seen.texts == 20 and np.allclose(sorted(seen.recent), sorted(expected), atol=P_VALUE)
    with pytest.raises(fl.errors.BadModel, match="neither a SentenceTransformer"):
        fl.wrap(object(), base)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_memory_stays_flat(base, live):
    """100,000 passes: after the first tenth the process grows by less than 20 MB."""
    model, tokenizer = live
    passes = [batch(tokenizer, fresh(40)[k : k + 2]) for k in range(0, 40, 2)]
    with watch(model, base) as seen, torch.inference_mode():
        for number in range(100_000):
            model(**passes[number % len(passes)])
            if number == 10_000:
                gc.collect()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
        assert seen.texts == 200_000 and seen.failures == 0


def test_padding_on_the_left_changes_nothing(base, live):
    model, tokenizer = live
    texts = fresh(12)
    left = copy.deepcopy(tokenizer)
    left.padding_side = "left"
    one = batch(left, texts)
    # Places are counted from the first token, as models with padding on the left are told to do.
    one["position_ids"] = (one["attention_mask"].cumsum(1) - 1).clamp_min(0)
    with watch(model, base) as seen, torch.inference_mode():
        model(**batch(tokenizer, texts))
        right = seen.last
        model(**one)
        assert np.allclose(seen.last.scores, right.scores, atol=SAME_TEXT)


def test_odd_passes(base, live):
    """No mask, a text without tokens, a mask that is none, a forward that fails: never an error of ours."""
    model, tokenizer = live
    one = batch(tokenizer, fresh(3))
    with watch(model, base) as seen, torch.inference_mode():
        model(one["input_ids"])
        assert seen.texts == 3
        model(one["input_ids"], torch.zeros_like(one["attention_mask"]))
        assert seen.texts == 6 and np.isfinite(seen.last.scores).all() and seen.failures == 0
        model(one["input_ids"], torch.ones(3, 1, *2 * one["input_ids"].shape[1:]))
        assert seen.texts == 6 and seen.failures == 1
        with pytest.raises(IndexError):
            model(one["input_ids"] + 10_000)
        model(**one)
        assert seen.texts == 9


def test_a_copy_of_a_watched_model_is_not_watched(base, live):
    model, tokenizer = live
    with watch(model, base) as seen, torch.inference_mode():
        other = copy.deepcopy(model)
        other(**batch(tokenizer, fresh(2)))
        assert seen.texts == 0


def test_our_own_passes_are_no_traffic(base, live):
    """Scoring with a watched model, or calibrating anew, does not ring its alarm."""
    model, tokenizer = live
    with watch(model, base) as seen:
        base.score(model, noise(40), tokenizer=tokenizer)
        assert seen.texts == 0 and seen.alarms == 0


def test_passes_of_any_precision_are_scored_together(base, live):
    model, tokenizer = copy.deepcopy(live[0]), live[1]
    one = batch(tokenizer, fresh(4))
    with watch(model, base, tokenizer=tokenizer) as seen, torch.inference_mode():
        for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
            model.to(kind)(**one)
        assert seen.texts == 16 and seen.failures == 0
        assert np.allclose(seen.recent[:4], seen.recent[4:8])
        assert np.allclose(seen.recent[8:12], seen.recent[12:], atol=0.1)


def test_every_pass_that_is_lost_is_counted(base, live, monkeypatch):
    model, tokenizer = live
    monkeypatch.setattr(Judge, "__call__", lambda self, texts: 1 / 0)
    with watch(model, base) as seen, torch.inference_mode():
        for _ in range(5):
            model(**batch(tokenizer, fresh(2)))
        assert seen.texts == 0 and seen.failures == 5
