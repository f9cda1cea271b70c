"""Sweeps on processes of this machine: each run once, failures kept, interrupted and gone on with."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest

import frostline as fl
from frostline.errors import BadCluster, BadParameter, BadSpec
from frostline.runs import schema as specs
from frostline.runs.build import build_tokens
from frostline.runs.record import record
from frostline.sweeping import plan as plans
from frostline.sweeping import worker as working
from frostline.sweeping.dataset import parts, read_table
from frostline.sweeping.dispatcher import batch_size
from frostline.sweeping.driver import standing, sweep
from frostline.sweeping.kinds import KINDS
from tests.encoders import tiny
from tests.monitoring import conftest as monitoring
from tests.sweeping.machines import ROOT, wait_for
from tests.tolerances import ROUNDING

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
    spec = specs.parse(SMALL | {"beta": 100.0, "seed": 1})
    summary = record(spec, out=tmp_path / "run").summary
    assert mine["w_last"] == summary["distance"]["last"] and mine["steps"] == summary["steps"]
    assert mine["limit"] == summary["limit"]["kind"] and mine["off_cluster"] == summary["off_cluster"]
    plateau = summary["phases"]["plateau"]
    assert mine["plateau_open"] == plateau.get("open") and mine["plateau"] == (
        plateau["end"] - plateau["begin"] if plateau["seen"] else None
    )


def test_one_worker_gives_the_same_rows(swept, tmp_path, monkeypatch):
    out, _ = swept
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    sweep(table(tmp_path / "one", {"beta": [1, 10, 100, -1], "seed": "0..2"}), workers=1)
    assert rows(tmp_path / "one") == rows(out)
    # Dask sets the threads of its workers in this process, and would leave them so.
    assert "OMP_NUM_THREADS" not in os.environ


def test_what_is_there_is_not_run_again(swept, monkeypatch):
    out, _ = swept
    monkeypatch.setattr("frostline.sweeping.dispatcher.connected", None)
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
    spec = specs.parse(spec | {"seed": 3})
    head = fl.Attention.from_matrices([[1.0, 0], [0, 0.5]], [[1.0, 0], [0, 1.0]], beta=10.0)
    x0, _ = build_tokens(spec)
    run = fl.simulate(head, x0, until=3.0, stepper=fl.Euler(0.1))
    assert arrays["tokens"][-1] == pytest.approx(run.tokens[-1], abs=ROUNDING)


def test_arrays_that_are_asked_for_later_are_made_and_no_row_is_there_twice(tmp_path):
    spec = SMALL | {"beta": 10.0}
    first = sweep(table(tmp_path / "runs", {"seed": "0..2"}, spec=spec), workers=1)
    before = rows(tmp_path / "runs")
    asked = table(tmp_path / "runs", {"seed": "1..2"}, spec=spec, arrays=True)
    later = sweep(asked, workers=1)
    assert (first.fresh, later.fresh, later.done) == (3, 2, 2) and rows(tmp_path / "runs") == before
    assert {path.stem for path in (tmp_path / "runs" / "_arrays").iterdir()} == plans.parse(asked).ids()
    assert sweep(asked, workers=1).fresh == 0


def test_ctrl_c_keeps_what_is_done(tmp_path):
    asked = table(tmp_path / "runs", {"beta": [1.0, 10.0], "seed": "0..9"})

    def interrupting(progress):
        if progress.done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(asked, workers=1, progress=interrupting)
    kept = rows(tmp_path / "runs")
    assert 3 <= len(kept) < 20 and standing(plans.parse(asked)).left == 20 - len(kept)
    found = sweep(asked, workers=1)
    assert (found.done, found.fresh) == (20, 20 - len(kept)) and all(row in rows(tmp_path / "runs") for row in kept)


def test_a_sweep_shows_its_own_rows_and_shares_a_dataset(tmp_path):
    one = sweep(table(tmp_path / "runs", {"beta": [1.0, -1.0]}), workers=1)
    two = sweep(table(tmp_path / "runs", {"beta": [1.0, 2.0]}), workers=1)
    assert (one.failed, two.done, two.fresh) == (1, 2, 1) and len(read_table(tmp_path / "runs")) == 3
    assert sorted(two.table["beta"].to_pylist()) == [1.0, 2.0] and len(one.table) == 2
    # Failed runs of the other sweep are not this one's business.
    assert sweep(table(tmp_path / "runs", {"beta": [1.0, 2.0]}), workers=1, again=True).fresh == 0
    assert len(read_table(tmp_path / "runs")) == 3


def test_a_file_that_changed_meanwhile_makes_no_result(tmp_path):
    """A result goes by the contents of the files; workers make sure that they see the same ones."""
    import numpy as np

    np.save(tmp_path / "x.npy", np.eye(2))
    spec = SMALL | {"beta": 5.0, "tokens": {"distribution": "file", "path": str(tmp_path / "x.npy")}}
    (run,) = plans.parse(table(tmp_path / "runs", {}, spec=spec)).runs()
    assert worked("simulate", run)["status"] == "done"
    np.save(tmp_path / "x.npy", -np.eye(2))
    row = worked("simulate", run)
    assert row["status"] == "failed" and "not the same" in row["error"]
    (tmp_path / "x.npy").unlink()
    assert worked("simulate", run)["status"] == "failed"


def test_paths_are_relative_to_where_the_client_is(tmp_path, monkeypatch):
    import numpy as np

    np.save(tmp_path / "x.npy", np.eye(2))
    monkeypatch.chdir(tmp_path)
    spec = SMALL | {"beta": 5.0, "tokens": {"distribution": "file", "path": "x.npy"}}
    (run,) = plans.parse(table("runs", {}, spec=spec)).runs()
    monkeypatch.chdir("/")
    assert worked("simulate", run, folder=str(tmp_path))["status"] == "done"
    assert worked("simulate", run, folder="/")["status"] == "failed"
    assert worked("simulate", run, folder="/not/on/this/machine")["status"] == "failed"


def test_a_budget_of_time_leaves_the_rest(tmp_path):
    spec = SMALL | {"tokens": 1500, "dimension": 3, "B": [1.0, 0.5, 0.2], "beta": 10.0}
    asked = table(tmp_path / "runs", {"seed": "0..99"}, spec=spec, budget={"minutes": 0.03})
    found = sweep(asked, workers=1)
    assert 0 < found.left < 100 and "call again" in found.stopped and found.done == len(rows(tmp_path / "runs"))
    assert standing(plans.parse(asked)).left == found.left


def worked(command, run, folder="."):
    options = {"arrays": False, "threads": 1, "folder": folder}
    ((row, _),) = working.work(command, working.code_version(), [(run.id, run.table)], **options)
    return row


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
            row = worked(command, run)
            assert row["status"] == "done", row["error"]
            assert set(row) >= set(KINDS[command].measures)
    assert row["changed"] is False


def test_a_score_is_that_of_the_baseline(tmp_path, base, folder, frost):
    texts = ["the ice melts", "water water", "the frost line moves below the cloud"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    spec = {"baseline": str(frost), "model": str(folder), "text": str(tmp_path / "texts.txt")}
    plan = plans.parse(table(tmp_path / "runs", {}, "score", spec))
    (run,) = plan.runs()
    row = worked("score", run)
    assert row["status"] == "done", row["error"]
    assert row["p_values"] == pytest.approx(base.score(str(folder), texts=texts).p_values.tolist())


def test_times_between_false_alarms_become_texts(tmp_path, frost, folder):
    """A column of numbers, whether a number, a time, or nothing was given; others are refused before any run."""
    (tmp_path / "texts.txt").write_text("the ice melts")
    spec = {"baseline": str(frost), "model": str(folder), "text": str(tmp_path / "texts.txt")}
    axes = {"false_alarm_every": [5000, "1h", "2d"], "rate": [1.0, 2.0]}
    plan = plans.parse(table(tmp_path / "runs", axes, "score", spec))
    rows = [worked("score", run) for run in plan.runs()]
    assert [row["false_alarm_every"] for row in rows] == [5000, 5000, 3600, 7200, 172_800, 345_600]
    assert all(row["status"] == "done" and row["alarm_at"] is None for row in rows)
    (run,) = plans.parse(table(tmp_path / "runs", {}, "score", spec)).runs()
    assert worked("score", run)["false_alarm_every"] == 30 * 86_400 * 10
    with pytest.raises(fl.errors.BadParameter, match="30d, 12h or 2w"):
        plans.parse(table(tmp_path / "runs", {"false_alarm_every": ["1y"]}, "score", spec))


@pytest.mark.parametrize(("seconds", "workers", "size"), [(10.0, 2, 1), (0.1, 2, 3), (0.1, 1000, 50), (0.0, 2, 200)])
def test_short_runs_travel_together(seconds, workers, size):
    """However many workers there are, the scheduler is not asked for more than it can do."""
    assert batch_size(seconds, workers) == size


def test_unreachable_scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr("frostline.sweeping.cluster.CONNECT_SECONDS", 1.0)
    with pytest.raises(BadCluster, match=r"no scheduler answers at tcp://127.0.0.1:9 within 1 s"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster="tcp://127.0.0.1:9")
    with pytest.raises(BadCluster, match="no scheduler answers at nonsense"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster="nonsense")
    with pytest.raises(BadParameter, match="not both"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster="tcp://127.0.0.1:9", workers=2)


def test_a_port_where_nobody_answers(tmp_path, monkeypatch):
    """It takes connections, and that is all: a client of Dask's own would wait for minutes."""
    monkeypatch.setattr("frostline.sweeping.cluster.CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf, pytest.raises(BadCluster, match="within 1 s"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), cluster=f"tcp://127.0.0.1:{deaf.getsockname()[1]}")


@pytest.mark.parametrize("options", [{"workers": 0}, {"threads": -1}], ids=str)
def test_arguments_that_make_no_sense(tmp_path, options):
    with pytest.raises(BadParameter, match="at least 1"):
        sweep(table(tmp_path / "runs", {"beta": [1]}), **options)


def test_files_that_are_not_there_are_said_before_any_run(tmp_path):
    spec = {"baseline": str(tmp_path / "none.frost"), "model": "some/model"}
    with pytest.raises(BadSpec, match=r"cannot read .*none\.frost"):
        sweep(table(tmp_path / "runs", {"text": ["sample"]}, "score", spec), workers=1)
    spec["baseline"] = "/dev/zero"
    with pytest.raises(BadSpec, match="neither a file nor a folder"):
        sweep(table(tmp_path / "runs", {"text": ["sample"]}, "score", spec), workers=1)


def test_how_far_it_is_with_arrays(tmp_path):
    asked = table(tmp_path / "runs", {"beta": [1.0, 2.0]})
    sweep(asked, workers=1)
    assert standing(plans.parse(asked)).left == 0 and standing(plans.parse(asked | {"arrays": True})).left == 2


@pytest.mark.slow
def test_a_script_without_a_main_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    asked = table(tmp_path / "runs", {"beta": [1.0]})
    script.write_text(f"import frostline as fl\nfl.sweep({asked!r}, workers=1)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and 'if __name__ == "__main__":' in done.stderr.splitlines()[-1], done.stderr


def test_another_version_on_a_worker_is_named():
    with pytest.raises(BadCluster, match=r"has frostline .*, and this client has 0\.0\+other"):
        working.work("theory", "0.0+other", [], arrays=False, threads=1, folder=".")


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


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path):
    """A limit on file size stands in for a full disk: the journal cannot grow any more."""
    out = tmp_path / "runs"
    text = f'command = "theory"\nout = "{out}"\nspec = {{tokens = 9, dimension = 2, B = [1.0, 0.5], beta = 9.0}}\n'
    (tmp_path / "sweep.toml").write_text(text + 'axes = {seed = "0..99"}')
    command = [sys.executable, "-m", "frostline", "sweep", str(tmp_path / "sweep.toml"), "--workers", "1", "--json"]
    limit = (30_000, 30_000)
    full = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert full.returncode == 2 and "disk is full" in full.stderr and "Traceback" not in full.stderr, full.stderr
    told = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert told["done"] == 100 and 0 < told["fresh"] < 100
    assert len({row["id"] for row in rows(out)}) == len(rows(out)) == 100


@pytest.mark.slow
@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-C twice", "kill -9"])
def test_interrupted_and_called_again(tmp_path, how):
    """A terminal sends Ctrl-C to the workers as well; nobody but the client may speak."""
    out = tmp_path / "runs"
    (tmp_path / "sweep.toml").write_text(LONG.format(out=out))
    command = [sys.executable, "-m", "frostline", "sweep", str(tmp_path / "sweep.toml"), "--workers", "1"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    client = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **quiet)
    wait_for(lambda: any(path.stat().st_size for path in out.glob("_journal*")) or parts(out))
    if how == "kill -9":
        client.kill()
    else:
        for _ in how.split():
            os.killpg(client.pid, signal.SIGINT)
            time.sleep(0.3)
    _, said = client.communicate(timeout=60)
    if how != "kill -9":
        assert client.returncode == 130 and len(said.splitlines()) == 1, said
        assert len(rows(out)) > 0 and not list(out.glob("_journal*"))
    wait_for(lambda: not members(client.pid), what="processes are left over")
    kept = rows(out)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert len(found) == len({row["id"] for row in found}) == 24
    assert all(row in found for row in kept)


def members(group):
    """Processes of a group that are alive."""
    import psutil

    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
