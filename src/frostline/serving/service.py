"""The service without its network: a scorer, the stream it feeds, events on disk, metrics."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from frostline.encoders.tokenization import Tokenized
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.calibration import Alarm
from frostline.monitoring.hooks import LOG
from frostline.monitoring.reasons import Scores
from frostline.monitoring.scorer import Scorer
from frostline.serving.batching import BATCH, Batcher, Causes
from frostline.serving.events import Events
from frostline.serving.head_metrics import Heads
from frostline.serving.metrics import ROUTES, Metrics
from frostline.serving.stream import Stream
from frostline.web.request_limits import Limits

SAVED_EVERY = 5.0
"""Seconds between writings of what the stream stands at; events are written at once."""
SHOWN = 20
"""Events on the live page."""
FRESH = 0.4
"""Seconds that a picture of the stream is shown to everybody who asks."""


class Service:
    """Opens everything; ``close`` answers what waits and writes what is left."""

    def __init__(
        self,
        baseline: Baseline,
        model: Any,
        tokenizer: Any = None,
        *,
        events: str | Path,
        level: str = "full",
        alpha: float = 0.01,
        false_alarm_every: float = 1000.0,
        clear_after: int = 200,
        store_texts: bool = False,
        keep_events: int = 100_000,
        keep_days: float = 30.0,
        batch: int = BATCH,
        per_head: bool = False,
        replica: str = "",
        limits: Limits | None = None,
    ):
        self.limits = limits or Limits()
        self.about = dict(baseline.about)
        self.name = "/".join(Path(str(baseline.about["model"])).parts[-2:])
        """The model's; where it lies on this machine is nobody's business."""
        self.scorer = Scorer(baseline, model, tokenizer, level=level)
        self.stream = Stream(
            Alarm.once_in(false_alarm_every),
            self.scorer.judge.clouds,
            alpha=alpha,
            clear_after=clear_after,
            calibrated_by=int(self.scorer.judge.conformal.counts.min()),
            keep_texts=store_texts,
            replica=replica,
        )
        self.events = Events(events, keep=keep_events, days=keep_days)
        files = baseline.about.get("files_sha256")
        self._other_files = files not in (None, self.scorer.encoder.fingerprint() if files else None)
        self.draining = False
        self.refused = 0
        """Connections beyond the limit."""
        self._picture: tuple[float, str] = (-1.0, "")
        self._drawing = threading.Lock()
        try:
            # The first pass of all is slow: it is not a client's.
            self.scorer.score(self.scorer.tokenized(["the first pass of all is slow"] * 2))
            # From here on, so that this pass is in no mean.
            self.heads = Heads(self.scorer) if per_head else None
            self.stream.resume(self.events.state())
            self.batcher = Batcher(self.scorer, self._taken, batch=batch, most=self.limits.waiting)
        except BaseException:
            self.events.close()
            raise
        self.metrics = Metrics(self)
        for trouble in self.degraded():
            LOG.warning("%s", trouble)
        self.events.add([self.stream.event("start", time.time())])

    def save(self) -> None:
        """Write what the stream stands at, and events that had to wait."""
        self.events.add([], self.stream.state())

    def drain(self) -> None:
        """Take no more calls; live pages end, or they would be waited for."""
        self.draining = True
        LOG.info("stopping; %d texts wait. A second signal ends it at once", self.batcher.waiting)

    def refuse(self) -> None:
        self.refused += 1

    def close(self) -> None:
        self.batcher.close()
        self.events.add([self.stream.event("stop", time.time())], self.stream.state())
        self.events.close()

    def degraded(self) -> list[str]:
        found = [self.events.trouble] if self.events.trouble else []
        if self._other_files:
            found.append(
                "the model's files are not those the baseline was made with, though their attention weights are: "
                "a copy in another precision, or other embeddings or feed-forward layers"
            )
        if self.events.pending:
            found.append(f"{self.events.pending} events wait in memory for the disk")
        return found

    def counted(self, path: str, code: int) -> None:
        route = path if path in ROUTES else "other"
        self.metrics.requests.labels(route, str(code)).inc()

    def answer(self, found: Scores, causes: Causes, tokenized: Tokenized, *, reasons: bool) -> dict[str, Any]:
        """The answer to one call, as JSON will have it."""
        stream = self.stream
        rows = []
        for number, p in enumerate(found.p_values.tolist()):
            said = [
                {
                    "part": reason.part,
                    "sigma": reason.sigma,
                    "says": reason.says,
                    "tokens": list(reason.tokens),
                    "named": [self.scorer.spelled(tokenized.ids[number][place]) for place in reason.tokens],
                }
                for reason in (found.reasons[number] if reasons else ())
            ]
            rows.append(
                {
                    "score": float(found.scores[number]),
                    "p_value": p,
                    "strange": p <= stream.alpha,
                    "parts": {name: float(values[number]) for name, values in found.parts.items()},
                    "observed": found.observed[number].tolist(),
                    "expected": found.expected[number].tolist(),
                    "reasons": said,
                    "events": causes[number],
                }
            )
        alarm = {
            "active": stream.ringing,
            "level": stream.level,
            "threshold": stream.alarm.threshold,
            "says": ": ".join(stream.says()[:2]),
        }
        return {"texts": rows, "alarm": alarm, "layers": list(stream.clouds)}

    def picture(self) -> str:
        """What the live page shows, as JSON; made anew at most twice a second, however many look."""
        with self._drawing:
            made, found = self._picture
            if time.monotonic() - made > FRESH:
                events = [event.facts() | {"text": None} for event in self.events.select(newest=True, limit=SHOWN)]
                about = {"model": self.name, "degraded": self.degraded(), "draining": self.draining}
                found = json.dumps(self.stream.picture() | about | {"events": events, "now": time.time()})
                self._picture = (time.monotonic(), found)
            return found

    def _taken(self, found: Scores, texts: list[str]) -> Causes:
        events, owners = self.stream.take(found, texts)
        numbers = self.events.add(events, self.stream.state()) if events else []
        for p in found.p_values.tolist():
            self.metrics.p_values.observe(p)
        self.metrics.sizes.observe(len(texts))
        for event in events:
            if event.kind != "strange":
                LOG.warning("%s after %d texts", event.kind, event.texts)
        return [[{"kind": events[own].kind, "id": numbers[own]} for own in owned] for owned in owners]
