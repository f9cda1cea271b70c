"""The alarm of a watch: it rings at low traffic, tells which texts rang, and holds nobody up."""

import copy
import gc
import logging
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.monitoring import watch as watching
from frostline.monitoring.watch import watch
from tests.monitoring.sentences import fresh
from tests.monitoring.test_watch import batch, noise


def waited_for(happened):
    """Whether it happens within half a minute."""
    end = time.monotonic() + 30
    while not happened() and time.monotonic() < end:
        time.sleep(0.01)
    return happened()


def each(model, tokenizer, texts):
    """One pass for every text."""
    with torch.inference_mode():
        for text in texts:
            model(**batch(tokenizer, [text]))


def test_few_texts_are_scored_though_nobody_asks(base, live):
    model, tokenizer = live
    with watch(model, base, flush_after=None) as asked, watch(model, base, flush_after=0.02) as seen:
        each(model, tokenizer, fresh(3))
        assert waited_for(lambda: seen._texts == 3)
        assert asked._texts == 0 and asked.texts == 3
        each(model, tokenizer, fresh(2))
        assert waited_for(lambda: seen._texts == 5) and seen.failures == 0
        assert np.allclose(seen.recent, asked.recent, atol=0.011)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_flushes_that_cannot_be(base, live, seconds):
    with pytest.raises(fl.errors.BadParameter, match="flush_after"):
        watch(live[0], base, flush_after=seconds)


@pytest.mark.parametrize("closed", [True, False])
def test_the_timer_dies_with_the_watch_and_holds_no_model(base, live, closed):
    model = copy.deepcopy(live[0])
    seen = watch(model, base, flush_after=3600.0)
    each(model, live[1], fresh(1))
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "frostline-flush")
    if closed:
        seen.close()
    gone = weakref.ref(model), weakref.ref(seen)
    del model, seen
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    thread.join(30)
    assert not thread.is_alive()


def test_a_quiet_stream_calls_back_with_the_texts_that_rang(base, live, folder):
    """Six strange texts, one by one, and nobody asks: the callback learns which they were and why."""
    model, tokenizer = live
    told = []
    texts = [*fresh(5), *noise(6)]
    scored = base.score(folder, texts)
    before = time.time()
    with watch(model, base, on_alarm=lambda own: told.append(own.rang), flush_after=0.02, tokenizer=tokenizer) as seen:
        each(model, tokenizer, texts)
        assert waited_for(lambda: told)
        rang = told[0][0]
        assert 5 <= rang.number < 11 and before <= rang.time <= time.time()
        assert rang.p_value == pytest.approx(scored.p_values[rang.number], abs=0.011)
        assert rang.score == pytest.approx(scored.scores[rang.number], abs=1e-3)
        assert [reason.part for reason in rang.reasons] == [reason.part for reason in scored.reasons[rang.number]] != []
        assert tokenizer.decode(rang.ids, skip_special_tokens=True) == texts[rang.number]
        assert seen.rang[0] == rang and seen.ringing and "text" in rang.describe()


def test_the_history_holds_the_strange_texts(base, live, folder):
    """Those that scoring calls strange, in passes of many sizes, gathered or not; with a tokenizer their ids."""
    model, tokenizer = live
    texts = [text for pair in zip(fresh(24), noise(24), strict=True) for text in pair]
    scored = base.score(folder, texts)
    strange = np.flatnonzero(scored.p_values <= 0.02).tolist()
    assert 10 < len(strange) < 40
    for settings in ({"hold": 1}, {}, {"tokenizer": tokenizer}):
        with watch(model, base, alpha=0.02, **settings) as seen, torch.inference_mode():
            for begin in range(0, len(texts), 6):
                model(**batch(tokenizer, texts[begin : begin + 6]))
        history = seen.strange
        # Gathered passes are padded together, which can move a score by a rank.
        assert len({text.number for text in history} ^ set(strange)) <= 2
        for text in history:
            assert text.score == pytest.approx(scored.scores[text.number], abs=2e-3)
            assert (text.ids is None) == ("tokenizer" not in settings)
        if text.ids:
            assert tokenizer.decode(text.ids, skip_special_tokens=True) == texts[text.number]
        assert {text.number for text in seen.rang} <= set(range(len(texts)))
        assert [text.number for text in history] == sorted({text.number for text in history})


def test_the_history_is_bounded_and_keeps_the_latest(base, live, monkeypatch):
    monkeypatch.setattr(watching, "HISTORY", 7)
    model, tokenizer = live
    with watch(model, base) as seen, torch.inference_mode():
        model(**batch(tokenizer, noise(40)))
        model(**batch(tokenizer, fresh(3)))
    assert len(seen.strange) == 7 and seen.strange[-1].number in range(30, 43)
    assert len({id(text._texts) for text in seen._strange}) == 1  # in words by now
    assert len(seen.rang) == min(7, seen.alarms)


def test_what_is_kept_of_a_batch_is_only_its_strange_texts(base, live):
    """A few rows in the history do not keep the memory of the whole batch."""
    model, tokenizer = live
    with watch(model, base) as seen, torch.inference_mode():
        model(**batch(tokenizer, [*fresh(60), *noise(8)]))
        assert seen.texts == 68
        kept = seen._strange[-1]._texts
        assert len(kept.score) < 10 and kept.score.untyped_storage().nbytes() < 100
        assert (
            len(kept.profile.means)
            == len(kept.score)
            == kept.profile.means.untyped_storage().nbytes() // (kept.profile.means[0].nbytes)
        )


