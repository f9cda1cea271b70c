"""frostline doctor: packages, engines and devices of this installation."""

from json import dumps

import typer

from frostline.cli import options
from frostline.cli.failing import ANSWER_NO


def doctor(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Show what is installed, which engines and devices work and how fast; paste it into a bug report.

    No path, no name of a machine and no text is in it. Exit code 1 when something that is installed does not work.

    Example: frostline doctor
    """
    from frostline.cli.progress import progress_bar
    from frostline.doctor import examine
    from frostline.progress import telling

    with progress_bar("trying", shown=not (quiet or json)) as progress:
        tell = telling(progress)
        examination = examine(lambda name: tell(name, "", 0, 1))
    if json:
        # By Python's own json: the packages that other commands print with may be the ones that are broken.
        print(dumps(examination.facts(), indent=2, ensure_ascii=False))
    else:
        for line in examination.describe().splitlines():
            options.say(line, hang=8 if line.startswith(" ") else 2)
    if not examination.well:
        raise typer.Exit(ANSWER_NO)
