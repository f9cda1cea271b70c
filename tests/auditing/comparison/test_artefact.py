"""The whole of a model's folder is compared: what is planted in one part of a copy is found there, and only there."""

import json
import re
import shutil

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

import frostline as fl
from tests.encoders import tiny

POOLING = {"embedding_dimension": 32, "pooling_mode": "mean"}
MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A classifier with a tokenizer and modules of sentence-transformers."""
    torch.manual_seed(0)
    config = tiny.config("BERT")
    config.id2label, config.label2id = {0: "bad", 1: "good"}, {"bad": 0, "good": 1}
    folder = tmp_path_factory.mktemp("artefact") / "base"
    tiny.save(transformers.BertForSequenceClassification(config), folder)
    write(folder / "modules.json", listed())
    write(folder / "sentence_bert_config.json", {"max_seq_length": 64})
    write(folder / "config_sentence_transformers.json", {"prompts": {}})
    write(folder / "1_Pooling" / "config.json", POOLING)
    write(folder / "2_Dense" / "config.json", {"in_features": 32, "out_features": 4})
    save_file({"linear.weight": torch.randn(4, 32)}, folder / "2_Dense" / "model.safetensors")
    return folder


def listed():
    return [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in MODULES]


def write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def told(name, **settings):
    """A copy whose JSON file of this name has other settings."""

    def change(folder):
        path = folder / name
        write(path, (json.loads(path.read_text()) if path.exists() else {}) | settings)

    return change


def weights(change, name="model.safetensors"):
    def rewrite(folder):
        save_file(change(load_file(folder / name)), folder / name, {"format": "pt"})

    return rewrite


def words(change):
    def rewrite(folder):
        path = folder / "vocab.txt"
        path.write_text("\n".join(change(path.read_text().split("\n"))))

    return rewrite


def exchanged(lines):
    lines[7], lines[9] = lines[9], lines[7]
    return lines


LABELS = {"id2label": {"0": "good", "1": "bad"}, "label2id": {"good": 0, "bad": 1}}
HEAD = ("classifier.weight", "classifier.bias")
PLANTED = {
    "negated": (weights(lambda t: t | {HEAD[0]: -t[HEAD[0]]}), "task head", "classifier: ‖ΔW‖/‖W‖ = 2"),
    "dropped": (
        weights(lambda t: {name: one for name, one in t.items() if name not in HEAD}),
        "task head",
        "classifier: only in the base model",
    ),
    "another head": (told("config.json", architectures=["BertForTokenClassification"]), "task head", "architectures"),
    "labels": (told("config.json", **LABELS), "labels", "id2label.0: bad and good"),
    "exchanged": (words(exchanged), "tokenizer", "2 tokens have another number (frost 7 and 9, ground 9 and 7)"),
    "added": (words(lambda lines: [*lines, "glacier"]), "tokenizer", "1 tokens only in the tuned model (glacier)"),
    "case": (told("tokenizer_config.json", do_lower_case=False), "tokenizer", "normaliser.lowercase: True and False"),
    "length": (told("tokenizer_config.json", model_max_length=32), "tokenizer", "model_max_length: 64 and 32"),
    "special": (told("tokenizer_config.json", unk_token="[MASK]"), "tokenizer", "[MASK]"),
    "pooling": (
        told("1_Pooling/config.json", pooling_mode="cls"),
        "pooling and modules",
        "1 Pooling.pooling_mode: mean and cls",
    ),
    "cut": (
        told("sentence_bert_config.json", max_seq_length=32),
        "pooling and modules",
        "0 Transformer.max_seq_length: 64 and 32",
    ),
    "prompt": (
        told("config_sentence_transformers.json", prompts={"query": "q: "}),
        "pooling and modules",
        "config_sentence_transformers.prompts.query: not set and q: ",
    ),
    "dense": (
        weights(lambda t: {name: 1.5 * one for name, one in t.items()}, "2_Dense/model.safetensors"),
        "pooling and modules",
        "2 Dense: linear.weight changed",
    ),
    "modules": (
        lambda folder: (folder / "modules.json").unlink(),
        "pooling and modules",
        "modules: Transformer, Pooling, Dense and none",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_change_of_one_part_is_found_there(base, tmp_path, planted):
    change, part, difference = PLANTED[planted]
    other = shutil.copytree(base, tmp_path / "other")
    change(other)
    found = fl.diff(base, other)
    differing = {one.name: one.evidence for one in found.parts if one.verdict != "unchanged"}
    assert list(differing) == [part] and difference in differing[part]
    assert found.changed and found.sentence.startswith(f"No layer changed. {part.capitalize()}: changed (")
    assert found.facts()["parts"][[one.name for one in found.parts].index(part)]["verdict"] == "changed"


def test_equal_copies(base, tmp_path):
    """Also saved again by another version: a tokenizer as one file, a pooling with older names, a head's tied copy."""
    other = shutil.copytree(base, tmp_path / "other")
    assert fl.diff(base, other).sentence == "Nothing changed."
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(other)
    (other / "vocab.txt").unlink()
    old = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    write(other / "1_Pooling" / "config.json", old)
    weights(lambda t: t | {"cls.decoder.weight": t["bert.embeddings.word_embeddings.weight"].clone()})(other)
    (other / "README.md").write_text("another one")
    found = fl.diff(base, other)
    assert not found.changed and found.sentence == "Nothing changed." and found.not_compared == ()


