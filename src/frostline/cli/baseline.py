"""frostline baseline: learn what normal text looks like to a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frostline.cli import options

if TYPE_CHECKING:
    from frostline.monitoring.baseline_plan import BaselinePlan


def baseline(
    model: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="A model's folder, or its id on the model hub; with --inspect a .frost file; with --plan numbers of "
            "texts, or a .frost file.",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="A file of normal texts, one per line.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The baseline to write.")] = Path("enc.frost"),
    name: Annotated[
        str | None, typer.Option(help="A short name, shown by events and metrics; the model's by default.")
    ] = None,
    inspect: Annotated[bool, typer.Option("--inspect", help="Say what a baseline is of, and make none.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what baselines of so many texts can promise, and make none.")
    ] = False,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="With --plan: p-value up to which texts are strange.")] = (
        0.01
    ),
    false_alarm_every: Annotated[
        str, typer.Option(help="With --plan: a time (30d, 12h) or a number of texts with one false alarm.")
    ] = "30d",
    rate: Annotated[float, typer.Option(help="With --plan: texts per second, for which that time is meant.")] = 10.0,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="Keep the texts in the file, so that it can be merged with others.")
    ] = False,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Instead of --text: baselines that kept their texts, two or more.")
    ] = None,
    max_texts: Annotated[int | None, typer.Option(min=1, help="Use no more than this many texts, spread out.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of splits and broken copies.")] = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Calibrate a monitor: learn what normal text looks like to a model, into one .frost file.

    Example: frostline baseline path/to/all-MiniLM-L6-v2 --text normal.txt -o enc.frost

    Before that: frostline baseline --plan 1000 3000 --false-alarm-every 30d --rate 10
    """
    from frostline.errors import BadParameter
    from frostline.monitoring.baseline import baseline as learn
    from frostline.monitoring.baseline_file import load_baseline
    from frostline.monitoring.merge import merge as pool

    words = model or []
    if plan:
        planned = _planned(words, alpha, false_alarm_every, rate)
        if json:
            options.print_json(planned.facts())
        else:
            _say_plan(planned)
        return
    if len(words) != 1:
        raise BadParameter(
            f"{len(words)} models are given; give one model's folder or id"
            + (" (numbers of texts go with --plan)." if words else ", or --plan.")
        )
    if inspect:
        base = load_baseline(words[0])
    else:
        from frostline.cli.progress import progress_bar
        from frostline.encoders.corpus import read_texts, some

        if (text is None) == (not merge):
            raise BadParameter("give --text FILE with normal texts, one per line, or --merge FILE twice or more.")
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise BadParameter(f"--out {out} cannot be written; give a file in a folder that is there.")
        texts = some(read_texts(text), max_texts) if text is not None else []
        with progress_bar("learning", shown=not quiet) as progress:
            if merge:
                base = pool(words[0], merge, name=name, seed=seed, progress=progress)
            else:
                base = learn(words[0], texts, name=name, keep_texts=keep_texts, seed=seed, progress=progress)
        base.save(out)
    if json:
        options.print_json(base.facts() | ({} if inspect else {"written": str(out)}))
        return
    for number, line in enumerate(base.describe().splitlines()):
        options.say(line, hang=2 if number else 0)
    if not inspect:
        options.say(f"Written: {out.absolute()}")


def _planned(words: list[str], alpha: float, false_alarm_every: str, rate: float) -> "BaselinePlan":
    """The plan for these numbers of texts, or for the baseline in this file."""
    from frostline.errors import BadParameter
    from frostline.monitoring.alarm import texts_between_alarms
    from frostline.monitoring.baseline_file import load_baseline
    from frostline.monitoring.baseline_plan import SIZES, plan_baseline, plan_baselines

    every = texts_between_alarms(false_alarm_every, rate)
    if len(words) == 1 and not words[0].isdecimal():
        return plan_baseline(load_baseline(words[0]), alpha=alpha, every=every)
    if others := [word for word in words if not word.isdecimal()]:
        raise BadParameter(f"--plan {others[0]}: give numbers of texts, such as 1000 3000, or one .frost file.")
    return plan_baselines([int(word) for word in words] or SIZES, alpha=alpha, every=every)


def _say_plan(planned: "BaselinePlan") -> None:
    """The lines of the table as they are, then wrapped sentences."""
    lines = planned.describe().splitlines()
    rows = len(planned.baselines) + 1
    for line in lines[:rows]:
        print(line)
    for line in lines[rows:]:
        options.say(line)
