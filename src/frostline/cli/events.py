"""frostline events: what a service has stored, for people and for other programs."""

import csv
import json as jsonlib
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline.cli import options
from frostline.printable import printable, printable_json

if TYPE_CHECKING:
    from frostline.serving.event_rows import Event

SHOWN = 20
"""Events that are printed where neither CSV nor JSON is asked for."""


def events(
    file: Annotated[Path, typer.Argument(help="The event file of frostline serve.")] = Path("frostline-events.db"),
    kind: Annotated[
        str | None,
        typer.Option(help="Only strange, alarm, critical, clear, acknowledged, reset, maintenance, start or stop."),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Not before this time, as 2026-05-11 or 2026-05-11T09:30Z.")] = None,
    source: Annotated[str | None, typer.Option(help="Only events of texts of this source.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all of them as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all of them as JSON, one per line.")] = False,
    backup: Annotated[
        Path | None, typer.Option(metavar="TO", help="Copy the file and its write-ahead log into one new file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --backup replace a file.")] = False,
) -> None:
    """Show, export or back up the events that frostline serve has stored; it may be running meanwhile.

    Of a damaged file it shows what can be read, and says on stderr how much was lost.

    Example: frostline events frostline-events.db --csv > events.csv
    """
    from frostline.errors import BadParameter
    from frostline.serving.event_rows import KINDS

    if kind is not None and kind not in KINDS:
        raise BadParameter(f"--kind {kind} is unknown; there are: {', '.join(KINDS)}.")
    if json and as_csv:
        raise BadParameter("--csv and --json are two formats; choose one.")
    if backup is not None:
        if as_csv or any(condition is not None for condition in (kind, since, source)):
            raise BadParameter("--backup copies the whole file; leave --csv, --kind, --since and --source out.")
        _back_up(file, backup, force=force, json=json)
        return
    if force:
        raise BadParameter("--force is for --backup TO; leave it out.")
    conditions = {"kind": kind, "since": _time(since) if since else 0.0, "source": source}
    if json or as_csv:
        _print_all(_read(file, conditions), as_csv=as_csv)
        return
    shown = _read(file, conditions | {"newest": True, "limit": SHOWN + 1})
    for event in shown[:SHOWN]:
        _print_for_people(event)
    if not shown:
        print("No such events.")
    if len(shown) > SHOWN:
        print("… and older ones; --json or --csv has all.")


def _read(file: Path, conditions: dict[str, Any]) -> list["Event"]:
    """Events of a file; of a damaged one those that can be read, and a sentence on stderr."""
    from frostline.serving.stored_events import read_events

    stored = read_events(file, **conditions)
    if stored.damage:
        print(f"frostline: {printable(stored.describe())}", file=sys.stderr)
    return list(stored.events)


def _print_all(stored: list["Event"], *, as_csv: bool) -> None:
    from frostline.serving.event_rows import Event

    writer = csv.DictWriter(sys.stdout, [field.name for field in fields(Event)])
    if as_csv:
        writer.writeheader()
    for event in stored:
        facts = event.facts() | {"time": _time_in_words(event.time)}
        if not as_csv:
            print(printable_json(jsonlib.dumps(facts, ensure_ascii=False)))
            continue
        facts["details"] = jsonlib.dumps(facts["details"], ensure_ascii=False)
        writer.writerow({name: _in_cell(value) for name, value in facts.items()})


def _in_cell(value: Any) -> Any:
    """A value for a cell; a spreadsheet must not take a text of somebody else for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _print_for_people(event: "Event") -> None:
    facts = [f"event {event.id}", f"after {event.texts} texts"]
    facts += [] if event.p_value is None else [f"p = {event.p_value:.2g}"]
    named = {"source": event.source, "text": event.text_id, "baseline": event.baseline}
    facts += [f"{name} {value}" for name, value in named.items() if value]
    who, why = event.details.get("who"), event.details.get("why")
    said = (f" by {who}" if who else "") + (f": {why}" if why else "")
    options.say(f"{_time_in_words(event.time)}  {event.kind} ({', '.join(facts)}){said}")
    reasons = event.details.get("reasons")
    for reason in reasons[:3] if isinstance(reasons, list) else ():
        if isinstance(reason, dict) and isinstance(reason.get("sigma"), int | float):
            options.say(f"    {reason.get('part')} ({reason['sigma']:.1f} σ): {reason.get('says')}", hang=6)


def _back_up(file: Path, target: Path, *, force: bool, json: bool) -> None:
    from frostline.serving.event_backup import back_up

    count = back_up(file, target, force=force)
    if json:
        options.print_json({"backup": str(target), "events": count})
    else:
        options.say(f"{count} events are in {target}.")


def _time(text: str) -> float:
    from frostline.errors import BadParameter

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(f"--since {text} is not a time; write it as 2026-05-11 or 2026-05-11T09:30Z.") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _time_in_words(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"  # a wild clock
