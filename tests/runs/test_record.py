"""Run directories: whole or not at all, resumed after kill -9 with the same bytes, refused when damaged."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import frostline as fl
from frostline.dynamics.walking import Step
from frostline.errors import BadRun, BadSpec
from frostline.runs import directory as store
from frostline.runs import schema as specs
from frostline.runs.build import build_heads, build_tokens
from frostline.runs.record import record
from tests.tolerances import ROUNDING

PLAIN = {"tokens": 60, "dimension": 3, "beta": 20.0, "B": [1.0, 0.5, 0.2], "until": 2.0, "step": 0.1}
FILES = {"arrays.safetensors", "distance.png", "distance.svg", "provenance.json", "spec.toml", "summary.json"} | {
    "tokens.png",
    "tokens.svg",
}


def spec(out, **changes):
    return specs.parse(PLAIN | {"out": str(out)} | changes)


def command(out, *flags):
    """`frostline simulate` in a process of its own, slow enough to be killed: many small steps."""
    table = PLAIN | {"tokens": 400, "until": 4.0, "step": 0.002, "save_at": [0, 1, 2, 3, 4], "out": str(out)}
    path = out.parent / "spec.toml"
    import tomli_w

    path.write_text(tomli_w.dumps(table))
    return [sys.executable, "-m", "frostline", "simulate", str(path), "--quiet", "--json", *flags]


def content(folder, *, without=("provenance.json", "spec.toml")):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name not in without}


def test_a_run_directory_is_whole_and_loads_as_the_run_it_was(tmp_path):
    done = record(spec(tmp_path / "run", save_at=[0, 1, 2]))
    assert {path.name for path in done.folder.iterdir()} == FILES
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    loaded = fl.load_run(done.folder)
    x0, _ = build_tokens(spec("x"))
    fresh = fl.simulate(build_heads(spec("x")), x0, until=2.0, stepper=fl.Euler(0.1), save_at=[0, 1, 2])
    assert np.array_equal(loaded.tokens, fresh.tokens) and np.array_equal(loaded.initial, x0)
    assert loaded.status == "finished" and loaded.steps == 20 and loaded.times.tolist() == [0, 1, 2]
    assert loaded.layers[0][0].beta == 20.0


def test_the_same_spec_gives_the_same_bytes(tmp_path):
    one, two = (record(spec(tmp_path / name)).folder for name in ("a", "b"))
    assert content(one) == content(two)


def test_a_finished_run_is_not_run_again(tmp_path):
    record(spec(tmp_path / "run"))
    stamp = (tmp_path / "run" / "summary.json").stat().st_mtime_ns
    again = record(spec(tmp_path / "run"))
    assert not again.fresh and (tmp_path / "run" / "summary.json").stat().st_mtime_ns == stamp
    assert again.summary["status"] == "finished"


def test_another_spec_is_refused_without_force(tmp_path):
    record(spec(tmp_path / "run"))
    before = content(tmp_path / "run", without=())
    with pytest.raises(BadRun, match=r"holds a run of another spec.*--force"):
        record(spec(tmp_path / "run", beta=30.0))
    assert content(tmp_path / "run", without=()) == before
    record(spec(tmp_path / "run", beta=30.0), force=True)
    assert fl.load_run(tmp_path / "run").layers[0][0].beta == 30.0
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    for force in (False, True):
        with pytest.raises(BadRun, match="not a frostline run directory"):
            record(spec(tmp_path / "thesis"), force=force)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


@pytest.mark.parametrize("kind", ["weights", "no limit", "stack", "heads", "float32", "d2", "d5", "rk4", "adaptive"])
def test_every_kind_of_run_is_recorded(tmp_path, kind):
    head = {"B": [1.0, 0.5, 0.2]}
    changes = {
        "weights": {"tokens": {"count": 60, "distribution": "nodes"}},
        "no limit": {"B": "identity", "V": [[0, -1, 0], [1, 0, 0], [0, 0, -1]]},
        "stack": {"layers": [head, head], "B": None},
        "heads": {"heads": [head, head | {"key_bias": [0.1, 0, 0]}], "B": None},
        "float32": {"dtype": "float32"},
        "d2": {"dimension": 2, "B": [1.0, 0.5]},
        "d5": {"dimension": 5, "B": [1.0, 1.0, 0.2, 0.1, 0.0]},
        "rk4": {"stepper": "rk4"},
        "adaptive": {"step": None, "tolerance": 1e-7},
    }[kind]
    table = {
        key: value for key, value in (PLAIN | {"out": str(tmp_path / "run")} | changes).items() if value is not None
    }
    done = record(specs.parse(table))
    distance = done.summary["distance"]
    assert (distance["none_because"] is None) == (kind not in ("no limit", "stack"))
    loaded = fl.load_run(done.folder)
    assert (loaded.weights is not None) == (kind == "weights")
    assert loaded.tokens.dtype == (np.float32 if kind == "float32" else np.float64)
    if distance["none_because"] is None:
        assert 0 <= distance["smallest"] <= distance["first"] <= 2


def test_tokens_without_a_limit_are_counted_and_left_out(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    tokens = {"distribution": "file", "path": str(tmp_path / "x.npy")}
    summary = record(spec(tmp_path / "run", tokens=tokens)).summary
    assert summary["tokens_without_limit"] == 2 and summary["distance"]["first"] == pytest.approx(0, abs=ROUNDING)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("the run never got there")


@pytest.mark.parametrize("kills", [1, 3])
def test_kill_minus_nine_and_resume_ends_with_the_same_bytes(tmp_path, kills, monkeypatch):
    whole = tmp_path / "whole"
    subprocess.run(command(whole), check=True, capture_output=True)
    cut = tmp_path / "cut"
    checkpoint = tmp_path / ".cut.partial" / "checkpoint.safetensors"
    monkeypatch.setenv("FROSTLINE_CHECKPOINT_SECONDS", "0.05")
    for _ in range(kills):
        stamp = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = subprocess.Popen(command(cut), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda stamp=stamp: checkpoint.exists() and checkpoint.stat().st_mtime_ns != stamp)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not cut.exists() and checkpoint.exists()
    done = subprocess.run(command(cut), check=True, capture_output=True)
    assert json.loads(done.stdout)["resumed_at_step"] > 0
    assert content(cut) == content(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut", "spec.toml", "whole"]


def test_control_c_keeps_the_work_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSTLINE_CHECKPOINT_SECONDS", "0.05")
    out = tmp_path / "run"
    process = subprocess.Popen(command(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for((tmp_path / ".run.partial" / "checkpoint.safetensors").exists)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in stderr and "Traceback" not in stderr
    assert "error" in json.loads(stdout)
    again = subprocess.run(command(out), check=True, capture_output=True)
    assert json.loads(again.stdout)["resumed_at_step"] > 0


def test_a_run_directory_needs_no_other_file(tmp_path):
    np.save(tmp_path / "B.npy", np.diag([1.0, 0.5, 0.2]))
    done = record(spec(tmp_path / "run", B=str(tmp_path / "B.npy")))
    np.save(tmp_path / "B.npy", -np.eye(3))
    assert np.array_equal(fl.load_run(done.folder).layers[0][0].B, np.diag([1.0, 0.5, 0.2]))
    (tmp_path / "B.npy").unlink()
    assert np.array_equal(fl.load_run(done.folder).layers[0][0].B, np.diag([1.0, 0.5, 0.2]))


def test_looking_does_not_change_the_steps_of_a_stack(tmp_path):
    layers = [{"B": [1.0, 0.5, 0.2 * k]} for k in range(7)]
    table = {key: value for key, value in PLAIN.items() if key not in ("B", "step")}
    done = record(specs.parse(table | {"layers": layers, "stepper": "euler", "out": str(tmp_path / "run")}))
    assert done.summary["steps"] == 7


def test_a_damaged_run_is_run_again(tmp_path):
    record(spec(tmp_path / "run"))
    (tmp_path / "run" / "arrays.safetensors").write_bytes(b"gone")
    assert record(spec(tmp_path / "run")).fresh and fl.load_run(tmp_path / "run").status == "finished"


def test_float32_runs_draw_themselves_again(tmp_path):
    done = record(spec(tmp_path / "run", dtype="float32"))
    assert len(fl.plot.tokens(fl.load_run(done.folder))) == 5


def test_two_processes_do_not_write_the_same_run(tmp_path):
    with (
        store.Partial(tmp_path / "run", specs.identity(spec("run")), force=False),
        pytest.raises(BadRun, match="another process"),
    ):
        record(spec(tmp_path / "run"))


def test_an_unfinished_run_of_another_spec_is_not_mixed_in(tmp_path):
    with store.Partial(tmp_path / "run", "somebody else's", force=False) as partial:
        partial.checkpoint(Step(3, 0.3, 2.0, torch.eye(3), (), 0.1, 3), [])
    with pytest.raises(BadRun, match="unfinished run of another spec"):
        record(spec(tmp_path / "run"))
    assert record(spec(tmp_path / "run"), force=True).summary["status"] == "finished"


def test_a_damaged_checkpoint_only_costs_time(tmp_path):
    whole = record(spec(tmp_path / "whole")).folder
    folder = tmp_path / ".run.partial"
    with store.Partial(tmp_path / "run", specs.identity(spec("run")), force=False):
        (folder / "checkpoint.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{half a hea")
    done = record(spec(tmp_path / "run"))
    assert done.resumed == 0 and content(done.folder) == content(whole)


@pytest.mark.parametrize("what", ["tokens", "steps", "frame", "curve", "metadata", "shape", "folder"])
def test_a_checkpoint_that_was_tampered_with_only_costs_time(tmp_path, what):
    """Valid safetensors with other numbers in them: the checksum does not fit, so the run starts again."""
    whole = record(spec(tmp_path / "whole")).folder
    goal, place = spec(tmp_path / "run"), tmp_path / ".run.partial" / "checkpoint.safetensors"

    def report(progress):
        if progress.step.startswith("step 11,"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(goal, progress=report)
    blob = place.read_bytes()
    arrays, numbers = load(blob), store._metadata(blob)
    if what == "tokens":
        arrays["tokens"] = arrays["tokens"] * 7
    elif what == "steps":
        numbers["steps"] = "10000"
    elif what == "curve":
        arrays["curve"] = torch.zeros(0)
    elif what == "shape":
        arrays["tokens"] = arrays["tokens"][:3].float()
    frame = tmp_path / ".run.partial" / "frames" / "000000.safetensors"
    if what == "frame":
        frame.write_bytes(save({"tokens": torch.zeros(60, 3)}))
    if what == "folder":
        frame.unlink()
        frame.mkdir()
    place.write_bytes(save(arrays, metadata=None if what == "metadata" else numbers))
    if what == "folder":
        frame.rmdir()
    done = record(goal)
    assert done.resumed == 0 and content(done.folder) == content(whole)


def test_what_appears_at_the_goal_meanwhile_is_not_replaced(tmp_path):
    def report(progress):
        if progress.step.startswith("step 5,"):
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "thesis.txt").write_text("precious")

    with pytest.raises(BadRun, match="not a frostline run directory"):
        record(spec(tmp_path / "run"), progress=report)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "precious"


def test_leftovers_of_a_crash_while_tidying_up_do_no_harm(tmp_path):
    record(spec(tmp_path / "run"))
    shutil.copytree(tmp_path / "run", tmp_path / ".run.old")
    (tmp_path / ".run.old" / "provenance.json").unlink()
    record(spec(tmp_path / "run", beta=30.0), force=True)
    assert fl.load_run(tmp_path / "run").layers[0][0].beta == 30.0
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_link_is_not_replaced_by_a_folder(tmp_path):
    record(spec(tmp_path / "real"))
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with pytest.raises(BadRun, match="symbolic link"):
        record(spec(tmp_path / "run", beta=3.0), force=True)


def test_a_crash_between_the_two_renames_is_undone(tmp_path):
    record(spec(tmp_path / "run"))
    before = content(tmp_path / "run", without=())
    os.rename(tmp_path / "run", tmp_path / ".run.old")
    assert fl.load_run(tmp_path / "run").status == "finished"
    assert content(tmp_path / "run", without=()) == before and not (tmp_path / ".run.old").exists()


@pytest.mark.parametrize("at", ["final", "publish"])
def test_a_crash_while_replacing_leaves_the_old_run(tmp_path, at, monkeypatch):
    record(spec(tmp_path / "run"))
    before = content(tmp_path / "run", without=())

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.Partial, {"final": "finish", "publish": "publish"}[at], crash)
    with pytest.raises(KeyboardInterrupt):
        record(spec(tmp_path / "run", beta=99.0), force=True)
    assert content(tmp_path / "run", without=()) == before


def test_a_full_disk_is_told_and_the_old_run_untouched(tmp_path):
    """A limit on file size stands in for a full disk: writing fails half way, as it would there."""
    out = tmp_path / "run"
    subprocess.run(command(out), check=True, capture_output=True)
    before = content(out, without=())
    failed = subprocess.run(
        command(out, "--beta", "77", "--force"),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    assert failed.returncode == 2 and "disk is full" in failed.stderr and "Traceback" not in failed.stderr
    assert content(out, without=()) == before
    subprocess.run(command(out, "--beta", "77", "--force"), check=True, capture_output=True)
    assert fl.load_run(out).layers[0][0].beta == 77.0


class TestDamage:
    @pytest.fixture
    def run(self, tmp_path):
        return record(spec(tmp_path / "run")).folder

    @pytest.mark.parametrize("name", ["arrays.safetensors", "summary.json", "provenance.json", "spec.toml"])
    def test_missing_and_truncated_files(self, run, name):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises((BadRun, BadSpec), match="truncated"):
            fl.load_run(run)
        (run / name).unlink()
        with pytest.raises((BadRun, BadSpec), match="No such file"):
            fl.load_run(run)

    def test_one_flipped_bit(self, run):
        blob = bytearray((run / "arrays.safetensors").read_bytes())
        blob[-5] ^= 1
        (run / "arrays.safetensors").write_bytes(blob)
        with pytest.raises(BadRun, match="checksum"):
            fl.load_run(run)

    def test_not_a_run_at_all(self, tmp_path):
        with pytest.raises(BadRun, match="no such folder"):
            fl.load_run(tmp_path / "nothing")
        (tmp_path / "empty").mkdir()
        with pytest.raises(BadRun, match="not a whole run directory"):
            fl.load_run(tmp_path / "empty")


def test_an_early_end_is_recorded_with_its_status(tmp_path):
    done = record(spec(tmp_path / "run", max_steps=3, save_at=[0, 0.2, 2]))
    assert done.summary["status"] == "step limit"
    assert fl.load_run(done.folder).times.tolist() == [0, 0.2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"until": None}, "no until"),
        ({"tokens": 10**13}, "GiB"),
        ({"device": "toaster"}, "toaster"),
        ({"out": "no/such/place/run"}, "does not exist"),
    ],
)
def test_bad_specs_get_a_sentence(tmp_path, changes, words):
    table = {k: v for k, v in (PLAIN | {"out": str(tmp_path / "run")} | changes).items() if v is not None}
    with pytest.raises(BadSpec, match=words):
        record(specs.parse(table))
    assert not list(tmp_path.iterdir())


def test_the_partial_folder_is_gone_or_resumable_never_half(tmp_path):
    """After any exception in the middle, the same call goes on and ends as if nothing had happened."""
    whole = record(spec(tmp_path / "whole")).folder

    class Crash(Exception):
        pass

    def report(progress):
        if progress.step.startswith("step 11,"):
            raise Crash

    with pytest.raises(Crash):
        record(spec(tmp_path / "run"), progress=report)
    assert content(record(spec(tmp_path / "run")).folder) == content(whole)
    shutil.rmtree(whole)
