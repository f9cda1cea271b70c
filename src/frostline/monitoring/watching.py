"""Watching a model in use: every forward pass scored by hooks, without changing what it returns."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from frostline.encoders.loading import load
from frostline.errors import BadParameter
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.calibration import Alarm
from frostline.monitoring.frost import load_baseline
from frostline.monitoring.judging import Judge, Judged, Scores
from frostline.monitoring.profiles import profile as profile_of
from frostline.monitoring.tapping import LOG, Taking, Tap

EVERY = 1000
RECENT = 1000
"""P-values kept for looking back."""
HOLD = {"cpu": (64, 2048), "cuda": (512, 16_384)}
"""Texts, or tokens with padding, that are gathered before they are scored: starting each operation costs more than the
operation itself when texts are few."""
BEHIND = 8
"""Groups on a GPU that may be under way before the oldest is waited for."""


@dataclass(frozen=True, eq=False)
class Seen(Scores):
    """One entry per text of a batch; ``alarm``: whether the stream's alarm rang in it."""

    alarm: bool = False


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

    Small passes are gathered until there are ``hold`` texts (1: scored at once; else 64, on a GPU 512) or 2,048 tokens
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
        self._rate, self._hold = sample_rate, hold
        self._rng = np.random.default_rng([17, seed])
        self._lock = threading.RLock()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._held: list[Taking] = []
        self._held_texts = self._held_tokens = 0
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
        if not len(taken.present):
            return
        taken = replace(taken, states=[state.float() for state in taken.states])
        with self._lock:
            if self._rate < 1 and self._rng.random() >= self._rate:
                return
            self._held_texts += len(taken.present)
            self._held_tokens += taken.present.numel()
            texts, tokens = HOLD.get(taken.present.device.type, (1, 1))
            if self._held_texts < (self._hold or texts) and self._held_tokens < tokens:
                # The caller may change what the model returned before we look at it: a copy is ours.
                ids = None if taken.ids is None else taken.ids.clone()
                self._held.append(Taking([state.clone() for state in taken.states], taken.present, ids))
                return
            self._held.append(taken)
        self._score()
        self._settle()

    def _finish(self) -> None:
        """Score what is held and wait for what is under way."""
        with self._tap.guarded():
            self._score()
            self._settle(wait=True)

    def _score(self) -> None:
        with self._lock:
            held, self._held, self._held_texts, self._held_tokens = self._held, [], 0, 0
            if not held:
                return
            # Should it fail, every pass of the group is lost, not only the last.
            self._tap.failures += len(held) - 1
            device = held[0].present.device
            judge = self._judges.get(device) or self._judges.setdefault(device, self._judge.to(device))
            if device.type == "cuda":
                group = self._score_beside(judge, held)
            else:
                taken = _gathered(held)
                found = judge(profile_of(taken.states, taken.present, judge.detector.probes))
                group = _Group(found, taken.ids, len(held[-1].present), found.p, None)
            self._under_way.append(group)
            self._tap.failures -= len(held) - 1

    def _score_beside(self, judge: Judge, held: list[Taking]) -> _Group:
        """On a stream of its own, beside the model's next pass; nothing waits for it."""
        device = held[0].present.device
        stream = self._streams.get(device) or self._streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for one in held:
                for tensor in (*one.states, one.present, *(() if one.ids is None else (one.ids,))):
                    tensor.record_stream(stream)
            taken = _gathered(held)
            found = judge(profile_of(taken.states, taken.present, judge.detector.probes))
            p = torch.empty(found.p.shape, dtype=found.p.dtype, pin_memory=True).copy_(found.p, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        return _Group(found, taken.ids, len(held[-1].present), p, event)

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


def _gathered(held: list[Taking]) -> Taking:
    """Several passes as one, the shorter ones padded."""
    if len(held) == 1:
        return held[0]
    longest = max(one.present.shape[1] for one in held)

    def longer(x: Tensor) -> Tensor:
        more = longest - x.shape[1]
        return pad(x, (0, 0) * (x.ndim - 2) + (0, more)) if more else x

    known = [one.ids for one in held if one.ids is not None]
    return Taking(
        [torch.cat([longer(one.states[cloud]) for one in held]) for cloud in range(len(held[0].states))],
        torch.cat([longer(one.present) for one in held]),
        torch.cat([longer(ids) for ids in known]) if len(known) == len(held) else None,
    )


watch = Watch
