"""Event files for tests of damage: sound ones, and ways to damage them."""

import os
import shutil

from frostline.serving.events import Event, Events

TIME = 1.8e9
PAGE = 4096


def write_events(path, count=400, *, killed=False):
    """Write events, some of them longer than a page; ``killed`` leaves them in the write-ahead log."""
    with Events(path, clock=lambda: TIME) as events:
        for number in range(0, count, 20):
            batch = [
                Event(
                    "alarm" if k % 10 == 0 else "strange",
                    k,
                    TIME + k,
                    p_value=0.01,
                    details={"reasons": [], "note": "x" * (9000 if k % 50 == 0 else 300)},
                    source=f"source {k % 7}",
                )
                for k in range(number, number + 20)
            ]
            events.add(batch, {"texts": number})
        if killed:
            for ending in ("", "-wal"):
                shutil.copy(f"{path}{ending}", f"{path}.kept{ending}")
    if killed:
        for ending in ("", "-wal"):
            os.replace(f"{path}.kept{ending}", f"{path}{ending}")


def overwrite(path, rng, first=0, count=1):
    """Put random bytes in place of pages."""
    with open(path, "r+b") as file:
        file.seek(first * PAGE)
        file.write(rng.bytes(count * PAGE))
