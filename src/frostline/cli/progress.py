"""Progress on stderr: a bar on a terminal, and where there is none (a log, a pipe) a line every ten seconds."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from frostline.printable import printable
from frostline.progress import Progress, ProgressFunction

EVERY = 10.0
"""Seconds between two lines of progress where stderr is no terminal."""


class Lines:
    """Progress as lines: the last report, printed every ten seconds, whether it is new or not."""

    def __init__(self, title: str):
        self.title, self.line, self.notice = title, "", ""
        self.begin = time.monotonic()
        self.ended = threading.Event()

    def __call__(self, progress: Progress) -> None:
        """Replace the line; a new notice does not wait for its turn."""
        share = f"{100 * progress.share:.0f} %" if progress.total else ""
        self.line = ", ".join(part for part in (self.title, progress.part, progress.step, share) if part)
        if progress.notice and progress.notice != self.notice:
            self.print(printable(progress.notice))
        self.notice = progress.notice

    def print(self, line: str) -> bool:
        """Print a line now; false where the reader has gone: the work goes on."""
        try:
            print(f"frostline: {line}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            return False
        return True

    def say(self) -> None:
        """Print until the work has ended; nothing about work that takes less than ten seconds."""
        while not self.ended.wait(EVERY):
            seconds = time.monotonic() - self.begin
            if not self.print(f"{self.line or self.title} ({seconds:.0f} s)"):
                return


@contextmanager
def progress_bar(title: str, *, shown: bool = True, remaining: bool = True) -> Iterator[ProgressFunction | None]:
    """Yields a function that shows progress; None when nothing is shown. ``remaining``: show the time left."""
    if not shown or sys.stderr is None:
        yield None
        return
    if not sys.stderr.isatty():
        lines = Lines(title)
        teller = threading.Thread(target=lines.say, daemon=True)
        teller.start()
        try:
            yield lines
        finally:
            lines.ended.set()
            teller.join()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[where]}")]
    if remaining:
        columns.append(TimeRemainingColumn())
    with Bar(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=None, where="")

        def show(progress: Progress) -> None:
            where = f"{progress.step} ({printable(progress.notice)})" if progress.notice else progress.step
            bar.update(
                task, description=progress.part or title, completed=progress.done, total=progress.total, where=where
            )

        yield show
