"""frostline sweep as a user meets it."""

import csv
import json

import pytest
from typer.testing import CliRunner

from frostline.cli import main

pytest.importorskip("distributed")
SPEC = """
command = "theory"
[spec]
tokens = 20
dimension = 2
B = [1.0, 0.5]
[axes]
beta = [1.0, 10.0, 100.0, -1.0]
tokens = [10, 20]
"""


def call(*arguments):
    return CliRunner().invoke(main, ["sweep", *map(str, arguments)])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    (folder / "sweep.toml").write_text(SPEC)
    return folder, call(folder / "sweep.toml", "--out", folder / "runs", "--workers", 1, "--quiet")


@pytest.fixture
def here(swept, monkeypatch):
    monkeypatch.chdir(swept[0])
    return swept[0]


def test_it_says_what_was_done_and_what_failed(swept):
    done = swept[1]
    assert done.exit_code == 1, done.output
    assert "6 of 8 runs done" in done.stdout and "2 failed, 0 left" in done.stdout
    assert "2 ×" in done.stdout and "beta" in done.stdout.split("2 ×")[1]


def test_a_second_call_runs_nothing_and_speaks_json(here):
    told = json.loads(call("sweep.toml", "--json").stdout)
    assert (told["total"], told["done"], told["failed"], told["fresh"]) == (8, 6, 2, 0)


def test_status_before_and_after(here, tmp_path):
    assert "6 of 8 runs done, 2 failed, 0 left." in call("sweep.toml", "--status").stdout
    assert "6 runs done, 2 failed." in call("runs", "--status").stdout
    assert json.loads(call("sweep.toml", "--out", tmp_path / "none", "--status", "--json").stdout)["left"] == 8
    assert not (tmp_path / "none").exists()


def test_export(here, tmp_path):
    for name in ("csv", tmp_path / "mine.csv"):
        told = json.loads(call("sweep.toml", "--export", name, "--json").stdout)
        with open(told["export"], newline="") as file:
            found = list(csv.DictReader(file))
        assert len(found) == 8 and {row["beta"] for row in found} == {"1", "10", "100", "-1"}
        assert {row["limit"] for row in found if row["status"] == "done"} == {"points"}
    assert (here / "runs" / "_table.csv").exists()


@pytest.mark.parametrize("asked", [("sweep.toml",), ("runs",), ()], ids=["spec", "dataset", "neither"])
def test_plot(here, asked):
    done = call("--plot", *asked, "x=beta", "y=n", "color=kappa")
    assert done.exit_code == 0, done.output
    for ending in ("html", "svg", "png"):
        assert (here / "runs" / f"_diagram-beta-tokens-kappa.{ending}").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.toml",), "No such file"),
        (("sweep.toml", "x=beta"), "goes with --plot"),
        (("sweep.toml", "--plot", "x=beta"), "takes three"),
        (("sweep.toml", "--plot", "x=beta", "y=n", "color=kapa"), "did you mean 'kappa'"),
        (("--plot", "x=beta", "y=n", "color=kappa", "--out", "none"), "No such file"),
        (("sweep.toml", "--export", "csv", "--out", "none"), "holds no sweep"),
        (("none", "--status"), "No such file"),
        (("runs",), "add --status, --plot or --export"),
        (("sweep.toml", "--export", "/dev/null"), "give a file.csv"),
        (("sweep.toml", "--export", "."), "give a file.csv"),
        (("sweep.toml", "--export", ""), "give a file.csv"),
        (("sweep.toml", "--export", "nowhere/x.csv"), "a folder that is there"),
        (("sweep.toml", "--cluster", "tcp://127.0.0.1:9", "--workers", "1", "--out", "other"), "not both"),
    ],
)
def test_bad_calls_get_a_sentence(here, arguments, said):
    done = call(*arguments)
    assert done.exit_code == 2 and said in done.stderr and "Traceback" not in done.output, done.output
