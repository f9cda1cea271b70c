"""Write docs/cli.md from the commands' own help: python docs/cli_reference.py"""

from pathlib import Path

from typer.testing import CliRunner

from frostline.cli import main

COMMANDS = [[], *([str(command.name)] for command in main.registered_commands)]


def reference() -> str:
    """The whole page."""
    parts = ["# Command line\n\nMade from `--help` by `make docs`; a test fails when the two differ.\n"]
    for command in COMMANDS:
        shown = CliRunner().invoke(main, [*command, "--help"], env={"COLUMNS": "100"}, prog_name="frostline")
        parts.append(f"## frostline {' '.join(command)}".rstrip() + f"\n\n```text\n{shown.stdout.strip()}\n```\n")
    parts.append(
        'Exit codes: 0 ok, 1 the answer is "no" (a run that ended early; runs of a sweep that failed or are left; '
        "a claim that failed, with --check), 2 bad input, 130 interrupted.\n\n"
        "`FROSTLINE_CHECKPOINT_SECONDS` (default 2) sets how often `simulate` writes a checkpoint.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("cli.md").write_text(reference(), encoding="utf-8")
