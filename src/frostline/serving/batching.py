"""Texts of many clients through one model: those that wait are scored together, in the order they came.

One thread tokenizes, another runs the model; the event loop only waits. A pass takes what has arrived, up to ``batch``
texts, and never waits for more: alone a call is answered at once, under load passes fill up by themselves.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from frostline.encoders.tokenization import Tokenized
from frostline.errors import FrostlineError
from frostline.monitoring.hooks import LOG
from frostline.monitoring.reasons import Scores
from frostline.monitoring.scorer import Scorer

BATCH = 32
Causes = list[list[dict[str, Any]]]
"""The events that each text caused."""


class Overloaded(Exception):
    """Too many texts wait; ``seconds``: when to come again."""

    def __init__(self, waiting: int, seconds: float):
        super().__init__(f"{waiting} texts are waiting")
        self.waiting, self.seconds = waiting, seconds


class Late(Exception):
    """A call's time was over before its texts were scored."""


@dataclass(eq=False)
class _Job:
    texts: list[str]
    until: float
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[tuple[Scores, Causes, Tokenized]]"
    tokenized: Tokenized | None = None
    found: list[tuple[Scores, Causes]] = field(default_factory=list)
    """What is known of its first texts."""
    begun: int = 0
    """Texts that are scored, or in a pass."""

    def answer(self, found: "tuple[Scores, Causes, Tokenized] | BaseException") -> None:
        def tell() -> None:
            if self.done.done():
                return
            if isinstance(found, BaseException):
                self.done.set_exception(found)
            else:
                self.done.set_result(found)

        self.loop.call_soon_threadsafe(tell)


Taken = Callable[[Scores, list[str]], Causes]
"""What becomes of scored texts, in order."""


class Batcher:
    """``score`` from any task of an event loop; ``close`` when all is done."""

    def __init__(self, scorer: Scorer, taken: Taken, *, batch: int = BATCH, most: int = 2048):
        self.scorer, self.batch, self.most = scorer, batch, most
        self.waiting = 0
        """Texts that have arrived and are not answered."""
        self.passes = self.failures = 0
        self.seconds = 0.0
        """Spent on passes."""
        self._taken = taken
        self._jobs: deque[_Job] = deque()
        self._some = threading.Condition()
        self._closed = False
        self._rate = 100.0
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizing")
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    async def score(self, texts: list[str], *, until: float) -> tuple[Scores, Causes, Tokenized]:
        """Scores, events and token ids; raises Overloaded, Late (``until`` by the monotonic clock), or BadText."""
        if self.waiting + len(texts) > self.most and self.waiting:
            raise Overloaded(self.waiting, self.waiting / self._rate)
        loop = asyncio.get_running_loop()
        job = _Job(texts, until, loop, loop.create_future())
        self.waiting += len(texts)
        try:
            job.tokenized = await loop.run_in_executor(self._tokenizing, self._tokenize, job)
            with self._some:
                self._jobs.append(job)
                self._some.notify()
            async with asyncio.timeout(until - time.monotonic()):
                return await job.done
        except TimeoutError:
            raise Late from None
        finally:
            self.waiting -= len(texts)

    def _tokenize(self, job: _Job) -> Tokenized:
        if time.monotonic() >= job.until:
            raise Late
        return self.scorer.tokenized(job.texts)

    def close(self) -> None:
        """Answer what waits, then stop."""
        with self._some:
            self._closed = True
            self._some.notify()
        self._thread.join()
        self._tokenizing.shutdown()

    def _run(self) -> None:
        while True:
            with self._some:
                while not self._jobs and not self._closed:
                    self._some.wait()
                if not self._jobs:
                    return
                jobs = self._next()
            if jobs:
                self._pass(jobs)
                with self._some:
                    # Those with more texts than fit into a pass go on when the others have had their turn.
                    self._jobs.extend(job for job in jobs if not job.done.done() and job.begun < len(job.texts))

    def _next(self) -> list[_Job]:
        """Jobs for one pass: at least one, more while they fit; nobody waits for those that are late."""
        jobs: list[_Job] = []
        count = 0
        while self._jobs:
            job = self._jobs[0]
            left = len(job.texts) - job.begun
            if jobs and count + left > self.batch:
                break
            self._jobs.popleft()
            if not job.done.done() and time.monotonic() < job.until:
                jobs.append(job)
                count += left
        return jobs

    def _pass(self, jobs: list[_Job]) -> None:
        start = time.monotonic()
        slices = [slice(job.begun, min(len(job.texts), job.begun + self.batch)) for job in jobs]
        try:
            ids, texts = list[tuple[int, ...]](), list[str]()
            for job, own in zip(jobs, slices, strict=True):
                assert job.tokenized is not None
                ids += job.tokenized.ids[own]
                texts += job.texts[own]
                job.begun = own.stop
            assert jobs[0].tokenized is not None
            found = self.scorer.score(replace(jobs[0].tokenized, ids=tuple(ids)), spelled=False)
            causes = self._taken(found, texts)
        except Exception as error:
            self.failures += 1
            # A kind of error, never its words: they may quote a text.
            LOG.error("a pass failed: %s", type(error).__name__)
            for job in jobs:
                job.begun = len(job.texts)
                job.answer(error if isinstance(error, FrostlineError) else RuntimeError("scoring failed"))
            return
        first = 0
        for job, own in zip(jobs, slices, strict=True):
            rows = slice(first, first + own.stop - own.start)
            first = rows.stop
            job.found.append((found.part(rows), causes[rows]))
            if job.begun == len(job.texts):
                whole = Scores.joined([part for part, _ in job.found], range(len(job.texts)))
                assert job.tokenized is not None
                job.answer((whole, [one for _, part in job.found for one in part], job.tokenized))
        took = time.monotonic() - start
        self.passes += 1
        self.seconds += took
        self._rate += 0.1 * (first / max(took, 1e-6) - self._rate)
