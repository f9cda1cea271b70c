"""What the explorer manages: python -m benchmarks.exploring

Layers a second, computed, measured and packed, as the page gets them; how long Python, `import frostline` and
`frostline --help` take.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from frostline.dynamics.simulation import simulate
from frostline.exploring.address import read, to_spec
from frostline.exploring.frames import show
from frostline.exploring.messages import unpack
from frostline.runs.build import build_heads, build_stepper, build_tokens

SIZES = {10_000: 40, 100_000: 6}
"""Tokens, and layers that are timed."""


def speed(address: str, layers: int) -> float:
    """Layers a second of a stream, the first one (which may compile) aside."""
    messages = show(to_spec(read(address)))
    started, count = 0.0, 0
    for message in messages:
        # Some are empty: a step without a frame.
        if any(facts["kind"] == "frame" for facts, _ in unpack(message)):
            count += 1
            if count == 2:
                started = time.perf_counter()
            if count == layers + 2:
                break
    messages.close()  # type: ignore[attr-defined]
    return layers / (time.perf_counter() - started)


def bare(address: str, layers: int) -> float:
    """The same layers by `simulate` alone."""
    spec = to_spec(read(address))
    x0, _ = build_tokens(spec)
    start = time.perf_counter()
    assert spec.step is not None
    simulate(build_heads(spec), x0, until=layers * spec.step, stepper=build_stepper(spec))
    return layers / (time.perf_counter() - start)


def seconds(*given: str) -> float:
    found = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *given], check=True, capture_output=True)
        found.append(time.perf_counter() - start)
    return float(np.median(found))


def row(what: str, peer: str, ours: float, theirs: float) -> dict[str, Any]:
    """As ``make bench`` shows it."""
    return {"what": what, "peer": peer, "ours_s": ours, "peer_s": theirs, "ratio": theirs / ours, "gap": 0.0}


def rows() -> Iterator[dict[str, Any]]:
    for (n, layers), beta in itertools.product(SIZES.items(), (10, 100, 1000)):
        address = f"n={n}&beta={beta}"
        speed(address, 2)
        ours, peer = speed(address, layers), bare(address, layers)
        what = f"explorer, {n:,} tokens, β = {beta}: {ours:.1f} layers/s with distances and frames"
        yield {
            "what": what,
            "peer": "simulate alone",
            "ours_s": 1 / ours,
            "peer_s": 1 / peer,
            "ratio": ours / peer,
            "gap": 0.0,
        }
    python = seconds("-c", "pass")
    for what, given in (
        ("import frostline", ("-c", "import frostline")),
        ("frostline --help", ("-m", "frostline", "--help")),
        ("import and first use of torch through it", ("-c", "import frostline as fl; fl.Attention")),
    ):
        took = seconds(*given)
        yield {
            "what": what,
            "peer": "python -c pass",
            "ours_s": took,
            "peer_s": python,
            "ratio": python / took,
            "gap": 0.0,
        }


if __name__ == "__main__":
    for one in rows():
        print(f"{one['what']}: {one['ours_s']:.3f} s; {one['peer']} {one['peer_s']:.3f} s", flush=True)
