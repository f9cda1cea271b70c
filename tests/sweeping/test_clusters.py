"""A real cluster on the loopback: workers, scheduler and clients die, and no run is lost or there twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frostline.errors import BadCluster
from frostline.sweeping.dataset import parts, read_table
from frostline.sweeping.driver import sweep
from tests.sweeping.machines import ROOT, free_port, kill_children, scheduler, started, wait_for, worker
from tests.sweeping.test_sweep import LONG, SMALL, rows, table

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


def client(tmp_path, port, name="sweep"):
    path = tmp_path / f"{name}.toml"
    path.write_text(LONG.format(out=tmp_path / "runs"))
    command = [sys.executable, "-m", "frostline", "sweep", str(path), "--quiet", "--cluster", f"tcp://127.0.0.1:{port}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def begun(out):
    return any(path.stat().st_size for path in out.glob("_journal*")) or parts(out)


def all_there_once(out):
    found = rows(out)
    assert len(found) == len({row["id"] for row in found}) == 24
    assert {row["status"] for row in found} == {"done"}


def ended(process):
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said


def test_a_worker_is_killed_mid_run(tmp_path):
    port = free_port()
    with scheduler(port), worker(port) as one, worker(port):
        asking = client(tmp_path, port)
        wait_for(lambda: begun(tmp_path / "runs"))
        # First the worker proper, which comes back; then the one that would bring it back.
        kill_children(one)
        os.killpg(one.pid, signal.SIGKILL)
        ended(asking)
    all_there_once(tmp_path / "runs")


def test_the_scheduler_is_restarted(tmp_path):
    port = free_port()
    with worker(port) as one:
        with scheduler(port):
            asking = client(tmp_path, port)
            wait_for(lambda: begun(tmp_path / "runs"))
        os.killpg(one.pid, signal.SIGKILL)
        with scheduler(port), worker(port):
            ended(asking)
    all_there_once(tmp_path / "runs")


def test_the_client_is_killed_and_another_goes_on(tmp_path):
    port = free_port()
    with scheduler(port), worker(port), worker(port):
        asking = client(tmp_path, port)
        wait_for(lambda: begun(tmp_path / "runs"))
        asking.kill()
        asking.communicate()
        ended(client(tmp_path, port))
    all_there_once(tmp_path / "runs")


def test_two_clients_at_once_and_workers_that_come_later(tmp_path):
    port = free_port()
    with scheduler(port):
        both = [client(tmp_path, port, name) for name in ("one", "two")]
        wait_for(lambda: len(list((tmp_path / "runs").glob("_journal*"))) == 2)
        with worker(port), worker(port):
            for asking in both:
                ended(asking)
    all_there_once(tmp_path / "runs")


def test_a_run_that_kills_its_workers_is_a_row(tmp_path):
    port = free_port()
    # Its tokens alone take more memory than a worker may have.
    spec = SMALL | {"dimension": 40, "B": "identity", "beta": 1.0, "until": 0.1}
    with scheduler(port), worker(port, "--memory-limit", "900MB"):
        asked = table(tmp_path / "runs", {"tokens": [20, 21, 2_000_000, 22, 23, 24]}, spec=spec)
        found = sweep(asked, cluster=f"tcp://127.0.0.1:{port}")
    # Dask blames what else the worker had; it is tried again, and done.
    assert (found.done, found.failed) == (5, 1)
    (row,) = [row for row in read_table(tmp_path / "runs").to_pylist() if row["status"] != "done"]
    assert row["status"] == "lost" and row["tokens"] == 2_000_000 and "memory" in row["error"]


def test_a_worker_of_another_version_is_named(tmp_path):
    port = free_port()
    # The same package with one more line of code; a comment would be no other version.
    import shutil

    shutil.copytree(os.path.join(ROOT, "src"), tmp_path / "src")
    with (tmp_path / "src" / "frostline" / "sphere.py").open("a") as file:
        file.write("\nCHANGED = True\n")
    with scheduler(port), worker(port, env=os.environ | {"PYTHONPATH": str(tmp_path / "src")}):
        asking = client(tmp_path, port)
        said = asking.communicate(timeout=120)[1]
    assert asking.returncode == 2 and "the worker on" in said and "and this client has" in said, said


def test_the_manifest_for_kubernetes_works_as_written_on_the_loopback(tmp_path):
    """Each container's command, with this machine in place of the service's name and folders of its volumes."""
    import yaml

    parts = list(yaml.safe_load_all(Path(ROOT, "deploy", "kubernetes", "sweep.yaml").read_text()))
    pods = [part["spec"]["template"] for part in parts if part["kind"] in ("Deployment", "Job")]
    commands = {pod["metadata"]["labels"]["part"]: pod["spec"]["containers"][0]["command"] for pod in pods}
    (service,) = [part for part in parts if part["kind"] == "Service"]
    assert any(pod["metadata"]["labels"] == service["spec"]["selector"] for pod in pods)
    (tmp_path / "sweep.toml").write_text(LONG.format(out="elsewhere"))
    port = free_port()
    here = {
        "0.0.0.0": "127.0.0.1",
        "8786": str(port),
        f"tcp://{service['metadata']['name']}:8786": f"tcp://127.0.0.1:{port}",
        "/spec/sweep.toml": str(tmp_path / "sweep.toml"),
        "/runs/dataset": str(tmp_path / "runs"),
    }
    scheduling, working, asking = (
        [here.get(word, word) for word in commands[part]] for part in ("scheduler", "worker", "client")
    )
    assert scheduling[0] == working[0] == "dask"
    with started("-m", *scheduling), started("-m", *working):
        done = subprocess.run([sys.executable, "-m", *asking], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    all_there_once(tmp_path / "runs")


def test_a_scheduler_that_is_gone_for_good_is_said_and_what_is_done_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("frostline.sweeping.dispatcher.PATIENCE", 3.0)
    port = free_port()
    (tmp_path / "sweep.toml").write_text(LONG.format(out=tmp_path / "runs"))
    with scheduler(port) as one, worker(port):

        def killing(progress):
            if progress.done:
                os.killpg(one.pid, signal.SIGKILL)

        with pytest.raises(BadCluster, match="went away and did not come back within 3 s") as told:
            sweep(tmp_path / "sweep.toml", cluster=f"tcp://127.0.0.1:{port}", progress=killing)
    kept = len(rows(tmp_path / "runs"))
    assert 0 < kept < 24 and f"{kept} of 24 runs are kept" in str(told.value)
