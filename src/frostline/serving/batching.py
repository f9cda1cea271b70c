"""Batching of the texts of many clients: waiting texts are scored together, in the order of their arrival.

One thread tokenizes, another runs the model; the event loop only waits. A pass takes the texts that have arrived, up to
``batch``, and never waits for more: a single call is answered at once, under load passes fill up by themselves.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from frostline.encoders.tokenization import Tokenized
from frostline.errors import FrostlineError
from frostline.log import LOG
from frostline.monitoring.reasons import Scores
from frostline.monitoring.scorer import Scorer
from frostline.serving.submission import Submission

BATCH = 32
"""Number of texts in one pass, if nothing else is asked for."""
QUEUE_LIMIT = 2048
"""Number of texts that may wait, if nothing else is asked for."""
FIRST_RATE = 100.0
"""Texts per second that are assumed before the first pass."""
RATE_WEIGHT = 0.1
"""Weight of a new pass in the mean number of texts per second."""


@dataclass(frozen=True)
class Cause:
    """Events that a text caused, by kind and number; and whether it was repeated, and so no evidence."""

    repeated: bool
    events: list[tuple[str, int | None]]


Causes = list[Cause]
"""For each text what it caused."""


class Overloaded(Exception):
    """Too many texts wait; the call may be repeated after ``seconds``."""

    def __init__(self, waiting: int, seconds: float):
        super().__init__(f"{waiting} texts are waiting")
        self.waiting, self.seconds = waiting, seconds


class Late(Exception):
    """The time for a call was over before its texts were scored."""


@dataclass(eq=False)
class _Job:
    """One call: its texts, and the scores of those that are done."""

    texts: Sequence[Submission]
    until: float
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[tuple[Scores, Causes, Tokenized]]"
    tokenized: Tokenized | None = None
    pieces: list[tuple[Scores, Causes]] = field(default_factory=list)
    """Scores and events of its first texts."""
    begun: int = 0
    """Number of texts that are scored or in a pass."""

    def answer(self, result: "tuple[Scores, Causes, Tokenized] | BaseException") -> None:
        """Hand the result to the task that waits for it, from another thread."""

        def resolve() -> None:
            if self.done.done():
                return
            if isinstance(result, BaseException):
                self.done.set_exception(result)
            else:
                self.done.set_result(result)

        self.loop.call_soon_threadsafe(resolve)


Consumer = Callable[[Scores, Sequence[Submission]], Causes]
"""Function that is called with the scored texts, in order, and returns the events they caused."""


class Batcher:
    """A queue of texts before one model. Tasks of an event loop call ``score``; ``close`` answers what waits and stops.

    ``most`` is the queue limit: beyond so many waiting texts ``score`` raises Overloaded.
    """

    def __init__(self, scorer: Scorer, consume: Consumer, *, batch: int = BATCH, most: int = QUEUE_LIMIT):
        self.scorer, self.batch, self.most = scorer, batch, most
        self.waiting = 0
        """Number of texts that have arrived and are not answered."""
        self.passes = self.failures = 0
        self.seconds = 0.0
        """Seconds spent on passes."""
        self._consume = consume
        self._jobs: deque[_Job] = deque()
        self._some = threading.Condition()
        self._closed = False
        self._rate = FIRST_RATE
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizing")
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    async def score(self, texts: Sequence[Submission], *, until: float) -> tuple[Scores, Causes, Tokenized]:
        """Scores, events and token ids, by the monotonic time ``until``; raises Overloaded, Late or BadText."""
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
        return self.scorer.tokenized([text.text for text in job.texts])

    def close(self) -> None:
        """Answer the waiting texts, then stop."""
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
                    # Calls with more texts than fit into a pass go on when the others have had their turn.
                    self._jobs.extend(job for job in jobs if not job.done.done() and job.begun < len(job.texts))

    def _next(self) -> list[_Job]:
        """Jobs for one pass: at least one, more while they fit; late ones are dropped."""
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
            scores, causes = self._scored(jobs, slices)
        except Exception as error:
            self.failures += 1
            # The type of the error, never its message: it may quote a text.
            LOG.error("a pass failed: %s", type(error).__name__)
            for job in jobs:
                job.begun = len(job.texts)
                job.answer(error if isinstance(error, FrostlineError) else RuntimeError("scoring failed"))
            return
        first = 0
        for job, chosen in zip(jobs, slices, strict=True):
            rows = slice(first, first + chosen.stop - chosen.start)
            first = rows.stop
            job.pieces.append((scores.part(rows), causes[rows]))
            if job.begun == len(job.texts):
                whole = Scores.joined([part for part, _ in job.pieces], range(len(job.texts)))
                assert job.tokenized is not None
                job.answer((whole, [cause for _, part in job.pieces for cause in part], job.tokenized))
        seconds = time.monotonic() - start
        self.passes += 1
        self.seconds += seconds
        self._rate += RATE_WEIGHT * (first / max(seconds, 1e-6) - self._rate)

    def _scored(self, jobs: list[_Job], slices: list[slice]) -> tuple[Scores, Causes]:
        """Scores and events of a slice of every job, one after the other."""
        ids, texts = list[tuple[int, ...]](), list[Submission]()
        for job, chosen in zip(jobs, slices, strict=True):
            assert job.tokenized is not None
            ids += job.tokenized.ids[chosen]
            texts += job.texts[chosen]
            job.begun = chosen.stop
        assert jobs[0].tokenized is not None
        scores = self.scorer.score(replace(jobs[0].tokenized, ids=tuple(ids)), spelled=False)
        return scores, self._consume(scores, texts)
