"""The audit as a whole: tables, JSON, page, model card; how often it finds something where nothing is."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import frostline as fl
from frostline.auditing.audit import audit
from frostline.auditing.ci_thresholds import broken, read_thresholds
from frostline.auditing.findings import Finding
from frostline.auditing.frost_line import frost_line
from frostline.auditing.metric_names import CHANGE_METRICS, TEXT_METRICS, WEIGHT_METRICS
from frostline.auditing.plateau import plateau
from frostline.auditing.save import check_folder, save_audit
from frostline.auditing.shared_layers import once
from frostline.encoders import forward, live_model, tokenization
from frostline.encoders import load as loading
from frostline.encoders.corpus import read_texts, sample, some
from tests.encoders import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save(tiny.model("BERT"), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def found(folder):
    return audit(folder, tiny.TEXTS * 3)


def test_tables(found):
    assert len(found.heads) == 12 and len(found.layers) == 3 and len(found.clouds) == 4
    for name in ("layer", "head", "beta", "gap", "kind", "rate", "kappa", "perplexity", "fidelity_argmax"):
        assert name in found.heads.column_names
    kappa, beta = found.heads["kappa"].to_numpy(), found.heads["beta"].to_numpy()
    assert (kappa > 0).all() and (beta > 0).all()
    resultant = found.clouds["resultant"].to_numpy()
    assert ((resultant > 0) & (resultant < 1)).all()
    assert found.clouds["share"].to_pylist()[0] == 1 and found.clouds["share"].to_pylist()[-1] < 1e-6
    for control in ("random weights", "shuffled tokens"):
        assert f"resultant, {control}" in found.clouds.column_names


def test_the_mean_cosine_is_that_of_all_pairs(found, folder):
    encoder = loading.load(folder)
    model = live_model.open_model(encoder)
    tokenized = tokenization.tokenize(encoder, tokenization.open_tokenizer(encoder), tiny.TEXTS * 3)
    from frostline.encoders.fold import norm_before

    cosines = []
    for batch in forward.batches(tokenized, tokens=1):
        seen = forward.see(encoder, model, batch)
        u, _ = norm_before(encoder, 2).on_sphere(seen.states[2][0].double().numpy())
        pairs = (u @ u.T)[~np.eye(len(u), dtype=bool)]
        cosines.append(pairs.mean())
    assert found.clouds["cosine"].to_pylist()[2] == pytest.approx(np.mean(cosines), rel=1e-6)


def test_json_page_and_card(found, folder, tmp_path):
    page = found.save(tmp_path / "audit")
    facts = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert facts["heads"][5]["beta"] == found.heads["beta"].to_pylist()[5]
    assert facts["proof"]["logits"] <= 1e-5 and facts["provenance"]["texts"] == 12
    kept = pq.read_table(tmp_path / "audit" / "heads.parquet")
    assert str(kept.to_pydict()) == str(found.heads.to_pydict())
    text = page.read_text()
    assert found.proof.describe() in text and len(text) < 3e6
    assert found.describe().startswith(found.sentence) and found.proof.describe() in found.describe()
    card = (tmp_path / "audit" / "model_card.md").read_text()
    assert card.startswith("## Attention dynamics") and found.provenance["sha256"][:16] in card
    # Again into the same folder, without text: older figures go, and what is not ours stays.
    drawn = {path.name for path in (tmp_path / "audit" / "figures").iterdir()}
    assert drawn >= {"law.svg", "expected.png", "changes.png", "concentration.svg", "maps.svg"}
    mine = [tmp_path / "audit" / name for name in ("notes.txt", "figures/mine.svg", "figures/fidelity.pdf")]
    for path in mine:
        path.write_text("mine")
    save_audit(audit(folder), tmp_path / "audit")
    left = {path.name for path in (tmp_path / "audit" / "figures").iterdir()}
    assert left == {"maps.svg", "maps.png", "spectra.svg", "spectra.png", "mine.svg", "fidelity.pdf"}
    assert all(path.read_text() == "mine" for path in mine)
    # But not over something else.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with pytest.raises(fl.errors.BadParameter, match="holds other things than an audit"):
        save_audit(found, tmp_path / "other")


def test_heads_that_all_layers_share_are_counted_once(tmp_path):
    """ALBERT: a bottleneck planted in one of 4 heads is one finding, of one head, though 3 passes show it."""
    made = tiny.model("ALBERT")
    with torch.no_grad():
        value = made.encoder.albert_layer_groups[0].albert_layers[0].attention.value.weight
        kept = torch.linalg.svd(value[8:16], full_matrices=False)
        value[8:16] = kept.S[0] * torch.outer(kept.U[:, 0], kept.Vh[0])
    one = audit(made)
    planted = [finding for finding in one.findings if finding.kind == "value bottleneck"]
    assert [finding.where for finding in planted] == ["head 1, shared by 3 passes; in all of them"]
    assert one.sentence.startswith("4 heads shared by 3 passes") and "12 heads" not in one.sentence
    assert one.metrics["bottlenecks"] == 1 and one.metrics["rotating_share"] * 4 == pytest.approx(
        sum(kind in ("rotation", "mixed") for kind in one.weights.kinds)
    )
    assert len(one.weights.kinds) == 4 and len(one.heads) == 12
    assert "shared by 3 passes" in one.to_html(tmp_path / "page.html").read_text()


def test_findings_of_shared_heads():
    def seen(kind, layer, head, effect):
        return Finding(kind, f"layer {layer}, head {head}", layer, head, effect, f"{effect}", "", "")

    given = [seen("cold head", n, 3, 0.1 * n) for n in (1, 2, 3, 5)] + [seen("frost line", 4, None, 0.5)]
    cold, line = once(given, 6)
    assert cold.where == "head 3, shared by 6 passes; in pass 1 to 3, 5" and cold.effect == 0.5
    assert line == given[-1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("family", "part"), [("BERT", "everything"), ("BERT", "layer 1"), ("ESM", "embeddings")])
def test_models_of_zeros(tmp_path, family, part):
    """No warning of a division, and a sentence that says what is zero."""
    made = tiny.model(family)
    wanted = {"everything": "", "embeddings": "embeddings.", "layer 1": "layer.1."}[part]
    with torch.no_grad():
        for name, tensor in made.named_parameters():
            if wanted in name.lower() and not (wanted == "embeddings." and "norm" in name.lower()):
                tensor.zero_()
    one = audit(tiny.save(made, tmp_path / "model"), tiny.TEXTS * 3)
    save_audit(one, tmp_path / "out")
    assert one.sentence.startswith("All attention weights of this model are zero") == (part == "everything")
    said = [reason for reason in one.skipped if "attention weights that are zero" in reason]
    assert [reason.split(":")[0] for reason in said] == {"everything": ["all layers"], "layer 1": ["layer 1"]}.get(
        part, []
    )


def test_the_same_seed_gives_the_same_audit(found, folder):
    again = audit(folder, tiny.TEXTS * 3)
    assert again.facts() == found.facts()


def test_metrics_are_those_that_thresholds_know(found, folder):
    assert tuple(found.metrics) == (*WEIGHT_METRICS, *TEXT_METRICS, *CHANGE_METRICS)
    assert tuple(audit(folder).metrics) == WEIGHT_METRICS


def test_weights_alone(folder):
    alone = audit(folder)
    assert len(alone.clouds) == 0 and alone.frost is None
    assert any("give --text" in one for one in alone.skipped)
    assert "kappa" not in alone.heads.column_names


def test_without_a_tokenizer(tmp_path):
    folder = tiny.save(tiny.model("BERT"), tmp_path / "model", tokenizer=False)
    alone = audit(folder)
    assert any("random token ids" in one for one in alone.skipped) and alone.proof.holds
    with pytest.raises(fl.errors.BadText, match="no tokenizer that can be read"):
        audit(folder, tiny.TEXTS)


def test_one_text_of_one_token(folder):
    found = audit(folder, ["ice"])
    assert len(found.clouds) == 4 and json.dumps(found.facts(), allow_nan=False)


def test_a_live_model(folder, found):
    encoder = loading.load(folder)
    model, tokenizer = live_model.open_model(encoder), tokenization.open_tokenizer(encoder)
    live = audit(model, tiny.TEXTS * 3, tokenizer=tokenizer)
    assert np.allclose(live.heads["kappa"].to_numpy(), found.heads["kappa"].to_numpy())
    with pytest.raises(fl.errors.BadText, match="needs its tokenizer"):
        audit(model, tiny.TEXTS)


def test_what_is_not_folded_is_said():
    assert any("relative position" in one for one in audit(tiny.model("MPNet")).skipped)
    assert any("layer 0: tokens enter without a norm" in one for one in audit(tiny.model("ALBERT")).skipped)
    modern = audit(tiny.model("ModernBERT"))
    said = ("all layers: places turn", "layer 1: tokens see no further than 4", "layer 1, 2: the norm is in front")
    assert all(any(one.startswith(words) for one in modern.skipped) for words in said)
    places = [one for one in modern.assumptions if one.what.startswith(("attention does not", "every token"))]
    assert len(places) == 2 and not any(one.holds for one in places)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_weights_hardly_ever_have_a_finding():
    """At most one audit in twenty: of 60 models more than 6 with a finding would be chance in 4 % at that rate."""
    import transformers

    with_findings = 0
    for seed in range(60):
        torch.manual_seed(seed)
        size = [(64, 4), (96, 6), (128, 2)][seed % 3]
        config = transformers.BertConfig(
            hidden_size=size[0], num_attention_heads=size[1], num_hidden_layers=4, intermediate_size=128, vocab_size=40
        )
        model = transformers.BertModel(config).eval()
        tokens = _Words()
        with_findings += bool(audit(model, tiny.TEXTS * 4, tokenizer=tokens, seed=seed).findings)
    assert with_findings <= 6, with_findings


class _Words:
    """Words by their place in the list: enough of a tokenizer for random models."""

    pad_token_id = 0

    def num_special_tokens_to_add(self):
        return 2

    def __call__(self, text, **options):
        return {"input_ids": [2, *(5 + tiny.WORDS.index(word) for word in text.split()), 3]}


def test_frost_lines():
    """Shares known beforehand; the interval holds the depth."""
    rng = np.random.default_rng(0)
    to_last = np.array([1.0, 0.5, 0.12, 0.08, 0.05, 0.0]) * (1 + 0.05 * rng.standard_normal((40, 6)))
    found = frost_line(to_last)
    assert found.depth == 3 and found.interval == (3, 3) and found.frozen
    assert frost_line(to_last, fraction=0.01).depth == 5 and not frost_line(to_last, fraction=0.01).frozen
    assert frost_line(np.zeros((3, 4))) is None
    # It must stay below: a cloud that comes back is not frozen.
    back = frost_line(np.array([[1.0, 0.05, 0.5, 0.0]]))
    assert back.depth == 3 and not frost_line(to_last[:1]).frozen
    assert "up to the last layer" in back.describe() and "After 3 of 5 layers" in found.describe()


def test_plateaus():
    """Movement per layer, with noise: seen where it is, with its end; not where the cloud only slows down."""
    rng = np.random.default_rng(0)

    def seen(*speeds, noise=0.02):
        return plateau(np.array(speeds) * (1 + noise * rng.standard_normal((40, len(speeds)))), seed=0)

    metastable = seen(1.0, 0.8, 0.05, 0.06, 0.05, 0.4, 0.3)
    assert (metastable.begin, metastable.end, metastable.leaves) == (2, 4, 5)
    assert "terminal phase" in metastable.describe() and "layers 2 to 4" in metastable.describe()
    ended = seen(0.5, 1.0, 0.1, 0.1)
    assert (ended.begin, ended.end, ended.leaves) == (2, 3, None) and "no terminal" in ended.describe()
    for without in (
        seen(1.0, 0.8, 0.6, 0.5),
        seen(1.0, 0.1, 0.9),
        seen(0.1, 0.1, 1.0),
        seen(1.0, 0.24, 0.24, noise=0.5),
    ):
        assert without.begin is None and "No plateau" in without.describe()
    assert plateau(np.zeros((40, 3))) is None and plateau(np.ones((3, 3))) is None


@pytest.mark.parametrize("family", ["ModernBERT", "ESM"])
def test_norms_in_front_of_attention(tmp_path, family):
    """Pre-norm models: the expected concentration at the model's own temperature is that of its own states."""
    made = tiny.model(family)
    with torch.no_grad():
        for name, part in made.named_parameters():
            if "mlp" in name or "intermediate" in name or (".output.dense" in name and "attention" not in name):
                part.zero_()
    one = fl.audit(tiny.save(made, tmp_path), tiny.TEXTS, perturbations=False)
    table = one.layers.to_pydict()
    # Without a feed-forward half the next cloud is the one after attention.
    assert np.allclose(table["observed"], one.clouds["resultant"].to_numpy()[1:], atol=1e-5)
    assert np.allclose(table["before"], one.clouds["resultant"].to_numpy()[:-1], atol=1e-3)
    assert table["size"][2] > table["size"][1] > 1
    alone = fl.audit(tmp_path)
    ratio = np.array(alone.heads["rate"]) / np.array(one.heads["rate"])
    own = np.repeat(table["size"], 4) if family == "ESM" else np.repeat([1.0, *table["size"][1:]], 4)
    known = np.isfinite(ratio)
    assert known.sum() > 4 and np.allclose(ratio[known], own[known])


