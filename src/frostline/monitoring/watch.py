"""Watching a model in use: every forward pass scored by hooks, without changing what it returns."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from frostline.encoders.load import load
from frostline.errors import BadParameter
from frostline.log import LOG
from frostline.monitoring.alarm import Alarm
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.baseline_file import load_baseline
from frostline.monitoring.hooks import HiddenStates, Tap
from frostline.monitoring.judge import Assessment, Judge
from frostline.monitoring.pass_buffer import PassBuffer
from frostline.monitoring.reasons import Scores
from frostline.monitoring.surface import SurfaceReference
from frostline.printable import one_line

FALSE_ALARM_EVERY = 1000
"""Texts per false alarm, if nothing else is asked for."""
RECENT = 1000
"""Number of p-values kept for looking back."""
LARGEST_HOLD = 1024
"""Largest number of texts that may be gathered before they are scored."""
BEHIND = 8
"""Assessments on a GPU that may be under way before the oldest is waited for."""


class Watch:
    """Score everything a model reads, by forward hooks that neither change its results nor raise errors.

    Use it as a context manager, or call ``close``. Small passes are gathered and scored together; on a GPU nothing
    waits for results. Reading any of the attributes below scores and counts all passes until then. Alarms are logged
    (logger "frostline").

    Parameters
    ----------
    model
        A live transformers model.
    baseline
        The baseline of this model, or its file.
    profile
        The level of the profile, "full" or "light".
    false_alarm_every
        The alarm rings falsely about once in this many texts.
    sample_rate
        Share of the passes that are scored, above 0 and at most 1.
    hold
        Number of texts that are gathered before they are scored; 1 scores every pass at once. The default is 128 texts
        or 4,096 tokens, on a GPU 512 texts or 16,384 tokens.
    on_alarm
        A function that is called with the watch when its alarm rings.
    log_only
        Whether ``on_alarm`` is not called, to try a watch out before acting on it.
    tokenizer
        The model's tokenizer: with it reasons name tokens, without it places.
    entry
        The module that is called, where that is not the model itself.
    seed
        Seed of the choice of passes, where ``sample_rate`` is below 1.

    Attributes
    ----------
    last
        Scores of the last pass, with ``alarm``; None before the first pass.
    level
        The alarm's evidence now; the alarm rings at ``alarm.threshold``.
    alarms
        How often the alarm has rung.
    texts
        How many texts were scored.
    failures
        How many passes could not be scored.
    recent
        The last thousand p-values.

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

    def __init__(
        self,
        model: nn.Module,
        baseline: Baseline | str | Path,
        *,
        profile: str = "full",
        false_alarm_every: float = FALSE_ALARM_EVERY,
        sample_rate: float = 1.0,
        hold: int | None = None,
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
        if hold is not None and not (isinstance(hold, int) and 1 <= hold <= LARGEST_HOLD):
            raise BadParameter(f"hold is {hold}; it is a number of texts from 1 to {LARGEST_HOLD}.")
        self.baseline = baseline if isinstance(baseline, Baseline) else load_baseline(baseline)
        if profile not in self.baseline.judges:
            raise BadParameter(f"profile is {profile!r}; it is one of {', '.join(self.baseline.judges)}.")
        encoder = load(model)
        self.baseline.check(encoder, tokenizer)
        self.alarm = Alarm.once_in(false_alarm_every)
        self._judge = self.baseline.judges[profile]
        self._judges: dict[torch.device, Judge] = {torch.device("cpu"): self._judge}
        self._on_alarm = None if log_only else on_alarm
        self._tokenizer = tokenizer
        self._usual = SurfaceReference.of(self.baseline.about)
        self._rate = sample_rate
        self._rng = np.random.default_rng([17, seed])
        self._lock = threading.RLock()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._buffer = PassBuffer(hold)
        self._under_way: deque[Assessment] = deque()
        self._last: tuple[Assessment, bool] | None = None
        self._level, self._alarms, self._texts = 0.0, 0, 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._tap = Tap(model, encoder, self._judge.clouds, self._take, entry=entry)

    @property
    def failures(self) -> int:
        return self._tap.failures

    @property
    def level(self) -> float:
        self._finish()
        return self._level

    @property
    def alarms(self) -> int:
        self._finish()
        return self._alarms

    @property
    def texts(self) -> int:
        self._finish()
        return self._texts

    @property
    def recent(self) -> tuple[float, ...]:
        self._finish()
        return tuple(self._recent)

    @property
    def last(self) -> Scores | None:
        self._finish()
        with self._lock:
            if self._last is None:
                return None
            texts, rang = self._last
        ids, tokenizer = texts.ids, self._tokenizer

        def spell(row: int, place: int) -> str:
            return str(tokenizer.convert_ids_to_tokens(int(ids[row, place])))  # type: ignore[index]

        count = len(texts.p_values)
        rows = range(count - _last_rows(texts), count)
        named = None if tokenizer is None or ids is None else spell
        return Scores.of(texts, rows, named, alarm=rang, usual=self._usual, tokenizer=tokenizer)

    def __repr__(self) -> str:
        # Gathered passes are not scored for this: printing a watch must not change it.
        return one_line(self, f"{self._texts} texts scored, {self._alarms} alarms; {self.baseline!r}")

    def close(self) -> None:
        """Take the hooks off the model, and score and count the passes until then."""
        self._tap.close()
        self._finish()

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
            gathered = self._buffer.add(hidden)
            if gathered is None:
                return
            self._score(gathered)
        self._settle()

    def _finish(self) -> None:
        """Score gathered passes and wait for those under way."""
        try:
            with self._lock:
                gathered = self._buffer.empty()
                if gathered is not None:
                    self._score(gathered)
            self._settle(wait=True)
        except Exception as error:
            self._tap.failed(error)

    def _score(self, hidden: HiddenStates) -> None:
        device = hidden.states[0].device
        try:
            judge = self._judges.get(device) or self._judges.setdefault(device, self._judge.to(device))
            self._under_way.append(self._assess_beside(judge, hidden) if device.type == "cuda" else judge(hidden))
        except Exception as error:
            self._tap.failed(error, hidden.passes)

    def _assess_beside(self, judge: Judge, hidden: HiddenStates) -> Assessment:
        """Assess on a stream of its own, beside the model's next pass; nothing waits for it."""
        device = hidden.states[0].device
        stream = self._streams.get(device) or self._streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for tensor in (*hidden.states, hidden.mask):
                if tensor is not None:
                    tensor.record_stream(stream)
            texts = judge(hidden)
            pinned = torch.empty(texts.p_values.shape, dtype=texts.p_values.dtype, pin_memory=True)
            pinned.copy_(texts.p_values, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        return replace(texts, p_values=pinned, event=event)

    def _settle(self, *, wait: bool = False) -> None:
        """Count finished assessments, in order; then call back if the alarm rang."""
        with self._lock:
            before = self._alarms
            while self._under_way:
                texts = self._under_way[0]
                if texts.event is not None and not texts.event.query():
                    if not wait and len(self._under_way) <= BEHIND:
                        break
                    texts.event.synchronize()
                self._under_way.popleft()
                rang = self._count(texts.p_values.numpy())
                self._last = (texts, any(place >= len(texts.p_values) - _last_rows(texts) for place in rang))
            now, count = self._alarms, self._texts
        # A shift that persists rings every few texts: the first alarm is logged, the second, the fourth …
        if before.bit_length() < now.bit_length():
            LOG.warning("alarm %d, after %d texts", now, count)
        if before < now and self._on_alarm is not None:
            self._on_alarm(self)

    def _count(self, p: np.ndarray) -> list[int]:
        levels, rang = self.alarm.after(self._level, p)
        self._level = 0.0 if len(rang) and rang[-1] == len(levels) - 1 else float(levels[-1])
        self._alarms += len(rang)
        self._texts += len(levels)
        self._recent.extend(p.tolist())
        return list(rang)


def _last_rows(texts: Assessment) -> int:
    """Number of texts in the last pass."""
    return len(texts.p_values) if texts.rows is None else texts.rows


watch = Watch
