"""frostline simulate: run tokens through depth."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO


def simulate(
    spec: options.SpecFile,
    tokens: options.Tokens = None,
    dimension: options.Dimension = None,
    beta: options.Beta = None,
    until: Annotated[float | None, typer.Option(help="Final time.")] = None,
    step: Annotated[float | None, typer.Option(help="Step size; one Euler step is one layer.")] = None,
    stepper: Annotated[str | None, typer.Option(help="adaptive, euler or rk4.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Error per step of the adaptive method.")] = None,
    save_at: Annotated[str | None, typer.Option(help='Times to keep: "0,1,2,3".')] = None,
    seed: options.Seed = None,
    out: Annotated[str | None, typer.Option(help="Run directory to write.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Give up after so many steps.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again; replace even another spec's run.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run tokens through depth; writes a run directory.

    The directory holds arrays, a summary and pictures. A run that was killed goes on where it stopped; a finished one
    is not run again.

    Example: frostline simulate examples/two_clusters.toml --beta 300 --tokens 5000 --out cold
    """
    from frostline.errors import BadSpec
    from frostline.runs import schema as specs
    from frostline.runs.record import record

    times = None
    if save_at is not None:
        try:
            times = [float(part) for part in save_at.split(",")]
        except ValueError:
            raise BadSpec(f'--save-at {save_at!r} is not a list of times like "0,1,2,3".') from None
    overrides = {
        "tokens": tokens,
        "dimension": dimension,
        "beta": beta,
        "until": until,
        "step": step,
        "stepper": stepper,
        "tolerance": tolerance,
        "save_at": times,
        "seed": seed,
        "out": out,
        "dtype": dtype,
        "device": device,
        "max_steps": max_steps,
    }
    run = specs.read_spec(spec, overrides)
    from frostline.cli.progress import progress_bar
    from frostline.dynamics.status import Status

    with progress_bar(f"simulating to t = {run.until}", shown=not quiet) as progress:
        done = record(run, force=force, progress=progress)
    if json:
        options.print_json(done.facts())
    else:
        _tell(done.summary, done.folder, done.fresh, done.resumed)
    if not Status(done.summary["status"]).complete:
        raise typer.Exit(ANSWER_NO)


def _tell(summary: dict, folder: Path, fresh: bool, resumed: int) -> None:
    say = options.say
    if not fresh:
        say(f"Already there: {folder} holds this very run (--force runs it again).")
    if resumed:
        say(f"Went on from step {resumed}, where an earlier run had stopped.")
    say(f"{summary['tokens']} tokens in d = {summary['dimension']}: {summary['message']}")
    limit, distance = summary["limit"], summary["distance"]
    if limit is not None:
        say(f"Limit: {limit['kind']}. {limit['meaning']}")
    if summary["tokens_without_limit"]:
        say(f"{summary['tokens_without_limit']} tokens have no limit and are left out of the distance.")
    if distance["none_because"]:
        say(distance["none_because"])
    else:
        say(
            f"W2 to the limit ({'exact' if distance.get('exact') else 'each token to its own limit, an upper bound'}): "
            f"{distance['first']:.4g} at the start, smallest "
            f"{distance['smallest']:.4g} at t = {distance['smallest_at']:.4g}, {distance['last']:.4g} at the end."
        )
    known = summary.get("distance_at_times")
    if known is not None and len(known["times"]):
        bounds = zip(known["lower"], known["upper"], strict=True)
        widest = max((high - low) / high if high > 0 else 0.0 for low, high in bounds)
        sure = "exactly" if widest < 1e-9 else f"to {100 * widest:.2g} % or better, guaranteed"
        rows = ", ".join(f"{w:.4g} (t = {t:.4g})" for t, w in zip(known["times"], known["value"], strict=True))
        say(f"W2 by optimal transport at the kept times, {sure}: {rows}.")
    if summary.get("phases"):
        for line in summary["phases"]["meaning"].splitlines():
            say(f"  {line}")
    if summary.get("off_cluster") is not None:
        wrong = summary["mass_imbalance"]
        say(
            f"At the last kept time {summary['off_cluster']} tokens are off-cluster (more than 0.3 rad from the limit)"
            + ("." if wrong is None else f", and a net {100 * wrong:.3g} % of the mass is at the wrong point.")
        )
    if summary.get("regime"):
        say(summary["regime"]["meaning"])
    files = ", ".join(sorted(path.name for path in folder.iterdir()))
    say(f"{'Written' if fresh else 'There'}: {folder}/ ({files})")
