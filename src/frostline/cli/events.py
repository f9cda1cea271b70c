"""frostline events: what a service has stored, for people and for other programs."""

import csv
import json as jsonlib
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options
from frostline.printable import printable_json

SHOWN = 20
"""Events that are printed where neither CSV nor JSON is asked for."""


def events(
    file: Annotated[Path, typer.Argument(help="The event file of frostline serve.")] = Path("frostline-events.db"),
    kind: Annotated[str | None, typer.Option(help="Only strange, alarm, clear, start or stop.")] = None,
    since: Annotated[str | None, typer.Option(help="Not before this time, as 2026-05-11 or 2026-05-11T09:30Z.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all of them as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all of them as JSON, one per line.")] = False,
) -> None:
    """Show or export the events that frostline serve has stored; it may be running meanwhile.

    Example: frostline events frostline-events.db --csv > events.csv
    """
    from frostline.errors import BadParameter
    from frostline.serving.events import KINDS, Event, connect, select

    if kind is not None and kind not in KINDS:
        raise BadParameter(f"--kind {kind} is unknown; there are: {', '.join(KINDS)}.")
    if json and as_csv:
        raise BadParameter("--csv and --json are two formats; choose one.")
    begin = _time(since) if since else 0.0
    connection = connect(file)
    try:
        if json or as_csv:
            writer = csv.DictWriter(sys.stdout, [field.name for field in fields(Event)])
            if as_csv:
                writer.writeheader()
            for event in select(connection, kind=kind, since=begin):
                facts = event.facts() | {"time": _time_in_words(event.time)}
                if json:
                    print(printable_json(jsonlib.dumps(facts, ensure_ascii=False)))
                    continue
                if str(facts["text"])[:1] in ("=", "+", "-", "@"):
                    facts["text"] = f"'{facts['text']}"  # or a spreadsheet would take it for a formula
                facts["details"] = jsonlib.dumps(facts["details"], ensure_ascii=False)
                writer.writerow(facts)
            return
        shown = list(select(connection, kind=kind, since=begin, newest=True, limit=SHOWN + 1))
        for event in shown[:SHOWN]:
            p = "" if event.p_value is None else f", p = {event.p_value:.2g}"
            options.say(f"{_time_in_words(event.time)}  {event.kind} (event {event.id}, after {event.texts} texts{p})")
            for reason in event.details.get("reasons", ())[:3]:
                options.say(f"    {reason['part']} ({reason['sigma']:.1f} σ): {reason['says']}", hang=6)
        if not shown:
            print("No such events.")
        if len(shown) > SHOWN:
            print("… and older ones; --json or --csv has all.")
    finally:
        connection.close()


def _time(text: str) -> float:
    from frostline.errors import BadParameter

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(f"--since {text} is not a time; write it as 2026-05-11 or 2026-05-11T09:30Z.") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _time_in_words(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
