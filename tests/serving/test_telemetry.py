"""OpenTelemetry reads what Prometheus scrapes; heads have metrics only when asked for."""

import pytest

from frostline.errors import BadParameter
from frostline.serving import heads
from frostline.serving.telemetry import ASKED_BY, configure, observe
from tests.monitoring.sentences import fresh
from tests.serving.conftest import serving


def test_the_same_numbers_over_opentelemetry(client):
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    client.score(fresh(3))
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observe(client.service.metrics.registry, provider)
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    found[(metric.name, *sorted(point.attributes.items()))] = (point.value, metric.unit)
    provider.shutdown()
    told = client.metrics()
    assert found[("frostline_texts",)] == (told[("frostline_texts_total",)], "{text}")
    assert found[("frostline_alarm_threshold_nats",)] == (told[("frostline_alarm_threshold_nats",)], "nat")
    layer = ("frostline_resultant_observed_ratio", ("layer", "0"))
    assert found[layer] == (told[layer], "1")
    assert found[("frostline_p_value_count",)][0] == told[("frostline_p_value_count",)]


def test_it_is_off_unless_the_environment_names_an_endpoint(client, monkeypatch):
    for name in ASKED_BY:
        monkeypatch.delenv(name, raising=False)
    assert configure(client.service.metrics.registry) is None
    # Nobody listens there: what cannot be sent is no reason to stop.
    monkeypatch.setenv(ASKED_BY[0], "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    stop = configure(client.service.metrics.registry)
    assert stop is not None
    stop()


def test_heads_have_metrics_on_request(base, folder, tmp_path, monkeypatch):
    with serving(base, folder, tmp_path / "e.db", per_head=True) as client:
        client.score(fresh(8))
        own = {name: value for name, value in client.metrics().items() if name[0] == "frostline_head_energy_ratio"}
        encoder = client.service.scorer.encoder
        count = client.service.heads.count
        assert len(own) == count >= encoder.layers and all(0 <= value <= 1 for value in own.values())
        assert {dict(name[1:])["layer"] for name in own} == {str(number) for number in range(encoder.layers)}
    monkeypatch.setattr(heads, "MOST", 1)
    with pytest.raises(BadParameter, match="heads"):
        heads.Heads(client.service.scorer)
