"""What may be wrong with a model folder, each told in a sentence; nothing in it is ever executed."""

import json
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import frostline as fl
from frostline.encoders import fold as folding
from frostline.encoders import live_model, tokenization
from frostline.encoders import load as loading
from tests.encoders import tiny

BadModel, BadText = fl.errors.BadModel, fl.errors.BadText


@pytest.fixture
def folder(tmp_path):
    return tiny.save(tiny.model("BERT"), tmp_path / "model")


def changed(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    for name, value in settings.items():
        config.pop(name) if value is None else config.__setitem__(name, value)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_type": "gpt2"}, "is a decoder .*causal mask.*Supported are encoders: BERT"),
        ({"model_type": "t5"}, "is an encoder-decoder .*decoder attends causally"),
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, "has no decoder and could be audited.*RMSNorms"),
        ({"is_decoder": True}, "is a decoder"),
        ({"is_encoder_decoder": True}, "is an encoder-decoder"),
        ({"architectures": ["SomethingForCausalLM"]}, "is a decoder"),
        ({"model_type": "mamba-vision"}, "of type 'mamba-vision', which frostline does not know"),
        ({"model_type": "distilbert"}, "has none of the tensors of a DistilBERT"),
        ({"hidden_size": 64}, r"weight is \(32, 32\); config.json says \(64, 64\)"),
        ({"num_hidden_layers": 9}, "tensor encoder.layer.3.attention.self.query.weight is missing"),
        ({"num_attention_heads": 5}, "hidden_size 32 is no multiple of 5 heads"),
        ({"num_attention_heads": None}, "no usable num_attention_heads"),
        ({"num_attention_heads": "four"}, "no usable num_attention_heads"),
    ],
)
def test_configs_that_do_not_fit(folder, settings, words):
    with pytest.raises(BadModel, match=words):
        loading.load(changed(folder, **settings))


def test_a_folder_that_does_not_say_its_type(folder):
    """Old checkpoints: the names of the tensors tell the family, and transformers can still open it."""
    encoder = loading.load(changed(folder, model_type=None, architectures=None))
    assert encoder.family.name == "BERT"
    assert live_model.open_model(encoder).config.hidden_size == 32


