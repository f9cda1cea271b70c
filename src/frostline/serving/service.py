"""The service behind the HTTP interface: a scorer, the stream it feeds, events on disk, metrics."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from frostline.encoders.tokenization import Tokenized
from frostline.log import LOG
from frostline.monitoring.alarm import FALSE_ALARM_EVERY, RATE, texts_between_alarms
from frostline.monitoring.alarm_course import CLEAR_SECONDS, CLEAR_TEXTS, ClearRule
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.calibration import check_alpha
from frostline.monitoring.reasons import Scores
from frostline.monitoring.scorer import Scorer
from frostline.serving.batching import BATCH, Batcher, Cause, Causes
from frostline.serving.events import DAYS, KEPT, Event, Events
from frostline.serving.head_metrics import HeadEnergies
from frostline.serving.metrics import ROUTES, Metrics
from frostline.serving.stream import Stream
from frostline.serving.stream_status import picture_of, status_of, words
from frostline.serving.submission import Submission
from frostline.web.request_limits import Limits

SAVED_EVERY = 5.0
"""Seconds after which the state of the stream is written again; events are written at once."""
SHOWN = 12
"""Number of events on the live page."""
EXPLAINED_BY = 1000
"""Number of last strange texts from which a restarted service explains alarms that go on."""
FRESH = 0.4
"""Seconds for which one picture of the stream is sent to every live page."""


class Service:
    """A scoring service: it opens all its parts; ``close`` answers waiting texts and writes the last events."""

    def __init__(
        self,
        baseline: Baseline,
        model: Any,
        tokenizer: Any = None,
        *,
        events: str | Path,
        profile: str = "full",
        alpha: float = 0.01,
        false_alarm_every: float | str = FALSE_ALARM_EVERY,
        rate: float = RATE,
        clear_after: int = CLEAR_TEXTS,
        clear_seconds: float = CLEAR_SECONDS,
        store_texts: bool = False,
        keep_events: int = KEPT,
        keep_days: float = DAYS,
        batch: int = BATCH,
        per_head: bool = False,
        replica: str = "",
        limits: Limits | None = None,
    ):
        self.limits = limits or Limits()
        self.about = dict(baseline.about)
        self.name = "/".join(Path(str(baseline.about["model"])).parts[-2:])
        """Name of the model: the end of its path, since clients need not know the folders of this machine."""
        self.scorer = Scorer(baseline, model, tokenizer, profile=profile)
        check_alpha(self.scorer.judge.conformal, alpha)
        self.baseline, self.baseline_name = baseline.identity[:12], baseline.name
        """The baseline's short hash and its name."""
        self.stream = Stream(
            texts_between_alarms(false_alarm_every, rate),
            self.scorer.judge.layers,
            counts=self.scorer.judge.conformal.counts.tolist(),
            rate=rate,
            alpha=alpha,
            rule=ClearRule(clear_after, clear_seconds),
            keep_texts=store_texts,
            replica=replica,
            baseline=self.baseline,
            spread=self.scorer.judge.spread_of_layers,
        )
        self.events = Events(events, keep=keep_events, days=keep_days, baseline=self.baseline)
        files = baseline.about.get("files_sha256")
        self._other_files = files not in (None, self.scorer.encoder.fingerprint() if files else None)
        self.draining = False
        self.refused = 0
        """Number of connections beyond the limit."""
        self.failed_logins = 0
        """Number of calls with a wrong token."""
        self._picture: tuple[float, str] = (-1.0, "")
        self._drawing = threading.Lock()
        try:
            # The first pass of a process is slow: no client should wait for it.
            self.scorer.score(self.scorer.tokenized(["the first pass of all is slow"] * 2))
            # After the first pass, so that it is in no mean.
            self.heads = HeadEnergies(self.scorer) if per_head else None
            strange = self.events.select(kind="strange", newest=True, limit=EXPLAINED_BY)
            self.stream.resume(self.events.state(), strange[::-1])
            self.batcher = Batcher(self.scorer, self._count, batch=batch, most=self.limits.waiting)
        except BaseException:
            self.events.close()
            raise
        self.metrics = Metrics(self)
        for trouble in self.degraded():
            LOG.warning("%s", trouble)
        self.events.add([self.stream.event("start", time.time())])

    def save(self) -> None:
        """Write the state of the stream, events that had to wait, and the end of what is over by time."""
        self._store(self.stream.pass_time(), save=True)

    def control(self, action: str, **settings: Any) -> Event:
        """An action of an operator on the alarms; it is an event, on the disk when this returns."""
        (event,) = self._store([self.stream.control(action, **settings)], save=True)
        return event

    def drain(self) -> None:
        """Take no more calls, and end live pages, for which the server would wait."""
        self.draining = True
        LOG.info("stopping; %d texts wait. A second signal ends it at once", self.batcher.waiting)

    def refuse(self) -> None:
        """Count a connection beyond the limit."""
        self.refused += 1

    def login_failed(self) -> None:
        """Count a call with a wrong token."""
        self.failed_logins += 1

    def close(self) -> None:
        """Answer waiting texts, write the last events, and close the file."""
        self.batcher.close()
        self.events.add([self.stream.event("stop", time.time())], self.stream.state())
        self.events.close()

    def degraded(self) -> list[str]:
        """Sentences about everything that does not work although texts are scored."""
        troubles = [says for says in (self.events.trouble, self.events.damage) if says]
        if self._other_files:
            troubles.append(
                "the model's files are not those the baseline was made with, though their attention weights are: "
                "a copy in another precision, or other embeddings or feed-forward layers"
            )
        if self.events.pending:
            troubles.append(f"{self.events.pending} events wait in memory for the disk")
        return troubles

    def counted(self, path: str, code: int) -> None:
        """Count an answer by its route and its status."""
        route = path if path in ROUTES else "other"
        self.metrics.requests.labels(route, str(code)).inc()

    def answer(
        self,
        submissions: Sequence[Submission],
        scores: Scores,
        causes: Causes,
        tokenized: Tokenized,
        *,
        reasons: bool,
    ) -> dict[str, Any]:
        """The answer to one call, as plain values for JSON."""
        stream = self.stream
        ringing = stream.ringing
        alarm = {
            "active": bool(ringing),
            "severity": stream.severity,
            "sources": [source.name for source in ringing],
            "level": stream.all.course.level,
            "threshold": stream.alarm.threshold,
            "says": ": ".join(words(stream)[:2]),
        }
        rows = [
            {
                "score": float(scores.scores[number]),
                "p_value": p,
                "strange": p <= stream.alpha,
                "parts": {name: float(values[number]) for name, values in scores.parts.items()},
                "observed": scores.observed[number].tolist(),
                "expected": scores.expected[number].tolist(),
                "spread": [] if scores.spread is None else scores.spread[number].tolist(),
                "reasons": self._reasons(scores, number, tokenized) if reasons else [],
                "id": submissions[number].id,
                "source": submissions[number].source,
                "repeated": causes[number].repeated,
                "events": [{"kind": kind, "id": event} for kind, event in causes[number].events],
            }
            for number, p in enumerate(scores.p_values.tolist())
        ]
        return {"texts": rows, "alarm": alarm, "layers": list(stream.clouds)}

    def _reasons(self, scores: Scores, number: int, tokenized: Tokenized) -> list[dict[str, Any]]:
        ids = tokenized.ids[number]
        return [
            reason.facts() | {"named": [self.scorer.spelled(ids[place]) for place in reason.tokens]}
            for reason in scores.reasons[number]
        ]

    def picture(self) -> str:
        """Everything the live page shows, as JSON; made anew at most twice a second for all pages together."""
        with self._drawing:
            made, picture = self._picture
            if time.monotonic() - made > FRESH:
                events = [event.facts() | {"text": None} for event in self.events.select(newest=True, limit=SHOWN)]
                picture = json.dumps(picture_of(self.stream) | self.status() | {"events": events})
                self._picture = (time.monotonic(), picture)
            return picture

    def status(self) -> dict[str, Any]:
        """The answer to GET /status: the stream, its sources, the baseline, and what does not work."""
        return status_of(self.stream) | {
            "model": self.name,
            "baseline": self.baseline_name,
            "baseline_hash": self.baseline,
            "degraded": self.degraded(),
            "draining": self.draining,
            "now": time.time(),
        }

    def _count(self, scores: Scores, submissions: Sequence[Submission]) -> Causes:
        """Count scored texts in the stream, the events and the metrics."""
        taken = self.stream.take(scores, submissions)
        stored = self._store(taken.events)
        for p, text, repeated in zip(scores.p_values.tolist(), submissions, taken.repeated, strict=True):
            if not (text.dry_run or repeated):
                self.metrics.p_values.observe(p)
        self.metrics.sizes.observe(len(submissions))
        return [
            Cause(repeated, [(stored[place].kind, stored[place].id) for place in places])
            for repeated, places in zip(taken.repeated, taken.owners, strict=True)
        ]

    def _store(self, events: Sequence[Event], *, save: bool = False) -> list[Event]:
        """Write events, and with them the state of the stream; returns the events with their numbers."""
        numbers = self.events.add(events, self.stream.state()) if events or save else []
        stored = [replace(event, id=number) for event, number in zip(events, numbers, strict=True)]
        self.stream.remember(stored)
        for event in stored:
            if event.kind != "strange":
                LOG.warning("%s", event.describe())
        return stored
