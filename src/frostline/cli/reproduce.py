"""frostline reproduce: the paper's statements, each measured and judged."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO


def reproduce(
    claims: Annotated[
        list[str] | None,
        typer.Argument(help="Claims to reproduce; when none is named those of the paper, with --full all."),
    ] = None,
    claim: Annotated[list[str] | None, typer.Option("--claim", help="The same, as an option; may be repeated.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Larger sizes, and all claims: about an hour.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the claims and exit.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when a claim fails.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the page, figures and data.")] = Path("reproduction"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Measure again what is there already.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the paper's statements and judge each; one HTML page.

    The quick size takes about two minutes on two cores. A second call goes on where an interrupted one stopped, and
    uses what is finished; claims run again when their settings or frostline's code have changed.

    Example: frostline reproduce theorem terminal-phase --out reproduction
    """
    from frostline.experiments.claims.catalogue import CLAIMS, chosen

    if list_:
        chosen([*(claims or []), *(claim or [])], "full")
        _list(list(CLAIMS.values()), json)
        return
    from frostline.cli.progress import progress_bar
    from frostline.experiments.runner import reproduce as run

    size = "full" if full else "quick"
    wanted = chosen([*(claims or []), *(claim or [])], size)
    with progress_bar("reproducing", shown=not quiet) as progress:
        reproduction = run(wanted, size=size, out=out, seed=seed, force=force, progress=progress)
    if json:
        options.print_json(reproduction.facts())
    else:
        for line in reproduction.describe().splitlines():
            options.say(line, hang=10)
        options.say(f"Written: {reproduction.page}")
    if check and any(row["verdict"] == "fails" for row in reproduction.claims):
        raise typer.Exit(ANSWER_NO)


def _list(claims: list, json: bool) -> None:
    if json:
        rows = [
            {
                "name": claim.name,
                "title": claim.title,
                "statement": claim.prose.statement,
                "sizes": [size for size in claim.sizes if size != "test"],
            }
            for claim in claims
        ]
        options.print_json({"claims": rows})
        return
    for claim in claims:
        only = "" if "quick" in claim.sizes else " (with --full)"
        options.say(f"{claim.name:24}{claim.title}{only}", hang=24)
