"""frostline baseline: learn what normal text looks like to a model."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options


def baseline(
    model: Annotated[
        str, typer.Argument(help="A model's folder, or its id on the model hub; with --inspect a .frost file.")
    ],
    text: Annotated[str | None, typer.Option(help="A file of normal texts, one per line.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The baseline to write.")] = Path("enc.frost"),
    inspect: Annotated[bool, typer.Option("--inspect", help="Say what a baseline is of, and make none.")] = False,
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
    """
    from frostline.errors import BadParameter
    from frostline.monitoring.baseline import baseline as learn
    from frostline.monitoring.baseline_file import load_baseline
    from frostline.monitoring.merge import merge as pool

    if inspect:
        base = load_baseline(model)
    else:
        from frostline.cli.progress import shares
        from frostline.encoders.corpus import read_texts, some

        if (text is None) == (not merge):
            raise BadParameter("give --text FILE with normal texts, one per line, or --merge FILE twice or more.")
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise BadParameter(f"--out {out} cannot be written; give a file in a folder that is there.")
        texts = some(read_texts(text), max_texts) if text is not None else []
        with shares("learning", shown=not quiet) as report:
            if merge:
                base = pool(model, merge, seed=seed, report=report)
            else:
                base = learn(model, texts, keep_texts=keep_texts, seed=seed, report=report)
        base.save(out)
    about = base.about
    if json:
        options.print_json(dict(about) | ({} if inspect else {"written": str(out)}))
        return
    shape, full = about["shape"], base.judges["full"]
    options.say(
        f"A baseline of {about['model']} ({shape[0]}, {shape[1]} layers, d = {shape[2]}) from {about['texts']} texts; "
        f"p-values go down to {full.conformal.smallest:.2g}.",
        hang=0,
    )
    options.say(f"Broken copies it learned from: {', '.join(full.detector.directions.kinds)}.")
    if base.texts:
        options.say(f"It holds the {len(base.texts)} texts themselves: whoever has the file can read them.")
    if not inspect:
        options.say(f"Written: {out.absolute()}")
