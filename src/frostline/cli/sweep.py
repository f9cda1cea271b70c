"""frostline sweep: many runs, on this machine or on a Dask cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO

if TYPE_CHECKING:
    from frostline.sweeping.plan import Plan


def sweep(
    spec: Annotated[
        Path,
        typer.Argument(
            help="A TOML file: command, [spec], [axes], where, [budget]. To look at results, a dataset will do.",
            metavar="SPEC",
        ),
    ],
    axes: Annotated[
        list[str] | None, typer.Argument(help="For --plot: x=beta y=n color=plateau.", metavar="AXIS=COLUMN")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Address of a running Dask scheduler: tcp://host:8786.", metavar="ADDRESS")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes on this machine; one per core.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each run.")] = 1,
    out: Annotated[str | None, typer.Option(help="Folder of the dataset.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also run again what failed before.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Say how far it is; run nothing.")] = False,
    export: Annotated[
        str | None,
        typer.Option(help='Write the table as CSV; run nothing. "csv": into the dataset.', metavar="FILE.csv|csv"),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the phase diagram of x=… y=… color=…; run nothing.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run every combination of the axes, each once; a Parquet dataset with one row per run.

    Interrupt it as you like and call it again: finished runs stay. Runs that other sweeps left in the same dataset are
    not run again.

    Example: frostline sweep examples/phases.toml
    """
    from frostline.errors import BadParameter
    from frostline.extras import need
    from frostline.sweeping import plan as plans

    axes = axes or []
    if plot and "=" in spec.name and not spec.exists():
        # frostline sweep --plot x=beta y=n color=plateau: without a spec, of the dataset in the default folder.
        axes, spec = [str(spec), *axes], Path(plans.OUT if out is None else out)
    if axes and not plot:
        raise BadParameter(f"{' '.join(axes)!r} goes with --plot; without it only SPEC is given.")
    if plot or status or export is not None:
        shown = None if spec.is_dir() else plans.read(spec, out=out)
        _look(spec if shown is None else shown.out, shown, status, export, _axes(axes) if plot else None, json)
        return
    if spec.is_dir():
        raise BadParameter(
            f"{spec} is a folder; to look at a dataset add --status, --plot or --export, to run give a spec."
        )
    plan = plans.read(spec, out=out)
    need("distributed", extra="cluster")
    from frostline.cli.progress import progress_bar
    from frostline.sweeping.driver import sweep as run

    # The bar's own estimate looks back for half a minute only, and runs may take longer than that.
    with progress_bar(f"sweeping {plan.out}", shown=not quiet, remaining=False) as progress:
        swept = run(plan, cluster=cluster, workers=workers, threads=threads, again=again, progress=progress)
    if json:
        options.print_json(swept.facts())
    else:
        for sentence in swept.describe().splitlines():
            options.say(sentence, hang=0)
        if swept.failed:
            _say_errors(swept.table)
        options.say(f"Table: {swept.out}/ (Parquet; frostline sweep {spec} --plot …, --export csv)", hang=0)
    if swept.failed or swept.left:
        raise typer.Exit(ANSWER_NO)


def _look(
    out: Path, plan: "Plan | None", status: bool, export: str | None, axes: dict[str, str] | None, json: bool
) -> None:
    """Show the dataset in the ways asked for; run nothing."""
    from frostline.errors import BadParameter
    from frostline.sweeping.dataset import read_table

    ids = None if plan is None else plan.ids()
    facts: dict[str, Any] = {"out": str(out)}
    if status:
        facts |= _standing(out, plan)
        if not json:
            of = f" of {facts['total']}" if "total" in facts else ""
            left = f", {facts['left']} left" if "left" in facts else ""
            options.say(f"{facts['done']}{of} runs done, {facts['failed']} failed{left}.", hang=0)
            if facts["failed"]:
                _say_errors(read_table(out, ids=ids))
    if export is not None:
        table = read_table(out, ids=ids)
        path = out / "_table.csv" if export == "csv" else Path(export)
        if path.suffix != ".csv" or not path.parent.is_dir():
            raise BadParameter(f"--export {export!r}: give a file.csv in a folder that is there, or csv.")
        _export(table, path)
        facts["export"] = str(path)
        if not json:
            options.say(f"Written: {path}", hang=0)
    if axes:
        from frostline.sweeping.diagram import write_diagram

        page = write_diagram(out, **axes, table=read_table(out, ids=ids))
        facts["page"] = str(page)
        if not json:
            options.say(f"Written: {page}, with SVG and PNG beside it", hang=0)
    if json:
        options.print_json(facts)


def _standing(out: Path, plan: "Plan | None") -> dict[str, int]:
    """Counts of the runs of a sweep, or of the whole dataset where no sweep is named."""
    if plan is None:
        from frostline.sweeping.dataset import statuses

        every = list(statuses(out).values())
        return {"done": every.count("done"), "failed": len(every) - every.count("done")}
    from frostline.sweeping.driver import standing

    progress = standing(plan)
    return {name: getattr(progress, name) for name in ("total", "done", "failed", "left")}


def _axes(words: list[str]) -> dict[str, str]:
    from frostline.errors import BadParameter

    axes = dict(word.split("=", 1) for word in words if "=" in word)
    if set(axes) != {"x", "y", "color"} or len(words) != 3:
        raise BadParameter(
            f"--plot takes three: x=beta y=n color=plateau, for example; got {' '.join(words) or 'none'}."
        )
    return axes


def _export(table: Any, path: Path) -> None:
    import io

    import pyarrow as pa
    from pyarrow import csv

    from frostline.files.atomic import write_atomically

    # CSV has no lists; they become JSON text.
    for number, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            import json

            texts = [None if value is None else json.dumps(value) for value in table[field.name].to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    buffer = io.BytesIO()
    csv.write_csv(table, buffer)
    write_atomically(path, buffer.getvalue())


def _say_errors(table: Any) -> None:
    """The errors, each once, the most frequent first."""
    from collections import Counter

    rows = table.select(["status", "error"]).to_pylist()
    counted = Counter(row["error"] for row in rows if row["status"] != "done")
    for error, count in counted.most_common(3):
        options.say(f"{count} ×: {error}")
    if len(counted) > 3:
        options.say(f"and {len(counted) - 3} other errors; the column error has all.")
