"""What the package promises about importing: cheap, in one direction, and every public name is there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import frostline

ROOT = Path(frostline.__file__).parent
# A room may import from its own and from earlier rows.
ROWS = [
    {"printable", "errors", "notebooks", "stopping", "arrays", "compiled", "sphere", "sample", "attention"},
    {"files"},
    {"theory"},
    {"dynamics", "transport"},
    {"analysis"},
    {"spec", "plot"},
    {"store"},
    {"recording", "predicting", "report"},
    {"experiments", "encoders"},
    {"auditing", "monitoring", "web"},
    {"serving", "exploring", "sweeping"},
    {"doctor"},
    {"cli", "__main__", "__init__"},
]


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


def row_of(room):
    return next(number for number, row in enumerate(ROWS) if room in row)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("frostline"):
            rest = (node.module or "").split(".")[1:]
            targets = [rest[0]] if rest else [alias.name for alias in node.names]
            for target in targets:
                if target == "__version__":
                    continue
                assert row_of(target) <= row_of(room), f"{path.name} imports {target}"
