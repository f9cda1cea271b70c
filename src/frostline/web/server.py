"""An address, a web server with time limits, and a clean end."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from frostline.errors import BadParameter
from frostline.web.request_limits import Limits

LOCAL = ("localhost", "127.0.0.1", "::1")
SHORTEST_TOKEN = 16
KEEP_ALIVE = 5


def check_address(host: str, token: str | None) -> None:
    """Refuse to be reachable from other machines without a token."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or any(c.isspace() for c in token)):
        raise BadParameter(
            f"the token has {len(token)} characters; it takes at least {SHORTEST_TOKEN}, ASCII and without spaces. "
            "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if token is None and not _is_local(host):
        raise BadParameter(
            f"--host {host} can be reached from other machines; set FROSTLINE_TOKEN or give --token-file, "
            "so that only those who know the token are let in."
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket at the address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio would leave Nagle's algorithm on: 40 ms for every answer.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise BadParameter(
            f"{host}:{port} cannot be used ({error}); try another --port, or 0 for a free one."
        ) from None
    return made


def listen_somewhere(host: str, port: int | None, usual: int) -> socket.socket:
    """At the port that was asked for; where none was, at the usual one, or at a free one if that is taken."""
    if port is not None:
        return listen(host, port)
    try:
        return listen(host, usual)
    except BadParameter:
        return listen(host, 0)


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def hosts_of(bound: socket.socket) -> tuple[str, ...]:
    """What a Host header may say of it."""
    return (*LOCAL, str(bound.getsockname()[0]))


def make_server(
    app: ASGIApp, limits: Limits, stopping: Callable[[], None], refused: Callable[[], None] = lambda: None
) -> "Server":
    """``stopping`` is called once when a signal asks to stop; calls that wait are answered after it. ``refused`` is
    called for each connection beyond the limit: it is cut, for an answer would cost as much as serving it."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), {"slow_seconds": limits.slow_seconds, "refused": staticmethod(refused)}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(limits.seconds) + 5,
    )
    return Server(config, stopping)


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]):
        super().__init__(config)
        self.stopping = stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals that ask to stop are taken, and not raised again when all is done: then there is nothing to stop."""
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
        """Serving from a thread while other work is done."""
        thread = threading.Thread(target=self.run, args=([bound],))
        thread.start()
        try:
            yield
        finally:
            self.handle_exit(signal.SIGTERM, None)
            thread.join()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # Asked twice. Threads at work cannot be ended politely; what is in the event file stays there.
            os._exit(130)
        self.stopping()
        super().handle_exit(sig, frame)


class _Protocol(H11Protocol):
    """Closes connections whose next request does not arrive whole in time, and those whose answers nobody reads."""

    slow_seconds = 10.0
    refused: Callable[[], None] = staticmethod(lambda: None)
    _waits: asyncio.TimerHandle | None = None
    _waits_for: Any = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > (self.limit_concurrency or len(self.connections)):
            self.refused()
            transport.abort()
            return
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waits, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.slow_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        """Headers have their time, and so has the body; bytes that drip do not make it longer."""
        now = self.conn.their_state
        if now is self._waits_for:
            return
        self._waits_for = now
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
        if now in (h11.IDLE, h11.SEND_BODY):
            # The guard refuses a slow body first, with a sentence.
            seconds = self.slow_seconds if now is h11.IDLE else 1.5 * self.slow_seconds
            self._waits = self.loop.call_later(seconds, self.transport.close)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
