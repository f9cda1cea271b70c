"""Running claims into a folder: what is kept, when it is used again, what the files say."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pyarrow.parquet as parquet
import pytest

from frostline.errors import BadParameter
from frostline.experiments import reproduction_page
from frostline.experiments import runner as running
from frostline.experiments.claims.catalogue import chosen
from frostline.experiments.runner import reproduce, uninterrupted

FEW = ["zero-temperature-limit", "stability"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduction") / "out"
    return reproduce(chosen(FEW, "test"), size="test", out=out), out


def test_the_files(done):
    result, out = done
    facts = json.loads((out / "summary.json").read_text())
    assert facts == json.loads(json.dumps(result.facts()))
    assert facts["page"] == str(out / "index.html") and os.path.isabs(facts["page"])
    for row in facts["claims"]:
        assert (
            set(row) == {"name", "verdict", "why", "measured", "seconds", "size", "seed"} and row["verdict"] == "holds"
        )
        folder = out / "claims" / row["name"]
        kept = json.loads((folder / "result.json").read_text())
        assert kept["measured"] == row["measured"]
        assert (folder / "figure.png").stat().st_size > 5000 and (folder / "figure.svg").stat().st_size > 5000
        for name, columns in kept["tables"].items():
            table = parquet.read_table(folder / f"{name}.parquet")
            assert sorted(table.column_names) == columns and table.num_rows > 0


def test_the_page_says_what_the_json_says(done):
    result, out = done
    page = (out / "index.html").read_text()
    assert "2 claims of the theory, each measured: 2 hold." in page and len(page) < 3_000_000
    from frostline.report.html import maths

    for row in result.claims:
        assert str(maths(row["why"])) in page
        for check in row["measured"]["checks"]:
            assert str(maths(check["found"])) in page and str(maths(check["wanted"])) in page
        assert f"frostline reproduce {row['name']} --seed 0" in page


def test_a_second_call_measures_nothing(done, monkeypatch):
    _, out = done
    monkeypatch.setattr(running, "_run", None)
    seen = []
    again = reproduce(chosen(FEW, "test"), size="test", out=out, progress=seen.append)
    assert [row["verdict"] for row in again.claims] == ["holds", "holds"]
    assert [each.part for each in seen] == FEW and seen[-1].share == 1


@pytest.fixture(scope="module")
def one_claim(tmp_path_factory):
    """A folder with one finished claim, to be copied."""
    out = tmp_path_factory.mktemp("one") / "out"
    return reproduce(chosen(["stability"], "test"), size="test", out=out).claims[0], out


CHANGES = {"seed": None, "code": None, "file": None, "json": "{", "list": "[]", "verdict": None, "figure": "<svg>"}


@pytest.mark.parametrize("change", CHANGES)
def test_other_settings_other_code_and_broken_results_run_again(one_claim, tmp_path, monkeypatch, change):
    first, finished = one_claim
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    claims = chosen(["stability"], "test")
    options = {"seed": 1} if change == "seed" else {}
    if change == "code":
        monkeypatch.setattr(running, "code_version", lambda: "another")
    if change == "file":
        (tmp_path / "claims" / "stability" / "distances.parquet").unlink()
    result = tmp_path / "claims" / "stability" / "result.json"
    if change in ("json", "list"):
        result.write_text(CHANGES[change])
    if change == "figure":
        result.with_name("figure.svg").write_text(CHANGES[change])
    if change == "verdict":
        result.write_text(result.read_text().replace('"verdict": "holds"', '"verdict": "fails"'))
    ran = []
    real = running._run
    monkeypatch.setattr(running, "_run", lambda *args: ran.append(1) or real(*args))
    second = reproduce(claims, size="test", out=tmp_path, **options).claims[0]
    assert ran == [1]
    assert (second["measured"] == first["measured"]) == (change != "seed")


def test_what_is_finished_stays_when_something_breaks(tmp_path, monkeypatch):
    real = running._run

    def breaks(claim, *args):
        if claim.name == "stability":
            raise KeyboardInterrupt
        return real(claim, *args)

    monkeypatch.setattr(running, "_run", breaks)
    with pytest.raises(KeyboardInterrupt):
        reproduce(chosen(FEW, "test"), size="test", out=tmp_path)
    assert [row["name"] for row in json.loads((tmp_path / "summary.json").read_text())["claims"]] == FEW[:1]
    page = (tmp_path / "index.html").read_text()
    assert "One claim of the theory, measured: it holds." in page and "1 more claim was asked for" in page


def test_the_page_shows_what_other_calls_did(done):
    """A claim on its own, into the same folder: the page keeps the others, in the paper's order."""
    _, out = done
    reproduce(chosen(["mean-field"], "test"), size="test", out=out)
    facts = json.loads((out / "summary.json").read_text())
    assert [row["name"] for row in facts["claims"]] == [*FEW, "mean-field"]
    assert "3 claims of the theory, each measured: 3 hold." in (out / "index.html").read_text()


