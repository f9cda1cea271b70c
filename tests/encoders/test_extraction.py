"""Every adapter rebuilds logits and head outputs of its family; a wrong fold is noticed."""

import dataclasses

import numpy as np
import pytest

import frostline as fl
from frostline.auditing.freezing import Glass
from frostline.encoders import adapters, capture, folding, loading, proof
from tests.encoders import tiny

FAMILIES = [family.name for family in adapters.FAMILIES]


@pytest.fixture(scope="module", params=FAMILIES)
def opened(request, tmp_path_factory):
    folder = tiny.save(tiny.model(request.param), tmp_path_factory.mktemp(request.param))
    encoder = loading.load(folder)
    model, tokenizer = capture.open_model(encoder), capture.open_tokenizer(encoder)
    return encoder, model, capture.tokenize(encoder, tokenizer, tiny.TEXTS)


def test_logits_and_outputs_are_rebuilt(opened):
    encoder, model, tokenized = opened
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    found = proof.prove(encoder, layers, model, tokenized)
    assert found.holds and found.tokens == tokenized.tokens
    assert encoder.family.name in FAMILIES and encoder.dimension == 32 and encoder.head_size == 8


@pytest.mark.parametrize("part", ["query", "asked", "value", "head_shift", "output_bias"])
def test_an_extraction_that_misses_fails_loudly(opened, part):
    encoder, model, tokenized = opened
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    wrong = getattr(layers[1], part) * 1.001
    layers[1] = dataclasses.replace(layers[1], **{part: wrong})
    with pytest.raises(fl.errors.BadModel, match="does not reproduce the model"):
        proof.prove(encoder, layers, model, tokenized)


def test_heads_are_attention_objects_with_the_same_logits(opened):
    """β(uᵀB̂v + ĝᵀv) of the Attention objects is the logit of eq. 14; the value acts in units of the residual."""
    encoder, _, _ = opened
    layer = folding.folded(encoder, 1)
    x = np.random.default_rng(0).standard_normal((5, 32))
    u, _ = layer.norm.on_sphere(x)
    plain = dataclasses.replace(layer, norm=folding.Norm(np.ones(32), np.zeros(32)))
    logits, _ = proof.rebuilt(plain, u * np.sqrt(32))
    for number, head in enumerate(layer.heads()):
        B, V, _, bias = head.matrices
        assert np.linalg.norm(B, 2) == pytest.approx(1)
        assert np.allclose(head.beta * (u @ B @ u.T + u @ bias), logits[number])
        assert np.allclose(V.sum(0), 0, atol=1e-10)


def test_a_live_model_is_the_same_as_its_folder(tmp_path):
    made = tiny.model("BERT")
    one, other = loading.load(made), loading.load(tiny.save(made, tmp_path))
    assert np.array_equal(folding.folded(one, 2).query, folding.folded(other, 2).query)
    assert one.layers == other.layers == 3


def test_only_padding_tells_batches_apart(opened):
    """A text alone and the same text padded in a batch give the same tokens."""
    encoder, model, tokenized = opened
    alone = {b.numbers[0]: capture.see(encoder, model, b) for b in capture.batches(tokenized, tokens=1)}
    (batch,) = capture.batches(tokenized)
    seen = capture.see(encoder, model, batch)
    for number, x in zip(batch.numbers, capture.rows(seen, seen.states[-1]), strict=True):
        assert np.allclose(x, alone[number].states[-1][0].double().numpy(), atol=1e-4)


def test_looking_through_a_layer_is_what_the_model_does(opened):
    """The real map of ``Glass`` gives the model's own update, also where tokens enter without a norm."""
    encoder, model, tokenized = opened
    batch = next(capture.batches(tokenized, tokens=1))
    seen = capture.see(encoder, model, batch, close=True)
    bias = capture.position_bias(encoder, model, tokens=batch.ids.shape[1])
    assert (bias is None) == (encoder.family.name != "MPNet")
    for number in range(encoder.layers):
        glass = Glass(folding.folded(encoder, number))
        u, radius = glass.layer.norm.on_sphere(seen.states[number][0].double().numpy())
        update = glass.update(glass.look(u * radius[:, None], bias=bias).seen["real"])
        own = seen.updates[number][0].double().numpy()
        assert np.allclose(update, own - own.mean(-1, keepdims=True), atol=1e-4)
