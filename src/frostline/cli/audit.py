"""frostline audit: what the theory says about a real encoder."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO

SHOWN = 8
"""Findings that are printed."""


def audit(
    model: Annotated[str, typer.Argument(help="A model's folder, or its id on the model hub.", metavar="MODEL")],
    text: Annotated[
        str | None,
        typer.Option(
            help="A file with one text per line, or a folder of them; or: sample, the texts that ship with frostline."
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Usual text, like --text, whose mean value shares explained are measured from; or every second text."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, tables and figures.")] = Path("audit"),
    thresholds: Annotated[
        Path | None, typer.Option(help="A TOML file of limits, [NUMBER] min = … max = …; exit 1 when one is broken.")
    ] = None,
    perturbations: Annotated[
        bool, typer.Option(help="With text: follow small changes of the input through the layers.")
    ] = True,
    max_texts: Annotated[int | None, typer.Option(min=1, help="Use no more than this many texts, spread out.")] = None,
    keep_texts: Annotated[
        int,
        typer.Option(min=0, max=64, help="Keep the token clouds of so many texts, with their words, to explore."),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of controls and resampling.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Split the texts over so many processes.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Split the texts over a Dask cluster: tcp://host:8786.", metavar="ADDRESS")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Audit an encoder: what explains its attention, temperatures, spectra, frost line; one HTML page.

    From the weights alone, or with --text also at work. Every audit proves that the matrices it speaks of reproduce
    the model's own logits and outputs, and stands beside random weights and shuffled tokens as controls.

    Example: frostline audit path/to/all-MiniLM-L6-v2 --text sample --out audit
    """
    from frostline.auditing.ci_thresholds import broken, read_thresholds
    from frostline.auditing.metric_names import CHANGE_METRICS, TEXT_METRICS, WEIGHT_METRICS
    from frostline.auditing.save import check_folder
    from frostline.cli.progress import progress_bar
    from frostline.encoders.corpus import read_texts, some
    from frostline.errors import BadParameter

    check_folder(out)
    names = (*WEIGHT_METRICS, *(TEXT_METRICS if text else ()), *(CHANGE_METRICS if text and perturbations else ()))
    limits = {} if thresholds is None else read_thresholds(thresholds, names)
    texts = None if text is None else some(read_texts(text), max_texts)
    if texts is None and reference is not None:
        raise BadParameter("--reference is what texts are compared with; give --text too.")
    usual = None if reference is None else read_texts(reference)
    if texts is None and (workers is not None or cluster is not None):
        raise BadParameter(
            "there is no text to split over processes; give --text, or leave --workers and --cluster out."
        )
    with progress_bar("auditing", shown=not quiet) as progress, ExitStack() as stack:
        from frostline.auditing.audit import audit as run
        from frostline.auditing.save import save_audit
        from frostline.progress import telling

        if workers is not None or cluster is not None:
            from frostline.extras import need

            need("distributed", extra="cluster")
            from frostline.sweeping import splitting
            from frostline.sweeping.cluster import connected

            run = partial(splitting.audit, client=stack.enter_context(connected(cluster, workers, threads=1)))
        audited = run(
            model,
            texts,
            reference=usual,
            perturbations=perturbations,
            seed=seed,
            source=text or "",
            keep_texts=keep_texts,
            progress=progress,
        )
        telling(progress)("page", "drawing", 1, 1)
        page = save_audit(audited, out)
    past = broken(limits, audited.metrics)
    if json:
        options.print_json(audited.facts() | {"page": str(page), "broken_thresholds": past})
    else:
        options.say(audited.sentence, hang=0)
        if audited.plateau is not None:
            options.say(audited.plateau.describe())
        options.say(f"Extraction: {audited.proof.describe()}.")
        for finding in audited.findings[:SHOWN]:
            options.say(f"FOUND  {finding.kind}, {finding.where}: {finding.evidence} ({finding.control}).", hang=7)
        if len(audited.findings) > SHOWN:
            options.say(f"       and {len(audited.findings) - SHOWN} more on the page.")
        for reason in audited.skipped:
            options.say(f"Not looked at, or not folded in: {reason}.")
        for sentence in past:
            options.say(f"BROKEN {sentence}.", hang=7)
        options.say(f"Written: {page}")
        if audited.scenes:
            options.say(
                f"{len(audited.scenes)} texts are kept, with their words; look at them: frostline explore {out}"
            )
    if past:
        raise typer.Exit(ANSWER_NO)
