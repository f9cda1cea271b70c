"""Annotations as users see them: mypy and pyright accept a program that uses every verb, and refuse a wrong one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import frostline

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")
MISTAKES = {
    "p=2.0": 'p="two"',
    "until=6.0, stepper=fl.Euler(0.05)": "until=6.0, steper=fl.Euler(0.05)",
    "= limit.gap": "= limit.gab",
    "rates: fl.Rates = fl.rates(head)": "rates: fl.Bound = fl.rates(head)",
    'base.save("enc.frost")': "base.save()",
    "reference=texts, progress=show)": "reference=texts, progress=3)",
    "progress.share:.0%": "progress.shares:.0%",
}
"""What stands in the program, and a mistake in its place."""

pytestmark = pytest.mark.timeout(600)


def mypy(path, cache):
    return [sys.executable, "-m", "mypy", "--config-file", "", "--strict", "--cache-dir", str(cache), str(path)]


def pyright(path, cache):
    return [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(path)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture(scope="module", params=[mypy, pyright], ids=lambda checker: checker.__name__)
def complaints(request, cache, tmp_path_factory):
    """The lines of a program that a checker complains about."""

    def run(text):
        path = tmp_path_factory.mktemp("user") / "program.py"
        path.write_text(text)
        done = subprocess.run(request.param(path, cache), capture_output=True, text=True, cwd=path.parent, check=False)
        lines = re.findall(rf"{re.escape(path.name)}:(\d+)(?::\d+)?(?: -|:) error", done.stdout)
        assert (done.returncode != 0) == bool(lines), done.stdout + done.stderr
        return sorted({int(line) for line in lines}), done.stdout

    return run


def test_every_public_name_is_in_the_program():
    program = PROGRAM.read_text()
    assert {name for name in frostline.__all__ if not re.search(rf"\bfl\.{name}\b", program)} == set()


def test_a_program_with_every_verb_is_accepted_and_each_mistake_refused(complaints):
    text = PROGRAM.read_text()
    lines, said = complaints(text)
    assert lines == [], said
    wrong = text
    for right, mistake in MISTAKES.items():
        assert text.count(right) == 1, right
        wrong = wrong.replace(right, mistake)
    expected = [number for number, line in enumerate(wrong.splitlines(), 1) if line not in text.splitlines()]
    assert complaints(wrong)[0] == expected
