"""The command line: thin. Parse, call the library, print. Heavy imports happen inside the commands."""

import errno
import json
import sys

import typer

from frostline.cli import simulate, theory

app = typer.Typer(
    name="frostline",
    help="Predict, simulate and measure how self-attention at low temperature freezes tokens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("theory")(theory.theory)
app.command("simulate")(simulate.simulate)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from frostline import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line: 0 ok, 1 the answer is "no", 2 bad input, 130 interrupted."""
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted; the same command goes on where this one stopped.", 130)
    except MemoryError:
        _fail("not enough memory for this; take fewer tokens or fewer saved times.", 2)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            _fail("the disk is full; free some space and give the same command again: it goes on.", 2)
        _fail(f"{error.filename or 'a file'}: {error.strerror}.", 2)
    except ValueError as error:
        # Only our own sentences are for users; any other ValueError is a defect and shows its trace.
        from frostline.errors import FrostlineError

        if not isinstance(error, FrostlineError):
            raise
        _fail(str(error), 2)


def _fail(sentence: str, code: int) -> None:
    if "--json" in sys.argv:
        print(json.dumps({"error": sentence}, ensure_ascii=False))
    print(f"frostline: {sentence}", file=sys.stderr)
    sys.exit(code)
