"""Two checkpoints: a planted change is found where it is, a cast or a quantisation is not called one."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline as fl
from frostline.auditing.comparison.compare import diff
from frostline.auditing.comparison.rounding import compare
from tests.encoders import tiny


def verdicts(one, other):
    return diff(one, other).layers["verdict"].to_pylist()


def test_the_same_twice():
    found = diff(tiny.model("BERT"), tiny.model("BERT"))
    assert set(found.layers["verdict"].to_pylist()) == {"unchanged"} and found.sentence == "Nothing changed."
    assert max(found.heads["angle_A"].to_pylist()) < 1e-6 and set(found.heads["beta_ratio"].to_pylist()) == {1.0}


@pytest.mark.parametrize("part", ["attention.self.query", "attention.output.dense", "intermediate.dense"])
def test_a_planted_change_of_one_layer_is_found_there(part):
    tuned = tiny.model("BERT")
    with torch.no_grad():
        weight = tuned.encoder.layer[1].get_submodule(part).weight
        weight += 0.01 * weight.std() * torch.randn_like(weight)
    found = diff(tiny.model("BERT"), tuned)
    assert found.layers["verdict"].to_pylist() == ["unchanged", "changed", "unchanged"]
    assert part in found.layers["evidence"].to_pylist()[1] and "(1)" in found.sentence


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cast_copy_is_rounding(dtype):
    cast = tiny.model("BERT").to(dtype)
    assert verdicts(tiny.model("BERT"), cast) == ["rounding"] * 3 == verdicts(cast, tiny.model("BERT"))
    assert "float16" in diff(tiny.model("BERT"), cast).layers["evidence"].to_pylist()[0]


def steps(weight, size, most):
    return (weight / size).round().clamp(-most, most) * size


def by_rows(weight):
    return steps(weight, weight.abs().amax(1, keepdim=True) / 127, 127)


def as_a_whole(weight):
    return steps(weight, weight.abs().max() / 127, 127)


def affine(weight):
    """As torch's dynamic quantisation: 256 values from the smallest to the largest, zero among them."""
    size = (weight.max() - weight.min()) / 255
    return (weight / size).round() * size


def four_bits_in_blocks(weight):
    blocks = weight.reshape(-1, 32)
    return steps(blocks, blocks.abs().amax(1, keepdim=True) / 7, 7).reshape(weight.shape)


def in_half(weight):
    """Eight bits, stored as float16."""
    return by_rows(weight).half().float()


@pytest.mark.parametrize("quantised", [by_rows, as_a_whole, affine, four_bits_in_blocks, in_half])
@given(seed=st.integers(0, 1000))
def test_quantised_copies_are_rounding(quantised, seed):
    weight = 0.05 * torch.randn(64, 96, generator=torch.Generator().manual_seed(seed))
    found = compare(weight, quantised(weight))
    assert found.verdict == "rounding", found


@given(seed=st.integers(0, 1000), size=st.floats(1e-5, 1.0))
def test_fine_tuning_is_not_rounding(seed, size):
    """A change of any size that does not follow the entries."""
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(64, 96, generator=draw)
    moved = weight + size * torch.randn(64, 96, generator=draw)
    assert compare(weight, moved).verdict == "changed"
    assert compare(by_rows(weight), by_rows(weight) + size * torch.randn(64, 96, generator=draw)).verdict == "changed"


def test_one_entry_is_enough():
    weight = torch.randn(64, 96)
    moved = weight.clone()
    moved[3, 5] += 0.1
    assert compare(weight, moved).verdict == "changed"


def test_models_that_cannot_be_compared():
    with pytest.raises(fl.errors.BadModel, match="differ in family: BERT and RoBERTa"):
        diff(tiny.model("BERT"), tiny.model("RoBERTa"))
    with pytest.raises(fl.errors.BadModel, match="these are different models"):
        compare(torch.ones(2, 3), torch.ones(3, 2))
    with pytest.raises(fl.errors.BadModel, match="of the tuned model has entries that are NaN"):
        compare(torch.ones(2, 3), torch.full((2, 3), torch.nan))


def test_angles_and_spectra_follow_a_rotation_of_the_values():
    """Turning all of V's output turns A's leading direction; β stays."""
    tuned = tiny.model("BERT")
    with torch.no_grad():
        dense = tuned.encoder.layer[0].attention.output.dense.weight
        turn = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))[0]
        dense.copy_(turn @ dense)
    found = diff(tiny.model("BERT"), tuned)
    first = [row for row in found.heads.to_pylist() if row["layer"] == 0]
    assert np.allclose([row["beta_ratio"] for row in first], 1)
    assert np.median([row["angle_A"] for row in first]) > 0.3
    assert max(row["angle_A"] for row in found.heads.to_pylist() if row["layer"] > 0) < 1e-6


def test_with_text(tmp_path):
    """The same model twice is the same at work; a colder copy has a larger κ there."""
    base = tiny.save(tiny.model("BERT"), tmp_path / "base")
    colder = tiny.model("BERT")
    with torch.no_grad():
        for layer in colder.encoder.layer:
            layer.attention.self.query.weight *= 2
            layer.attention.self.query.bias *= 2
    found = diff(base, colder, texts=tiny.TEXTS)
    assert found.text["tuned"]["kappa"] > 1.5 * found.text["base"]["kappa"]
    assert found.layers["kappa_tuned"].to_pylist()[0] == pytest.approx(2 * found.layers["kappa_base"].to_pylist()[0])
    same = diff(base, base, texts=tiny.TEXTS)
    assert same.text["base"] == same.text["tuned"]


