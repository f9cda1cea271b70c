"""Watching a model in use: every forward pass scored by hooks, without changing what it returns."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, time
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from frostline.arrays import as_count
from frostline.encoders.load import load
from frostline.errors import BadParameter
from frostline.log import LOG
from frostline.monitoring.alarm import FALSE_ALARM_EVERY, RATE, Alarm, texts_between_alarms
from frostline.monitoring.alarm_course import AlarmCourse
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.baseline_file import load_baseline
from frostline.monitoring.calibration import check_alpha
from frostline.monitoring.callback_queue import CallbackQueue
from frostline.monitoring.flush_timer import FlushTimer
from frostline.monitoring.hooks import HiddenStates, Tap
from frostline.monitoring.judge import Assessment, Judge
from frostline.monitoring.pass_buffer import PassBuffer
from frostline.monitoring.reasons import Scores
from frostline.monitoring.strange_texts import SeenText, StrangeText, seen_texts, speller
from frostline.monitoring.surface import SurfaceReference
from frostline.printable import one_line

ALPHA = 0.01
"""Largest p-value of a strange text, if nothing else is asked for and the baseline's p-values go down to it."""
FLUSH_AFTER = 5.0
"""Seconds after which gathered texts are scored, however few they are, if nothing else is asked for."""
CLOSE_SECONDS = 5.0
"""Longest time for which ``close`` waits for callbacks, in seconds."""
RECENT = 1000
"""Number of p-values kept for looking back."""
HISTORY = 100
"""Number of strange texts kept for looking back, and of texts at which the alarm rang."""
LARGEST_HOLD = 1024
"""Largest number of texts that may be gathered before they are scored."""
BEHIND = 8
"""Assessments on a GPU that may be under way before the oldest is waited for."""


