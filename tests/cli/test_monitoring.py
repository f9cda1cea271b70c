"""frostline baseline and frostline score."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from frostline.cli import main
from frostline.monitoring import baseline_plan
from tests.encoders import tiny
from tests.monitoring.sentences import sentences


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    tiny.save(tiny.model("BERT", spread=0.1), place / "model")
    (place / "normal.txt").write_text("\n".join(sentences(700, seed=0)))
    (place / "fresh.txt").write_text("\n".join(sentences(60, seed=9)))
    rng = np.random.default_rng(0)
    (place / "noise.txt").write_text("\n".join(" ".join(rng.choice(tiny.WORDS, 12)) for _ in range(60)))
    words = ("--text", place / "normal.txt", "-o", place / "enc.frost", "--name", "small talk", "--quiet")
    made = call("baseline", place / "model", *words)
    assert made.exit_code == 0 and "small talk" in made.output, made.output
    return place


def call(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_inspecting_a_baseline(place):
    said = " ".join(call("baseline", place / "enc.frost", "--inspect").output.split())
    assert "BERT, 3 layers, d = 32" in said and "700 texts" in said
    about = json.loads(call("baseline", place / "enc.frost", "--inspect", "--json").stdout)
    assert about["texts"] == 700 and about["version"] == 4 and about["calibrated_by"] == [280]
    assert about["name"] == "small talk" and len(about["identity"]) == 64 and about["identity"][:12] in said


def test_planning_a_baseline(place, monkeypatch):
    """No model is needed; a baseline that is there is planned with its own groups."""
    monkeypatch.setattr(baseline_plan, "LONGEST_DELAY", 500)
    said = call("baseline", "--plan", "600", "3000", "--alpha", "0.003", "--false-alarm-every", "1d", "--rate", "2")
    lines = said.output.splitlines()
    assert said.exit_code == 0 and [line.split()[0] for line in lines[:3]] == ["texts", "600", "3,000"]
    assert "never" in lines[1] and "once in 172,800 normal" in " ".join(said.output.split())
    facts = json.loads(call("baseline", "--plan", place / "enc.frost", "--json").stdout)
    assert facts["every"] == 30 * 86400 * 10 and facts["baselines"][0]["calibrated_by"] == [280]
    default = json.loads(call("baseline", "--plan", "--false-alarm-every", "10", "--json").stdout)
    assert [row["texts"] for row in default["baselines"]][:3] == [500, 1000, 2000]


def test_scoring(place):
    common = ("score", place / "enc.frost", "--model", place / "model", "--text")
    fine = call(*common, place / "fresh.txt", "--check")
    assert fine.exit_code == 0 and "the alarm does not ring" in " ".join(fine.output.split())
    strange = call(*common, place / "noise.txt", "--check")
    assert strange.exit_code == 1 and "the alarm rings" in " ".join(strange.output.split())
    assert "STRANGE" in strange.output
    facts = json.loads(call(*common, place / "noise.txt", "--json").stdout)
    assert len(facts["texts"]) == 60 and facts["alarm"] and 0 < facts["texts"][0]["p_value"] <= 1


def test_the_alarm_of_a_score_is_set_in_texts_or_in_time(place):
    """One in 1,000 texts rings sooner than one in a month at a million texts per second; the same, said in two ways."""
    common = ("score", place / "enc.frost", "--model", place / "model", "--text", place / "noise.txt", "--json")

    def rang(*words):
        return json.loads(call(*common, *words).stdout)["alarm"]

    often = rang("--false-alarm-every", "1000")
    assert (
        often == rang("--false-alarm-every", "10s", "--rate", "100")
        and often[0] < rang("--false-alarm-every", "1e8")[0]
    )
    assert rang() == rang("--false-alarm-every", "25920000") == rang("--false-alarm-every", "30d", "--rate", "10")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("baseline", "{}/model"), "give --text FILE"),
        (("baseline", "{}/model", "--text", "{}/fresh.txt"), "at least 500"),
        (("baseline", "{}/model", "--text", "{}/normal.txt", "-o", "{}/no/where.frost"), "cannot be written"),
        (("score", "{}/normal.txt", "--model", "{}/model", "--text", "{}/fresh.txt"), "not a whole baseline"),
        (("score", "{}/enc.frost", "--model", "{}/model", "--text", "{}/nothing.txt"), "there is no file"),
        (("score", "{}/enc.frost", "--model", "{}", "--text", "{}/fresh.txt"), "config.json"),
        (
            ("score", "{}/enc.frost", "--model", "{}/model", "--text", "{}/fresh.txt", "--alpha", "0.0035"),
            "go down to 0.0036 only",
        ),
        (("score", "{}/enc.frost", "--model", "{}/model", "--text", "{}/fresh.txt", "--alpha", "0"), "alpha is 0"),
        (("score", "{}/enc.frost", "--model", "{}", "--text", "{}", "--false-alarm-every", "30x"), "30d, 12h or 2w"),
        (("baseline",), "0 models are given"),
        (("baseline", "{}/model", "1000"), "numbers of texts go with --plan"),
        (("baseline", "--plan", "1000", "many"), "--plan many"),
        (("baseline", "--plan", "499"), "500 to 20,000"),
        (("baseline", "{}/model", "--text", "{}/normal.txt", "--name", ""), "1 to 100 printable"),
        (
            ("score", "{}/enc.frost", "--model", "{}/model", "--text", "{}/fresh.txt", "--false-alarm-every", "1y"),
            "30d, 12h or 2w",
        ),
        (
            ("score", "{}/enc.frost", "--model", "{}/model", "--text", "{}/fresh.txt", "--rate", "0"),
            "texts per second",
        ),
    ],
)
def test_bad_input_is_a_sentence(place, words, said):
    found = call(*(word.format(place) for word in words))
    assert found.exit_code == 2 and said in " ".join(found.output.split()), found.output
