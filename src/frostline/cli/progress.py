"""Progress on stderr: a bar on a terminal, and where there is none (a log, a pipe) a line every ten seconds."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from frostline.progress import Report

EVERY = 10.0
"""Seconds between two lines of progress where stderr is no terminal."""


class BarReport:
    """The reports to a bar: a ``Progress`` after every step, ``measured(done, of)`` after every distance."""

    def __init__(self, update: Callable[..., None]):
        self.update = update

    def __call__(self, state: Any) -> None:
        self.update(completed=state.time, total=state.until, where=f"step {state.steps}, t = {state.time:.4g}")

    def measured(self, done: int, of: int) -> None:
        """Show that distances are measured, and how many."""
        self.update(description="measuring distances", completed=done, total=of, where=f"time {done} of {of}")


class Lines:
    """Progress as lines: the last report, printed every ten seconds, whether it is new or not."""

    def __init__(self, title: str):
        self.title, self.line = title, ""
        self.begin = time.monotonic()
        self.ended = threading.Event()

    def update(self, *, completed: float, total: float | None, where: str = "", description: str | None = None) -> None:
        """Replace the line."""
        share = f"{100 * completed / total:.0f} %" if total else ""
        title = self.title if description is None else f"{self.title}, {description}"
        self.line = ", ".join(part for part in (title, where, share) if part)

    def say(self) -> None:
        """Print until the work has ended; nothing about work that takes less than ten seconds."""
        while not self.ended.wait(EVERY):
            seconds = time.monotonic() - self.begin
            try:
                print(f"frostline: {self.line or self.title} ({seconds:.0f} s)", file=sys.stderr, flush=True)
            except (OSError, ValueError):
                # The reader has gone; the work goes on.
                return


@contextmanager
def bar(title: str, *, shown: bool = True, remaining: bool = True) -> Iterator[BarReport | None]:
    """Yields the receiver of reports; None when nothing is shown. ``remaining``: show the estimated time left."""
    if not shown or sys.stderr is None:
        yield None
        return
    if not sys.stderr.isatty():
        lines = Lines(title)
        teller = threading.Thread(target=lines.say, daemon=True)
        teller.start()
        try:
            yield BarReport(lines.update)
        finally:
            lines.ended.set()
            teller.join()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[where]}")]
    if remaining:
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=None, where="")

        yield BarReport(partial(progress.update, task))


@contextmanager
def shares(title: str, *, shown: bool = True) -> Iterator[Report | None]:
    """The same for work of several named parts: called with the part, its present step, work done and work in all."""
    with bar(title, shown=shown) as report:
        if report is None:
            yield None
            return

        def tell(part: str, step: str, done: float, total: float) -> None:
            report.update(description=part, completed=done, total=total, where=step)

        yield tell
