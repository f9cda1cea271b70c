"""Encoders whose weights make the theory exact, or break it in a known way: the audit must see just that."""

import numpy as np
import pytest
import torch

from frostline.auditing.audit import audit
from frostline.auditing.clouds import measure
from frostline.auditing.freezing import Glass
from frostline.auditing.frost import frost_line
from frostline.auditing.spectra import Factors, spectra
from frostline.encoders.folding import folded, norm_before
from frostline.encoders.loading import load
from tests.auditing import planted
from tests.encoders import tiny

STEP, LAYERS = 0.2, 40


@pytest.fixture(scope="module")
def exact():
    """B = 50·diag(1, .5, .2), V = 0.2·I in every layer: A is symmetric with a gap of one half."""
    model = planted.bert(50 * np.diag([1.0, 0.5, 0.2]), STEP * np.eye(3), layers=LAYERS)
    encoder = load(model)
    layers = [folded(encoder, number) for number in range(LAYERS)]
    clouds = measure(encoder, layers, norm_before(encoder, LAYERS), model, planted.everything())
    return model, layers, clouds


def test_the_spectrum_is_the_planted_one(exact):
    _, layers, _ = exact
    found = spectra(Factors.of(layers[7]))
    assert found.beta[0] == pytest.approx(50) and found.kind == ("points",)
    assert found.gap[0] == pytest.approx(0.5, rel=1e-6)
    assert found.rate[0] == pytest.approx(0.5 * STEP, rel=1e-6)
    lead = planted.zero_mean_basis(4)[:, 0]
    assert abs(found.leading[0][:, 0] @ lead) == pytest.approx(1)
    assert found.asymmetry[0] == pytest.approx(0, abs=1e-6) and found.non_normality[0] == pytest.approx(0, abs=1e-3)


def test_tokens_go_to_the_predicted_limit(exact):
    """Zero temperature predicts the updates (cosine 0.99), and the last cloud is at the limit of the first layer."""
    model, layers, clouds = exact
    assert clouds.layer_fidelity_full.min() > 0.99
    table = model.embeddings.word_embeddings.weight.detach().double().numpy()
    u, _ = layers[0].norm.on_sphere(np.sqrt(4) * table / np.linalg.norm(table, axis=1, keepdims=True))
    limit, _ = Glass(layers[0]).cold_limit(u, most=400)
    lead = planted.zero_mean_basis(4)[:, 0]
    assert np.abs(np.abs(limit @ lead) - 1).max() < 1e-3
    assert ((limit @ lead) * (u @ lead) > 0).mean() > 0.99


def test_the_rate_is_the_predicted_one(exact):
    """The share of the way left falls by the rate of one layer, to the 10 % that steps of 0.2 are off the flow."""
    _, layers, clouds = exact
    rate = spectra(Factors.of(layers[0])).rate[0]
    at_limit = clouds.to_limit.mean(0)
    early, late = 10, 30
    seen = np.log(at_limit[early] / at_limit[late]) / (late - early)
    assert seen == pytest.approx(rate, rel=0.35)


def test_the_frost_line_is_the_predicted_one(exact):
    """Tokens approach the limit like e^{−rate·l}, the last cloud too: where 10 % is left is known before."""
    _, layers, clouds = exact
    rate = spectra(Factors.of(layers[0])).rate[0]
    depth = np.arange(LAYERS + 1)
    left = np.exp(-rate * depth) - np.exp(-rate * LAYERS)
    predicted = int(np.flatnonzero(left / left[0] <= 0.1)[0])
    found = frost_line(clouds.to_last)
    assert abs(found.depth - predicted) <= 0.2 * LAYERS
    assert found.depth < LAYERS


def test_a_planted_rotation_is_called_one():
    turning = np.array([[1.0, 0.8, 0.0], [-0.8, 1.0, 0.0], [0.0, 0.0, 0.1]])
    model = planted.bert(10 * np.eye(3), 0.1 * turning, layers=2)
    found = spectra(Factors.of(folded(load(model), 0)))
    assert found.kind == ("rotation",) and np.isnan(found.rate[0])
    assert found.leading[0].shape[1] == 2


def test_a_planted_bottleneck_is_found_and_not_in_its_twin():
    twin = tiny.model("BERT", seed=3)
    plain = [one for one in audit(twin).findings if one.kind == "value bottleneck"]
    assert plain == []
    with torch.no_grad():
        value = twin.encoder.layer[1].attention.self.value.weight
        kept = torch.linalg.svd(value[8:16], full_matrices=False)
        value[8:16] = kept.S[0] * torch.outer(kept.U[:, 0], kept.Vh[0])
    found = [one for one in audit(twin).findings if one.kind == "value bottleneck"]
    assert [(one.layer, one.head) for one in found] == [(1, 1)]
    assert found[0].effect > 0.5
