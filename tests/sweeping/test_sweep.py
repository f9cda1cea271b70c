"""Sweeps on processes of this machine: each run once, failures kept, interrupted and gone on with."""

import subprocess
import sys
import time

import pytest

import frostline as fl
from frostline.errors import BadCluster, BadParameter
from frostline.recording import record
from frostline.sweeping import plan as plans
from frostline.sweeping import work as working
from frostline.sweeping.dataset import parts, read_table
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.running import standing, sweep
from tests.encoders import tiny
from tests.monitoring import conftest as monitoring
from tests.sweeping.machines import ROOT, wait_for

pytest.importorskip("distributed")
base, folder, frost = monitoring.base, monitoring.folder, monitoring.frost
SMALL = {"tokens": 40, "dimension": 2, "B": [1.0, 0.5], "until": 3.0, "step": 0.1}
VARIES = ("seconds", "started", "host")


def table(out, axes, command="simulate", spec=SMALL, **more):
    return {"command": command, "out": str(out), "spec": spec, "axes": axes, **more}


def rows(out):
    found = read_table(out).to_pylist()
    return sorted([{k: v for k, v in row.items() if k not in VARIES} for row in found], key=lambda row: row["id"])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep") / "runs"
    return out, sweep(table(out, {"beta": [1, 10, 100, -1], "seed": "0..2"}), workers=2)


def test_every_run_is_there_once_and_failures_have_their_errors(swept):
    out, found = swept
    assert (found.total, found.done, found.failed, found.left, found.fresh) == (12, 9, 3, 0, 12)
    here = rows(out)
    assert len({row["id"] for row in here}) == 12
    failed = [row for row in here if row["status"] == "failed"]
    assert {row["beta"] for row in failed} == {-1.0} and all("beta" in row["error"] for row in failed)
    assert {row["threads"] for row in here} == {1}


def test_rows_are_what_the_command_says(swept, tmp_path):
    out, _ = swept
    (mine,) = [row for row in rows(out) if row["beta"] == 100 and row["seed"] == 1]
    spec = fl.spec.parse(SMALL | {"beta": 100.0, "seed": 1})
    summary = record(spec, out=tmp_path / "run").summary
    assert mine["w_last"] == summary["distance"]["last"] and mine["steps"] == summary["steps"]
    assert mine["limit"] == summary["limit"]["kind"] and mine["off_cluster"] == summary["off_cluster"]
    plateau = summary["phases"]["plateau"]
    assert mine["plateau"] == (plateau["end"] - plateau["begin"] if plateau["seen"] else None)


def test_one_worker_gives_the_same_rows(swept, tmp_path):
    out, _ = swept
    sweep(table(tmp_path / "one", {"beta": [1, 10, 100, -1], "seed": "0..2"}), workers=1)
    assert rows(tmp_path / "one") == rows(out)


def test_what_is_there_is_not_run_again(swept, monkeypatch):
    out, _ = swept
    monkeypatch.setattr("frostline.sweeping.running.connected", None)
    again = sweep(table(out, {"beta": [100, 10], "seed": "1..2"}))
    assert (again.total, again.done, again.fresh) == (4, 4, 0)


def test_failed_runs_are_run_again_when_asked(tmp_path):
    spec = SMALL | {"tokens": {"distribution": "file", "path": str(tmp_path / "x.npy")}}
    asked = table(tmp_path / "runs", {"beta": [5.0]}, spec=spec)
    import numpy as np

    np.save(tmp_path / "x.npy", np.eye(2)[:, :1])
    assert sweep(asked, workers=1).failed == 1
    assert sweep(asked, workers=1).fresh == 0
    assert sweep(asked, workers=1, again=True).fresh == 1
    assert len(rows(tmp_path / "runs")) == 1


def test_arrays_are_kept_on_request(tmp_path):
    from safetensors.numpy import load_file

    spec = SMALL | {"beta": 10.0, "save_at": [0.0, 3.0]}
    sweep(table(tmp_path / "runs", {"seed": [3]}, spec=spec, arrays=True), workers=1)
    (row,) = rows(tmp_path / "runs")
    arrays = load_file(tmp_path / "runs" / "_arrays" / f"{row['id']}.safetensors")
    spec = fl.spec.parse(spec | {"seed": 3})
    head = fl.Attention.from_matrices([[1.0, 0], [0, 0.5]], [[1.0, 0], [0, 1.0]], beta=10.0)
    x0, _ = fl.spec.build_tokens(spec)
    run = fl.simulate(head, x0, until=3.0, stepper=fl.Euler(0.1))
    assert arrays["tokens"][-1] == pytest.approx(run.tokens[-1], abs=1e-12)


