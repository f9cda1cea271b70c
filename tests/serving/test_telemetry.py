"""OpenTelemetry reads what Prometheus scrapes; heads have metrics only when asked for."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import frostline as fl
from frostline.errors import BadParameter
from frostline.serving import head_metrics as heads
from frostline.serving.telemetry import ENDPOINTS, configure, observe
from tests.monitoring.sentences import fresh
from tests.serving.conftest import serving
from tests.tolerances import FLOAT32_STATES


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
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert configure(client.service.metrics.registry) is None
    # Nobody listens there: what cannot be sent is no reason to stop.
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    stop = configure(client.service.metrics.registry)
    assert stop is not None
    stop()


def energies(folder, texts):
    """By layer and head, for heads that draw tokens somewhere: plainly, from d×d matrices, ``fl.limit`` and the model's
    hidden states of the texts one by one."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        states = [
            model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states for text in texts
        ]
    d, k = model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads
    P = np.eye(d) - 1 / d
    found = {}
    for layer in range(model.config.num_hidden_layers):
        norm = f"encoder.layer.{layer - 1}.output.LayerNorm" if layer else "embeddings.LayerNorm"
        gamma, shift = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
        u = (np.concatenate([state[layer][0].double().numpy() for state in states]) - shift) / gamma @ P
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        names = ("self.query", "self.key", "self.value", "output.dense")
        q, key, v, o = (weights[f"encoder.layer.{layer}.attention.{name}.weight"] for name in names)
        for head in range(d // k):
            own = slice(head * k, (head + 1) * k)
            B = P @ (q[own] * gamma).T @ (key[own] * gamma) @ P
            V = P @ o[:, own] @ (v[own] * gamma) @ P
            if np.linalg.eigvals(V @ B.T).real.max() < 1e-6 * np.linalg.norm(V @ B.T):
                continue
            limit = fl.limit(fl.Attention.from_matrices(B, V, 1.0))
            found[layer, head] = ((u @ limit.basis.T) ** 2).sum(1).mean()
    return found


def test_heads_have_metrics_on_request(base, folder, tmp_path, monkeypatch):
    texts = fresh(8)
    with serving(base, folder, tmp_path / "e.db", per_head=True) as client:
        client.score(texts)
        told = {
            (int(dict(name[1:])["layer"]), int(dict(name[1:])["head"])): value
            for name, value in client.metrics().items()
            if name[0] == "frostline_head_energy_ratio"
        }
        assert told == pytest.approx(energies(folder, texts), abs=FLOAT32_STATES) and len(told) > 1
    monkeypatch.setattr(heads, "MOST_HEADS", 1)
    with pytest.raises(BadParameter, match="heads"):
        heads.HeadEnergies(client.service.scorer)
