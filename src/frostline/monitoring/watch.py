"""Watching a model in use: every forward pass scored by hooks, without changing what it returns."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from frostline.encoders.load import load
from frostline.errors import BadParameter
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.baseline_file import load_baseline
from frostline.monitoring.calibration import Alarm
from frostline.monitoring.hooks import LOG, Taking, Tap
from frostline.monitoring.pass_buffer import Gathered, Hold
from frostline.monitoring.profile import profile as profile_of
from frostline.monitoring.reasons import Judge, Judged, Scores
from frostline.printable import one_line

EVERY = 1000
RECENT = 1000
"""P-values kept for looking back."""
BEHIND = 8
"""Groups on a GPU that may be under way before the oldest is waited for."""


@dataclass(frozen=True, eq=False)
class Seen(Scores):
    """One entry per text of a batch; ``alarm``: whether the stream's alarm rang in it."""

    alarm: bool = False

    __repr__ = Scores.__repr__


@dataclass(frozen=True, eq=False)
class _Group:
    """Texts scored together: those of one pass, or of several small ones, of which the last had ``rows`` texts.

    ``p`` is there once ``event`` has happened (at once where there is none).
    """

    judged: Judged
    ids: Tensor | None
    rows: int
    p: Tensor
    event: Any


class Watch:
    """Scores what a model reads. Use it as a context manager, or call ``close``.

    last      the last pass (None before the first): scores, p-values, parts, reasons, alarm
    level     the alarm's evidence now; it rings at ``alarm.threshold``
    alarms    how often it has rung
    texts     how many texts were scored; failures: how many passes could not be
    recent    the last thousand p-values

    Small passes are gathered until there are ``hold`` texts (1: scored at once; else 128, on a GPU 512) or 4,096 tokens
    (16,384); on a GPU nothing waits for results. Asking for any of the above scores and counts all there is. Alarms are
    logged (logger "frostline"). ``on_alarm`` is called with the watch when one rings; ``log_only`` keeps it from being
    called: for trying it out before acting on it. With ``tokenizer`` reasons name tokens, not only their places.
    ``entry``: the module that is called where that is not the model itself.
    """

    def __init__(
        self,
        model: nn.Module,
        baseline: Baseline | str | Path,
        *,
        profile: str = "full",
        false_alarm_every: float = EVERY,
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
        if hold is not None and not (isinstance(hold, int) and 1 <= hold <= 1024):
            raise BadParameter(f"hold is {hold}; it is a number of texts from 1 to 1024.")
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
        self._rate = sample_rate
        self._rng = np.random.default_rng([17, seed])
        self._lock = threading.RLock()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._held = Hold(hold)
        self._under_way: deque[_Group] = deque()
        self._last: tuple[_Group, bool] | None = None
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
    def last(self) -> Seen | None:
        self._finish()
        with self._lock:
            if self._last is None:
                return None
            group, rang = self._last
        ids, words = group.ids, self._tokenizer

        def spell(row: int, place: int) -> str:
            return str(words.convert_ids_to_tokens(int(ids[row, place])))  # type: ignore[index]

        count = len(group.p)
        named = None if words is None or ids is None else spell
        return Seen(**vars(group.judged.scores(range(count - group.rows, count), named)), alarm=rang)

    def __repr__(self) -> str:
        # What is held is not scored for this: whoever prints a watch asks for nothing.
        return one_line(self, f"{self._texts} texts scored, {self._alarms} alarms; {self.baseline!r}")

    def close(self) -> None:
        """Take the hooks off the model; what was seen is still counted."""
        self._tap.close()
        self._finish()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, taken: Taking) -> None:
        with self._lock:
            if not taken.states[0].numel() or (self._rate < 1 and self._rng.random() >= self._rate):
                return
            if self._tokenizer is None:
                taken = Taking(taken.states, taken.mask, None)  # ids are for naming tokens
            enough = self._held.add(taken)
            if enough is None:
                return
            self._score(enough)
        self._settle()

    def _finish(self) -> None:
        """Score what is held and wait for what is under way."""
        try:
            with self._lock:
                rest = self._held.all()
                if rest is not None:
                    self._score(rest)
            self._settle(wait=True)
        except Exception as error:
            self._tap.failed(error)

    def _score(self, group: Gathered) -> None:
        device = group.present.device
        try:
            judge = self._judges.get(device) or self._judges.setdefault(device, self._judge.to(device))
            if device.type == "cuda":
                self._under_way.append(self._score_beside(judge, group))
            else:
                found = judge(profile_of(group.states, group.present, judge.detector.probes))
                self._under_way.append(_Group(found, group.ids, group.rows, found.p, None))
        except Exception as error:
            self._tap.failed(error, group.passes)

    def _score_beside(self, judge: Judge, group: Gathered) -> _Group:
        """On a stream of its own, beside the model's next pass; nothing waits for it."""
        device = group.present.device
        stream = self._streams.get(device) or self._streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for tensor in (*group.states, group.present):
                tensor.record_stream(stream)
            found = judge(profile_of(group.states, group.present, judge.detector.probes))
            p = torch.empty(found.p.shape, dtype=found.p.dtype, pin_memory=True).copy_(found.p, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        return _Group(found, group.ids, group.rows, p, event)

    def _settle(self, *, wait: bool = False) -> None:
        """Count what has come, in order; then say so if the alarm rang."""
        with self._lock:
            before = self._alarms
            while self._under_way:
                group = self._under_way[0]
                if group.event is not None and not group.event.query():
                    if not wait and len(self._under_way) <= BEHIND:
                        break
                    group.event.synchronize()
                self._under_way.popleft()
                rang = self._count(group.p.numpy())
                self._last = (group, any(place >= len(group.p) - group.rows for place in rang))
            now, texts = self._alarms, self._texts
        # A shift that persists rings every few texts: said at the first, the second, the fourth …
        if before.bit_length() < now.bit_length():
            LOG.warning("alarm %d, after %d texts", now, texts)
        if before < now and self._on_alarm is not None:
            self._on_alarm(self)

    def _count(self, p: np.ndarray) -> list[int]:
        levels, rang = self.alarm.after(self._level, p)
        self._level = 0.0 if len(rang) and rang[-1] == len(levels) - 1 else float(levels[-1])
        self._alarms += len(rang)
        self._texts += len(levels)
        self._recent.extend(p.tolist())
        return list(rang)


watch = Watch
