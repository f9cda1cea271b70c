"""The command line: thin. Parse, call the library, print. Heavy imports happen inside the commands."""

import typer

from frostline.cli.alarm import alarm
from frostline.cli.audit import audit
from frostline.cli.baseline import baseline
from frostline.cli.diff import diff
from frostline.cli.doctor import doctor
from frostline.cli.events import events
from frostline.cli.explore import explore
from frostline.cli.failing import with_sentences
from frostline.cli.reproduce import reproduce
from frostline.cli.score import score
from frostline.cli.serve import serve
from frostline.cli.simulate import simulate
from frostline.cli.sweep import sweep
from frostline.cli.theory import theory

main = typer.Typer(
    name="frostline",
    help="Predict, simulate and measure how self-attention at low temperature freezes tokens.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    theory,
    simulate,
    sweep,
    reproduce,
    audit,
    diff,
    baseline,
    score,
    serve,
    alarm,
    events,
    explore,
    doctor,
):
    # The whole first line: left alone, typer cuts it at 45 letters.
    first = (command.__doc__ or "").splitlines()[0]
    main.command(command.__name__, short_help=first)(with_sentences(command))


@main.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from frostline import __version__

        print(__version__)
        raise typer.Exit
