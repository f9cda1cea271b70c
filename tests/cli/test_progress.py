"""Progress where stderr is no terminal: a line every ten seconds, of every command that has a bar."""

import ast
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from frostline.cli import main, progress
from frostline.progress import Progress
from tests.encoders import tiny

COMMANDS = Path(progress.__file__).parent


@pytest.fixture
def often(monkeypatch):
    """Every twentieth of a second instead."""
    assert progress.EVERY == 10.0
    monkeypatch.setattr(progress, "EVERY", 0.05)


def lines(told):
    return [line for line in told.err.splitlines() if line]


def test_the_last_report_is_said_again(often, capsys):
    with progress.progress_bar("auditing") as report:
        time.sleep(0.12)
        report(Progress("weights", "layer 2", 2, 8))
        time.sleep(0.12)
    said = lines(capsys.readouterr())
    assert said[0] == "frostline: auditing (0 s)" and said[-1] == "frostline: auditing, weights, layer 2, 25 % (0 s)"
    time.sleep(0.12)
    assert not lines(capsys.readouterr())


def test_work_that_fails_ends_its_lines(often, capsys):
    with pytest.raises(KeyboardInterrupt), progress.progress_bar("sweeping") as report:
        report(Progress("", "1 done, 0 failed, 3 left", 1, 0))
        time.sleep(0.12)
        raise KeyboardInterrupt
    assert lines(capsys.readouterr())[0] == "frostline: sweeping, 1 done, 0 failed, 3 left (0 s)"
    time.sleep(0.12)
    assert not lines(capsys.readouterr())


def test_nothing_is_said_of_short_work_or_when_nothing_is_wanted(often, capsys):
    with progress.progress_bar("quick") as report:
        assert report is not None
    with progress.progress_bar("quiet", shown=False) as report:
        time.sleep(0.12)
        assert report is None
    assert not lines(capsys.readouterr())


def test_an_audit_tells_how_far_it_is(often, tmp_path):
    tiny.save(tiny.model("BERT"), tmp_path / "model")
    command = ["audit", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*command, "--json"])
    assert done.exit_code == 0 and "frostline: auditing, page, drawing, 100 %" in done.stderr
    assert done.stdout.startswith("{")
    again = CliRunner().invoke(main, [*command, "--quiet"])
    assert again.exit_code == 0 and "frostline: auditing" not in again.stderr


def test_a_simulation_tells_how_far_it_is(often, tmp_path):
    spec = tmp_path / "run.toml"
    spec.write_text("tokens = 300\ndimension = 3\nbeta = 50.0\nB = 'identity'\nuntil = 30.0\nstep = 0.02\n")
    done = CliRunner().invoke(main, ["simulate", str(spec), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "frostline: simulating to t = 30.0, step " in done.stderr


def test_no_command_shows_progress_by_itself():
    """All of them go through one module, so that all have lines where there is no bar."""
    for path in COMMANDS.glob("*.py"):
        imported = {
            name.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom | ast.Import)
            for name in [ast.alias(getattr(node, "module", "") or ""), *node.names]
        }
        assert path.name == "progress.py" or not any(name.startswith("rich.progress") for name in imported), path
