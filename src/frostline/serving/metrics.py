"""What Prometheus scrapes: names and units by its conventions, labels with few values.

Counts and states are read off the stream when somebody scrapes; only what has a distribution is recorded as it happens.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from frostline import __version__

if TYPE_CHECKING:
    from frostline.serving.service import Service

P_VALUES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROUTES = ("/score", "/events", "/metrics", "/stream", "other")
Heads = Callable[[], Mapping[tuple[int, int], float]]


class Metrics:
    """One registry of our own: nothing that another library registers gets in."""

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
    def __init__(self, service: "Service"):
        self.service = service

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service, stream = self.service, self.service.stream
        events, batcher, health = service.events, service.batcher, stream.health()
        counted = {
            "frostline_texts": ("Texts scored.", stream.texts),
            "frostline_strange_texts": (f"Texts with p-values up to alpha = {stream.alpha:g}.", stream.strange),
            "frostline_alarm_rings": ("How often the alarm's evidence reached its threshold.", stream.alarms),
            "frostline_passes": ("Passes through the model.", batcher.passes),
            "frostline_pass_failures": ("Passes that failed.", batcher.failures),
            "frostline_pass_seconds": ("Time spent on passes.", batcher.seconds),
            "frostline_connections_refused": ("Connections cut because too many were open.", service.refused),
            "frostline_events_lost": ("Events that could neither be stored nor kept in memory.", events.lost),
        }
        for name, (says, count) in counted.items():
            yield CounterMetricFamily(name, says, value=count)
        measured = {
            "frostline_alarm_active": ("1 while there is an alarm, else 0.", float(stream.ringing)),
            "frostline_alarm_evidence_nats": ("Evidence of the stream's alarm.", stream.level),
            "frostline_alarm_threshold_nats": ("Evidence at which the alarm rings.", stream.alarm.threshold),
            "frostline_waiting_texts": ("Texts that have arrived and are not answered.", batcher.waiting),
            "frostline_event_store_up": (
                "1 while events can be stored, 0 when they can not.",
                float(not events.trouble),
            ),
            "frostline_degraded": (
                "1 while something does not work although texts are scored; /readyz says what.",
                float(bool(service.degraded())),
            ),
            "frostline_events_pending": ("Events in memory that wait for the disk.", events.pending),
            "frostline_calibration_good": (
                "1 while p-values are spread as they should be (or too few to tell), else 0.",
                float(health.verdict in ("good", "unknown")),
            ),
        }
        for name, (says, value) in measured.items():
            yield GaugeMetricFamily(name, says, value=value)
        for side, says in (
            ("observed", "Mean resultant length of the last texts' tokens after a layer (0: before the first)."),
            ("expected", "What the reference's tokens make one expect there."),
        ):
            family = GaugeMetricFamily(f"frostline_resultant_{side}_ratio", says, labels=["layer"])
            for row in stream.layers():
                family.add_metric([str(row["layer"])], float(row[side]))
            yield family
        if service.heads is not None:
            family = GaugeMetricFamily(
                "frostline_head_energy_ratio",
                "Share of the tokens' energy in the dominant eigenspace of a head's VBᵀ, mean of the last texts; no "
                "sample for a head that draws tokens nowhere.",
                labels=["layer", "head"],
            )
            for (layer, head), value in service.heads().items():
                family.add_metric([str(layer), str(head)], value)
            yield family
        about = {
            "version": __version__,
            "model": service.name,
            "baseline": str(service.about["model_sha256"])[:12],
        }
        yield InfoMetricFamily("frostline_build", "The software, the model, and the weights its baseline is of.", about)
