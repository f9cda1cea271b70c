"""frostline explore: a local page to play with."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli import options

PORT = 8420
"""Port that is tried first."""


def explore(
    folder: Annotated[
        Path | None, typer.Argument(help="An audit (made with --keep-texts) or a run directory to look at.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; without it 8420, or a free one if that is taken.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Play with tokens on the sphere in a browser: move a slider, watch them freeze.

    The page is for this machine only. With a folder it opens what frostline audit or frostline simulate wrote there.

    Example: frostline explore
    """
    import threading
    import webbrowser

    from frostline.exploring.app import LIMITS, Explorer, make_app
    from frostline.exploring.saved_folders import open_folder
    from frostline.web.server import hosts_of, listen_somewhere, make_server, url_of

    opened = None if folder is None else open_folder(folder)
    with listen_somewhere("127.0.0.1", port, PORT) as bound:
        explorer, url = Explorer(opened), url_of(bound)
        # Connections that come before the server is ready wait, and are not refused.
        bound.listen()
        if json:
            options.print_json({"url": url})
        elif not quiet:
            options.say(f"Open {url} in a browser. Ctrl-C ends it.", hang=0)
        if browser:
            # Some browsers stay until they are closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        try:
            make_server(make_app(explorer, hosts=hosts_of(bound)), LIMITS, explorer.stop).run([bound])
        finally:
            explorer.close()
