"""The command line as a user meets it: help, JSON, exit codes, sentences."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import frostline as fl
from frostline.cli import main

SPEC = """
tokens = 60
dimension = 3
beta = 20.0
B = [[1, 0, 0], [0, 0.5, 0], [0, 0, 0.2]]
until = 1.0
step = 0.1
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SPEC)

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


def test_every_command_has_help_with_an_example(call):
    listed = call("--help").stdout
    for command in ("theory", "simulate", "sweep", "reproduce", "audit", "diff", "baseline", "score"):
        assert command in listed
        help_text = call(command, "--help").stdout
        assert f"Example: frostline {command}" in help_text and "--json" in help_text


def test_version(call):
    import frostline

    assert call("--version").stdout.strip() == frostline.__version__


def test_simulate_writes_a_run_and_tells_where(call, tmp_path):
    done = call("simulate", "run.toml", "--quiet")
    assert done.exit_code == 0
    assert "Limit: points" in done.stdout and "Written: run/" in done.stdout
    assert (tmp_path / "run" / "tokens.png").stat().st_size > 10_000
    again = call("simulate", "run.toml", "--quiet")
    assert again.exit_code == 0 and "Already there" in again.stdout


def test_simulate_json_is_one_object_with_the_figures(call):
    answer = json.loads(call("simulate", "run.toml", "--json", "--quiet", "--beta", 50, "--out", "cold").stdout)
    assert answer["folder"] == "cold" and answer["status"] == "finished" and answer["already_there"] is False
    assert answer["distance"]["first"] > answer["distance"]["last"] > 0


def test_flags_override_the_spec(call):
    answer = json.loads(
        call("simulate", "run.toml", "--json", "-q", "--tokens", 7, "--until", 0.5, "--save-at", "0,0.25").stdout
    )
    assert answer["tokens"] == 7 and answer["times"] == [0, 0.25] and answer["until"] == 0.5


def test_an_early_end_is_exit_code_one(call, tmp_path):
    (tmp_path / "short.toml").write_text(SPEC + "max_steps = 2\n")
    done = call("simulate", "short.toml", "--quiet")
    assert done.exit_code == 1 and "step limit" in done.stdout


def test_theory_tells_the_limit_in_words_and_as_json(call):
    words = call("theory", "run.toml").stdout
    assert words.startswith("Tube (eq. 20)") and "never opens" in words
    assert "Limit: points" in words and "eigenvalues of A: 1, 0.5, 0.2" in words and "e^(−0.5 t)" in words
    facts = json.loads(call("theory", "run.toml", "--json").stdout)
    assert facts["layers"][0]["limit"]["gap"] == pytest.approx(0.5)
    assert facts["layers"][0]["tokens_without_limit"] == []
    cold = json.loads(call("theory", "run.toml", "--json", "--beta", "1e5").stdout)["layers"][0]["tube"]
    assert not cold["empty"] and cold["best"] == min(cold["values"]) < cold["initial"] and cold["growth"] == "proven"


