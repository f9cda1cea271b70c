"""Compiled loops where nothing can be kept on disk."""

import os
import subprocess
import sys

CODE = """
from frostline.compiled import njit

@njit()
def twice(x):
    return 2 * x

print(twice(21), twice._cache.cache_path)
"""


def test_loops_that_cannot_be_kept_are_compiled_all_the_same(tmp_path):
    script = tmp_path / "loops.py"
    script.write_text(CODE)
    unwritable = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": "/proc/nothing"}
    for given, kept in (({"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, True), (unwritable, False)):
        done = subprocess.run(
            [sys.executable, script], env=os.environ | given, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[0] == "42"
        assert (done.stdout.split()[1] != "None") == kept == ("NUMBA_CACHE_DIR" not in done.stderr)
