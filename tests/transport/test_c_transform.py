"""The c-transform by tree against the plain minimum over all points."""

import signal
import subprocess
import sys

import numpy as np
import pytest

import frostline as fl
from frostline.transport.c_transform import Tree
from tests.tolerances import ROUNDING


@pytest.mark.parametrize("p, geodesic", [(2.0, False), (1.0, False), (3.0, False), (2.0, True)])
@pytest.mark.parametrize("d", [2, 3, 9])
@pytest.mark.parametrize("smooth", [True, False])
def test_it_is_the_minimum(rng, d, p, geodesic, smooth):
    """Potentials that are smooth, so that planes prune, and wild ones, where they must not."""
    x, y = fl.sample.uniform(200, d, seed=rng), fl.sample.uniform(900, d, seed=rng)
    g = 1.5 * y[:, 0] - 0.3 * np.sin(4 * y).sum(1) if smooth else rng.standard_cauchy(900)
    chords = np.linalg.norm(x[:, None] - y, axis=2)
    costs = (2 * np.arcsin(np.minimum(1, chords / 2)) if geodesic else chords) ** p
    values, places = Tree.of(y).transform(x, g, p, geodesic)
    plain = (costs - g).min(1)
    assert np.abs(values - plain).max() <= 1e-12 * np.abs(g).max()
    assert np.abs((costs - g)[np.arange(200), places] - plain).max() <= 1e-12 * np.abs(g).max()


def test_points_far_from_the_origin(rng):
    """Planes are taken about each node's centre: digits are not lost to where the cloud is."""
    x, y = 1e6 + rng.standard_normal((200, 3)), 1e6 + rng.standard_normal((900, 3)) * [3, 1, 1]
    g = np.sin(y).sum(1)
    values, _ = Tree.of(y).transform(x, g, 2.0, False)
    plain = (np.linalg.norm(x[:, None] - y, axis=2) ** 2 - g).min(1)
    assert np.abs(values - plain).max() < ROUNDING


STOPPED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
import numpy as np
from frostline.transport.c_transform import Tree

rng = np.random.default_rng(0)
points = rng.standard_normal((20_000, 16))
tree, g = Tree.of(points), rng.standard_normal(20_000)
tree.transform(points[:10], g, 2.0, False)
try:
    print("ready", flush=True)
    while True:
        tree.transform(points, g, 2.0, False)
except KeyboardInterrupt:
    print("stopped")
"""


def test_control_c_in_compiled_threads_is_a_keyboard_interrupt():
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=120)[0] == "stopped\n"
        finally:
            process.kill()
