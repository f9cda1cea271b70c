"""frostline diff: what changed between two checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO


def diff(
    base: Annotated[str, typer.Argument(help="The first model: a folder, or an id on the model hub.", metavar="BASE")],
    tuned: Annotated[
        str, typer.Argument(help="The second one; or a folder of checkpoints (subfolders NAME-STEP).", metavar="TUNED")
    ],
    text: Annotated[
        str | None, typer.Option(help="Texts to compare the two at work on: a file, one per line; or: sample.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, tables and figures.")] = Path("diff"),
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 when anything has changed by more than rounding.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare two checkpoints of one encoder: layers, heads, and all around them; one HTML page.

    Each layer is unchanged, rounding (a cast or quantised copy) or changed, with the evidence; so are embeddings, task
    head, labels, tokenizer, pooling and settings. What was not compared is named.

    Example: frostline diff path/to/base path/to/tuned --out diff
    """
    from frostline.auditing.comparison.checkpoints import checkpoints, series
    from frostline.auditing.comparison.compare import diff as run
    from frostline.auditing.comparison.comparison_page import FACTS, save_comparison
    from frostline.auditing.comparison.outer_tensors import name_of
    from frostline.auditing.comparison.parts import shown
    from frostline.auditing.save import check_folder
    from frostline.cli.progress import progress_bar
    from frostline.encoders.corpus import read_texts

    check_folder(out, FACTS, "a comparison")
    texts = None if text is None else read_texts(text)
    folder = Path(tuned)
    many = folder.is_dir() and not (folder / "config.json").exists() and bool(checkpoints(folder))
    with progress_bar("comparing", shown=not quiet) as progress:
        steps = series(base, folder, texts=texts, progress=progress) if many else None
        change = steps.last if steps is not None else run(base, tuned, texts=texts, progress=progress)
        page = save_comparison(change, out, steps=steps)
    others = other_models(Path(base))
    if steps is None:
        others += other_models(folder)
    elif steps.others:
        others.append(f"models in {tuned} whose names end in no number: {', '.join(steps.others)}")
    if json:
        extra = {} if steps is None else {"steps": steps.layers.to_pylist()}
        options.print_json(change.facts() | extra | {"other_models": others, "page": str(page)})
    else:
        options.say(("Last checkpoint: " if many else "") + change.sentence, hang=0)
        for row in change.layers.to_pylist():
            options.say(f"{row['verdict'].upper():10}layer {row['layer']}: {row['evidence']}.", hang=10)
        same = [part.name for part in change.parts if part.verdict == "unchanged"]
        options.say(f"Compared and unchanged beside the layers: {', '.join(same) or 'nothing'}.", hang=0)
        for table in change.rows:
            most = [f"{name_of(row)} ({row['change']:.2g})" for row in table["most"]]
            options.say(
                f"{shown(table['table'])}: {table['rows_base']} and {table['rows_tuned']} rows; moved most: "
                f"{', '.join(most) or 'none'} (median {table['median']:.2g})."
            )
        if change.text is not None:
            if change.text["unread"]:
                options.say(change.text["unread"], hang=0)
            for name in ("base", "tuned"):
                model = change.text[name]
                options.say(
                    f"{name}: frost line {model['frost_line']} {model['frost_line_interval']}, "
                    f"median κ {model['kappa']:.0f}, fidelity {model['fidelity_argmax']:.2f} on "
                    f"{change.text['texts']} texts."
                )
        for sentence in others:
            options.say(f"Not compared: {sentence}.")
        options.say(f"Written: {page}")
    if check and change.changed:
        raise typer.Exit(ANSWER_NO)


def other_models(folder: Path) -> list[str]:
    """The other models in a folder, or of the same training beside it."""
    from frostline.encoders.model_folders import described

    others = described(folder) if folder.is_dir() else ""
    return [f"other models than {folder}: {others}"] if others else []
