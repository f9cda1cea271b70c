"""A progress bar on stderr; silent when stderr is not a terminal, so that logs stay readable."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def bar(title: str, *, shown: bool = True) -> Iterator[Callable[[Any], None] | None]:
    """Yields a function that takes a ``Progress``."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[where]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=None, where="")

        def report(state: Any) -> None:
            where = f"step {state.steps}, t = {state.time:.4g}"
            progress.update(task, completed=state.time, total=state.until, where=where)

        yield report