def test_a_slow_callback_does_not_hold_the_model(base, live):
    """It is still in its first call while the model goes on; afterwards it is told of the rest, in order."""
    model, tokenizer = live
    gate, begun, calls = threading.Event(), threading.Event(), []

    def slow(own):
        begun.set()
        assert gate.wait(30)
        calls.append([text.number for text in own.rang])

    with watch(model, base, on_alarm=slow, hold=1) as seen:
        each(model, tokenizer, noise(20))
        assert begun.wait(30)
        each(model, tokenizer, noise(20))
        assert seen.texts == 40 and not calls and seen.alarms > 3
        gate.set()
    told = [number for numbers in calls for number in numbers]
    assert len(calls) > 3 and told == sorted(told) == [text.number for text in seen.rang]
    assert seen.failures == seen.callback_failures == seen.callbacks_dropped == 0


def test_closing_waits_for_callbacks_but_not_for_ever(base, live, monkeypatch):
    model, tokenizer = live
    for seconds in (30.0, 0.02):
        monkeypatch.setattr(watching, "CLOSE_SECONDS", seconds)
        gate, ended = threading.Event(), threading.Event()

        def slow(own, gate=gate, ended=ended):
            gate.wait(30)
            ended.set()

        seen = watch(model, base, on_alarm=slow)
        each(model, tokenizer, noise(16))
        if seconds > 1:
            threading.Timer(0.1, gate.set).start()
        seen.close()
        assert ended.is_set() == (seconds > 1)
        gate.set()
        assert ended.wait(30)


def test_an_exception_in_a_callback_is_no_failure_of_watching(base, live, caplog):
    model, tokenizer = live
    with caplog.at_level(logging.WARNING, "frostline"), watch(model, base, on_alarm=lambda own: 1 / 0, hold=1) as seen:
        each(model, tokenizer, noise(32))
    assert seen.failures == 0 and seen.texts == 32 and seen.callback_failures == seen.alarms > 1
    assert caplog.text.count("ZeroDivisionError") == 1


def test_alarms_call_back_or_are_only_logged(base, live, caplog):
    model, tokenizer = live
    called = []
    with caplog.at_level(logging.WARNING, "frostline"), torch.inference_mode():
        with watch(model, base, on_alarm=called.append) as seen:
            model(**batch(tokenizer, noise(32)))
        assert called == [seen] and seen.alarms > 1 and "alarm" in caplog.text
        with watch(model, base, on_alarm=called.append, log_only=True) as quiet:
            model(**batch(tokenizer, noise(32)))
        assert len(called) == 1 and quiet.alarms == seen.alarms


def test_a_callback_may_ask_and_may_close(base, live):
    model, tokenizer = live
    asked = []

    def act(own):
        asked.append((own.last.p_values.min(), own.alarms, own.ringing, own.strange))
        own.close()

    with watch(model, base, on_alarm=act) as seen, torch.inference_mode():
        model(**batch(tokenizer, noise(32)))
        assert seen.texts == 32 and waited_for(lambda: asked)
        assert waited_for(lambda: not any(module._forward_hooks for module in model.modules()))
        model(**batch(tokenizer, noise(32)))
    assert len(asked) == 1 and seen.texts == 32 and seen.failures == seen.callback_failures == 0
    assert asked[0][2] and len(asked[0][3]) > 3


def test_ringing_is_over_by_evidence_and_by_time(base, live, monkeypatch):
    """200 texts and 15 minutes without ringing; or an hour without a text. Time alone, or texts alone, do not do."""
    now = [1000.0]
    monkeypatch.setattr(watching, "monotonic", lambda: now[0])
    model, tokenizer = live
    normal = fresh(240)
    with watch(model, base, flush_after=None) as seen, torch.inference_mode():
        assert not seen.ringing
        model(**batch(tokenizer, noise(16)))
        assert seen.ringing and seen.alarms > 0
        now[0] += 901
        assert seen.ringing
        model(**batch(tokenizer, normal[:20]))
        now[0] += 901
        assert seen.ringing
        model(**batch(tokenizer, normal))
        assert not seen.ringing and seen.level < seen.alarm.threshold / 2
        model(**batch(tokenizer, noise(16)))
        assert seen.ringing
        model(**batch(tokenizer, normal))
        assert seen.ringing
        now[0] += 3601
        assert not seen.ringing


def test_the_alarm_is_that_of_the_baseline_and_of_the_rate(base, live):
    model = live[0]
    counts = base.judges["full"].conformal.counts.tolist()
    with watch(model, base) as month, watch(model, base, false_alarm_every="1d", rate=2.0) as day:
        assert month.alarm.every == 25_920_000 and day.alarm.every == 172_800
        assert month.alarm.least == 1 / (1 + max(counts)) and (month.alarm.costs > 0).all()
    with watch(model, base, false_alarm_every=5000) as texts:
        assert texts.alarm.every == 5000
    with pytest.raises(fl.errors.BadParameter, match="30d, 12h or 2w"):
        watch(model, base, false_alarm_every="often")


def test_strangeness_below_the_smallest_p_value_is_refused(base, live):
    floor = base.judges["full"].conformal.smallest
    with watch(live[0], base) as seen:
        assert seen.alpha == max(0.01, floor)
    with pytest.raises(fl.errors.BadParameter, match="p-values of this baseline go down to"):
        watch(live[0], base, alpha=floor / 2)