def test_a_budget_of_time_leaves_the_rest(tmp_path):
    spec = SMALL | {"tokens": 1500, "dimension": 3, "B": [1.0, 0.5, 0.2], "beta": 10.0}
    asked = table(tmp_path / "runs", {"seed": "0..99"}, spec=spec, budget={"minutes": 0.03})
    found = sweep(asked, workers=1)
    assert 0 < found.left < 100 and "call again" in found.stopped and found.done == len(rows(tmp_path / "runs"))
    assert standing(plans.parse(asked)).left == found.left


def test_kinds_of_work(tmp_path):
    model = str(tiny.save(tiny.model("BERT"), tmp_path / "model"))
    (tmp_path / "texts.txt").write_text("the ice melts\nwater\nthe frost line moves\n")
    text = str(tmp_path / "texts.txt")
    asked = {
        "theory": (SMALL | {"beta": 100.0}, {"beta": [10.0, 100.0]}),
        "distance": (SMALL | {"beta": 100.0, "save_at": [0.0, 1.0, 3.0]}, {"seed": "0..1"}),
        "reproduce": ({"size": "test"}, {"claim": ["zero-temperature-limit"]}),
        "audit": ({"model": model, "text": text, "perturbations": False}, {"seed": [0, 1]}),
        "diff": ({"base": model}, {"tuned": [model]}),
    }
    for command, (spec, axes) in asked.items():
        # In this process: how they travel is tested above.
        plan = plans.parse(table(tmp_path / command, axes, command, spec))
        for run in plan.runs():
            ((row, _),) = working.work(command, working.code_version(), [(run.id, run.table)], arrays=False, threads=1)
            assert row["status"] == "done", row["error"]
            assert set(row) >= set(KINDS[command].measures)
    assert row["changed"] is False


def test_a_score_is_that_of_the_baseline(tmp_path, base, folder, frost):
    texts = ["the ice melts", "water water", "the frost line moves below the cloud"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    spec = {"baseline": str(frost), "model": str(folder), "text": str(tmp_path / "texts.txt")}
    plan = plans.parse(table(tmp_path / "runs", {}, "score", spec))
    (run,) = plan.runs()
    ((row, _),) = working.work("score", working.code_version(), [(run.id, run.table)], arrays=False, threads=1)
    assert row["status"] == "done", row["error"]
    assert row["p_values"] == pytest.approx(base.score(str(folder), texts=texts).p_values.tolist())


def test_unreachable_scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr("frostline.sweeping.cluster.CONNECT_SECONDS", 1.0)
    with pytest.raises(BadCluster, match=r"no scheduler answers at tcp://127.0.0.1:9 within 1 s"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster="tcp://127.0.0.1:9")
    with pytest.raises(BadCluster, match="no scheduler answers at nonsense"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster="nonsense")
    with pytest.raises(BadParameter, match="not both"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster="tcp://127.0.0.1:9", workers=2)


def test_another_version_on_a_worker_is_named():
    with pytest.raises(BadCluster, match=r"has frostline .*, and this client has 0\.0\+other"):
        working.work("theory", "0.0+other", [], arrays=False, threads=1)


LONG = """
command = "simulate"
out = "{out}"
[spec]
tokens = 1200
dimension = 3
B = [1.0, 0.5, 0.2]
beta = 10.0
until = 5.0
step = 0.1
[axes]
seed = "0..23"
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL"])
def test_interrupted_and_called_again(tmp_path, how):
    out = tmp_path / "runs"
    (tmp_path / "sweep.toml").write_text(LONG.format(out=out))
    command = [sys.executable, "-m", "frostline", "sweep", str(tmp_path / "sweep.toml"), "--quiet", "--workers", "1"]
    client = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any(path.stat().st_size for path in out.glob("_journal*")) or parts(out))
    import signal

    client.send_signal(getattr(signal, how))
    _, said = client.communicate(timeout=60)
    if how == "SIGINT":
        assert client.returncode == 130 and "Traceback" not in said, said
        assert len(rows(out)) > 0 and not list(out.glob("_journal*"))
    else:
        time.sleep(1)
    kept = rows(out)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert len(found) == len({row["id"] for row in found}) == 24
    assert all(row in found for row in kept)
