"""A progress bar on stderr; silent when stderr is not a terminal, so that logs stay readable."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


class Report:
    """What a bar is told: call it with a ``Progress`` after every step, ``measured(done, of)`` after every distance."""

    def __init__(self, update: Callable[..., None]):
        self.update = update

    def __call__(self, state: Any) -> None:
        self.update(completed=state.time, total=state.until, where=f"step {state.steps}, t = {state.time:.4g}")

    def measured(self, done: int, of: int) -> None:
        self.update(description="measuring distances", completed=done, total=of, where=f"time {done} of {of}")


@contextmanager
def bar(title: str, *, shown: bool = True, remaining: bool = True) -> Iterator[Report | None]:
    """Yields what the work reports to; None when nothing is shown. ``remaining``: with the time left, as the bar sees
    it."""
    if not shown or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[where]}")]
    if remaining:
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=None, where="")

        yield Report(partial(progress.update, task))


@contextmanager
def shares(title: str, *, shown: bool = True) -> Iterator[Callable[[str, str, float, float], None] | None]:
    """The same for work of several named parts: called with the part, what it does, work done and work in all."""
    with bar(title, shown=shown) as report:
        if report is None:
            yield None
            return

        def told(part: str, what: str, done: float, total: float) -> None:
            report.update(description=part, completed=done, total=total, where=what)

        yield told