def test_theory_covers_every_kind(call, tmp_path):
    for name, matrices, word in (
        ("rotation", 'B = "identity"\nV = [[0, -1, 0], [1, 0, 0], [0, 0, -1]]', "rotation"),
        ("defective", 'B = "identity"\nV = [[1, 1, 0], [0, 1, 0], [0, 0, 0]]', "defective"),
        ("subspace", 'B = "identity"\nV = [1.0, 1.0, 0.0]', "subspace"),
        ("kernel", "B = [1.0, 0.5, 0.0]\nV = [-1.0, -1.0, -1.0]", "ker Bᵀ"),
        ("heads", "[[heads]]\nB = [1.0, 0.5, 0.0]\n[[heads]]\nB = [0.5, 1.0, 0.0]", "numerical"),
        ("stack", "[[layers]]\nB = [1.0, 0.5, 0.0]\n[[layers]]\nB = [0.5, 1.0, 0.0]", "Layer 1"),
    ):
        (tmp_path / f"{name}.toml").write_text(f"tokens = 9\ndimension = 3\nbeta = 1.0\n{matrices}\n")
        done = call("theory", f"{name}.toml")
        assert done.exit_code == 0 and word in done.stdout, name
        json.loads(call("theory", f"{name}.toml", "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "none.toml"], "cannot read the spec"),
        (["simulate", "run.toml", "--beta", "-1"], "beta is -1"),
        (["simulate", "run.toml", "--beta", "nan"], "beta is nan"),
        (["simulate", "run.toml", "--save-at", "a,b"], "not a list of times"),
        (["simulate", "run.toml", "--save-at", "5"], "save_at"),
        (["simulate", "run.toml", "--stepper", "x"], "stepper"),
        (["simulate", "run.toml", "--step", "0"], "step is 0"),
        (["simulate", "run.toml", "--until", "0"], "until is 0"),
        (["simulate", "run.toml", "--tokens", "0"], "at least 1"),
        (["simulate", "run.toml", "--dimension", "1"], "dimension = 1"),
        (["simulate", "run.toml", "--device", "toaster"], "toaster"),
        (["simulate", "run.toml", "--out", "run.toml"], "not a frostline run directory"),
        (["theory", "none.toml"], "cannot read the spec"),
        (["theory", "run.toml", "--dimension", "4"], "dimension = 4"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_two(call, tmp_path, arguments, words):
    done = call(*arguments)
    assert done.exit_code == 2 and words in done.stderr and "Traceback" not in done.output
    as_json = call(*arguments, "--json")
    assert as_json.exit_code == 2 and words in json.loads(as_json.stdout)["error"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.toml"]


def test_progress_goes_to_stderr_only(tmp_path):
    (tmp_path / "run.toml").write_text(SPEC)
    command = [sys.executable, "-m", "frostline", "simulate", "run.toml", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["status"] == "finished"


def test_reproduce(call, tmp_path):
    """One quick claim, as JSON; a second call uses it."""
    first = call("reproduce", "zero-temperature-limit", "--out", "there", "--json", "--check")
    facts = json.loads(first.stdout)
    assert first.exit_code == 0 and facts["page"] == str(tmp_path / "there" / "index.html")
    assert [(row["name"], row["verdict"]) for row in facts["claims"]] == [("zero-temperature-limit", "holds")]
    assert (
        json.loads(call("reproduce", "--claim", "zero-temperature-limit", "--out", "there", "--json").stdout) == facts
    )


def test_a_claim_that_fails(call, monkeypatch):
    """--check turns it into exit code 1; without it the page and the sentence say so."""
    monkeypatch.setattr("frostline.experiments.claims.wasserstein_stability.TIMES", (0.0, 0.5, 2.0))
    real = fl.stability

    def longer(head, x, other, *, times):
        found = real(head, x, other, times=[3 * t for t in times])
        return dataclasses.replace(
            found, times=np.array(times), bound=found.bound[0] * np.exp(found.ell * np.array(times))
        )

    monkeypatch.setattr("frostline.experiments.claims.wasserstein_stability.stability", longer)
    failed = call("reproduce", "stability", "--out", "there", "--check")
    assert failed.exit_code == 1 and "FAILS" in failed.stdout and "asked" in failed.stdout
    assert call("reproduce", "stability", "--out", "there").exit_code == 0


def test_reproduce_lists_and_refuses(call):
    assert "zero-temperature-limit" in call("reproduce", "--list").stdout
    assert "theorem" in [row["name"] for row in json.loads(call("reproduce", "--list", "--json").stdout)["claims"]]
    wrong = call("reproduce", "theorems")
    assert wrong.exit_code == 2 and "there is no claim 'theorems'" in wrong.stderr
    assert call("reproduce", "--seed", "-1").exit_code == 2
