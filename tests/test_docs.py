"""Documentation that cannot lie: the README's code runs, the CLI reference is the help, examples work."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from frostline import spec as specs

ROOT = Path(__file__).parents[1]


def test_the_cli_reference_is_the_help():
    module = runpy.run_path(str(ROOT / "docs" / "cli_reference.py"))
    assert (ROOT / "docs" / "cli.md").read_text() == module["reference"](), "run: make docs"


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/runs.md", "docs/analysis.md", "docs/transport.md", "docs/fast.md"])
def test_python_on_the_page_runs(page, tmp_path, monkeypatch):
    found = blocks(ROOT / page, "python")
    assert found
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in found:
        exec(block, namespace)


def test_specs_on_the_page_parse():
    found = blocks(ROOT / "docs" / "runs.md", "toml")
    assert found
    for block in found:
        specs.build_heads(specs.parse(tomllib.loads(block)))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_examples_build(path):
    spec = specs.read(path)
    assert specs.build_heads(spec) and len(specs.build_tokens(spec)[0]) > 0


def test_every_equation_a_docstring_cites_is_on_the_theory_page():
    page = (ROOT / "docs" / "theory.md").read_text()
    cited = set()
    for path in (ROOT / "src").rglob("*.py"):
        cited |= set(re.findall(r"THEORY eq\. (\d+′?)", path.read_text()))
    assert cited
    for number in cited:
        assert f"({number})" in page, number


def test_the_changelog_names_this_version():
    import frostline

    assert f"## {frostline.__version__}" in (ROOT / "CHANGELOG.md").read_text()
