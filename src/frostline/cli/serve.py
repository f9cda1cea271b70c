"""frostline serve: the detector over HTTP."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline.cli import options

if TYPE_CHECKING:
    import logging


FILES = 4096
"""Limit of open files that is requested from the system: each connection is one."""
SHAPES = "32"
"""Shapes whose programs oneDNN keeps: with its default of 1,024, texts of many lengths made memory grow for hours."""


def serve(
    baseline: Annotated[Path, typer.Argument(help="A .frost file that frostline baseline wrote.")],
    model: Annotated[str, typer.Option(help="The model it is of: a folder, or an id on the model hub.")],
    host: Annotated[str, typer.Option(help="Address to listen at; others than this need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8421,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the bearer token (or set FROSTLINE_TOKEN).")
    ] = None,
    events: Annotated[Path, typer.Option(help="The SQLite file events are kept in.")] = Path("frostline-events.db"),
    keep_days: Annotated[float, typer.Option(help="Events are kept this long.")] = 30.0,
    keep_events: Annotated[int, typer.Option(min=1, help="No more events than this are kept.")] = 100_000,
    store_texts: Annotated[
        bool, typer.Option("--store-texts", help="Store strange texts themselves with their events.")
    ] = False,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Texts with p-values up to this are strange.")] = 0.01,
    false_alarm_every: Annotated[
        str, typer.Option(help="At most one false alarm in this time (30d, 12h, 2w), or in this many texts.")
    ] = "30d",
    rate: Annotated[float, typer.Option(help="Texts per second at which that time is promised.")] = 10.0,
    clear_after: Annotated[
        int, typer.Option(min=1, help="An alarm may be over after this many texts without ringing.")
    ] = 200,
    clear_seconds: Annotated[float, typer.Option(min=0, help="And after this many seconds without ringing.")] = 900.0,
    batch: Annotated[int, typer.Option(min=1, max=1024, help="Texts of several calls scored together.")] = 32,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Texts that may wait to be scored; further requests get 503.")
    ] = 2048,
    name: Annotated[str | None, typer.Option(help="Name of this replica in events; the machine's by default.")] = None,
    per_head: Annotated[bool, typer.Option("--per-head", help="Metrics for every head, not only for layers.")] = False,
    profile: options.Profile = "full",
    light: options.Light = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Serve scores, metrics and a live page over HTTP, on this machine only unless there is a token.

    Example: frostline serve enc.frost --model path/to/all-MiniLM-L6-v2
    """
    # oneDNN reads this once, at the first matrix product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", SHAPES)
    from frostline.extras import need

    need("fastapi", extra="monitor")
    need("uvicorn", extra="monitor")
    need("prometheus_client", extra="monitor")
    import logging
    import resource
    import socket

    from frostline.monitoring.baseline_file import load_baseline
    from frostline.serving.app import make_app
    from frostline.serving.service import Service
    from frostline.serving.stream_status import promise
    from frostline.serving.telemetry import configure
    from frostline.web.request_limits import Limits
    from frostline.web.server import check_address, hosts_of, listen, make_server, url_of
    from frostline.web.token_file import read_token

    logging.basicConfig(level=logging.INFO, handlers=[_log()])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    token = read_token(token_file) if token_file is not None else os.environ.get("FROSTLINE_TOKEN") or None
    check_address(host, token)
    with listen(host, port) as bound:
        base = load_baseline(baseline)
        service = Service(
            base,
            model,
            events=events,
            profile=options.profile_of(profile, light),
            alpha=alpha,
            false_alarm_every=false_alarm_every,
            rate=rate,
            clear_after=clear_after,
            clear_seconds=clear_seconds,
            store_texts=store_texts,
            keep_events=keep_events,
            keep_days=keep_days,
            batch=batch,
            per_head=per_head,
            replica=socket.gethostname() if name is None else name,
            limits=Limits(waiting=max_waiting),
        )
        stop = configure(service.metrics.registry)
        url = url_of(bound)
        # Connections that come before the server is ready wait, and are not refused.
        bound.listen()
        if json:
            options.print_json({"url": url, "pid": os.getpid(), "events": str(events.absolute())})
        elif not quiet:
            shown = url.replace("0.0.0.0", socket.gethostname()).replace("[::]", socket.gethostname())
            known = "" if token is None else ' -H "Authorization: Bearer $FROSTLINE_TOKEN"'
            options.say(f"{shown} scores texts of {base.about['model']}: open it in a browser to look on.", hang=0)
            options.say(promise(service.stream))
            options.say(f'Try: curl {shown}/score{known} --json \'{{"texts": ["some text"]}}\'. Ctrl-C ends it.')
        try:
            app = make_app(service, token=token, hosts=hosts_of(bound))
            make_server(app, service.limits, service.drain, service.refuse).run([bound])
        finally:
            if stop is not None:
                stop()


def _log() -> "logging.Handler":
    """A handler that logs errors by their kind, without a trace, which might quote a text."""
    import logging

    class Terse(logging.Formatter):
        def formatException(self, ei: Any) -> str:
            return getattr(ei[0], "__name__", "an error")

    handler = logging.StreamHandler()
    handler.setFormatter(Terse("%(asctime)s %(levelname)s %(message)s"))
    return handler
