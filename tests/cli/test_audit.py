"""frostline audit and diff as a user meets them."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from frostline.cli import main
from tests.encoders import tiny


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    tiny.save(tiny.model("BERT"), root / "base")
    tiny.save(tiny.model("BERT", seed=1), root / "other")
    tiny.save(tiny.model("BERT", settings=tiny.literate()), root / "literate", letters=True)
    (root / "texts.txt").write_text("\n".join(tiny.TEXTS * 2))
    return root


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(one) for one in arguments])


def test_audit_writes_a_folder_and_tells_where(call, models, tmp_path):
    done = call("audit", models / "base", "--text", models / "texts.txt", "--quiet")
    assert done.exit_code == 0, done.output
    assert "Extraction: rebuilt from the extracted matrices" in " ".join(done.stdout.split())
    assert "audit/index.html" in done.stdout
    names = {path.name for path in (tmp_path / "audit").iterdir()}
    assert names >= {"index.html", "audit.json", "model_card.md", "heads.parquet", "heads.csv", "figures"}
    again = call("audit", models / "base", "--quiet")
    assert again.exit_code == 0 and "Not looked at, or not folded in: everything that needs text" in " ".join(
        again.stdout.split()
    )


def test_audit_json(call, models):
    answer = json.loads(
        call("audit", models / "literate", "--text", "sample", "--max-texts", 5, "--no-perturbations", "--json").stdout
    )
    assert answer["provenance"]["texts"] == 5 and answer["provenance"]["text"] == "sample"
    assert len(answer["heads"]) == 12 and answer["page"].endswith("/audit/index.html")
    assert answer["proof"]["logits"] < 1e-5 and "worst_growth" not in answer["metrics"]


def test_text_that_the_model_cannot_read_is_refused(call, models, tmp_path):
    done = call("audit", models / "base", "--text", "sample", "--quiet")
    assert done.exit_code == 2 and "are unknown to the tokenizer" in done.output and "Traceback" not in done.output
    assert not (tmp_path / "audit").exists()


def test_thresholds_decide_the_exit_code(call, models, tmp_path):
    limits = tmp_path / "limits.toml"
    limits.write_text("[beta_max]\nmax = 1\n")
    done = call("audit", models / "base", "--thresholds", limits, "--quiet")
    assert done.exit_code == 1 and "BROKEN beta_max is" in done.stdout
    limits.write_text("[beta_max]\nmin = 1\n")
    assert call("audit", models / "base", "--thresholds", limits, "--quiet").exit_code == 0
    limits.write_text("[beta_maxx]\nmin = 1\n")
    done = call("audit", models / "base", "--thresholds", limits, "--quiet")
    assert done.exit_code == 2 and "has no number 'beta_maxx'" in done.output
    # A number that needs text is refused before the work, not after it.
    limits.write_text("[worst_growth]\nmax = 9\n")
    done = call("audit", models / "base", "--thresholds", limits, "--out", "other", "--quiet")
    assert done.exit_code == 2 and not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere/at/all"], "there is no folder nowhere/at/all"),
        (["{}/base", "--text", "missing.txt"], "there is no file missing.txt"),
        (["{}/base", "--out", "{}/texts.txt"], "is a file; --out names a folder"),
        (["{}/base", "--out", "{}"], "holds other things than an audit"),
        (["{}/base", "--thresholds", "none.toml"], "cannot read the thresholds 'none.toml': No such file"),
    ],
)
def test_bad_input_is_a_sentence(call, models, arguments, words):
    done = call("audit", *(one.format(models) for one in arguments), "--quiet")
    assert done.exit_code == 2 and words in done.output and "Traceback" not in done.output


def test_diff(call, models):
    done = call("diff", models / "base", models / "other", "--quiet")
    assert done.exit_code == 0 and done.stdout.count("CHANGED") == 3 and "diff/index.html" in done.stdout
    assert call("diff", models / "base", models / "other", "--check", "--quiet").exit_code == 1
    same = json.loads(call("diff", models / "base", models / "base", "--check", "--json").stdout)
    assert [row["verdict"] for row in same["layers"]] == ["unchanged"] * 3


def test_diff_over_training(call, models, tmp_path):
    for step in (1, 20):
        tiny.save(tiny.model("BERT", seed=step), tmp_path / "training" / f"checkpoint-{step}")
    answer = json.loads(call("diff", models / "base", tmp_path / "training", "--json").stdout)
    assert sorted({row["step"] for row in answer["steps"]}) == [1, 20]
    assert (tmp_path / "diff" / "figures" / "steps.svg").exists()
    assert answer["other_models"] == []
    # Ticks of maps are layers and heads: whole numbers.
    ticks = re.findall(r"<!-- (\S+) -->", (tmp_path / "diff" / "figures" / "heads.svg").read_text())
    assert "2" in ticks and not {"−0.5", "0.5", "1.5"} & set(ticks)


def test_models_that_were_not_compared_are_named(call, models, tmp_path):
    for name in ("checkpoint-1", "best_model", "checkpoint-last"):
        tiny.save(tiny.model("BERT"), tmp_path / "training" / name)
    done = call("diff", models / "base", tmp_path / "training", "--quiet")
    words = "whose names end in no number: best_model, checkpoint-last."
    assert done.exit_code == 0 and words in " ".join(done.stdout.split())
    answer = json.loads(call("diff", models / "base", tmp_path / "training", "--json").stdout)
    assert "best_model" in answer["other_models"][0]
    # What the comparison itself left out stands beside it.
    written = json.loads((tmp_path / "diff" / "diff.json").read_text())
    assert answer["not_compared"] == written["not_compared"]


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(models, tmp_path, signal_):
    """Nothing half-written is left under the name of an audit."""
    asked = ["audit", models / "literate", "--text", "sample", "--out", tmp_path / "a"]
    command = [sys.executable, "-m", "frostline", *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # Once torch is there the command itself is at work, however slow the machine.
        while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal_)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in told and "Traceback" not in told
    assert not (tmp_path / "a" / "index.html").exists()
