"""Encoders whose weights make the theory exact, or break it in a known way: the audit must see just that."""

import numpy as np
import pytest
import torch

from frostline.auditing.audit import audit
from frostline.auditing.clouds import between, measure
from frostline.auditing.fidelity import Glass
from frostline.auditing.frost_line import frost_line
from frostline.encoders.fold import folded, norm_before
from frostline.encoders.forward import batches, see
from frostline.encoders.load import load
from frostline.encoders.spectra import Factors, spectra
from tests.auditing.comparison import planted
from tests.encoders import tiny

STEP, LAYERS, BETA = 0.1, 80, 150.0


@pytest.fixture(scope="module")
def exact():
    """B = 150·diag(1, .5, .2), V = 0.1·I in every layer: A is symmetric with a gap of one half."""
    model = planted.bert(BETA * np.diag([1.0, 0.5, 0.2]), STEP * np.eye(3), layers=LAYERS)
    encoder = load(model)
    layers = [folded(encoder, number) for number in range(LAYERS)]
    last = norm_before(encoder, LAYERS)
    clouds = measure(encoder, layers, last, model, planted.everything())
    seen = see(encoder, model, next(batches(planted.everything())))
    norms = [layer.norm for layer in layers] + [last]
    tokens = [n.on_sphere(x[0].double().numpy())[0] for n, x in zip(norms, seen.states, strict=True)]
    return layers, clouds, tokens


def cold(layers, tokens):
    """The same tokens at zero temperature, layer after layer."""
    found = [tokens[0]]
    for layer in layers:
        glass = Glass(layer)
        found.append(glass.cold(found[-1], np.ones(len(found[-1]))))
    return found


LEAD = planted.zero_mean_basis(4)[:, 0]


def test_the_spectrum_is_the_planted_one(exact):
    layers, _, _ = exact
    found = spectra(Factors.of(layers[7]))
    assert found.beta[0] == pytest.approx(BETA) and found.kind == ("points",)
    assert found.gap[0] == pytest.approx(0.5, rel=1e-6)
    assert found.rate[0] == pytest.approx(0.5 * STEP, rel=1e-6)
    assert abs(found.leading[0][:, 0] @ LEAD) == pytest.approx(1)
    assert found.asymmetry[0] == pytest.approx(0, abs=1e-6) and found.non_normality[0] == pytest.approx(0, abs=1e-3)


def test_tokens_go_to_the_predicted_limit(exact):
    """Zero temperature predicts the updates (cosine 0.99), and where nearly every token ends."""
    layers, clouds, tokens = exact
    assert clouds.layer_fidelity_full.min() > 0.99
    limit, moved = Glass(layers[0]).cold_limit(tokens[0], np.ones(len(tokens[0])), most=800)
    settled = moved <= 1e-4
    assert settled.mean() > 0.95
    assert np.abs(np.abs(limit[settled] @ LEAD) - 1).max() < 1e-3
    assert ((limit @ LEAD) * (tokens[-1] @ LEAD) > 0).mean() > 0.99
    # Tokens that start near the equator are still on their way, at zero temperature as well.
    path = cold(layers, tokens)
    # Within the size of the theorem's first term.
    assert between(tokens[-1], path[-1]) < np.sqrt(np.log(BETA + 1) / BETA)


def test_the_rate_is_the_predicted_one(exact):
    """The median angle to the limit falls by the predicted rate, to 5 %; the flow's own rate is off by its step."""
    layers, _, tokens = exact
    angles = [np.median(np.arccos(np.clip(np.abs(x @ LEAD), 0, 1))) for x in tokens]
    seen = np.log(np.tan(angles[20]) / np.tan(angles[40])) / 20
    rate = spectra(Factors.of(layers[0])).rate[0]
    assert seen == pytest.approx(np.log((1 + STEP) / (1 + STEP - rate)), rel=0.05)
    assert seen == pytest.approx(rate, rel=0.05)


def test_the_frost_line_is_the_predicted_one(exact):
    """That of the same tokens at zero temperature, to three layers of eighty."""
    layers, clouds, tokens = exact
    path = cold(layers, tokens)
    predicted = frost_line(np.array([[between(x, path[-1]) for x in path]]))
    found = frost_line(clouds.to_last)
    assert abs(found.depth - predicted.depth) <= 3 and found.depth < LAYERS
    assert np.abs(found.share - predicted.share).max() < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_rotation_is_called_one(seed):
    """In any basis, at any speed; without the turning part the same head gathers."""
    rng = np.random.default_rng(seed)
    basis, speed = np.linalg.qr(rng.standard_normal((5, 5)))[0], rng.uniform(0.05, 2.0)
    for turn, kind, width in ((speed, "rotation", 2), (0.0, "subspace", 2)):
        V = np.diag([1.0, 1.0, 0.3, -0.2, 0.1])
        V[0, 1], V[1, 0] = turn, -turn
        model = planted.bert(10 * np.eye(5), 0.1 * basis @ V @ basis.T, layers=2)
        found = spectra(Factors.of(folded(load(model), 0)))
        assert found.kind == (kind,) and np.isnan(found.rate[0]) == (kind == "rotation")
        assert found.leading[0].shape[1] == width


@pytest.mark.parametrize("seed", range(3, 8))
def test_a_planted_bottleneck_is_found_and_not_in_its_twin(seed):
    twin = tiny.model("BERT", seed=seed)
    plain = [one for one in audit(twin).findings if one.kind == "value bottleneck"]
    assert plain == []
    with torch.no_grad():
        value = twin.encoder.layer[1].attention.self.value.weight
        kept = torch.linalg.svd(value[8:16], full_matrices=False)
        value[8:16] = kept.S[0] * torch.outer(kept.U[:, 0], kept.Vh[0])
    found = [one for one in audit(twin).findings if one.kind == "value bottleneck"]
    assert [(one.layer, one.head) for one in found] == [(1, 1)]
    assert found[0].effect > 0.5
