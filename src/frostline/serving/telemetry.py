"""Metrics over OpenTelemetry, where an endpoint is configured: every counter and gauge as an observable instrument."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from frostline.errors import BadParameter

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
"""Environment variables that can name the endpoint."""
UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "nats": "nat", "texts": "{text}"}
"""Units in OpenTelemetry's notation, by the last word of a metric's name."""


def configure(registry: CollectorRegistry) -> Callable[[], None] | None:
    """Send metrics to the endpoint that the environment names; returns the function that stops it, if there is one."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError:
        raise BadParameter(
            f"{' or '.join(ENDPOINTS)} is set, but the exporter is not installed: "
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        ) from None
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    observe(registry, provider)
    return provider.shutdown


def observe(registry: CollectorRegistry, provider: Any) -> None:
    """Make an instrument of a provider for every counter, gauge, and sum of a histogram in the registry."""
    from opentelemetry.metrics import Observation

    meter = provider.get_meter("frostline")

    def reading(family: str, sample: str) -> Callable[[Any], Iterable[Any]]:
        def read(_: Any) -> Iterable[Any]:
            for current in registry.collect():
                if current.name == family:
                    matching = (row for row in current.samples if row.name == sample)
                    yield from (Observation(row.value, row.labels) for row in matching)

        return read

    for family in registry.collect():
        if not family.name.startswith("frostline_"):
            continue
        unit = UNITS.get(family.name.rsplit("_", 1)[-1], "1")
        if family.type == "gauge":
            meter.create_observable_gauge(family.name, [reading(family.name, family.name)], unit, family.documentation)
        elif family.type == "counter":
            read = [reading(family.name, f"{family.name}_total")]
            meter.create_observable_counter(family.name, read, unit, family.documentation)
        elif family.type == "histogram":
            for part in ("count", "sum"):
                read = [reading(family.name, f"{family.name}_{part}")]
                meter.create_observable_counter(f"{family.name}_{part}", read, unit, family.documentation)