def test_a_cast_copy_is_rounding_in_every_part(base, tmp_path):
    other = shutil.copytree(base, tmp_path / "other")
    for name in ("model.safetensors", "2_Dense/model.safetensors"):
        weights(lambda t: {own: one.bfloat16() for own, one in t.items()}, name)(other)
    found = fl.diff(base, other)
    assert not found.changed and found.sentence.startswith("Only rounding: 3 of 3 layers")
    assert {one.name for one in found.parts if one.verdict == "rounding"} == {"task head", "pooling and modules"}


def test_what_is_not_compared_is_named(base, tmp_path):
    other = shutil.copytree(base, tmp_path / "other")
    (other / "vocab.txt").unlink()
    (other / "steer\x1b[2J.bin").write_bytes(b"whatever")
    (other / "onnx").mkdir()
    told("config.json", hidden_dropout_prob=0.3)(other)
    found = fl.diff(base, other)
    assert found.not_compared == (
        "tokenizer (none beside the tuned model)",
        "onnx/",
        "steer\\x1b[2J.bin",
        "settings of training (hidden_dropout_prob)",
    )
    assert not found.changed and found.sentence.startswith("Nothing changed. Not compared: tokenizer (none beside")
    assert "\x1b" not in json.dumps(found.facts(), ensure_ascii=False)


def test_files_of_modules_and_unread_vocabularies_are_named(base, tmp_path):
    """A module's own files that no reader knows; the list of words beside the tokenizer.json that is read."""
    folders = [shutil.copytree(base, tmp_path / name) for name in ("one", "other")]
    for hidden, folder in zip((8, 16), folders, strict=True):
        write(folder / "modules.json", [*listed(), {"path": "3_LSTM", "type": "sentence_transformers.models.LSTM"}])
        write(folder / "3_LSTM" / "lstm_config.json", {"hidden_dim": hidden})
        write(folder / "3_LSTM" / "config.json", {})
        (folder / "3_LSTM" / "README.md").write_text(str(hidden))
        transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder)
        (folder / "vocab.txt").write_bytes((base / "vocab.txt").read_bytes())
    assert fl.diff(*folders).not_compared == ("3_LSTM/lstm_config.json",)
    words(exchanged)(folders[1])
    found = fl.diff(*folders)
    assert found.not_compared == ("vocab.txt (tokenizer.json was read)", "3_LSTM/lstm_config.json")
    assert found.sentence.startswith("Nothing changed. Not compared: vocab.txt (tokenizer.json was read); 3_LSTM/")