def test_models_that_read_images(tmp_path):
    folder = tiny.save(tiny.model("ViT"), tmp_path, tokenizer=False)
    found = fl.audit(folder)
    assert found.proof.holds and any("images of noise" in one for one in found.skipped)
    assert found.to_html(tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(fl.errors.BadText, match="reads images"):
        fl.audit(folder, ["a text"])


def test_texts(tmp_path):
    texts = sample()
    assert len(texts) == 320 == len(set(texts)) and all(len(text.split()) >= 4 for text in texts)
    assert len(some(texts, 10)) == 10 and some(texts, None) == texts and some(texts, 1) == texts[:1]
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeffone\n\n two \r\n".encode())
    assert read_texts(path) == ["one", "two"]
    for content, words in ((b"\n \n", "no text"), (b"\xff\xfe\x00", "not UTF-8"), (b"a\0b", "zero bytes")):
        path.write_bytes(content)
        with pytest.raises(fl.errors.BadText, match=words):
            read_texts(path)
    with pytest.raises(fl.errors.BadText, match="there is no file"):
        read_texts(tmp_path / "none.txt")


def test_a_corpus_of_several_files(tmp_path):
    (tmp_path / "shards").mkdir()
    with pytest.raises(fl.errors.BadText, match=r"has no \.txt file"):
        read_texts(tmp_path / "shards")
    for name, lines in (("b", "three\n"), ("a", "one\ntwo\n")):
        (tmp_path / "shards" / f"{name}.txt").write_text(lines)
    (tmp_path / "shards" / "README.md").write_text("not a text")
    assert read_texts(tmp_path / "shards") == ["one", "two", "three"]


def test_thresholds(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text("[beta_max]\nmax = 100\n[frost_line]\nmin = 2\n")
    metrics = {"beta_max": 120.0, "frost_line": 3.0}
    assert broken(read_thresholds(path, metrics), metrics) == ["beta_max is 120, above 100"]
    assert broken({"x": {"min": 1.0}}, {"x": float("nan")}) == ["x is nan, below 1"]
    for text, words in (
        ("[nothing]\nmax = 1", "has no number 'nothing'"),
        ("[beta_max]\nmost = 1", "needs min = NUMBER"),
        ("beta_max = 3", "needs min = NUMBER"),
        ("[beta_max", "is not TOML"),
        ("[beta_max]\nmax = nan", "needs min = NUMBER"),
    ):
        path.write_text(text)
        with pytest.raises(fl.errors.BadParameter, match=words):
            read_thresholds(path, metrics)


def broken_copy(folder, tmp_path, change):
    import shutil

    from safetensors.torch import load_file, save_file

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    return copy


def set_to(name, value):
    return lambda tensors: tensors[name].fill_(value)


QUERY, GAMMA = "encoder.layer.1.attention.self.query", "encoder.layer.0.output.LayerNorm.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.pop("embeddings.word_embeddings.weight"),
            "tensors are missing, embeddings.word_embeddings.weight",
        ),
        (lambda t: t.pop("encoder.layer.2.output.dense.weight"), "tensors are missing"),
        (set_to("encoder.layer.1.intermediate.dense.weight", float("nan")), "intermediate.dense.weight has entries"),
        (
            lambda t: t.update({QUERY + ".weight": t[QUERY + ".weight"].to(torch.int8)}),
            "int8 numbers: a quantised model",
        ),
        (lambda t: t.update({QUERY + ".bias": torch.zeros(7)}), r"is \(7,\); config.json says"),
        (set_to("encoder.layer.1.attention.self.value.weight", 1e38), "NaN or infinite"),
    ],
)
def test_weights_that_cannot_be_audited(folder, tmp_path, change, words):
    with pytest.raises(fl.errors.BadModel, match=words):
        audit(broken_copy(folder, tmp_path, change), tiny.TEXTS)


