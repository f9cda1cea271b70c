"""frostline alarm: the alarms of a running service, seen, acknowledged, reset, or silent for a while."""

import json as jsonlib
import os
import re
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline.cli import options

URL = "http://127.0.0.1:8421"
"""Where frostline serve listens if it is not told otherwise."""
ANSWER_SECONDS = 30.0
"""Seconds to wait for the service."""
LARGEST_ANSWER = 2**22
"""Largest answer that is read, in bytes."""
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of the units of a maintenance window."""


class Action(StrEnum):
    """Actions of the command."""

    status = "status"
    acknowledge = "acknowledge"
    reset = "reset"
    maintenance = "maintenance"


def alarm(
    action: Annotated[Action, typer.Argument(help="status shows the alarms; the others change them.")] = Action.status,
    who: Annotated[str | None, typer.Option(help="Who does it; kept in an event.")] = None,
    why: Annotated[str | None, typer.Option(help="Why; kept in an event.")] = None,
    source: Annotated[str | None, typer.Option(help="The alarm of one source; without it every alarm.")] = None,
    last: Annotated[str, typer.Option(help="How long a maintenance window lasts: 30m, 2h; 0 ends it.")] = "1h",
    url: Annotated[str, typer.Option(help="The running service.")] = URL,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token (or set FROSTLINE_TOKEN).")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 while there is an alarm.")] = False,
    json: options.Json = False,
) -> None:
    """Show the alarms of a running service; acknowledge or reset them, or begin a maintenance window.

    Example: frostline alarm acknowledge --who ada --why "new customer, looking into it"
    """
    from frostline.errors import BadParameter
    from frostline.web.token_file import read_token

    token = read_token(token_file) if token_file is not None else os.environ.get("FROSTLINE_TOKEN")
    if token and not (token.isascii() and token.isprintable()):
        raise BadParameter("FROSTLINE_TOKEN has characters that no token has; a token is printable ASCII.")
    if action is Action.status:
        status = _ask(url, token, "/status")
        if not {"headline", "alarm", "sources"} <= status.keys():
            raise BadParameter(f"{url} is not frostline serve: its answer is no status.")
        options.print_json(status) if json else _print(status)
        if check and status["alarm"]:
            raise typer.Exit(1)
        return
    if not who or not why:
        raise BadParameter(f"{action} needs --who NAME and --why REASON; both are kept in an event.")
    if action is Action.maintenance and source is not None:
        raise BadParameter("a maintenance window is one of all sources; leave --source out.")
    asked: dict[str, Any] = {"action": action.value, "who": who, "why": why, "source": source}
    if action is Action.maintenance:
        asked["seconds"] = _seconds(last)
    event = _ask(url, token, "/alarm", asked)
    if json:
        options.print_json(event)
    else:
        options.say(f"Done, as event {event['id']}: {event['kind']}.")


def _print(status: dict[str, Any]) -> None:
    options.say(f"{status['headline']}. {status['says']}", hang=0)
    options.say(status["promise"], hang=0)
    for source in [status["all"], *status["sources"]]:
        name = source["source"] or "all texts together"
        state = "" if source["severity"] == "none" else f", {source['severity']}{_since(source)}"
        options.say(f"  {name}: {source['texts']} texts, {source['strange']} strange{state}", hang=4)
        if source["severity"] != "none" and source["why"]:
            options.say(f"    {source['why']}; for example {', '.join(source['examples']) or '(none stored)'}", hang=6)
    for trouble in status["degraded"]:
        options.say(f"Does not work: {trouble}.")


def _since(source: dict[str, Any]) -> str:
    """Since when its alarm is on, and who has seen it."""
    seen = source["acknowledged"]
    since = "" if source["since"] is None else time.strftime(" since %Y-%m-%d %H:%M UTC", time.gmtime(source["since"]))
    return since + (f" (acknowledged by {seen['who']}: {seen['why']})" if seen else "")


def _seconds(text: str) -> float:
    from frostline.errors import BadParameter

    words = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text)
    if words is None or not (words[2] or float(words[1]) == 0):
        raise BadParameter(f"--last {text} is not a duration; write it as 30m, 2h or 1d, or 0 to end the window.")
    return float(words[1]) * SECONDS.get(words[2], 0)


def _ask(url: str, token: str | None, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The service's answer; its error, or that there is no service, as a sentence."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    from frostline.errors import BadParameter

    if not url.startswith(("http://", "https://")):
        raise BadParameter(f"--url {url} is not an address; give one such as {URL}.")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    sent = None if body is None else jsonlib.dumps(body).encode()
    try:
        with urlopen(Request(url.rstrip("/") + path, sent, headers), timeout=ANSWER_SECONDS) as answer:
            return dict(jsonlib.loads(answer.read(LARGEST_ANSWER)))
    except HTTPError as error:
        try:
            says = str(jsonlib.loads(error.read(LARGEST_ANSWER))["error"])
        except (ValueError, KeyError, TypeError):
            says = f"the answer is {error.code}, which frostline serve does not give."
        raise BadParameter(says) from None
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise BadParameter(f"{url} does not answer ({reason}); is frostline serve running there?") from None
    except (ValueError, TypeError, HTTPException):
        raise BadParameter(f"{url} is not frostline serve: its answer cannot be read.") from None
