"""What an audit says in words: numbers that are those of the text, beside what random weights give."""

import json

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.auditing.audit import audit
from frostline.auditing.clouds import measure
from frostline.auditing.findings import limit_in_words
from frostline.encoders.fold import folded, norm_before
from frostline.encoders.forward import batches, see
from frostline.encoders.load import load
from frostline.encoders.tokenization import tokenize
from tests.auditing.comparison import planted
from tests.encoders import tiny

VOCABULARY = 400


class Numbers:
    """A tokenizer of written numbers: "17 4" is the ids 17 and 4; other words are unknown."""

    pad_token_id, cls_token_id, sep_token_id = 0, 2, 3

    def __init__(self, *, unknown=1):
        self.unk_token_id = unknown

    def num_special_tokens_to_add(self):
        return 2

    def __call__(self, text, truncation=False, max_length=None, **options):
        words = [int(word) if word.isdigit() else self.unk_token_id for word in text.split()]
        return {"input_ids": [2, *words[: max_length - 2 if truncation else None], 3]}


def texts_of(lengths, seed=0):
    """Texts of different numbers, so many in each; the tokenizer adds two tokens."""
    rng = np.random.default_rng(seed)
    return [" ".join(map(str, rng.choice(np.arange(5, VOCABULARY), size=n, replace=False))) for n in lengths]


def of_kind(found, kind):
    return [one for one in found.findings if one.kind == kind]


def at_work(model, lengths):
    return audit(model, texts_of(lengths), tokenizer=Numbers(), perturbations=False)


def test_a_head_of_one_token_is_seen_in_texts_of_mixed_lengths():
    """Each token fits itself best, and nearly all of its attention goes there, whatever the length of the text."""
    found = at_work(planted.bert(85.0 * np.eye(7), 0.1 * np.eye(7), layers=2), [6, 118] * 12)
    assert found.heads["attended"].to_numpy() == pytest.approx(1.003, abs=5e-4)
    assert (found.heads["fidelity_argmax"].to_numpy() > 0.99995).all()
    seen = of_kind(found, "zero-temperature head")
    assert {(one.layer, one.head) for one in seen} == {(0, 0), (1, 0)}
    assert all("it attends to 1.0 tokens" in one.evidence for one in seen)
    assert "2 of 2 attend to 2 tokens or fewer in the mean (random weights: 0)" in found.sentence


def test_the_number_of_tokens_attended_to_is_that_of_the_model_s_own_weights():
    """exp of the entropy of each row of attention, its mean over a text, and over texts of 8 to 120 tokens."""
    model = planted.bert(12.0 * np.eye(7), 0.1 * np.eye(7), layers=2)
    encoder = load(model)
    tokenized = tokenize(encoder, Numbers(), texts_of([6, 20, 60, 118]))
    layers = [folded(encoder, number) for number in range(2)]
    clouds = measure(encoder, layers, norm_before(encoder, 2), model, tokenized)
    model.set_attn_implementation("eager")
    for batch in batches(tokenized, tokens=1):
        own = torch.stack(see(encoder, model, batch, weights=True).weights)[:, 0].double().numpy()
        entropy = -(own * np.log(np.maximum(own, 1e-300))).sum(-1)
        (number,) = batch.numbers
        assert clouds.attended[number] == pytest.approx(np.exp(entropy).mean(-1), rel=1e-4)
    found = at_work(model, [6, 20, 60, 118])
    assert found.heads["attended"].to_numpy() == pytest.approx(clouds.attended.mean(0)[:, 0])


def test_every_number_of_the_headline_stands_beside_that_of_random_weights():
    torch.manual_seed(0)
    made = tiny.model("BERT")
    alone = audit(made)
    beta = alone.weights.beta_control
    assert f"(random factors of the same norms: {beta.min():.3g} to {beta.max():.3g}, median" in alone.sentence
    assert "(random weights: 0.7" in alone.sentence and "rotate" not in alone.sentence
    found = at_work(tiny.model("BERT", settings=settings(layers=9)), [6, 30] * 8)
    own, random = (found.clouds[name].to_numpy() for name in ("share", "share, random weights"))
    depths = [1, 2, 4, 5, 7, 8]
    said, control = (", ".join(f"{100 * shares[depth]:.0f}" for depth in depths) for shares in (own, random))
    said, control = (" and ".join(each.rsplit(", ", 1)) for each in (said, control))
    assert (
        f" Of the way from the first token cloud to the last (W₂), {said} % is still to come after 1, 2, 4, 5, 7 and 8 "
        f"of 9 layers (random weights: {control} %); "
    ) in found.sentence
    for name in ("bridge", "mean", "token"):
        for control in ("", ", random weights"):
            shares = [max(round(100 * share), 0) for share in found.layers[f"explained_{name}{control}"].to_pylist()]
            low, high = min(shares), max(shares)
            assert (f"{low} %" if low == high else f"{low} to {high} %") in found.sentence
    assert found.sentence.count("random weights") == 7
    # Each share of the assumptions too.
    (symmetric,) = [one for one in found.assumptions if one.what == "VBᵀ symmetric"]
    kinds = found.weights.control.kind
    assert f"(random heads: {sum(kind in ('rotation', 'mixed') for kind in kinds)} of {len(kinds)})" in symmetric.found


def settings(*, layers):
    made = tiny.config("BERT")
    made.num_hidden_layers, made.vocab_size, made.max_position_embeddings = layers, VOCABULARY, 128
    return made