def zero_query(tensors):
    tensors[QUERY + ".weight"].zero_()
    tensors[QUERY + ".bias"].zero_()


def zero_values(tensors):
    for name in tensors:
        if "self.value" in name:
            tensors[name].zero_()


def lose_gammas(tensors):
    tensors[GAMMA][[3, 7]] = 0.0


@pytest.mark.parametrize("change", [zero_query, zero_values, lose_gammas, lambda t: t[GAMMA].__setitem__(5, 0.0)])
def test_zeros_are_weights_too(folder, tmp_path, change):
    """Uniform attention, a value path of nothing, directions that a norm wipes out: the extraction holds for all."""
    found = audit(broken_copy(folder, tmp_path, change), tiny.TEXTS * 3)
    save_audit(found, tmp_path / "out")
    assert found.proof.holds


def test_live_models_in_training_or_in_half_precision(folder):
    encoder = loading.load(folder)
    tokenizer = tokenization.open_tokenizer(encoder)
    model = tiny.model("BERT").train()
    assert audit(model, tiny.TEXTS, tokenizer=tokenizer).proof.holds and model.training
    half = tiny.model("BERT").to(torch.bfloat16)
    assert audit(half, tiny.TEXTS, tokenizer=tokenizer).proof.holds and half.dtype == torch.bfloat16


