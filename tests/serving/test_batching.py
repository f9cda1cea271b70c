"""Texts of many clients through one model: the same scores as alone, and bounds that hold."""

import asyncio
import threading
import time

import numpy as np
import pytest

from frostline.errors import BadText
from frostline.monitoring.scorer import Scorer
from frostline.serving.batching import Batcher, Cause, Late, Overloaded
from frostline.serving.submission import Submission
from tests.monitoring.sentences import fresh
from tests.tolerances import SAME_TEXT


@pytest.fixture(scope="module")
def scorer(base, folder):
    return Scorer(base, folder)


def soon(seconds=60):
    return time.monotonic() + seconds


def nothing(found, texts):
    return [Cause(False, []) for _ in texts]


def submitted(texts):
    return [Submission(text) for text in texts]


class Slow(Scorer):
    """The scorer, whose passes wait until they are let through."""

    def __init__(self, scorer):
        vars(self).update(vars(scorer))
        self.entered, self.gate, self.sizes = threading.Event(), threading.Event(), []

    def score(self, tokenized, **settings):
        self.entered.set()
        self.gate.wait(60)
        self.sizes.append(len(tokenized.ids))
        return super().score(tokenized, **settings)


def test_many_clients_get_the_scores_they_would_get_alone(base, folder, scorer):
    texts = fresh(60)
    expected = base.score(folder, texts=texts)
    taken, slow = [], Slow(scorer)
    batcher = Batcher(slow, lambda found, own: taken.extend(text.text for text in own) or nothing(found, own), batch=16)

    async def all_at_once():
        jobs = [asyncio.create_task(batcher.score(submitted(texts[:5]), until=soon()))]
        assert await asyncio.to_thread(slow.entered.wait, 60)
        jobs += [asyncio.create_task(batcher.score(submitted(texts[n : n + 5]), until=soon())) for n in range(5, 60, 5)]
        while len(batcher._jobs) < 11:  # the first waits in its pass
            await asyncio.sleep(0.01)
        assert batcher.waiting == 60
        slow.gate.set()
        return await asyncio.gather(*jobs)

    found = asyncio.run(all_at_once())
    batcher.close()
    got = np.concatenate([one[0].scores for one in found])
    assert np.abs(got - expected.scores).max() <= SAME_TEXT
    assert np.array_equal(np.concatenate([one[0].p_values for one in found]) <= 0.01, expected.p_values <= 0.01)
    # In order, and together up to 16 at a time: only the first pass found no company.
    assert taken == texts and slow.sizes == [5, 15, 15, 15, 10] and batcher.waiting == 0


def test_too_many_waiting_texts_are_refused_and_late_ones_not_scored(scorer):
    slow, taken = Slow(scorer), []
    batcher = Batcher(slow, lambda found, own: taken.extend(text.text for text in own) or nothing(found, own), most=10)
    texts = fresh(14)

    async def crowd():
        first = asyncio.create_task(batcher.score(submitted(texts[:4]), until=soon()))
        await asyncio.sleep(0.2)
        late = asyncio.create_task(batcher.score(submitted(texts[4:8]), until=soon(0.3)))
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded) as busy:
            await batcher.score(submitted(texts[8:14]), until=soon())
        assert busy.value.waiting == 8 and busy.value.seconds > 0
        with pytest.raises(Late):
            await late
        slow.gate.set()
        await first
        await batcher.score(submitted(texts[8:14]), until=soon())

    asyncio.run(crowd())
    batcher.close()
    assert taken == texts[:4] + texts[8:14]


def test_large_calls_take_turns_with_others(base, folder, scorer):
    slow, taken = Slow(scorer), []
    batcher = Batcher(slow, lambda found, own: taken.extend(text.text for text in own) or nothing(found, own), batch=4)
    texts = fresh(14)

    async def both():
        large = asyncio.create_task(batcher.score(submitted(texts[:10]), until=soon()))
        await asyncio.sleep(0.2)
        small = asyncio.create_task(batcher.score(submitted(texts[10:]), until=soon()))
        await asyncio.sleep(0.2)
        slow.gate.set()
        return await asyncio.gather(large, small)

    found = asyncio.run(both())
    batcher.close()
    assert taken == texts[:4] + texts[10:] + texts[4:10] and slow.sizes == [4, 4, 4, 2]
    got = np.concatenate([one[0].scores for one in found])
    assert np.abs(got - base.score(folder, texts=texts).scores).max() <= SAME_TEXT


def test_a_large_call_is_taken_when_nothing_waits(scorer):
    batcher = Batcher(scorer, nothing, most=3)
    found = asyncio.run(batcher.score(submitted(fresh(7)), until=soon()))
    batcher.close()
    assert len(found[0].scores) == 7


def test_a_pass_that_fails_is_one_answer_not_the_end(scorer, caplog):
    def broken(found, texts):
        if "frost" in texts[0].text:
            raise RuntimeError("quoting frost, a text")
        return nothing(found, texts)

    batcher = Batcher(scorer, broken)

    async def two():
        with pytest.raises(RuntimeError, match=r"^scoring failed$"):
            await batcher.score(submitted(["the frost melts"]), until=soon())
        with pytest.raises(BadText, match="text 1 first"):
            await batcher.score(submitted(["the ice melts", " "]), until=soon())
        return await batcher.score(submitted(["the ice melts"]), until=soon())

    assert len(asyncio.run(two())[0].scores) == 1
    batcher.close()
    assert batcher.failures == 1 and "RuntimeError" in caplog.text and "quoting" not in caplog.text
