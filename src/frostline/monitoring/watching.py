"""Watching a model in use: every forward pass scored by hooks, without changing or delaying what it returns."""

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from frostline.encoders.loading import load
from frostline.errors import BadParameter
from frostline.monitoring.baseline import Baseline, Scores, load_baseline
from frostline.monitoring.calibration import Alarm
from frostline.monitoring.detector import Features
from frostline.monitoring.profiles import profile
from frostline.monitoring.tapping import Tap

EVERY = 1000
RECENT = 1000
"""P-values kept for looking back."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The last batch: one entry per text; ``alarm``: whether the stream's alarm rang in it."""

    scores: Float[np.ndarray, " n"]
    p_values: Float[np.ndarray, " n"]
    reasons: tuple[tuple[str, ...], ...]
    alarm: bool


class Watch:
    """Scores what a model reads. Use it as a context manager, or call ``close``.

    last       the last batch that was scored (None before the first)
    level      the alarm's evidence now; it rings at ``alarm.threshold``
    alarms     how often it has rung
    texts      how many texts were scored; failures: how many passes could not be
    """

    def __init__(
        self,
        model: nn.Module,
        baseline: Baseline | str | Path,
        *,
        false_alarm_every: float = EVERY,
        sample_rate: float = 1.0,
        seed: int = 0,
    ):
        if not 0 < sample_rate <= 1:
            raise BadParameter(f"sample_rate is {sample_rate}; it is a share of the passes, above 0 and at most 1.")
        self.baseline = baseline if isinstance(baseline, Baseline) else load_baseline(baseline)
        encoder = load(model)
        self.baseline.check(encoder)
        self.alarm = Alarm.once_in(false_alarm_every)
        self.last: Seen | None = None
        self.level, self.alarms, self.texts = 0.0, 0, 0
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._rate = sample_rate
        self._rng = np.random.default_rng([17, seed])
        self._lock = threading.Lock()
        self._tap = Tap(model, encoder, self._take)

    @property
    def failures(self) -> int:
        return self._tap.failures

    def _take(self, states: list[Tensor], present: Tensor) -> None:
        if self._rate < 1:
            with self._lock:
                skipped = self._rng.random() >= self._rate
            if skipped:
                return
        found = self.baseline.judge(Features.of(profile(states, present)))
        self._count(found)

    def _count(self, found: Scores) -> None:
        with self._lock:
            levels, rang = self.alarm.after(self.level, found.p_values)
            self.level = 0.0 if len(rang) and rang[-1] == len(levels) - 1 else float(levels[-1])
            self.alarms += len(rang)
            self.texts += len(levels)
            self.recent.extend(found.p_values.tolist())
            self.last = Seen(found.scores, found.p_values, found.reasons, bool(rang))

    def close(self) -> None:
        """Take the hooks off the model."""
        self._tap.close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(
    model: nn.Module,
    baseline: Baseline | str | Path,
    *,
    false_alarm_every: float = EVERY,
    sample_rate: float = 1.0,
    seed: int = 0,
) -> Watch:
    """Watch a model: ``with watch(model, baseline) as seen: model(**batch); seen.last.p_values``."""
    return Watch(model, baseline, false_alarm_every=false_alarm_every, sample_rate=sample_rate, seed=seed)