def test_few_texts(folder):
    found = audit(folder, ["ice melts"] * 3 + ["the ice"])
    assert any("fewer than 8 different texts" in one for one in found.skipped)
    with pytest.raises(fl.errors.BadText, match="texts is one string"):
        audit(folder, "the ice melts")


def test_tokens_that_are_exactly_zero(tmp_path):
    """ESM wipes masked tokens out: in the control with fresh weights they stay zero through every layer."""
    found = fl.audit(tiny.save(tiny.model("ESM"), tmp_path), ["the [MASK] is ice", *tiny.TEXTS], perturbations=False)
    assert np.isfinite(found.clouds["resultant, random weights"].to_numpy()).all()


def test_a_last_norm_of_zeros(tmp_path):
    made = tiny.model("ModernBERT")
    with torch.no_grad():
        made.final_norm.weight.zero_()
    assert fl.audit(tiny.save(made, tmp_path), tiny.TEXTS, perturbations=False).frost.depth <= 3


def test_the_proof_looks_past_the_window(tmp_path, monkeypatch):
    """A window of the default width: a wrong one is noticed."""
    settings = tiny.config("ModernBERT")
    settings.local_attention, settings.max_position_embeddings = 128, 512
    folder = tiny.save(tiny.model("ModernBERT", settings=settings), tmp_path)
    assert fl.audit(folder).proof.holds
    monkeypatch.setattr(loading.Encoder, "window", lambda self, layer: 70 if layer % 2 else None)
    with pytest.raises(fl.errors.BadModel, match="does not reproduce"):
        fl.audit(folder)


def test_how_much_a_local_head_sees(tmp_path):
    """Flat attention sees all there is to see, also where that is a window."""
    made = tiny.model("ModernBERT")
    with torch.no_grad():
        for layer in made.layers:
            layer.attn.Wqkv.weight[:64] = 0
            layer.attn.Wqkv.bias[:64] = 0
    found = fl.audit(tiny.save(made, tmp_path), [" ".join(tiny.WORDS * 2)], perturbations=False)
    assert np.allclose(found.heads["perplexity"].to_numpy(), 1, atol=1e-6)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "sub", tmp_path / "file"):
        with pytest.raises(fl.errors.BadParameter, match="--out"):
            check_folder(place)
    check_folder(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()
