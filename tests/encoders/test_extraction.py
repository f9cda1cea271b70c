"""Every adapter rebuilds logits and head outputs of its family; a wrong fold is noticed."""

import dataclasses

import numpy as np
import pytest

import frostline as fl
from frostline.auditing.fidelity import Glass
from frostline.encoders import families as adapters
from frostline.encoders import fold as folding
from frostline.encoders import forward, heads, live_model, positions, tokenization
from frostline.encoders import load as loading
from frostline.encoders import verify as proof
from frostline.sphere import unit_rows
from tests.encoders import tiny
from tests.tolerances import FLOAT32_PASS, SPECTRUM

FAMILIES = [family.name for family in adapters.FAMILIES]


@pytest.fixture(scope="module", params=FAMILIES)
def opened(request, tmp_path_factory):
    folder = tiny.save(tiny.model(request.param), tmp_path_factory.mktemp(request.param))
    encoder = loading.load(folder)
    model = live_model.open_model(encoder)
    if encoder.family.reads == "images":
        return encoder, model, list(forward.noise(encoder, images=3, seed=0))
    tokenized = tokenization.tokenize(encoder, tokenization.open_tokenizer(encoder), tiny.TEXTS)
    return encoder, model, list(forward.batches(tokenized, tokens=1))


def test_logits_and_outputs_are_rebuilt(opened):
    encoder, model, batches = opened
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    found = proof.prove(encoder, layers, model, batches)
    assert found.holds and found.tokens >= 40
    assert encoder.family.name in FAMILIES and encoder.dimension == 32 and encoder.head_size == 8


@pytest.mark.parametrize("part", ["query", "query_shift", "key_shift", "value", "head_shift", "output_bias"])
def test_an_extraction_that_misses_fails_loudly(opened, part):
    encoder, model, batches = opened
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    right = getattr(layers[1], part)
    assert right.any()
    layers[1] = dataclasses.replace(layers[1], **{part: right * 1.001})
    if part == "key_shift" and encoder.positions != "rotary":
        # All tokens have it: it cannot matter where places do not turn it.
        assert proof.prove(encoder, layers, model, batches).holds
        return
    with pytest.raises(fl.errors.BadModel, match="does not reproduce the model"):
        proof.prove(encoder, layers, model, batches)


def row_free(logits):
    """Logits without the constant of each query, which softmax does not see."""
    return logits - logits.mean(-1, keepdims=True)


def test_heads_are_attention_objects_with_the_same_logits(opened):
    """β(uᵀB̂v + ĝᵀv) of the Attention objects is the logit of eq. 14; the value acts in units of the residual."""
    encoder, _, _ = opened
    layer = folding.folded(encoder, 1)
    x = np.random.default_rng(0).standard_normal((5, 32))
    u, _ = layer.norm.on_sphere(x)
    logits = heads.attend(layer, u).logits
    for number, head in enumerate(layer.heads()):
        B, V, _, bias = head.matrices
        assert np.linalg.norm(B, 2) == pytest.approx(1)
        assert np.allclose(row_free(head.beta * (u @ B @ u.T + u @ bias)), row_free(logits[number]))
        assert np.allclose(V.sum(0), 0, atol=SPECTRUM)


def test_only_padding_tells_batches_apart(opened):
    """A text alone and the same text padded in a batch give the same tokens."""
    encoder, model, alone = opened
    if encoder.family.reads == "images":
        assert all(batch.present is None for batch in alone)
        return
    tokenized = tokenization.tokenize(encoder, tokenization.open_tokenizer(encoder), tiny.TEXTS)
    own = {b.numbers[0]: forward.see(encoder, model, b) for b in alone}
    (batch,) = forward.batches(tokenized)
    seen = forward.see(encoder, model, batch)
    for number, x in zip(batch.numbers, forward.rows(seen, seen.states[-1]), strict=True):
        assert np.allclose(x, own[number].states[-1][0].double().numpy(), atol=FLOAT32_PASS)


def test_looking_through_a_layer_is_what_the_model_does(opened):
    """The real map of ``Glass`` gives the model's own update, also where tokens enter without a norm."""
    encoder, model, batches = opened
    seen = forward.see(encoder, model, batches[0], close=True)
    for number in range(encoder.layers):
        glass = Glass(folding.folded(encoder, number))
        x = seen.states[number][0].double().numpy()
        u, size = glass.layer.norm.on_sphere(x)
        at = positions.positions(encoder, model, number, len(x))
        attended = heads.attend(glass.layer, u * glass.layer.norm.radius(size)[:, None], at)
        own = seen.updates[number][0].double().numpy()
        assert np.allclose(glass.update(attended.mean), own - own.mean(-1, keepdims=True), atol=FLOAT32_PASS)
        assert np.allclose(glass.layer.norm.past(u, size), x - x.mean(-1, keepdims=True), atol=FLOAT32_PASS)