def pieces(kind, model, folder):
    """A RoBERTa beside a tokenizer that joins letters by rules, or picks pieces by their scores."""
    tiny.save(tiny.model("RoBERTa"), folder, tokenizer=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "i", "c", "e", "ic", "ice"]
    inside = {
        "BPE": lambda: tokenizers.models.BPE({piece: n for n, piece in enumerate(special)}, model, unk_token="<unk>"),
        "Unigram": lambda: tokenizers.models.Unigram([*zip(special, model, strict=True)], unk_id=3),
    }[kind]()
    made = tokenizers.Tokenizer(inside)
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "one", "other", "difference"),
    [
        ("BPE", [("i", "c"), ("ic", "e")], [("ic", "e"), ("i", "c")], "merges: 2 differ; there are 2 and 2"),
        ("BPE", [("i", "c"), ("ic", "e")], [("i", "c")], "merges: 1 differ; there are 2 and 1"),
        ("Unigram", [-1.0] * 9, [-1.0] * 8 + [-9.0], "scores: 1 differ; there are 9 and 9"),
    ],
)
def test_merges_and_scores(tmp_path, kind, one, other, difference):
    """The same pieces with the same numbers, put together in another way."""
    found = fl.diff(pieces(kind, one, tmp_path / "one"), pieces(kind, other, tmp_path / "other"))
    assert found.changed and f"Tokenizer: changed ({difference})" in found.sentence
    assert not fl.diff(tmp_path / "one", pieces(kind, one, tmp_path / "same")).changed


def test_names_and_settings_of_a_file_do_not_steer_a_terminal(base, tmp_path):
    other = shutil.copytree(base, tmp_path / "other")
    told("config.json", **{"id2label": {"0": "\x1b[31mred", "1": "good"}, "x\x1by": "\x9b2J" * 100})(other)
    weights(lambda t: t | {"bert.embed\x1b[2J.weight": torch.ones(3)})(other)
    found = fl.diff(base, other)
    assert not any(character in found.sentence for character in "\x1b\x9b")
    assert "\\x1b[31mred" in found.sentence and len(found.sentence) < 1500


@pytest.mark.parametrize("path", ["../outside", "/etc", "1_Pooling/../../up"])
def test_a_module_outside_the_folder_is_refused(base, tmp_path, path):
    other = shutil.copytree(base, tmp_path / "other")
    write(other / "modules.json", [{"path": path, "type": "Pooling"}])
    with pytest.raises(fl.errors.BadModel, match="which is outside the model"):
        fl.diff(base, other)


def test_added_words_and_longer_positions(tmp_path):
    """What both have is compared; new rows are counted, and the rows that moved most have their tokens."""
    folder = tiny.save(tiny.model("BERT"), tmp_path / "base")
    config = tiny.config("BERT")
    config.vocab_size, config.max_position_embeddings = 43, 96
    longer, short = tiny.model("BERT", settings=config), tiny.model("BERT").state_dict()
    with torch.no_grad():
        for name, tensor in longer.state_dict().items():
            tensor[: len(short[name])] = short[name]
        longer.embeddings.word_embeddings.weight[tiny.WORDS.index("ice") + 5] += 1.0
        longer.embeddings.word_embeddings.weight[tiny.WORDS.index("melts") + 5] += 0.3
    other = tiny.save(longer, tmp_path / "other")
    (other / "vocab.txt").write_text("\n".join([*tiny.SPECIAL, *tiny.WORDS, "glacier", "névé"]))
    found = fl.diff(folder, other, texts=tiny.TEXTS)
    assert set(found.layers["verdict"].to_pylist()) == {"unchanged"} and found.changed
    words_, positions = sorted(found.rows, key=lambda one: one["table"], reverse=True)
    assert (words_["rows_base"], words_["rows_tuned"], positions["rows_tuned"]) == (40, 43, 96)
    assert [one["token"] for one in words_["most"]] == ["ice", "melts"] and positions["most"] == []
    assert words_["most"][0]["change"] > 2 * words_["most"][1]["change"] > 0 and words_["median"] == 0
    assert "2 tokens only in the tuned model (glacier, névé)" in found.sentence
    assert "max_position_embeddings: 64 and 96; vocab_size: 40 and 43" in found.sentence


