import os
import shutil
import signal

# Two test workers on two cores: one thread each, and for what they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

# Shells start jobs in the background with Ctrl-C ignored, and children inherit that: tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
import torch
from hypothesis import settings

import frostline as fl
import typechecking  # before frostline, whose modules are instrumented as it says

torch.set_num_threads(1)
# A slow machine is not a failure; the same examples every time, so that a red run can be repeated.
settings.register_profile("frostline", deadline=None, derandomize=True, max_examples=50, print_blob=True)
settings.load_profile("frostline")


@pytest.fixture
def rng():
    return np.random.default_rng(20260511)


@pytest.fixture
def two_clusters():
    return fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=100.0)


def pytest_runtest_setup():
    typechecking.begin_test()


def pytest_collection_modifyitems(items):
    """The tree's own tests come last: another worker has compiled its loops by then, and they are read from disk."""
    items.sort(key=lambda item: item.path.name == "test_tree.py")


def pytest_terminal_summary(terminalreporter):
    """Pages are only looked at where there is a browser, metrics scraped where there is a Prometheus: say so if not."""
    for program, name, skipped in (("chromium", "Chromium", "of pages"), ("prometheus", "Prometheus", "with it")):
        if shutil.which(program) is None:
            terminalreporter.write_line(
                f"No {name} found: the tests {skipped} were skipped (Debian's package is {program})."
            )
