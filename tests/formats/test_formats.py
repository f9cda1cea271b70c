"""Files that frostline 0.1.0 wrote (committed, never made anew) still open, with the numbers they had."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import frostline as fl
from frostline import doctor
from frostline.cli import main
from frostline.serving.event_rows import Event
from frostline.serving.events import Events
from tests.tolerances import ROUNDING, SAME_TEXT

FILES = Path(__file__).parent / "0.1.0"


def printed(*words):
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_directory():
    run = fl.load_run(FILES / "run")
    summary = json.loads((FILES / "run" / "summary.json").read_text())
    assert run.times.tolist() == [0.0, 0.5, 1.0] and run.tokens.shape == (3, 12, 3)
    distances = [fl.wasserstein(tokens, fl.limit(run.layers[0])(run.initial)).value for tokens in run.tokens]
    np.testing.assert_allclose(distances, summary["distance_at_times"]["value"], rtol=ROUNDING)


def test_a_baseline_gives_the_scores_it_gave():
    base = fl.load_baseline(FILES / "enc.frost")
    before = json.loads((FILES / "scores.json").read_text())
    now = base.score(FILES / "model", texts=before["texts"])
    # In float32, on another processor perhaps.
    np.testing.assert_allclose(now.scores, before["scores"], rtol=SAME_TEXT)
    np.testing.assert_allclose(now.p_values, before["p_values"], rtol=1e-6)


def test_a_baseline_has_the_name_and_the_identity_it_always_had(tmp_path):
    """Events and metrics name a baseline by its identity: no later version may give the same file another one."""
    base = fl.load_baseline(FILES / "enc.frost")
    assert base.name == "model" and base.judges["full"].conformal.counts.tolist() == [120]
    assert base.identity == "0f44b2dc61196835c2ae08435f0a3fffd83113ae53dcc3cf6fc8e8e6da1696a6"
    assert fl.load_baseline(base.save(tmp_path / "again.frost")).identity == base.identity


def test_a_table_of_runs(tmp_path):
    shutil.copytree(FILES / "sweep", tmp_path / "sweep")
    printed("sweep", tmp_path / "sweep", "--export", tmp_path / "table.csv")
    table = (tmp_path / "table.csv").read_text().splitlines()
    assert len(table) == 5 and "witness" in table[1]
    printed("sweep", tmp_path / "sweep", "--plot", "x=beta", "y=seed", "color=w_last")
    assert list((tmp_path / "sweep").glob("_diagram*.html"))


def test_an_event_file(tmp_path):
    path = shutil.copy(FILES / "events.db", tmp_path / "events.db")
    events = [json.loads(line) for line in printed("events", path, "--json").splitlines()]
    assert [event["kind"] for event in events] == ["start", "strange", "alarm"]
    assert events[1]["text"] == "a text" and events[1]["replica"] == "one"


def test_a_service_goes_on_in_an_event_file(tmp_path):
    path = shutil.copy(FILES / "events.db", tmp_path / "events.db")
    before = [json.loads(line) for line in printed("events", path, "--json").splitlines()]
    with Events(path) as events:
        events.add([Event(kind="stop", texts=3, time=time.time())])
    *kept, stop = [json.loads(line) for line in printed("events", path, "--json").splitlines()]
    assert kept == before and stop["kind"] == "stop"


OPENED = {
    "run directories": [test_a_run_directory],
    "tables of sweeps": [test_a_table_of_runs],
    "baselines": [test_a_baseline_gives_the_scores_it_gave],
    "event files": [test_an_event_file, test_a_service_goes_on_in_an_event_file],
}
"""Kinds of files, and the tests above that open one."""


def test_the_doctor_says_which_old_files_open():
    assert set(doctor.FILES_OF_0_1) == set(OPENED)