def test_old_names_of_norms(folder):
    tensors = load_file(folder / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    before = folding.folded(loading.load(folder), 1)
    save_file(old, folder / "model.safetensors")
    after = folding.folded(loading.load(folder), 1)
    assert np.array_equal(before.query, after.query) and np.array_equal(before.norm.shift, after.norm.shift)


def test_a_nan_is_named_by_its_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.2.attention.self.key.weight"][3, 4] = torch.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(BadModel, match=r"encoder.layer.2.attention.self.key.weight has 1 entries of 1024 that are NaN"):
        folding.folded(loading.load(folder), 2)


def test_a_truncated_file(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(BadModel, match="not a whole safetensors file"):
        loading.load(folder)


def test_a_missing_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.LayerNorm.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(BadModel, match=r"tensor encoder.layer.1.output.LayerNorm.weight is missing"):
        folding.folded(loading.load(folder), 2)


def as_bin(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_a_pytorch_bin_is_read_as_plain_tensors(folder):
    before = folding.folded(loading.load(folder), 1)
    encoder = loading.load(as_bin(folder))
    assert np.array_equal(folding.folded(encoder, 1).value, before.value)


class Exploding:
    """Runs a command when unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_pickle_with_code_in_it_is_refused_and_not_run(folder, tmp_path, writer):
    marker = tmp_path / "it ran"
    as_bin(folder)
    bad = {"encoder.layer.0.attention.self.query.weight": Exploding(marker)}
    if writer == "pickle":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(bad))
    else:
        torch.save(bad, folder / "pytorch_model.bin")
    with pytest.raises(BadModel, match=r"cannot be read as plain tensors.*Nothing in it was executed"):
        loading.load(folder)
    assert not marker.exists()


def test_a_truncated_bin(folder):
    file = as_bin(folder) / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(BadModel, match=r"pytorch_model.bin"):
        loading.load(folder)


def test_shards(folder):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in halves.items():
        save_file({name: tensors[name] for name in own}, folder / file)
    whole = folding.folded(loading.load(folder), 2)
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: file for file, own in halves.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert np.array_equal(folding.folded(loading.load(folder), 2).query, whole.query)
    index["weight_map"][names[0]] = "../elsewhere.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadModel, match=r"names '../elsewhere.safetensors', which is not a file of"):
        loading.load(folder)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no/such/folder/anywhere", "there is no folder"),
        ("./nothing", "there is no folder"),
        (__file__, "is a file; give the folder"),
    ],
)
def test_places_without_a_model(source, words):
    with pytest.raises(BadModel, match=words):
        loading.load(source)


def test_folders_without_parts(tmp_path, folder):
    with pytest.raises(BadModel, match=r"has no config.json"):
        loading.load(tmp_path)
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    with pytest.raises(BadModel, match=r"neither model.safetensors nor pytorch_model.bin. It has tf_model.h5"):
        loading.load(folder)
    (folder / "config.json").write_text("[1, 2")
    with pytest.raises(BadModel, match="is not JSON"):
        loading.load(folder)


def test_the_encoder_of_a_t5_by_itself(tmp_path):
    """Refused for what is true of it: it is no encoder-decoder."""
    settings = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, vocab_size=40, decoder_start_token_id=0
    )
    made = transformers.T5EncoderModel(settings)
    made.save_pretrained(tmp_path)
    for model in (made, tmp_path):
        with pytest.raises(
            BadModel, match=r"encoder of a T5 by itself.*not divided by √k; a bias by relative position"
        ):
            loading.load(model)


def sentence_model(folder, path="0_Transformer"):
    tiny.save(tiny.model("BERT"), folder / "0_Transformer")
    modules = [
        {"idx": 0, "name": "0", "path": path, "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def test_the_transformer_of_a_sentence_model(tmp_path):
    encoder = loading.load(sentence_model(tmp_path / "whole"))
    assert encoder.folder.name == "0_Transformer" and tokenization.open_tokenizer(encoder) is not None
    found = fl.audit(tmp_path / "whole")
    assert any("but 0_Transformer, the encoder, which was read" in one for one in found.skipped)
    assert not any("other models" in one for one in found.skipped)


@pytest.mark.parametrize("path", ["..", "../whole/0_Transformer", "/", "", None, "0_Transformer/../0_Transformer"])
def test_a_sentence_model_that_leads_elsewhere(tmp_path, path):
    """Nothing outside the folder is read, whatever modules.json says."""
    tiny.save(tiny.model("BERT"), tmp_path)
    folder = sentence_model(tmp_path / "whole", path)
    with pytest.raises(BadModel, match=r"in it are models: 0_Transformer. Give one of these folders"):
        loading.load(folder)
    (folder / "modules.json").write_text("[1, 2")
    with pytest.raises(BadModel, match=r"has no config.json"):
        loading.load(folder)


def test_other_models_of_a_training_are_named(tmp_path):
    out = tmp_path / "out"
    for name in ("out/checkpoint-20", "out/best_model", "out/checkpoint-last", "best", "mine"):
        tiny.save(tiny.model("BERT"), tmp_path / name)
    (out / "runs").mkdir()
    with pytest.raises(BadModel, match=r"in it are models: best_model, checkpoint-20, checkpoint-last\. Give one"):
        loading.load(out)
    tiny.save(tiny.model("BERT"), out)
    (said,) = [one for one in fl.audit(out).skipped if "other models" in one]
    assert said.endswith("out was read; in it are best_model, checkpoint-20, checkpoint-last; beside it is best")
    (said,) = [one for one in fl.audit(out / "best_model").skipped if "other models" in one]
    assert said.endswith("best_model was read; beside it are checkpoint-20, checkpoint-last")


def test_texts_that_cannot_be_used(folder):
    encoder = loading.load(folder)
    tokenizer = tokenization.open_tokenizer(encoder)
    long = "the ice melts " * 100
    found = tokenization.tokenize(encoder, tokenizer, ["", "ice", long])
    assert found.empty == 1 and found.cut == 1 and len(found.ids[1]) == 64
    with pytest.raises(BadText, match="every one is empty"):
        tokenization.tokenize(encoder, tokenizer, ["", "  "])


def test_a_tokenizer_of_another_model(folder):
    (folder / "vocab.txt").write_text("\n".join(tiny.SPECIAL + [f"w{n}" for n in range(500)] + tiny.WORDS))
    encoder = loading.load(folder)
    with pytest.raises(BadText, match="the model knows only 40: it belongs to another model"):
        tokenization.tokenize(encoder, tokenization.open_tokenizer(encoder), ["the ice"])


def test_without_the_extra_the_line_to_type_is_given():
    code = """
import sys
sys.modules["transformers"] = None
from frostline.extras import need
try:
    need("transformers")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "this needs transformers; type: pip install 'frostline[encoders]'"


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("ModernBERT", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}),
        ("ModernBERT", {"layer_types": ["full_attention"]}),
        ("ModernBERT", {"local_attention": -8}),
        ("ModernBERT", {"local_attention": 0}),
        ("ModernBERT", {"local_attention": float("inf")}),
        ("ModernBERT", {"layer_types": None, "global_attn_every_n_layers": 0}),
        ("ModernBERT", {"hidden_activation": "banana"}),
        ("ModernBERT", {"norm_eps": "small"}),
        ("ModernBERT", {"pad_token_id": 99}),
        ("ModernBERT", {"vocab_size": 0}),
        ("ModernBERT", {"max_position_embeddings": -5}),
        ("ESM", {"position_embedding_type": "banana"}),
        ("ESM", {"mask_token_id": None}),
        ("ViT", {"image_size": []}),
        ("ViT", {"image_size": -16}),
        ("ViT", {"image_size": 10**6}),
        ("ViT", {"patch_size": 0}),
        ("DINOv2", {"num_channels": "three"}),
    ],
)
def test_settings_of_newer_families_that_cannot_be(tmp_path, family, settings):
    """One sentence of ours each, whatever transformers itself would raise."""
    folder = tiny.save(tiny.model(family), tmp_path)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | settings))
    with pytest.raises(fl.errors.FrostlineError, match=r"^.{20,600}$"):
        fl.audit(folder, None if family in ("ViT", "DINOv2") else tiny.TEXTS, perturbations=False)


@pytest.mark.parametrize(
    ("family", "tensor", "size"),
    [
        ("ModernBERT", "layers.1.attn_norm.weight", (16,)),
        ("ModernBERT", "layers.1.attn.Wqkv.weight", (64, 32)),
        ("ModernBERT", "layers.1.attn.Wqkv.weight", ()),
        ("DINOv2", "encoder.layer.1.layer_scale1.lambda1", (16,)),
    ],
)
def test_tensors_of_the_wrong_shape_are_named(tmp_path, family, tensor, size):
    folder = tiny.save(tiny.model(family), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {tensor: torch.zeros(size)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(fl.errors.BadModel, match=rf"{re.escape(tensor.removesuffix('.weight'))}.*config.json says"):
        fl.audit(folder)


def test_one_tensor_under_two_names(tmp_path):
    folder = tiny.save(tiny.model("BERT"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.output.LayerNorm."
    tensors[name + "gamma"] = tensors[name + "weight"] + 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(fl.errors.BadModel, match=r"under two names, .*gamma and .*weight"):
        loading.load(folder)
