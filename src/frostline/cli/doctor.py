"""frostline doctor: what is installed and what works."""

from json import dumps

import typer

from frostline.cli import options


def doctor(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """What is installed, which engines and devices work and how fast; paste it into a bug report.

    No path, no name of a machine and no text is in it. Exit code 1 when something that is installed does not work.

    Example: frostline doctor
    """
    from frostline.cli.progress import shares
    from frostline.doctor import examine

    with shares("trying", shown=not (quiet or json)) as report:
        found = examine((lambda name: report(name, "", 0, 1)) if report is not None else lambda name: None)
    if json:
        # With nothing but Python itself: what else there is may be what is broken.
        print(dumps(found.facts(), indent=2, ensure_ascii=False))
    else:
        print(f"frostline {found.frostline}, Python {found.python}, {found.system}")
        print(f"{found.cores} cores, {found.memory_gib:.1f} GiB of memory\n")
        for trial in found.trials:
            verdict = {True: "works", False: "FAILS", None: "-"}[trial.works]
            took = "" if trial.seconds is None else f" ({1000 * trial.seconds:.0f} ms)"
            options.say(f"{verdict:>6}  {trial.name}: {trial.says}{took}", hang=8)
        print()
        wanted: dict[tuple[str, ...], list[str]] = {}
        for package in found.packages:
            wanted.setdefault(package.needed_by, []).append(f"{package.name} {package.version or 'NOT INSTALLED'}")
        for users, names in wanted.items():
            title = "needed" if users == ("frostline",) else f"frostline[{', '.join(users)}]"
            options.say(f"{title}: {', '.join(sorted(names))}")
    if not found.well:
        raise typer.Exit(1)
