"""Baselines of a tiny model: what they notice, what they promise, what they refuse; watching changes nothing."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import frostline as fl
from frostline.encoders.load import load
from frostline.encoders.tokenization import tokenize
from frostline.monitoring.baseline_file import load_baseline
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.reference_states import read_reference
from frostline.monitoring.watch import watch
from tests.encoders import tiny
from tests.monitoring.sentences import fresh, sentences
from tests.tolerances import SAME_TEXT


def test_fresh_text_is_normal_and_other_text_is_not(base, folder):
    """Of 300 fresh texts about 5 % have p ≤ 5 %: the number lies in a 99.9 % interval for 360 calibration texts."""
    normal = base.score(folder, texts=fresh(300)).p_values
    assert 0.005 < (normal <= 0.05).mean() < 0.12
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(tiny.WORDS, 12)) for _ in range(100)]
    strange = base.score(folder, texts=noise)
    assert np.median(strange.p_values) < 0.02
    named = [bool(reasons) for reasons, p in zip(strange.reasons, strange.p_values, strict=True) if p < 0.01]
    assert len(named) > 10 and all(named)
    assert set(strange.parts) == {"broken", "words", "foreign", "passage", "concentration"}


def test_scores_do_not_depend_on_batches(base, folder):
    texts = fresh(40)
    together = base.score(folder, texts=texts).scores
    alone = np.concatenate([base.score(folder, texts=[text]).scores for text in texts[:6]])
    assert np.allclose(together[:6], alone, atol=SAME_TEXT)


def test_a_file_gives_the_same_scores(base, frost, folder):
    again = load_baseline(frost)
    texts = fresh(30)
    one, other = base.score(folder, texts=texts), again.score(folder, texts=texts)
    assert np.array_equal(one.scores, other.scores) and np.array_equal(one.p_values, other.p_values)
    assert again.about["texts"] == 900 and fl.load_baseline(frost).about == again.about


def test_a_model_in_training_gives_the_same_scores(base, live, folder):
    model = copy.deepcopy(live[0]).train()
    texts = fresh(5)
    found = base.score(model, texts, tokenizer=live[1])
    assert model.training and np.allclose(found.scores, base.score(folder, texts=texts).scores, atol=1e-4)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "0 different texts"),
        (["the same text"] * 1000, "1 different texts of 1000"),
        (sentences(100, seed=0), "at least 500"),
        ("one string", "give a list"),
        (["fine", "half \ud800 a character"], "text 1 holds half a character"),
        ((text for text in ["one", "two"]), "2 different texts"),
    ],
)
def test_texts_that_are_no_reference(folder, texts, words):
    with pytest.raises(fl.errors.BadText, match=words):
        fl.baseline(folder, texts=texts)


def change(frost, tmp_path, *, header=None, tensors=None):
    """A copy of the file with its header or its tensors changed."""
    found = load_file(frost)
    told = json.loads(open_header(frost))
    changed = tmp_path / "changed.frost"
    save_file({**found, **(tensors or {})}, changed, {"frostline": json.dumps(told | (header or {}))})
    return changed


def open_header(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["frostline"]


def test_files_that_are_no_baseline(frost, tmp_path):
    cases = {
        "there is no file": tmp_path / "nothing.frost",
        "newer frostline": change(frost, tmp_path, header={"version": 99}),
    }
    for words, path in cases.items():
        with pytest.raises(fl.errors.BadBaseline, match=words):
            load_baseline(path)
    with pytest.raises(fl.errors.BadBaseline, match="checksum"):
        load_baseline(change(frost, tmp_path, tensors={"full.centre": torch.zeros(3)}))
    with pytest.raises(fl.errors.BadBaseline, match="checksum"):
        load_baseline(change(frost, tmp_path, header={"texts": 1}))
    cut = tmp_path / "cut.frost"
    cut.write_bytes(frost.read_bytes()[:-100])
    with pytest.raises(fl.errors.BadBaseline, match="not a whole baseline"):
        load_baseline(cut)
    save_file({"a": torch.zeros(2)}, tmp_path / "foreign.frost")
    with pytest.raises(fl.errors.BadBaseline, match="not a baseline of frostline"):
        load_baseline(tmp_path / "foreign.frost")


def test_another_model_or_tokenizer(base, folder, live, tmp_path):
    other = tiny.save(tiny.model("BERT", seed=5), tmp_path / "other")
    with pytest.raises(fl.errors.BadBaseline, match="other weights"):
        base.score(other, texts=fresh(3))
    with pytest.raises(fl.errors.BadBaseline, match="RoBERTa"):
        watch(tiny.model("RoBERTa"), base)
    (tmp_path / "words").mkdir()
    words = tiny.SPECIAL + tiny.WORDS[::-1]
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(words))
    import transformers

    changed = transformers.BertTokenizer(str(tmp_path / "words" / "vocab.txt"))
    with pytest.raises(fl.errors.BadBaseline, match="tokenizer is not the one"):
        base.score(live[0], fresh(3), tokenizer=changed)


def test_models_of_other_families_can_be_watched(tmp_path):
    """A shared layer (ALBERT) and a pre-norm model: as many states as there are clouds."""
    for family in ("ALBERT", "ModernBERT", "DistilBERT"):
        made = tiny.save(tiny.model(family, spread=0.1), tmp_path / family)
        found = fl.baseline(made, texts=sentences(520, seed=2))
        assert np.isfinite(found.score(made, texts=fresh(5)).scores).all()


def test_a_file_whose_parts_do_not_fit_is_refused(base, tmp_path):
    """Whole and with the right checksum, but not what this version writes."""
    full = base.judges["full"]
    wrong = {
        "codes has shape": replace(full, detector=replace(full.detector, codes=full.detector.codes[:, :-1])),
        "clouds": replace(full, clouds=(0, 7)),
    }
    for words, judge in wrong.items():
        path = replace(base, judges={**base.judges, "full": judge}).save(tmp_path / "wrong.frost")
        with pytest.raises(fl.errors.BadBaseline, match=words):
            load_baseline(path)


def test_the_order_of_the_texts_does_not_matter(base, folder):
    again = fl.baseline(folder, texts=sentences(900, seed=0)[::-1])
    texts = fresh(10)
    assert np.array_equal(again.score(folder, texts=texts).scores, base.score(folder, texts=texts).scores)


def test_shards_merge_into_the_baseline_of_all_their_texts(base, folder, tmp_path):
    texts = sentences(1000, seed=0)
    shards = [fl.baseline(folder, texts=own, keep_texts=True) for own in (texts[:550], texts[450:])]
    files = [shard.save(tmp_path / f"{number}.frost") for number, shard in enumerate(shards)]
    merged = fl.merge(folder, [load_baseline(file) for file in files], name="all of them")
    whole = fl.baseline(folder, texts=texts, name="all of them")
    assert (
        merged.name == "all of them" and merged.about == whole.about and len(merged.texts) == 1000 and not whole.texts
    )
    some = fresh(10)
    assert np.array_equal(merged.score(folder, texts=some).scores, whole.score(folder, texts=some).scores)
    with pytest.raises(fl.errors.BadBaseline, match="did not keep its texts"):
        fl.merge(folder, [shards[0], base])
    with pytest.raises(fl.errors.BadBaseline, match="two or more"):
        fl.merge(folder, shards[:1])


def test_expected_concentration_is_that_of_the_reference(base, folder):
    """Resultant lengths of fresh texts are as expected in the mean, to 2 %; a word said many times concentrates."""
    found = base.score(folder, texts=fresh(200))
    assert found.observed.shape == found.expected.shape == (200, len(base.judges["full"].clouds))
    assert np.allclose(found.observed.mean(0), found.expected.mean(0), rtol=0.02)
    again = base.score(folder, texts=["ice " * 20, "water " * 30])
    assert (again.observed[:, -1] > again.expected[:, -1]).all()


def test_p_values_of_fresh_texts_are_uniform(base, live):
    """Scores of 1,200 fresh texts, resplit 50 times in calibration and test: Kolmogorov's distance to uniform is below
    its 99.99 % quantile for the sizes at hand in every split (false failure below 1 %; seeds are fixed)."""
    found = read_reference(
        load(live[0]),
        live[0],
        tokenized(live, fresh(1200)),
        {"full": base.judges["full"].clouds},
        probes={"full": base.judges["full"].detector.probes},
    ).profiles["full"]
    scores, lengths = base.judges["full"].detector.score(found), found.lengths
    for seed in range(50):
        order = torch.from_numpy(np.random.default_rng(seed).permutation(1200))
        one, two = order[:800], order[800:]
        p = np.sort(
            Conformal.fit(scores[one].numpy(), lengths[one].numpy()).p_values(scores[two], lengths[two]).numpy()
        )
        apart = np.abs(p - (np.arange(400) + 0.5) / 400).max()
        # Of a sample against another: 1/√m for 400 tests and 4 groups of 200, of which each counts for a quarter.
        assert apart < 2.2 * np.sqrt(1 / 400 + 1 / 800) + 1 / 200


def tokenized(live, texts):
    return tokenize(load(live[0]), live[1], texts)


def test_texts_that_are_hard_to_read(base, folder):
    """Ten megabytes, one token, other scripts: a score; none at all: a sentence."""
    found = base.score(folder, texts=["ice " * 2_500_000, "ice", "水冰", "\u200b ice"])
    assert np.isfinite(found.scores).all() and (found.p_values > 0).all()
    with pytest.raises(fl.errors.BadText, match="text 1 first"):
        base.score(folder, texts=["ice", "  "])
    with pytest.raises(fl.errors.BadText, match="give a list"):
        base.score(folder, texts="ice")


def test_the_identity_of_a_baseline(base, frost, folder, tmp_path):
    """The same whoever opens the file and saves it again; another for every other baseline of the model."""
    again = load_baseline(frost)
    assert again.identity == base.identity and len(base.identity) == 64
    assert load_baseline(again.save(tmp_path / "copy.frost")).identity == base.identity
    full = base.judges["full"]
    table = full.conformal.table.clone()
    table[0, 0] -= 1
    moved = replace(full, conformal=replace(full.conformal, table=table))
    kinds = ("other", *full.detector.directions.kinds[1:])
    renamed = replace(full.detector, directions=replace(full.detector.directions, kinds=kinds))
    others = [
        replace(base, judges={**base.judges, "full": moved}),
        replace(base, judges={**base.judges, "full": replace(full, detector=renamed)}),
        replace(base, about={**base.about, "name": "another"}),
        replace(base, about={**base.about, "seed": 1}),
        replace(base, texts=("one text",)),
    ]
    identities = {other.identity for other in others}
    assert len(identities) == len(others) and base.identity not in identities


def test_the_name_of_a_baseline(base, folder, tmp_path):
    """The last part of the model's name, or the one it was given, which its file keeps."""
    assert base.name == folder.name and f"Its name is {folder.name}" in base.describe()
    given = replace(base, about={**base.about, "name": "shop reviews"})
    again = load_baseline(given.save(tmp_path / "given.frost"))
    assert again.name == again.facts()["name"] == "shop reviews" and again.identity == given.identity
    assert again.identity[:12] in again.describe() and again.facts()["identity"] == again.identity
    assert replace(base, about={**base.about, "model": ""}).name == "baseline"
    assert replace(base, about={**base.about, "model": "\x1b[31m" + "x" * 500}).name.isprintable()
    for name in ("", "a\nb", "x" * 101, "\x1b[31m"):
        with pytest.raises(fl.errors.BadParameter, match="1 to 100 printable characters"):
            fl.baseline(folder, fresh(3), name=name)
        with pytest.raises(fl.errors.BadParameter, match="1 to 100 printable characters"):
            fl.merge(folder, [base, base], name=name)
