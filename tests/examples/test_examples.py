"""The worked examples, run as a reader would run them, on less."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import frostline as fl
from tests.encoders import tiny
from tests.monitoring.sentences import fresh, sentences

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *words):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=None,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_figure_over_tokens_and_temperatures(tmp_path):
    said = run("phase_diagram.py", tmp_path / "out", "--seeds", 1)
    assert "figure.png" in said and (tmp_path / "out" / "figure.svg").exists()
    middle = np.loadtxt(tmp_path / "out" / "figure.csv", delimiter=",")
    assert middle.shape == (3, 4) and np.isfinite(middle).any()


def test_an_audit_of_an_own_model(tmp_path):
    said = run("audit_own_model.py", tmp_path / "out", "--most", 24)
    assert "The adapter reproduces the model to" in said and (tmp_path / "out" / "index.html").exists()


def test_a_monitor_inside_a_web_program(tmp_path):
    model = tiny.save(tiny.model("BERT", spread=0.1), tmp_path / "model")
    fl.baseline(model, sentences(520, seed=0)).save(tmp_path / "enc.frost")
    program = runpy.run_path(str(EXAMPLES / "monitor_in_fastapi.py"))["program"]
    with TestClient(program(str(model), str(tmp_path / "enc.frost"))) as client:
        texts = [*fresh(2), "ice " * 40]
        answer = client.post("/embed", json={"texts": texts}).json()
        assert np.shape(answer["embeddings"]) == (3, tiny.config("BERT").hidden_size)
        assert answer["p_values"][2] < min(answer["p_values"][:2]) and answer["reasons"][2]
        alone = client.post("/embed", json={"texts": texts[2:]}).json()
        assert alone["p_values"] == pytest.approx(answer["p_values"][2:], abs=1e-3)
        assert client.get("/health").json() == {"alarm": False, "strange": 2}
        assert client.post("/embed", json={"texts": [""]}).status_code == 422
