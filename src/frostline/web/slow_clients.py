"""Time limits on slow clients and a limit on connections, which uvicorn itself does not have.

uvicorn limits how long a connection may be idle, but neither how long the headers of a request may take nor how long an
answer may stay unread. Its public option ``http`` takes any asyncio protocol; the one made here stands between the
transport and uvicorn's protocol and passes every event on. It relies on uvicorn in two ways, which
tests/web/test_slow_clients.py checks: the settings of a protocol are keyword arguments, and the application starts in
the context (``contextvars``) in which the bytes of the request arrived.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from frostline.web.request_limits import Limits

_CONNECTION: "ContextVar[Connection]" = ContextVar("connection")
"""The connection that a request came over."""


class Connection(asyncio.Protocol):
    """A connection that is closed when its next request does not arrive in time, or when nobody reads its answers."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        limits: Limits,
        connections: "set[Connection]",
        refused: Callable[[], None],
    ):
        self._protocol, self._limits, self._refused = protocol, limits, refused
        self._connections = connections
        self._answers = 0
        """Requests that are being answered."""
        self._request_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._connections) >= self._limits.connections:
            self._refused()
            transport.abort()
            return
        self._connections.add(self)
        self._protocol.connection_made(transport)
        self._request_timer = self._after_slow_seconds(transport.close)

    def data_received(self, data: bytes) -> None:
        token = _CONNECTION.set(self)
        try:
            self._protocol.data_received(data)
        finally:
            _CONNECTION.reset(token)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()
        self._unread_timer = self._after_slow_seconds(self._transport.abort)

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
        _cancel(self._unread_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._request_timer)
        _cancel(self._unread_timer)
        if self in self._connections:
            self._connections.discard(self)
            self._protocol.connection_lost(exc)

    def begin_answer(self) -> None:
        """The headers of a request are complete; its body is the business of the guard."""
        self._answers += 1
        _cancel(self._request_timer)

    def end_answer(self) -> None:
        """The time for the next request begins; bytes that drip do not make it longer."""
        self._answers -= 1
        if not self._answers and self in self._connections:
            self._request_timer = self._after_slow_seconds(self._transport.close)

    def _after_slow_seconds(self, act: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._limits.slow_seconds, act)


def timed(app: ASGIApp) -> ASGIApp:
    """The application, which tells every connection when the answer to a request begins and ends."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        connection = _CONNECTION.get()
        connection.begin_answer()
        try:
            await app(scope, receive, send)
        finally:
            connection.end_answer()

    return answer


def protocol_class(app: ASGIApp, limits: Limits, refused: Callable[[], None]) -> type[asyncio.Protocol]:
    """The protocol for ``uvicorn.Config(http=…)``; ``refused`` is called for every connection beyond the limit."""
    config = uvicorn.Config(app, http="h11", log_config=None)
    config.load()
    connections: set[Connection] = set()

    class Limited(Connection):
        def __init__(self, **settings: Any):
            super().__init__(config.http_protocol_class(**settings), limits, connections, refused)

    return Limited


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
