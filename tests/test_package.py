"""The wheel in environments of its own: what each extra promises works, and nothing that it does not bring is used.

An environment is a fresh one with exactly the packages that the metadata asks for, linked from where the tests run: no
network, and seconds instead of minutes.
"""

import importlib.metadata as metadata
import json
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from packaging.requirements import Requirement

from tests.encoders import tiny
from tests.monitoring.sentences import fresh, sentences

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
# Loops are compiled anew in each environment.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (found,) = out.glob("*.whl")
    return found


def closure(requirements):
    """Every distribution that these requirements bring, by its normalised name; None for those that are not here."""
    found, waiting = {}, list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        key = (name, tuple(sorted(requirement.extras)))
        if key in found:
            continue
        try:
            found[key] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found[key] = None
            continue
        for line in found[key].requires or ():
            own = Requirement(line)
            wanted = [{"extra": extra} for extra in (*requirement.extras, "")]
            if own.marker is None or any(own.marker.evaluate(one) for one in wanted):
                waiting.append(str(own).partition(";")[0])
    return {name: own for (name, _), own in found.items()}


def wanted_by(extra):
    for line in metadata.requires("frostline"):
        requirement = Requirement(line)
        if requirement.marker is None or (extra and requirement.marker.evaluate({"extra": extra})):
            plain = line.partition(";")[0]
            if requirement.name == "frostline":
                for other in requirement.extras:
                    yield from wanted_by(other)
            else:
                yield plain


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A function: the Python of an environment with this extra and nothing else."""
    made = {}

    def make(extra):
        if extra not in made:
            folder = tmp_path_factory.mktemp(extra or "core")
            venv.create(folder, with_pip=False, symlinks=True)
            (site,) = folder.glob("lib/python*/site-packages")
            for name, own in closure(wanted_by(extra)).items():
                assert own is not None, f"{name} is not installed here"
                link(own, site)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site]
            subprocess.run([*command, "--no-compile", wheel], check=True, capture_output=True)
            made[extra] = folder / "bin" / "python"
        return made[extra]

    return make


def link(own, site):
    for path in own.files or ():
        if ".." in path.parts or "__pycache__" in path.parts:
            continue
        target = site / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(own.locate_file(path))


def without_this_one():
    """The environment variables without those that lead to the environment of the tests."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(python, *given, code=0, **more):
    command = [python, *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=without_this_one(), **more)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return done


def frostline(python, *given, **more):
    done = run(python, "-m", "frostline", *given, **more)
    return done.stdout + done.stderr


def test_the_wheel_has_what_it_needs_and_nothing_else(wheel):
    import zipfile

    names = zipfile.ZipFile(wheel).namelist()
    assert {"frostline/py.typed", "frostline/exploring/explore.js", "frostline/serving/live.html"} <= set(names)
    assert all(name.startswith(("frostline/", "frostline-")) and "__pycache__" not in name for name in names)
    assert wheel.stat().st_size < 2 * 2**20


@pytest.mark.slow
def test_without_extras(environment, tmp_path):
    python = environment("")
    assert "simulate" in frostline(python, "--help")
    spec = ROOT / "examples" / "two_clusters.toml"
    assert "Limit: points" in frostline(python, "theory", spec)
    frostline(python, "simulate", spec, "--tokens", 50, "--out", tmp_path / "run", cwd=tmp_path)
    assert (tmp_path / "run" / "tokens.png").exists()
    for command, extra in (
        (["audit", tmp_path], "encoders"),
        (["serve", "x.frost", "--model", tmp_path], "monitor"),
        (["explore"], "explore"),
    ):
        assert f"pip install 'frostline[{extra}]'" in frostline(python, *command, code=2)
    sweep = 'import frostline as fl; fl.sweep({"command": "theory", "spec": {"tokens": 5, "dimension": 2, "B": [1.0]}})'
    assert "pip install 'frostline[cluster]'" in run(python, "-c", sweep, code=1, cwd=tmp_path).stderr
    told = json.loads(run(python, "-m", "frostline", "doctor", "--json").stdout)
    assert told["well"] and {one["name"]: one["works"] for one in told["trials"]}["encoders"] is None


@pytest.mark.slow
def test_encoders(environment, tmp_path):
    model = tiny.save(tiny.model("BERT"), tmp_path / "model")
    said = frostline(environment("encoders"), "audit", model, "--out", tmp_path / "audit", "--quiet")
    assert "Extraction" in said and (tmp_path / "audit" / "index.html").exists()


@pytest.mark.slow
def test_monitor(environment, tmp_path):
    python = environment("monitor")
    run(python, "-c", "import frostline.serving.app, frostline.serving.telemetry, frostline.web.server")
    assert "there is no file" in frostline(python, "serve", "none.frost", "--model", tmp_path, "--port", 0, code=2)


@pytest.mark.slow
def test_explore(environment, tmp_path):
    command = [environment("explore"), "-m", "frostline", "explore", "--port", "0", "--no-browser", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        with urlopen(f"{url}/run?n=50&until=1", timeout=120) as reply:
            assert b'"finished"' in reply.read()
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


SWEEP = """
command = "simulate"
spec = { tokens = 20, dimension = 2, B = [1.0, 0.5], beta = 10.0, until = 1.0, step = 0.1 }
axes = { seed = "0..1" }
"""


@pytest.mark.slow
def test_cluster(environment, tmp_path):
    spec = tmp_path / "sweep.toml"
    spec.write_text(SWEEP)
    told = frostline(environment("cluster"), "sweep", spec, "--out", tmp_path / "runs", "--json", "--workers", "1")
    assert json.loads(told)["done"] == 2


@pytest.mark.slow
def test_the_figure_of_a_paper_needs_no_more_than_cluster(environment, tmp_path):
    said = run(environment("cluster"), EXAMPLES / "phase_diagram.py", "out", "--seeds", 1, cwd=tmp_path).stdout
    assert "figure.png" in said and (tmp_path / "out" / "figure.csv").exists()


@pytest.mark.slow
def test_the_audit_of_an_own_model_needs_no_more_than_encoders(environment, tmp_path):
    said = run(environment("encoders"), EXAMPLES / "audit_own_model.py", "out", "--most", 24, cwd=tmp_path).stdout
    assert "The adapter reproduces the model" in said and (tmp_path / "out" / "index.html").exists()


@pytest.mark.slow
def test_the_monitor_inside_a_web_program_needs_no_more_than_monitor(environment, tmp_path):
    python = environment("monitor")
    model = tiny.save(tiny.model("BERT", spread=0.1), tmp_path / "model")
    (tmp_path / "normal.txt").write_text("\n".join(sentences(520, seed=0)))
    frostline(python, "baseline", model, "--text", "normal.txt", "-o", "enc.frost", "-q", cwd=tmp_path)
    command = [python, EXAMPLES / "monitor_in_fastapi.py", model, "enc.frost", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=without_this_one())
    try:
        lines = iter(process.stderr.readline, "")
        url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        body = json.dumps({"texts": [*fresh(2), "ice " * 40]}).encode()
        with urlopen(Request(f"{url}/embed", body, {"Content-Type": "application/json"}), timeout=60) as reply:
            answer = json.load(reply)
        assert answer["p_values"][2] < min(answer["p_values"][:2]) and answer["reasons"][2]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_the_version_is_in_one_place():
    import frostline as package

    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text and metadata.version("frostline") == package.__version__