def test_what_is_outside_the_layers_is_compared_too():
    tuned = tiny.model("BERT")
    with torch.no_grad():
        tuned.embeddings.word_embeddings.weight += 0.1
    found = diff(tiny.model("BERT"), tuned)
    assert set(found.layers["verdict"].to_pylist()) == {"unchanged"} and found.outside["verdict"] == "changed"
    assert found.sentence.startswith("No layer changed. Outside the layers: changed (1 of 5 modules, most in emb")
    other = tiny.model("BERT")
    other.config.layer_norm_eps = 0.5
    assert "layer_norm_eps: 1e-12 and 0.5" in diff(tiny.model("BERT"), other).sentence


@pytest.mark.parametrize("factor", ["all alike", "each its own"])
def test_small_changes_in_proportion_are_not_rounding(factor):
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    by = 1.003 if factor == "all alike" else 1 + 1e-3 * torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
    assert compare(weight, weight * by).verdict == "changed"


def test_a_base_without_some_weights_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tiny.save(tiny.model("BERT"), tmp_path / "less")
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if "layer.2.output.dense" not in n}, folder / "model.safetensors")
    for pair in ((folder, tiny.model("BERT")), (tiny.model("BERT"), folder)):
        with pytest.raises(fl.errors.BadModel, match="is missing in"):
            diff(*pair)


@pytest.mark.parametrize(
    ("family", "tensor"),
    [
        ("ViT", "embeddings.position_embeddings"),
        ("DeiT", "embeddings.distillation_token"),
        ("DINOv2", "embeddings.cls_token"),
        ("DINOv2", "encoder.layer.1.layer_scale1.lambda1"),
        ("ModernBERT", "final_norm.weight"),
    ],
)
def test_every_tensor_counts(tmp_path, family, tensor):
    """Also those that are no module's weight or bias; a live model against its file, whose names differ."""
    base, tuned = tiny.model(family), tiny.model(family)
    assert not fl.diff(base, tiny.save(tuned, tmp_path, tokenizer=False)).changed
    with torch.no_grad():
        dict(tuned.named_parameters())[tensor].add_(0.1)
    found = fl.diff(base, tuned)
    inside = ".layer." in tensor
    assert found.changed and (found.outside["verdict"] == "changed") == (not inside)
    assert found.layers["verdict"].to_pylist() == ["unchanged", "changed" if inside else "unchanged", "unchanged"]


@pytest.mark.parametrize(
    ("family", "setting", "value"),
    [
        ("ModernBERT", "local_attention", 4),
        ("ModernBERT", "norm_eps", 1e-3),
        ("ModernBERT", "hidden_activation", "relu"),
        ("ESM", "token_dropout", False),
        ("BERT", "hidden_act", "relu"),
    ],
)
def test_settings_that_change_what_is_computed(tmp_path, family, setting, value):
    base = tiny.save(tiny.model(family), tmp_path / "base")
    other = tiny.save(tiny.model(family), tmp_path / "other")
    told = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(told | {setting: value, "hidden_dropout_prob": 0.3}))
    found = fl.diff(base, other)
    assert [one.split(":")[0] for one in found.outside["settings"]] == [setting]
    assert found.changed and setting in found.sentence


def test_thirds_of_a_fused_matrix():
    base, tuned = tiny.model("ModernBERT"), tiny.model("ModernBERT")
    with torch.no_grad():
        tuned.layers[1].attn.Wqkv.weight[64:] += 0.1
    row = fl.diff(base, tuned).layers.to_pylist()[1]
    assert row["verdict"] == "changed" and row["query"] == row["key"] == 0 and row["value"] > 0.1


def test_the_sentence_is_about_the_layers_that_changed():
    base, tuned = tiny.model("BERT"), tiny.model("BERT")
    with torch.no_grad():
        tuned.encoder.layer[2].attention.self.query.weight *= 2
    assert "Changed in 1 of 3 layers (2): β there by a factor 2.00 to 2.00" in fl.diff(base, tuned).sentence


def test_heads_that_all_layers_share_are_no_heads_of_their_own():
    """ALBERT's 4 heads in 3 passes: the sentence counts passes."""
    base, tuned = tiny.model("ALBERT"), tiny.model("ALBERT")
    with torch.no_grad():
        tuned.encoder.albert_layer_groups[0].albert_layers[0].attention.query.weight *= 2
    sentence = fl.diff(base, tuned).sentence
    assert "0 of 12 passes of heads lead in another way" in sentence and "12 heads" not in sentence


def test_a_comparison_saves_itself(tmp_path):
    comparison = fl.diff(tiny.model("BERT"), tiny.model("BERT", seed=1))
    page = comparison.save(tmp_path / "diff")
    assert "layer 2: changed (" in comparison.describe() and "labels: unchanged (equal)" in comparison.describe()
    assert page.name == "index.html" and (tmp_path / "diff" / "heads.csv").read_text().startswith('"layer"')


def test_images_are_not_compared_on_text():
    with pytest.raises(fl.errors.BadText, match="reads images"):
        fl.diff(tiny.model("ViT"), tiny.model("ViT"), texts=["a text"])
