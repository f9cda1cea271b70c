"""doctor, on installations that are broken: it says what is, and nothing that is private."""

import json
import os
import subprocess
import sys

import pytest

from tests.pages import ROOT


def examined(tmp_path, module, text, *options):
    (tmp_path / f"{module}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    command = [sys.executable, "-m", "frostline", "doctor", "--quiet", *options]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)


@pytest.mark.parametrize(
    "text", ["raise ImportError('no libmine.so in /home/alice/lib')", "raise SystemExit('broken')"]
)
def test_a_broken_torch_is_told(tmp_path, text):
    done = examined(tmp_path, "torch", text, "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 1 and not told["well"] and "alice" not in done.stdout + done.stderr
    (engine,) = [trial for trial in told["trials"] if trial["name"] == "engine dense"]
    assert engine["works"] is False and engine["says"].startswith(("ImportError: no libmine.so", "SystemExit"))


def test_words_of_others_are_not_passed_on(tmp_path):
    text = "raise RuntimeError('password=hunter2 at db.internal:5432 for bob@host in /home/bob/x y \\x1b[31m')"
    done = examined(tmp_path, "transformers", text)
    assert done.returncode == 1 and "FAILS  encoders: RuntimeError" in done.stdout
    for word in ("hunter2", "db.internal", "bob", "host", "\x1b"):
        assert word not in done.stdout


def test_a_terminal_without_greek_is_served(tmp_path):
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-m", "frostline", "theory", str(ROOT / "examples" / "two_clusters.toml")]
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=os.environ | plain, capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr and b"two antipodal points" in done.stdout


def test_stderr_may_be_closed():
    command = f"{sys.executable} -m frostline doctor 2>&-"
    done = subprocess.run(command, shell=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True)
    assert done.returncode == 0 and b"engine dense" in done.stdout
