"""Audits that are opened: what heads see comes text by text, older ones open without it, broken ones are refused."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import frostline as fl
from frostline.auditing.scene_files import SCENES, SIGHTS
from frostline.exploring import saved_folders
from frostline.exploring.messages import unpack
from frostline.exploring.saved_folders import open_folder
from tests.exploring.conftest import exploring
from tests.exploring.small_audit import HEADS, LAYERS, write_audit


def test_what_heads_see_is_sent_text_by_text(tmp_path):
    kept = load_file(write_audit(tmp_path) / SIGHTS)
    with exploring(open_folder(tmp_path)) as client:
        about = client.get("/about").json()["opened"]
        assert [len(row) for row in about["heads"]] == [HEADS] * LAYERS and about["without"] == ""
        assert [one["kind"] for one in about["heads"][1]] == ["first", "cloud", "previous"]
        assert [one["explained"] for one in about["heads"][0]] == [0.95, -0.3, None]
        for text in range(2):
            ((facts, arrays),) = unpack(client.get(f"/opened/{text}").body)
            for name, array in zip(facts["names"], arrays, strict=True):
                assert array.dtype == np.float32 and (array == kept[f"{text}.{name}"]).all()
        assert client.get("/opened/2").status == client.get("/opened/-1").status == 404
        assert client.get("/opened/x").status in (404, 422)
        assert client.ask("HEAD", "/opened/0").status == 200


def test_an_older_audit_opens_and_says_how_to_make_it_again(tmp_path):
    opened = open_folder(write_audit(tmp_path, sights=False))
    assert opened.about["heads"] is None and "--keep-texts" in opened.about["without"]
    assert len(list(unpack(b"".join(opened.messages())))) == 2 and not opened.sights
    # Those of before had neither roles nor lengths.
    facts, scenes = json.loads((tmp_path / "audit.json").read_text()), json.loads((tmp_path / SCENES).read_text())
    del facts["heads"], scenes[0]["length"]
    (tmp_path / "audit.json").write_text(json.dumps(facts))
    (tmp_path / SCENES).write_text(json.dumps(scenes))
    ((first, _), _) = unpack(b"".join(open_folder(tmp_path).messages()))
    assert first["length"] == 6


def test_too_much_of_it_is_left_out(tmp_path, monkeypatch):
    write_audit(tmp_path)
    with open(tmp_path / SIGHTS, "r+b") as file:
        file.truncate(saved_folders.MOST_BYTES + 1)
    opened = open_folder(tmp_path)
    assert opened.about["heads"] is None and "64 MiB" in opened.about["without"]


def change(name, value):
    return lambda arrays: arrays | {name: value(arrays[name])}


def with_entry(value):
    def changed(array):
        array = array.copy()
        array.flat[-1] = value
        return array

    return changed


@pytest.mark.parametrize(
    "broken",
    [
        lambda arrays: {name: array for name, array in arrays.items() if name != "1.moved"},
        lambda arrays: {},
        change("0.law", lambda array: array[:1]),
        change("0.mean", lambda array: array.reshape(-1)),
        change("0.best", lambda array: array.astype(np.int16)),
        change("1.tilt", with_entry(np.nan)),
        change("1.covariance", with_entry(np.inf)),
        change("0.paid", with_entry(-0.5)),
        change("0.law", with_entry(1.5)),
        change("1.law", lambda array: array / 2),
        change("0.best", with_entry(0.5)),
        change("0.best", with_entry(-2)),
        change("0.best", with_entry(6)),
        change("0.freezing", with_entry(-1)),
        change("0.count", with_entry(-1)),
    ],
    ids=[f"broken {number}" for number in range(15)],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, broken):
    arrays = load_file(write_audit(tmp_path) / SIGHTS)
    save_file(broken(arrays), tmp_path / SIGHTS)
    with pytest.raises(fl.errors.BadRun, match="not a whole audit"):
        open_folder(tmp_path)


@pytest.mark.parametrize("blob", [b"", b"\0" * 8, b"\xff" * 100, b"{}", (10**15).to_bytes(8, "little")], ids=repr)
def test_files_that_are_no_arrays_are_refused(tmp_path, blob):
    (write_audit(tmp_path) / SIGHTS).write_bytes(blob)
    with pytest.raises(fl.errors.BadRun, match="not a whole audit"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    "heads",
    [
        None,
        [],
        [{"layer": 0, "head": 0, "role": "itself 1.000", "explained_bridge": 1.0}],
        [{"layer": 0, "head": 0}] * 6,
        [{"layer": at // 3, "head": at % 3, "role": "itself", "explained_bridge": float("nan")} for at in range(6)],
        [{"layer": at // 3, "head": at % 3, "role": "itself", "explained_bridge": "high"} for at in range(6)],
    ],
    ids=["null", "none", "one", "no role", "nan", "words"],
)
def test_tables_of_heads_that_do_not_fit_are_refused(tmp_path, heads):
    facts = json.loads((write_audit(tmp_path) / "audit.json").read_text())
    (tmp_path / "audit.json").write_text(json.dumps(facts | {"heads": heads}))
    with pytest.raises(fl.errors.BadRun, match="not a whole audit"):
        open_folder(tmp_path)


def test_words_from_outside_are_text(tmp_path):
    """Whatever a folder says comes as JSON; the page puts it in as text."""
    facts = json.loads((write_audit(tmp_path) / "audit.json").read_text())
    facts["heads"][0]["role"] = "<img src=x onerror=alert(1)>\ud800"
    (tmp_path / "audit.json").write_text(json.dumps(facts))
    first = open_folder(tmp_path).about["heads"][0][0]
    assert first == {"role": "<img src=x onerror=alert(1)>?", "kind": None, "explained": 0.95}