class Watch:
    """A model that is being watched: ``frostline.watch`` makes it. Use it as a context manager, or call ``close``.

    Reading any of the attributes below scores and counts all passes until then.

    Attributes
    ----------
    last
        Scores of the last pass, with ``alarm``; None before the first pass.
    level
        The alarm's evidence now; the alarm rings at ``alarm.threshold``.
    ringing
        Whether there is an alarm now. It begins when the alarm rings, and is over by evidence and by time: 200 texts
        and 15 minutes without ringing and little evidence left, or an hour without any text.
    alarms
        How often the alarm has rung.
    rang
        The last hundred texts at which it rang, each with its number, time, p-value and reasons.
    strange
        The last hundred texts with p-values up to ``alpha``, in the same form.
    texts
        How many texts were scored.
    failures
        How many passes could not be scored.
    callback_failures
        How many calls of ``on_alarm`` raised an exception; the first is logged.
    callbacks_dropped
        How many calls of ``on_alarm`` were left out because a hundred were waiting.
    recent
        The last thousand p-values.
    """

    def __init__(
        self,
        model: nn.Module,
        baseline: Baseline | str | Path,
        *,
        profile: str = "full",
        false_alarm_every: float | str = FALSE_ALARM_EVERY,
        rate: float = RATE,
        alpha: float | None = None,
        sample_rate: float = 1.0,
        hold: int | None = None,
        flush_after: float | None = FLUSH_AFTER,
        on_alarm: "Callable[[Watch], None] | None" = None,
        log_only: bool = False,
        tokenizer: Any = None,
        entry: nn.Module | None = None,
        seed: int = 0,
    ):
        if on_alarm is not None and not callable(on_alarm):
            raise BadParameter(f"on_alarm is {on_alarm!r}; it is a function that is given the watch.")
        if not 0 < sample_rate <= 1:
            raise BadParameter(f"sample_rate is {sample_rate}; it is a share of the passes, above 0 and at most 1.")
        if hold is not None and not 1 <= as_count(hold, "hold") <= LARGEST_HOLD:
            raise BadParameter(f"hold is {hold}; it is a number of texts from 1 to {LARGEST_HOLD}.")
        if flush_after is not None and not 0 < flush_after <= threading.TIMEOUT_MAX:
            raise BadParameter(f"flush_after is {flush_after}; it is a number of seconds above 0, or None.")
        self.baseline = baseline if isinstance(baseline, Baseline) else load_baseline(baseline)
        judge = self.baseline.judge(profile)
        encoder = load(model)
        self.baseline.check(encoder, tokenizer)
        self._judge = judge.bound(encoder)
        conformal = self._judge.conformal
        every = texts_between_alarms(false_alarm_every, rate)
        self.alarm = Alarm.once_in(every, calibrated_by=conformal.counts.tolist())
        self.alpha = max(ALPHA, conformal.smallest) if alpha is None else alpha
        check_alpha(conformal, self.alpha)
        self._judges: dict[torch.device, Judge] = {torch.device("cpu"): self._judge}
        self._on_alarm = None if log_only else on_alarm
        self._tokenizer = tokenizer
        self._usual = SurfaceReference.of(self.baseline.about)
        self._rate = sample_rate
        self._rng = np.random.default_rng([17, seed])
        self._lock = threading.RLock()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._written_on: dict[torch.device, set[torch.cuda.Stream]] = {}
        self._buffer = PassBuffer(hold)
        self._under_way: deque[Assessment] = deque()
        self._last: tuple[Assessment, bool] | None = None
        self._course = AlarmCourse(self.alarm)
        self._texts = 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._strange: deque[SeenText] = deque(maxlen=HISTORY)
        self._rang: deque[SeenText] = deque(maxlen=HISTORY)
        self._callbacks = CallbackQueue()
        self._called_for: Sequence[SeenText] = ()
        self._waiting_since: float | None = None
        self._flush_after = flush_after
        self._timer = None if flush_after is None else FlushTimer(self._flush, flush_after)
        self._tap = Tap(model, encoder, self._judge.clouds, self._take, inside=self._judge.inside, entry=entry)

    @property
    def failures(self) -> int:
        """How many passes could not be scored."""
        return self._tap.failures

    @property
    def level(self) -> float:
        """The alarm's evidence now."""
        self._finish()
        return self._course.level

    @property
    def ringing(self) -> bool:
        """Whether there is an alarm now."""
        self._finish()
        with self._lock:
            self._course.pass_time(monotonic())
            return self._course.ringing

    @property
    def alarms(self) -> int:
        """How often the alarm has rung."""
        self._finish()
        return self._course.rang_in_all

    @property
    def rang(self) -> tuple[StrangeText, ...]:
        """The last hundred texts at which the alarm rang."""
        if self._callbacks.is_running_here:
            return self._in_words(self._called_for)
        return self._in_words(self._kept(self._rang))

    @property
    def strange(self) -> tuple[StrangeText, ...]:
        """The last hundred strange texts."""
        return self._in_words(self._kept(self._strange))

    @property
    def callback_failures(self) -> int:
        """How many calls of ``on_alarm`` raised an exception."""
        return self._callbacks.failures

    @property
    def callbacks_dropped(self) -> int:
        """How many calls of ``on_alarm`` were left out."""
        return self._callbacks.dropped

    @property
    def texts(self) -> int:
        """How many texts were scored."""
        self._finish()
        return self._texts

    @property
    def recent(self) -> tuple[float, ...]:
        """The last thousand p-values."""
        self._finish()
        return tuple(self._recent)

    @property
    def last(self) -> Scores | None:
        """Scores of the last pass."""
        self._finish()
        with self._lock:
            if self._last is None:
                return None
            texts, rang = self._last
        count = len(texts.p_values)
        rows = range(count - _last_rows(texts), count)
        named = speller(texts.ids, self._tokenizer)
        return Scores.of(texts, rows, named, alarm=rang, usual=self._usual, tokenizer=self._tokenizer)

    def __repr__(self) -> str:
        # Gathered passes are not scored for this: printing a watch must not change it.
        return one_line(self, f"{self._texts} texts scored, {self._course.rang_in_all} alarms; {self.baseline!r}")

    def close(self) -> None:
        """Take the hooks off the model, score and count the passes until then, and wait five seconds for callbacks."""
        self._tap.close()
        if self._timer is not None:
            self._timer.close()
        self._finish()
        self._callbacks.wait(CLOSE_SECONDS)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, hidden: HiddenStates) -> None:
        with self._lock:
            if not hidden.states[0].numel() or (self._rate < 1 and self._rng.random() >= self._rate):
                return
            if self._tokenizer is None and self._usual is None:
                hidden = HiddenStates(hidden.states, hidden.mask, None)  # ids are for reasons
            device = hidden.states[0].device
            if device.type == "cuda":
                self._written_on.setdefault(device, set()).add(torch.cuda.current_stream(device))
            gathered = self._buffer.add(hidden)
            if gathered is None:
                self._begin_waiting()
                return
            self._score(gathered)
        self._settle()

    def _begin_waiting(self) -> None:
        if self._waiting_since is None:
            self._waiting_since = monotonic()
            if self._timer is not None:
                self._timer.begin()

    def _flush(self) -> float | None:
        """Score what has waited long enough; the seconds for which the rest can wait, None where nothing waits."""
        with self._lock:
            if self._waiting_since is None or self._flush_after is None:
                return None
            rest = self._waiting_since + self._flush_after - monotonic()
        if rest > 0:
            return rest
        self._finish()
        return None

    def _finish(self) -> None:
        """Score gathered passes and wait for those under way."""
        try:
            with self._lock:
                gathered = self._buffer.empty()
                self._waiting_since = None
                if gathered is not None:
                    self._score(gathered)
            self._settle(wait=True)
        except Exception as error:
            self._tap.failed(error)

    def _score(self, hidden: HiddenStates) -> None:
        device = hidden.states[0].device
        self._waiting_since = None
        try:
            judge = self._judges.get(device) or self._judges.setdefault(device, self._judge.to(device))
            self._under_way.append(self._assess_beside(judge, hidden) if device.type == "cuda" else judge(hidden))
        except Exception as error:
            self._tap.failed(error, hidden.passes)

    def _assess_beside(self, judge: Judge, hidden: HiddenStates) -> Assessment:
        """Assess on a stream of its own, beside the model's next pass; nothing waits for it."""
        device = hidden.states[0].device
        stream = self._streams.get(device) or self._streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        # Whoever asks, or the timer, may be on another stream than the model.
        for written in self._written_on.pop(device, set()) | {torch.cuda.current_stream(device)}:
            stream.wait_stream(written)
        with torch.cuda.stream(stream):
            for tensor in (*hidden.states, hidden.mask):
                if tensor is not None:
                    tensor.record_stream(stream)
            # At once: texts under way would otherwise keep their states on the GPU.
            texts = judge(hidden).gathered()
            pinned = torch.empty(texts.p_values.shape, dtype=texts.p_values.dtype, pin_memory=True)
            pinned.copy_(texts.p_values, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        return replace(texts, p_values=pinned, event=event)

    def _settle(self, *, wait: bool = False) -> None:
        """Count finished assessments, in order; then call back if the alarm rang."""
        rang: list[SeenText] = []
        with self._lock:
            before = self._course.rang_in_all
            while self._under_way:
                texts = self._under_way[0]
                if texts.event is not None and not texts.event.query():
                    if not wait and len(self._under_way) <= BEHIND:
                        self._begin_waiting()
                        break
                    texts.event.synchronize()
                self._under_way.popleft()
                rang += self._count(texts)
            now, count = self._course.rang_in_all, self._texts
            # In the lock, so that calls keep the order of the stream.
            if rang and self._on_alarm is not None:
                self._callbacks.call(partial(self._call_back, rang[-HISTORY:]))
        # A shift that persists rings every few texts: the first alarm is logged, the second, the fourth …
        if before.bit_length() < now.bit_length():
            LOG.warning("alarm %d, after %d texts", now, count)

    def _count(self, texts: Assessment) -> list[SeenText]:
        """Count the texts of one assessment; those at which the alarm rang."""
        p = texts.p_values.numpy()
        numbers = self._course.take_together(p, monotonic())
        kept = sorted({*np.flatnonzero(p <= self.alpha)[-HISTORY:].tolist(), *numbers[-HISTORY:]})
        rang: list[SeenText] = []
        if kept:
            with self._beside(texts.score.device):
                seen = seen_texts(texts, kept, self._texts, time())
            self._strange.extend(text for text in seen if text.p_value <= self.alpha)
            rang = [text for text, row in zip(seen, kept, strict=True) if row in numbers]
            self._rang.extend(rang)
        first = len(p) - _last_rows(texts)
        last = texts.part(range(first, len(p))) if texts.inside else texts
        self._last = (last, any(place >= first for place in numbers))
        self._texts += len(p)
        self._recent.extend(p.tolist())
        return rang

    def _kept(self, texts: deque[SeenText]) -> Sequence[SeenText]:
        self._finish()
        with self._lock:
            return tuple(texts)

    def _in_words(self, seen: Sequence[SeenText]) -> tuple[StrangeText, ...]:
        words = []
        for text in seen:
            with self._beside(text.device):
                words.append(text.in_words(self._tokenizer, self._usual))
        return tuple(words)

    def _beside(self, device: torch.device) -> AbstractContextManager[object]:
        """The stream on which texts are assessed on a device: their memory belongs to it."""
        return torch.cuda.stream(self._streams[device]) if device.type == "cuda" else nullcontext()

    def _call_back(self, rang: Sequence[SeenText]) -> None:
        self._called_for = rang
        try:
            if self._on_alarm is not None:
                self._on_alarm(self)
        finally:
            self._called_for = ()


def _last_rows(texts: Assessment) -> int:
    """Number of texts in the last pass."""
    return len(texts.p_values) if texts.rows is None else texts.rows


def watch(
    model: nn.Module,
    baseline: Baseline | str | Path,
    *,
    profile: str = "full",
    false_alarm_every: float | str = FALSE_ALARM_EVERY,
    rate: float = RATE,
    alpha: float | None = None,
    sample_rate: float = 1.0,
    hold: int | None = None,
    flush_after: float | None = FLUSH_AFTER,
    on_alarm: "Callable[[Watch], None] | None" = None,
    log_only: bool = False,
    tokenizer: Any = None,
    entry: nn.Module | None = None,
    seed: int = 0,
) -> Watch:
    """Watch a model in use: score everything it reads, by hooks that neither change its results nor raise errors.

    Small passes are gathered and scored together, those of a quiet model after ``flush_after`` seconds; on a GPU
    nothing waits for results. Alarms are logged (logger "frostline").

    Parameters
    ----------
    model
        A live transformers model.
    baseline
        The baseline of this model, or its file.
    profile
        The level of the profile, "full", "light" or "deep".
    false_alarm_every
        The alarm rings falsely at most once in this time, "30d" or "12h", at ``rate`` texts per second; or once in
        this many texts, if it is a number.
    rate
        Texts per second at which that time is promised.
    alpha
        Texts with p-values up to this are strange; the default is 1 %, or the smallest p-value of the baseline where
        that is larger.
    sample_rate
        Share of the passes that are scored, above 0 and at most 1.
    hold
        Number of texts that are gathered before they are scored; 1 scores every pass at once. The default is 128 texts
        or 4,096 tokens, on a GPU 512 texts or 16,384 tokens.
    flush_after
        Seconds after which gathered texts are scored however few they are; None: when somebody asks.
    on_alarm
        A function that is called with the watch when its alarm rings, on a thread of its own, one call after the
        other. While it runs, ``rang`` holds the texts that it is called for.
    log_only
        Whether ``on_alarm`` is not called, to try a watch out before acting on it.
    tokenizer
        The model's tokenizer: with it reasons name tokens and strange texts have ids, without it there are places.
    entry
        The module that is called, where that is not the model itself.
    seed
        Seed of the choice of passes, where ``sample_rate`` is below 1.

    Returns
    -------
    Watch
        The watch; use it as a context manager, or call ``close``.

    Raises
    ------
    BadBaseline
        The baseline is of another model or another tokenizer.
    BadParameter
        A setting is out of its range.

    Examples
    --------
    >>> with fl.watch(model, "enc.frost") as watch:  # doctest: +SKIP
    ...     model(**batch)
    ...     print(watch.last.p_values, watch.last.alarm)
    """
    return Watch(
        model,
        baseline,
        profile=profile,
        false_alarm_every=false_alarm_every,
        rate=rate,
        alpha=alpha,
        sample_rate=sample_rate,
        hold=hold,
        flush_after=flush_after,
        on_alarm=on_alarm,
        log_only=log_only,
        tokenizer=tokenizer,
        entry=entry,
        seed=seed,
    )
