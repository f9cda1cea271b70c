"""Copies of the source with one text changed, and tests run against each copy; the tree itself is never touched.

As a program it runs the tests: it imports what takes seconds once, and every copy has a fork of its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "frostline"
SECONDS = 100
"""How long the tests of one copy may take; one that no longer ends is red."""
HEAVY = ("pytest", "hypothesis", "numba", "scipy.integrate", "scipy.optimize", "scipy.stats", "torch", "jaxtyping")
BROKEN = re.compile(r"NameError|SyntaxError|ImportError|ModuleNotFoundError|AttributeError|TypeError|UnboundLocalError")
"""Failures of a program that does not run, not of an equation that is wrong."""
# Without the checks of shapes and the plugins that these tests do not need; hypothesis is imported already.
OPTIONS = ["-q", "-x", "--tb=no", "-rfE", "-o", "addopts=", f"--timeout={SECONDS}"]
OPTIONS += ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-W", "ignore:Module already imported"]


def home(text: str) -> Path:
    """The one file of the source in which this text occurs, exactly once."""
    found = [path for path in sorted(SOURCE.rglob("*.py")) for _ in range(path.read_text().count(text))]
    if len(found) != 1:
        places = ", ".join(str(path.relative_to(ROOT)) for path in found) or "nowhere"
        raise LookupError(
            f"{text!r} must occur exactly once in the source, and occurs {len(found)} times ({places}): the code has "
            "changed, so the table in tests/mutations.py needs another text for this mutation."
        )
    return found[0]


def copied(folder: Path, text: str | None = None, becomes: str = "") -> Path:
    """The source copied into a folder that is made, with this text changed; returns what goes onto the path."""
    shutil.copytree(SOURCE, folder / "frostline")
    if text is not None:
        changed = folder / "frostline" / home(text).relative_to(SOURCE)
        changed.write_text(changed.read_text().replace(text, becomes))
        if "@njit" in changed.read_text():
            # Compiled loops of other files may have this one built in.
            for kept in folder.rglob("*.nb[ic]"):
                kept.unlink()
    return folder


def verdicts(tests: list[str], copies: list[Path]) -> list[str]:
    """Of each copy: "green", "red", or what went wrong instead."""
    command = [sys.executable, __file__, json.dumps(tests), *map(str, copies)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return [verdict(code, said) for code, said in json.loads(done.stdout)]


def verdict(code: int, said: str) -> str:
    failures = re.findall(r"^FAILED .* - (.*)", said, flags=re.M)
    if code == 0:
        return "green"
    if code == 1 and failures and not BROKEN.match(failures[0]):
        return "red"
    return f"neither green nor red (exit code {code}): {said[-2000:]}"


def run(copy: str, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code and what it says, in a fork that imports frostline from this copy."""
    from importlib.util import find_spec

    import pytest

    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            # Lines as long as they are; the copy also for processes that a test starts.
            os.environ |= {"COLUMNS": "1000", "PYTHONPATH": copy}
            sys.path[0] = copy
            code = 99
            if find_spec("frostline").origin.startswith(copy):
                code = pytest.main([*OPTIONS, *tests])
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


if __name__ == "__main__":
    for name in HEAVY:
        __import__(name)
    print(json.dumps([run(copy, json.loads(sys.argv[1])) for copy in sys.argv[2:]]))
