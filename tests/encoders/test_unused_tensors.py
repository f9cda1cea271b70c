"""What transformers drops of a model: listed where it is a task's head, refused where it is attention."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import frostline as fl
from frostline.encoders import load as loading
from frostline.encoders import unused_tensors as unused
from tests.encoders import tiny

LAYERS = range(3)
DISTANCES = {f"encoder.layer.{n}.attention.self.distance_embedding.weight": torch.ones(127, 8) for n in LAYERS}
DOWN = {f"encoder.layer.{n}.output.adapters.task.adapter_down.0.weight": torch.ones(4, 32) for n in LAYERS}
LORA = {f"encoder.layer.0.attention.self.query.lora_{end}.default.weight": torch.ones(4, 32) for end in "AB"}
PREFIX = {"prefix_encoder.embedding.weight": torch.ones(4, 32)}
SLOPES = {"encoder.alibi": torch.ones(1, 4, 64, 64)}
GATES = {f"encoder.layer.{n}.intermediate.gate.weight": torch.ones(48, 32) for n in LAYERS}
TASKS = {
    "cls.predictions.bias": torch.zeros(40),
    "cls.predictions.transform.LayerNorm.gamma": torch.ones(32),
    "classifier.attention.weight": torch.ones(2, 32),
    "qa_outputs.weight": torch.ones(2, 32),
    "embeddings.position_ids": torch.arange(64)[None],
    "encoder.layer.0.attention.self.rotary_embeddings.inv_freq": torch.ones(4),
}


def with_more(folder, tensors=None, form="safetensors", **settings):
    """A BERT with more in its files than transformers has a place for."""
    tiny.save(tiny.model("BERT"), folder)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | settings))
    file = folder / "model.safetensors"
    whole = load_file(file) | (tensors or {})
    if form != "safetensors":
        file.unlink()
    if form == "bin":
        torch.save(whole, folder / "pytorch_model.bin")
    elif form == "shards":
        homes = {name: f"part-{place % 2}.safetensors" for place, name in enumerate(sorted(whole))}
        for home in set(homes.values()):
            save_file({name: whole[name] for name in homes if homes[name] == home}, folder / home, {"format": "pt"})
        index = {"metadata": {}, "weight_map": homes}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(whole, file, {"format": "pt"})
    return folder


@pytest.mark.parametrize("form", ["safetensors", "shards", "bin"])
def test_relative_keys_are_refused_in_every_format(tmp_path, form):
    folder = with_more(tmp_path, DISTANCES, form, position_embedding_type="relative_key")
    words = r"3 tensors of attention.*self.distance_embedding.weight × 3.*position_embedding_type = 'relative_key'"
    with pytest.raises(fl.errors.BadModel, match=words):
        fl.audit(folder)


@pytest.mark.parametrize(
    ("tensors", "settings", "words"),
    [
        (DISTANCES, {}, r"3 tensors of attention or inside layers \(encoder.layer.N.attention.self.distance_embedding"),
        (SLOPES, {}, r"1 tensor of attention or inside layers \(encoder.alibi\)"),
        (GATES, {}, r"inside layers \(encoder.layer.N.intermediate.gate.weight × 3\)"),
        (DOWN, {}, r"3 tensors of adapters \(encoder.layer.N.output.adapters.task"),
        (LORA, {}, r"2 tensors of adapters .*query.lora_A.default.weight"),
        (PREFIX, {}, r"1 tensor of adapters \(prefix_encoder.embedding.weight\)"),
        ({}, {"position_embedding_type": "relative_key_query"}, "position_embedding_type = 'relative_key_query'"),
        ({}, {"position_embedding_type": "alibi"}, "position_embedding_type = 'alibi'"),
        ({}, {"alibi_starting_size": 512}, "alibi_starting_size = 512"),
        ({}, {"rotary_emb_fraction": 1.0}, "rotary_emb_fraction"),
    ],
)
def test_attention_that_is_dropped_is_refused(tmp_path, tensors, settings, words):
    with pytest.raises(fl.errors.BadModel, match=rf"{words}.*not the one that was trained. (Merge|Such)"):
        fl.audit(with_more(tmp_path, tensors, **settings))


def test_an_adapter_beside_the_weights(tmp_path):
    folder = with_more(tmp_path)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(fl.errors.BadModel, match="an adapter beside its weights"):
        unused.unused(loading.load(folder))
    (folder / "config.json").unlink()
    with pytest.raises(fl.errors.BadModel, match="holds an adapter alone"):
        loading.load(folder)


def test_models_in_memory_are_looked_at_too():
    made = tiny.model("BERT")
    made.config.position_embedding_type = "relative_key"
    with pytest.raises(fl.errors.BadModel, match="position_embedding_type = 'relative_key'"):
        fl.audit(made)
    made = tiny.model("BERT")
    made.encoder.layer[1].output.adapter = torch.nn.Linear(32, 4)
    with pytest.raises(fl.errors.BadModel, match=r"2 tensors of adapters .*encoder.layer.1.output.adapter"):
        fl.audit(made)
    made = tiny.model("BERT")
    for layer in made.encoder.layer:
        own = layer.attention.self
        own.query = torch.nn.ModuleDict({"base_layer": own.query, "lora_A": torch.nn.Linear(32, 4)})
    with pytest.raises(fl.errors.BadModel, match=r"has an adapter wrapped around its weights.*merge it"):
        loading.load(made)


def test_settings_that_say_what_is_so_anyway(tmp_path):
    harmless = {"position_embedding_type": "absolute", "use_alibi": False, "use_cache": True}
    assert unused.unused(loading.load(with_more(tmp_path, **harmless))) == ()


def test_heads_of_tasks_and_buffers_are_listed(tmp_path):
    """In the proof, in the JSON and on the page, and said in a sentence; nothing is refused."""
    found = fl.audit(with_more(tmp_path, TASKS))
    assert found.proof.holds and set(found.proof.unused) == set(TASKS)
    assert set(found.facts()["proof"]["unused"]) == set(TASKS)
    assert any("6 tensors that the encoder does not use" in one and "qa_outputs" in one for one in found.skipped)
    page = found.to_html(tmp_path / "page.html").read_text()
    assert all(name in page for name in TASKS)


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("BERT", "BertForPreTraining"),
        ("RoBERTa", "RobertaForMaskedLM"),
        ("XLM-RoBERTa", "XLMRobertaForTokenClassification"),
        ("CamemBERT", "CamembertForMaskedLM"),
        ("DistilBERT", "DistilBertForMaskedLM"),
        ("ALBERT", "AlbertForPreTraining"),
        ("ELECTRA", "ElectraForPreTraining"),
        ("MPNet", "MPNetForMaskedLM"),
        ("ModernBERT", "ModernBertForMaskedLM"),
        ("ESM", "EsmForMaskedLM"),
        ("ViT", "ViTForMaskedImageModeling"),
        ("DeiT", "DeiTForImageClassificationWithTeacher"),
        ("DINOv2", "Dinov2ForImageClassification"),
    ],
)
def test_no_head_of_any_family_is_refused(tmp_path, family, head):
    """As files and in memory: no tensor of the encoder is called unused, but for frequencies that are computed anew."""
    settings = tiny.config(family)
    torch.manual_seed(0)
    with_head = getattr(transformers, head)(settings)
    with_head.save_pretrained(tmp_path)
    names = [name for name in unused.unused(loading.load(tmp_path)) if not name.endswith("inv_freq")]
    assert names and not any(name.startswith(f"{with_head.base_model_prefix}.encoder.") for name in names)
    assert unused.unused(loading.load(with_head)) and unused.unused(loading.load(tiny.model(family))) == ()