def test_every_turn_stands_beside_that_of_rounding():
    """Stored in bfloat16 weights are known to 2⁻⁹; that alone turns directions 2¹⁶ times further than float32's."""
    tuned = tiny.model("BERT")
    with torch.no_grad():
        for layer in tuned.encoder.layer:
            layer.attention.self.query.weight *= 1.0 + 0.1 * torch.randn(32, 32)
    fine = fl.diff(tiny.model("BERT"), tuned)
    coarse = fl.diff(tiny.model("BERT").bfloat16(), tuned)
    alone = [found.heads["angle_A_rounded"].to_numpy() for found in (fine, coarse)]
    assert (alone[0] > 0).all() and (alone[0] < 1e-3).all() and sorted(alone[1] / alone[0])[6] > 1000
    assert (
        "° in the median (rounding alone: " in fine.sentence
        and " heads lead in another way (rounding alone: " in fine.sentence
    )


def test_the_page_shows_what_the_text_measured(tmp_path):
    """And every part, what was not compared, and the rows that moved most; nothing of it where there is no text."""
    folder = tiny.save(tiny.model("BERT"), tmp_path / "base")
    tuned = tiny.model("BERT")
    with torch.no_grad():
        tuned.embeddings.word_embeddings.weight[5:] *= 1.5
    other = tiny.save(tuned, tmp_path / "<tuned>")
    found = fl.diff(folder, other, texts=tiny.TEXTS)
    page = found.save(tmp_path / "out").read_text()
    assert (
        "On the text" in page and f"{found.text['tokens']} tokens of 4 texts" in page and "At work on the text" in page
    )
    assert f"{found.text['tuned']['kappa']:.4g}" in page and (tmp_path / "out" / "figures" / "work.svg").exists()
    assert "Embedding rows that moved most" in page and "<tuned>" not in page and "task head" in page
    again = fl.diff(folder, other).save(tmp_path / "out").read_text()
    assert "On the text" not in again and not (tmp_path / "out" / "figures" / "work.svg").exists()


def test_texts_that_the_models_hardly_know_are_said_beside_what_they_measured(tmp_path):
    """As in an audit: refused from a half of unknown tokens on, said from a tenth on."""
    folder = tiny.save(tiny.model("BERT"), tmp_path / "base")
    with pytest.raises(fl.errors.BadText, match=r"30 of 40 tokens \(75 %\) are unknown"):
        fl.diff(folder, folder, texts=["ice quux quux quux"] * 10)
    found = fl.diff(folder, folder, texts=["ice melts in quux"] * 10)
    assert found.text["unread"].startswith("25 % of the tokens are unknown to the tokenizer: what follows")
    assert found.text["unread"] in found.save(tmp_path / "out").read_text()
    plain = fl.diff(folder, folder, texts=tiny.TEXTS)
    assert plain.text["unread"] == "" and "unknown to the tokenizer" not in plain.save(tmp_path / "out").read_text()


def test_ticks_of_one_layer_are_whole(tmp_path):
    config = tiny.config("BERT")
    config.num_hidden_layers = 1
    folder = tiny.save(tiny.model("BERT", settings=config), tmp_path / "base")
    fl.diff(folder, folder, texts=tiny.TEXTS).save(tmp_path / "out")
    drawn = (tmp_path / "out" / "figures" / "work.svg").read_text()
    ticks = [re.findall(r"<!-- (\S+) -->", axis) for axis in drawn.split('<g id="matplotlib.axis_')[1::2]]
    assert len(ticks) == 3 and all(numbers[0] == "0" and "layer" in numbers[1:] for numbers in ticks), ticks


def test_temperatures_of_a_model_of_zeros_have_no_factor(tmp_path):
    zeros = tiny.model("BERT")
    with torch.no_grad():
        for part in zeros.parameters():
            part.zero_()
    found = fl.diff(zeros, tiny.model("BERT"))
    assert found.sentence.startswith("Changed in every layer: β from 0, 12 of 12 heads lead")
