"""Options that several commands share: flags named like the keys of a spec, which they override."""

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline.printable import printable, printable_json

SpecFile = Annotated[Path, typer.Argument(help="A TOML file: tokens, dimension, beta, B, V, …", metavar="SPEC")]
Beta = Annotated[float | None, typer.Option(help="Inverse temperature.")]
Tokens = Annotated[int | None, typer.Option(help="How many tokens.")]
Dimension = Annotated[int | None, typer.Option(help="Dimension d of the space.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the initial tokens.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]

Profile = Annotated[
    str,
    typer.Option(
        help="What is read of a text: full; light, the output alone; or deep, full and how much tokens should gather.",
        metavar="light|full|deep",
    ),
]
Light = Annotated[bool, typer.Option("--light", hidden=True)]


def profile_of(profile: str, light: bool) -> str:
    """The profile; ``--light`` is the old way to say ``--profile light``."""
    if not light:
        return profile
    if profile not in ("full", "light"):
        raise typer.BadParameter(f"--light is --profile light, and --profile is {profile}; give one of them.")
    print("--light is now --profile light; the old name goes in 0.3.", file=sys.stderr)
    return "light"


def say(text: str, *, hang: int = 2) -> None:
    """A sentence on stdout, wrapped at the width of the terminal, later lines indented by ``hang``."""
    width = max(40, min(100, shutil.get_terminal_size().columns))
    print(textwrap.fill(printable(text), width, subsequent_indent=" " * hang))


def print_json(value: Mapping[str, Any]) -> None:
    """JSON on stdout; NaN and infinity become null."""
    from frostline.files.plain_json import plain

    print(printable_json(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)))