def test_a_frozen_cloud_is_said_with_its_control():
    """Layers that do nothing from the third on."""
    made = tiny.model("BERT", settings=settings(layers=6))
    with torch.no_grad():
        for layer in made.encoder.layer[3:]:
            for part in (layer.attention.output, layer.output):
                part.dense.weight.zero_()
                part.dense.bias.zero_()
                part.LayerNorm.weight.fill_(1)
                part.LayerNorm.bias.zero_()
        last = made.encoder.layer[2].output.LayerNorm
        last.weight.fill_(1)
        last.bias.zero_()
    sentence = at_work(made, [6, 30] * 8).sentence
    frozen = "; from 3 layers on (95 %: 3 to 3) it stays below 10 %: it is frozen (random weights: nothing freezes)."
    assert frozen in sentence


def test_only_points_with_a_gap_that_text_follows_are_believable():
    """The same share of symmetry: a planted limit, the same head too warm to go there, a rotation, and no text."""
    symmetric = np.diag([1.0, 0.6, 0.4, 0.3, 0.2, 0.1, 0.1])
    turning = symmetric.copy()
    turning[:2, :2] = [[1.0, 0.4], [-0.4, 1.0]]
    lengths = [250, 300] * 5
    believed = "a believable limit"

    def said(beta, values, lengths=lengths):
        model = planted.bert(beta * np.eye(7), values, layers=1)
        found = at_work(model, lengths) if lengths else audit(model)
        (one,) = of_kind(found, "symmetric head")
        assert "believed only where points lead" in one.advice
        return one.evidence

    planted_limit = planted.bert(150.0 * np.diag([1.0, 0.5, 0.2]), 0.1 * np.eye(3), layers=1)
    (one,) = of_kind(at_work(planted_limit, lengths), "symmetric head")
    assert believed in one.evidence
    warm = said(0.1, 0.1 * symmetric)
    assert "points lead, but its updates have a cosine of only" in warm and believed not in warm
    assert "its kind is rotation, not points" in said(0.1, 0.1 * turning)
    assert "only text tells" in said(0.1, 0.1 * symmetric, lengths=None)
    assert "only 9.5 times what rounding could make" in limit_in_words("points", 9.5, 0.99)


def test_what_is_limited_by_a_bottleneck_is_the_output_of_attention():
    made = tiny.model("BERT", seed=3)
    with torch.no_grad():
        value = made.encoder.layer[1].attention.self.value.weight
        kept = torch.linalg.svd(value[8:16], full_matrices=False)
        value[8:16] = kept.S[0] * torch.outer(kept.U[:, 0], kept.Vh[0])
    (one,) = of_kind(audit(made), "value bottleneck")
    assert "residual stream" in one.advice and "cannot pass" not in one.advice


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save(tiny.model("BERT"), tmp_path_factory.mktemp("model"))


def with_unknown(known, unknown):
    """Eight texts or more; so many of a hundred words are unknown."""
    words = ["ice"] * known + ["quux"] * unknown
    return [" ".join(np.random.default_rng(seed).permutation(words)) for seed in range(10)]


@pytest.mark.parametrize(
    ("known", "unknown", "first"),
    [
        (19, 1, None),
        (9, 1, "10 % of the tokens are unknown to the tokenizer: what follows is about what the model was given"),
        (11, 9, "45 % of the tokens are unknown to the tokenizer: what follows"),
    ],
)
def test_text_that_the_model_hardly_knows_is_said_first(folder, known, unknown, first):
    found = audit(folder, with_unknown(known, unknown), perturbations=False)
    assert "unknown" not in found.sentence if first is None else found.sentence.startswith(first)
    assert "random weights" in found.sentence
    assert json.loads(json.dumps(found.facts()))["sentence"] == found.sentence


def test_text_that_the_model_cannot_read_is_refused(folder):
    with pytest.raises(fl.errors.BadText, match=r"100 of 200 tokens \(50 %\) are unknown .* script that it was"):
        audit(folder, with_unknown(10, 10))
    # The tokens around a text do not make it known: one unknown word is all unknown.
    with pytest.raises(fl.errors.BadText, match=r"10 of 10 tokens \(100 %\)"):
        audit(folder, ["quux"] * 10)


def test_texts_that_are_cut_are_counted_first(folder):
    long = " ".join(tiny.WORDS * 4)
    found = audit(folder, [long, *tiny.TEXTS * 3, long], perturbations=False)
    assert found.sentence.startswith("2 of 14 texts are cut at 64 tokens: what follows is about what the model was")
    both = audit(folder, [long + " quux" * 9, *with_unknown(9, 3)], perturbations=False)
    assert "% of the tokens are unknown to the tokenizer and 1 of 11 texts is cut at 64 tokens" in both.sentence
    # What is too long to be looked at in full is cut as well, however few tokens its beginning has.
    words = " ".join(["ice" + " " * 90] * 60)
    assert tokenize(load(folder), tokenizer_of(folder), [words]).cut == 1
    assert tokenize(load(folder), tokenizer_of(folder), ["ice" + " " * 6000]).cut == 0


def tokenizer_of(folder):
    from frostline.encoders.tokenization import open_tokenizer

    return open_tokenizer(load(folder))


def test_nothing_is_unknown_to_a_tokenizer_of_bytes(tmp_path):
    """Neither where it has no such token, nor where it names one that stands around every text."""
    made = tiny.model("BERT", settings=settings(layers=2))
    for unknown in (None, 3):
        found = audit(made, texts_of([6] * 8), tokenizer=Numbers(unknown=unknown), perturbations=False)
        assert "unknown" not in found.sentence and found.provenance["tokens_unknown"] == 0
    known = audit(made, [f"{text} x" for text in texts_of([6] * 8)], tokenizer=Numbers(), perturbations=False)
    assert known.sentence.startswith("14 % of the tokens are unknown")
