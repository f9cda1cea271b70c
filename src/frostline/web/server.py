"""Addresses to listen on, and a web server that limits connections and times and stops cleanly."""

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from frostline.errors import BadParameter
from frostline.web.request_limits import Limits
from frostline.web.slow_clients import protocol_class, timed

LOCAL = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""
SHORTEST_TOKEN = 16
"""Smallest number of characters of a token."""
KEEP_ALIVE = 5
"""Seconds until an idle connection is closed."""
STOPPING = 5
"""Seconds, beyond those of a call, that the server waits for answers when it stops."""
CLOSING = 10
"""Seconds for what comes after the last answer: the pass under way ends, the state and the last events are written."""
INTERRUPTED = 130
"""Exit code of a program that was asked to stop twice."""


def check_address(host: str, token: str | None) -> None:
    """Raise BadParameter for an address that other machines can reach without a token, and for a weak token."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not all("!" <= c <= "~" for c in token)):
        raise BadParameter(
            f"the token has {len(token)} characters; it takes at least {SHORTEST_TOKEN}, printable ASCII without "
            "spaces. Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if token is None and not _is_local(host):
        raise BadParameter(
            f"--host {host} can be reached from other machines; set FROSTLINE_TOKEN or give --token-file, "
            "so that only those who know the token are let in."
        )


def longest_stop(limits: Limits) -> int:
    """Seconds from the signal to the end of the process at the most; whoever ends it by force waits longer."""
    return int(limits.seconds) + STOPPING + CLOSING


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio would leave Nagle's algorithm on: 40 ms for every answer.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise BadParameter(
            f"{host}:{port} cannot be used ({error}); try another --port, or 0 for a free one."
        ) from None
    return bound


def listen_somewhere(host: str, port: int | None, usual: int) -> socket.socket:
    """A socket bound to ``port``; where that is None, to the usual port, or to a free one if the usual one is taken."""
    if port is not None:
        return listen(host, port)
    try:
        return listen(host, usual)
    except BadParameter:
        return listen(host, 0)


def url_of(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def hosts_of(bound: socket.socket) -> tuple[str, ...]:
    """Host names that a request to a bound socket may carry."""
    return (*LOCAL, str(bound.getsockname()[0]))


def make_server(
    app: ASGIApp, limits: Limits, stopping: Callable[[], None], refused: Callable[[], None] = lambda: None
) -> "Server":
    """A server of the application, within these limits.

    ``stopping`` is called once, when a signal asks to stop; waiting calls are answered after it. ``refused`` is called
    for each connection beyond the limit: it is cut, because an answer would cost as much as serving it.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        timed(app),
        http=protocol_class(app, limits, refused),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(limits.seconds) + STOPPING,
    )
    return Server(config, stopping)


class Server(uvicorn.Server):
    """A web server that ends cleanly on a signal, and at once on the second."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]):
        super().__init__(config)
        self.stopping = stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals that ask to stop; unlike uvicorn, do not raise them again after the server has stopped."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sent: signal.signal(sent, self.handle_exit) for sent in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sent, handler in before.items():
                signal.signal(sent, handler)

    @contextlib.contextmanager
    def beside(self, bound: socket.socket) -> Iterator[None]:
        """Serve from a thread while the caller does other work."""
        thread = threading.Thread(target=self.run, args=([bound],))
        thread.start()
        try:
            yield
        finally:
            self.handle_exit(signal.SIGTERM, None)
            thread.join()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # Threads at work cannot be ended politely; events that are in the file stay there.
            os._exit(INTERRUPTED)
        self.stopping()
        super().handle_exit(sig, frame)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