def test_half_a_layer_at_zero_temperature(opened):
    """Eq. 15 and 15′ with m_h = y*_h, by dense matrices, on what the model itself lets past its attention."""
    encoder, model, batches = opened
    seen = forward.see(encoder, model, batches[0], close=True)
    for number in range(encoder.layers):
        layer = folding.folded(encoder, number)
        x = seen.states[number][0].double().numpy()
        u, size = layer.norm.on_sphere(x)
        asking, after = u * layer.norm.radius(size)[:, None], x + layer.output_bias
        for h in range(encoder.heads):
            toward = asking @ layer.query[h].T @ layer.key[h] + layer.key[h].T @ layer.query_shift[h]
            best = unit_rows(toward)
            after = after + best @ layer.value[h].T @ layer.output[h].T + layer.head_shift[h]
        expected = unit_rows(after - after.mean(-1, keepdims=True))
        assert np.allclose(Glass(layer).cold(u, size), expected, atol=1e-5)


SCALED = {
    "logits": lambda found: dataclasses.replace(found, logits=1.5 * found.logits),
    "weights": lambda found: dataclasses.replace(found, weights=1.5 * found.weights),
    "values": lambda found: dataclasses.replace(found, values=1.5 * found.values),
}


@pytest.mark.parametrize("part", [*SCALED, "update", "outputs"])
def test_what_is_proved_is_what_measures(opened, monkeypatch, part):
    """The pass that measures, scaled by 1.5 at its one place: the audit's own map shows it, and the proof is red."""
    encoder, model, batches = opened
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    u = np.random.default_rng(0).standard_normal((5, 32))
    before = heads.attend(layers[1], u).mean
    if part in SCALED:
        right = heads.attend
        monkeypatch.setattr(heads, "attend", lambda *given, **options: SCALED[part](right(*given, **options)))
    else:
        right = getattr(heads, part)
        monkeypatch.setattr(heads, part, lambda *given: 1.5 * right(*given))
    if part in ("weights", "values"):
        assert np.allclose(heads.attend(layers[1], u).mean, 1.5 * before)
    with pytest.raises(fl.errors.BadModel, match="does not reproduce the model"):
        proof.prove(encoder, layers, model, batches[:1])


def test_kappa_is_the_slope_of_the_logits_that_are_proved(opened):
    """κ = |∂ logit/∂ key token|, and y* is where the logit of a unit vector is largest (eq. 14)."""
    encoder, _, _ = opened
    glass = Glass(folding.folded(encoder, 1))
    rng = np.random.default_rng(1)
    u = rng.standard_normal((40, 32))
    logits = heads.attend(glass.layer, u).logits
    slopes = np.linalg.lstsq(u - u.mean(0), row_free(logits).transpose(2, 0, 1).reshape(40, -1), rcond=None)[0]
    slopes = slopes.reshape(32, encoder.heads, 40).transpose(1, 2, 0)
    kappa, full = glass.full_support(heads.queries(glass.layer, u))
    size = np.linalg.norm(slopes, axis=-1, keepdims=True)
    assert np.allclose(kappa, size[..., 0])
    assert np.allclose(full, slopes / size @ glass.layer.value.transpose(0, 2, 1))


def test_positions_inside_attention(opened):
    """Only MPNet adds a bias by place, ESM and ModernBERT turn, and every other layer of ModernBERT here is local."""
    encoder, model, _ = opened
    found = [positions.positions(encoder, model, number, 12) for number in range(encoder.layers)]
    assert {at.turning for at in found} == {encoder.family.name in ("ModernBERT", "ESM")}
    biased = [at.bias is not None for at in found]
    assert biased == {"MPNet": [True] * 3, "ModernBERT": [False, True, False]}.get(encoder.family.name, [False] * 3)
    if encoder.family.name == "ModernBERT":
        assert (found[1].bias[0] == 0).sum(0).tolist() == [5, 6, 7, 8, 9, 9, 9, 9, 8, 7, 6, 5]


def test_esm_with_added_positions(tmp_path):
    """ESM-1b adds positions; the setting tells."""
    settings = tiny.config("ESM")
    settings.position_embedding_type = "absolute"
    encoder = loading.load(tiny.save(tiny.model("ESM", settings=settings), tmp_path))
    assert encoder.positions == "added"
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    tokenized = tokenization.tokenize(encoder, tokenization.open_tokenizer(encoder), tiny.TEXTS)
    assert proof.prove(encoder, layers, live_model.open_model(encoder), forward.batches(tokenized, tokens=1)).holds


@pytest.mark.parametrize("family", ["BERT", "ViT", "DINOv2", "ModernBERT"])
def test_a_live_model_is_the_same_as_its_folder(tmp_path, family):
    """Also where transformers names the modules of a live model otherwise than the tensors of its file."""
    made = tiny.model(family)
    one, other = loading.load(made), loading.load(tiny.save(made, tmp_path))
    for number in range(3):
        a, b = folding.folded(one, number), folding.folded(other, number)
        assert np.array_equal(a.query, b.query) and np.array_equal(a.output, b.output)
    assert set(one.tensors.names) == set(other.tensors.names)
    assert one.layers == other.layers == 3
