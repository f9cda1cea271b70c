"""The tools that `make lint` and workflows run: they see what they are for."""

import doctest
import runpy
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


def undocumented(first, second):
    """Add one number to another.

    Parameters
    ----------
    first
        A number.
    third
        Not there.
    """
    if not first:
        raise ValueError("there is nothing to add to")
    return first + second


def test_the_oldest_versions_are_those_of_the_ranges():
    tool = runpy.run_path(str(TOOLS / "oldest_versions.py"))
    (example,) = doctest.DocTestFinder().find(tool["oldest"], "oldest", globs=tool)
    assert doctest.DocTestRunner().run(example) == (0, 1)


def test_an_incomplete_docstring_is_seen():
    pytest.importorskip("numpydoc")
    tool = runpy.run_path(str(TOOLS / "check_docstrings.py"))
    checks = {"PR01", "PR02", "RT01", "EX01", "GL08"}
    lines = list(tool["complaints"]("tests.test_tools.undocumented", undocumented, checks))
    assert "no Raises section" in lines[0]
    assert {line.split(": ")[1][:4] for line in lines[1:]} == {"PR01", "PR02", "RT01", "EX01"}
    names = tool["public_names"]()
    assert {"frostline.theory.limits.limit", "frostline.sample.vmf", "frostline.monitoring.watch.watch"} <= set(names)