def test_foreign_folders_are_left_alone(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(BadParameter, match="was not made by reproduce"):
        reproduce(chosen(["stability"], "test"), size="test", out=tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadParameter, match="is a file"):
        reproduce(chosen(["stability"], "test"), size="test", out=tmp_path / "file")
    assert (tmp_path / "index.html").read_text() == "mine"


KILLED = """
import sys
from pathlib import Path
from frostline.experiments.claims.catalogue import chosen
from frostline.experiments.runner import reproduce

told = lambda progress: print(progress.part, progress.step, flush=True)
reproduce(chosen(["zero-temperature-limit", "theorem"], "test"), size="test", out=Path(sys.argv[1]), progress=told)
"""


def test_killed_and_called_again(tmp_path):
    """kill -9 in the second claim: the first is there, a second call does the rest; meanwhile nobody else writes."""
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", KILLED, out], stdout=subprocess.PIPE, text=True) as process:
        while not (line := process.stdout.readline()).startswith("theorem"):
            assert line
        with pytest.raises(BadParameter, match="another frostline is writing"):
            reproduce(chosen(["stability"], "test"), size="test", out=out)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    assert (out / "claims" / "zero-temperature-limit" / "result.json").exists()
    assert not (out / "claims" / "theorem").exists()
    # The page was written after the first claim already, and says what is missing.
    page = (out / "index.html").read_text()
    assert "One claim of the theory, measured: it holds." in page and "1 more claim was asked for" in page
    rest = subprocess.run([sys.executable, "-c", KILLED, out], capture_output=True, text=True, check=True).stdout
    assert rest.startswith("zero-temperature-limit holds\ntheorem begins") and (out / "index.html").exists()


def test_ctrl_c_waits_for_the_page():
    """However often it is pressed while the page is being written: the page is whole, then the interruption is told."""
    done = False
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        done = True
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_nothing_is_random_the_seed_does_not_matter(tmp_path):
    claims = chosen(["metastability"], "test")
    first = reproduce(claims, size="test", out=tmp_path, seed=0)
    told = []
    second = reproduce(claims, size="test", out=tmp_path, seed=5, progress=lambda progress: told.append(progress.step))
    assert second.claims[0]["seconds"] == first.claims[0]["seconds"] and told == ["holds"]


def test_results_that_are_not_shown_are_named(one_claim, tmp_path):
    shutil.copytree(one_claim[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "claims" / "stability" / "figure.png").write_bytes(b"changed")
    done = reproduce(chosen(["zero-temperature-limit"], "test"), size="test", out=tmp_path)
    assert done.hidden == ("stability",)
    assert "<b>Not shown:</b> stability: measured by other code" in done.page.read_text()


def test_only_a_value_inside_two_others_is_shown_with_an_interval():
    numbers = {"settings": [300.0, 1000.0, 1e4], "unknown": [1.0, float("nan"), 2.0], "fit": {"slope": [2.8, 2.7, 2.9]}}
    assert dict(reproduction_page.rows_of_numbers(numbers)) == {
        "settings": "300, 1000, 10000",
        "unknown": "1, nan, 2",
        "fit slope": "2.8 (95 %: 2.7 to 2.9)",
    }
