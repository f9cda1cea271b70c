"""What the package promises about importing: cheap, in one direction, and every public name is there."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import frostline
from frostline.moved import MOVED
from frostline.results import ABILITIES, ability
from frostline.rooms import room_of, row_of

ROOT = Path(frostline.__file__).parent


def fresh(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_frostline_imports_nothing_heavy():
    heavy = ["torch", "numpy", "scipy", "matplotlib", "typer"]
    assert fresh(f"import sys, frostline; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_help_does_not_import_torch_or_numpy():
    code = """
import sys
from frostline.cli import main
sys.argv = ["frostline", "simulate", "--help"]
try:
    main()
except SystemExit:
    pass
print([m for m in ("torch", "numpy", "scipy", "matplotlib") if m in sys.modules])
"""
    assert fresh(code).splitlines()[-1] == "[]"


def test_simulating_does_not_need_transformers_or_matplotlib():
    code = (
        "import sys, frostline as fl; h = fl.Attention.from_matrices([[1,0],[0,1]], [[1,0],[0,1]], 1.0);"
        "fl.simulate(h, [[1.0, 0.0]], until=0.1);"
        "print([m for m in ('transformers', 'matplotlib') if m in sys.modules])"
    )
    assert fresh(code) == "[]"


@pytest.mark.parametrize("name", sorted(frostline.__all__))
def test_every_public_name_resolves(name):
    assert getattr(frostline, name) is not None and name in dir(frostline)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known_ones():
    with pytest.raises(AttributeError, match="no public name 'simulat'"):
        _ = frostline.simulat


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    """Those inside functions too: a room imports from its own row and from earlier ones."""
    room = room_of(path.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("frostline"):
            rest = (node.module or "").split(".")[1:]
            targets = [rest[0]] if rest else [alias.name for alias in node.names]
            for target in targets:
                if target == "__version__":
                    continue
                assert row_of(target) <= row_of(room), f"{path.name} imports {target}"


def test_a_module_name_stands_once_in_the_tree():
    shared = {"__init__", "base", "app", "schema"}
    names = Counter(path.stem for path in ROOT.rglob("*.py") if path.parent.name != "cli")
    assert {name for name, count in names.items() if count > 1} <= shared


def test_a_class_name_has_one_meaning():
    """``Size`` is the size of a claim's measurement in each claim; ``Reason`` is also the schema of a reason."""
    names = Counter(
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == {"Size", "Reason"}


def test_no_room_has_the_name_of_a_public_function():
    rooms = {path.parent.name for path in ROOT.rglob("__init__.py")} - {ROOT.name, "plot", "mean_map"}
    assert not rooms & set(frostline.__all__)


@pytest.mark.parametrize("name", sorted(ABILITIES))
def test_every_method_that_leads_to_a_later_room_finds_its_function(name):
    assert callable(ability(name))


def test_old_names_of_modules_work_and_warn():
    code = """
import warnings, importlib
from frostline.moved import MOVED
for old, homes in MOVED.items():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        module = importlib.import_module(old)
    assert f"is now {homes[0]}" in str(said[0].message), said
    for home in homes:
        for name in vars(importlib.import_module(home)):
            assert name.startswith("__") or hasattr(module, name), (old, name)
print(len(MOVED))
"""
    assert int(fresh(code)) == len(MOVED) >= 7
