"""Metrics for Prometheus: names and units by its conventions, labels with few values.

Counts and states are read from the service when Prometheus scrapes; only distributions are recorded as they happen.
Counters begin at zero with every process, as those of Prometheus do: ``increase()`` is then right across restarts.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from frostline import __version__
from frostline.monitoring.alarm_course import SEVERITIES
from frostline.serving.source_labels import OTHER

if TYPE_CHECKING:
    from frostline.serving.service import Service

P_VALUES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Upper bounds of the buckets of p-values."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of times, in seconds."""
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds of the buckets of texts per pass."""
ROUTES = ("/score", "/status", "/alarm", "/events", "/metrics", "/stream", "other")
"""Routes that are counted by name, and the name of all others."""


class Metrics:
    """The metrics of one service, in a registry of their own: metrics of other libraries stay out."""

    def __init__(self, service: "Service"):
        self.registry = CollectorRegistry()
        self.p_values = Histogram(
            "frostline_p_value",
            "Conformal p-values of scored texts: uniform while the texts are like the reference.",
            buckets=P_VALUES,
            registry=self.registry,
        )
        self.requests = Counter(
            "frostline_http_requests",
            "HTTP requests by route and status code.",
            ["route", "code"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "frostline_http_request_duration_seconds",
            "Time from the arrival of a call of /score to its answer.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.sizes = Histogram(
            "frostline_batch_texts", "Texts that were scored in one pass.", buckets=TEXTS, registry=self.registry
        )
        self.registry.register(_Reader(service))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)


class _Reader(Collector):
    """Reads counts and states from the service when Prometheus scrapes."""

    def __init__(self, service: "Service"):
        self.service = service

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield from self._sources()
        yield from self._layers()
        yield from self._heads()
        about = {
            "version": __version__,
            "model": self.service.name,
            "model_hash": str(self.service.about["model_sha256"])[:12],
            "baseline": self.service.baseline_name,
            "baseline_hash": self.service.baseline,
        }
        yield InfoMetricFamily("frostline_build", "The software, the model and its weights, and the baseline.", about)

    def _counters(self) -> Iterator[Metric]:
        service, stream, batcher = self.service, self.service.stream, self.service.batcher
        counted = stream.counted
        for name, says, count in (
            ("texts", "Texts scored, without dry runs.", counted["texts"]),
            ("strange_texts", f"Texts with p-values up to alpha = {stream.alpha:g}.", counted["strange"]),
            ("repeated_texts", "Texts that had just been seen: scored, but no evidence.", counted["repeated"]),
            ("dry_run_texts", "Texts of dry runs: scored, and counted for nothing.", counted["dry_run"]),
            ("alarm_rings", "How often the evidence of an alarm reached its threshold.", counted["rings"]),
            ("passes", "Passes through the model.", batcher.passes),
            ("pass_failures", "Passes that failed.", batcher.failures),
            ("pass_seconds", "Time spent on passes.", batcher.seconds),
            ("connections_refused", "Connections cut because too many were open.", service.refused),
            ("failed_logins", "Calls with a wrong token.", service.failed_logins),
            ("events_lost", "Events that could neither be stored nor kept in memory.", service.events.lost),
        ):
            yield CounterMetricFamily(f"frostline_{name}", says, value=count)

    def _gauges(self) -> Iterator[Metric]:
        service, stream, events = self.service, self.service.stream, self.service.events
        severity, ringing = SEVERITIES.index(stream.severity), stream.ringing
        acknowledged = bool(ringing) and all(source.acknowledged for source in ringing)
        calibrated = stream.health().verdict in ("good", "unknown")
        degraded = "1 while something does not work although texts are scored; /readyz says what."
        good = "1 while p-values are spread as they should be (or too few to tell), else 0."
        for name, says, value in (
            ("alarm_active", "1 while there is an alarm, of all texts or of one source, else 0.", float(bool(ringing))),
            ("alarm_severity", "0 no alarm, 1 an alarm, 2 an alarm that has lasted for ten minutes.", severity),
            ("alarm_acknowledged", "1 while somebody has seen every alarm there is.", float(acknowledged)),
            ("alarm_evidence_nats", "Evidence of the alarm of all texts together.", stream.all.course.level),
            ("alarm_threshold_nats", "Evidence at which an alarm rings.", stream.alarm.threshold),
            (
                "maintenance_active",
                "1 in a maintenance window, in which nothing rings.",
                float(bool(stream.maintenance)),
            ),
            (
                "texts_per_second",
                "Rate of texts over about the last hour.",
                stream.all.meter.rate(stream.clock.steady()) or 0.0,
            ),
            ("waiting_texts", "Texts that have arrived and are not answered.", service.batcher.waiting),
            ("event_store_up", "1 while events can be stored, 0 when they can not.", float(not events.trouble)),
            ("degraded", degraded, float(bool(service.degraded()))),
            ("events_pending", "Events in memory that wait for the disk.", events.pending),
            ("calibration_good", good, float(calibrated)),
        ):
            yield GaugeMetricFamily(f"frostline_{name}", says, value=value)

    def _sources(self) -> Iterator[Metric]:
        """The busiest sources by name, all others together, so that no client can make series without end."""
        stream = self.service.stream
        texts = CounterMetricFamily("frostline_source_texts", "Texts scored, by source.", labels=["source"])
        strange = CounterMetricFamily("frostline_source_strange_texts", "Strange texts, by source.", labels=["source"])
        active = GaugeMetricFamily(
            "frostline_source_alarm_severity", "As frostline_alarm_severity, of one source.", labels=["source"]
        )
        worst = dict.fromkeys(list(stream.labels.counts), 0)
        for source in stream.ringing:
            if source.name:
                label = source.name if source.name in worst else OTHER
                worst[label] = max(worst.get(label, 0), SEVERITIES.index(source.course.severity))
        for name, counts in list(stream.labels.counts.items()):  # texts of new sources may be counted meanwhile
            texts.add_metric([name], counts["texts"])
            strange.add_metric([name], counts["strange"])
        for name, severity in worst.items():
            active.add_metric([name], severity)
        yield from (texts, strange, active)

    def _layers(self) -> Iterator[Metric]:
        for side, says in (
            ("observed", "Mean resultant length of the last texts' tokens after a layer (0: before the first)."),
            ("expected", "What the reference's tokens make one expect there."),
        ):
            family = GaugeMetricFamily(f"frostline_resultant_{side}_ratio", says, labels=["layer"])
            for row in self.service.stream.layers():
                family.add_metric([str(row["layer"])], float(row[side]))
            yield family

    def _heads(self) -> Iterator[Metric]:
        if self.service.heads is None:
            return
        family = GaugeMetricFamily(
            "frostline_head_energy_ratio",
            "Share of the tokens' energy in the dominant eigenspace of a head's VBᵀ, mean of the last texts; no "
            "sample for a head that draws tokens nowhere.",
            labels=["layer", "head"],
        )
        for (layer, head), value in self.service.heads().items():
            family.add_metric([str(layer), str(head)], value)
        yield family
