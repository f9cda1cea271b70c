"""A month of a service in minutes: what rang, when, and whether it should have.

    python -m benchmarks.month [--days 30] [--rate 1] [--seed 0]

Not part of ``make bench``; ``make verify`` lives through a tenth of it.
"""

import argparse
import tempfile
from pathlib import Path

from tests.serving.month import live_through, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        month = live_through(Path(folder) / "events.db", days=asked.days, rate=asked.rate, seed=asked.seed)
    print(table(month))
    for name, (texts, seconds) in month.delays.items():
        print(f"{name}: rang after {texts} texts, {seconds:.0f} s")
    print(f"{month.texts} texts; falsely active {100 * month.falsely_active:.3f} % of the time; {dict(month.kept)}")
    print("; ".join(month.notes) or "the disk was never full")


if __name__ == "__main__":
    main()
