"""Between the network and the application: who may come in, how much they may bring, and how long they may take."""

import asyncio
import contextlib
import hmac
import json
import logging
import re
from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frostline.web.request_limits import Limits

LOG = logging.getLogger("frostline")
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        b"frame-ancestors 'none'; base-uri 'none'",
    ),
)
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
DRAINED, DRAINING = 8, 0.2
"""How much of a body that is too large is still read, and for how long, in units of the limits of bodies."""
Count = Callable[[str, int], None]


class Refused(Exception):
    def __init__(self, code: int, sentence: str, *headers: tuple[bytes, bytes]):
        super().__init__(sentence)
        self.code, self.sentence, self.headers = code, sentence, headers


class Guard:
    """``token``: None where only this machine can connect; then the Host header must be one of ``hosts``, so that no
    page in a browser can reach us under a name of its own.

    open   paths that are served without a token; known: those that may be named in the log
    count  is told the path and the status of every answer
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        *,
        hosts: Collection[str],
        token: str | None = None,
        open: Collection[str] = (),
        known: Collection[str] = (),
        count: Count = lambda path, status: None,
    ):
        self.app, self.limits, self.count = app, limits, count
        self._open, self._known = frozenset(open), frozenset(known) | frozenset(open)
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self.count(scope["path"], message["status"])
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._admit(scope["path"], headers)
            if scope["method"] not in ("GET", "HEAD"):
                receive = _replayed(await self._body(headers, receive), receive)
            await self.app(scope, receive, answer)
        except Refused as refused:
            await _send(answer, refused.code, refused.sentence, *refused.headers)
        except asyncio.CancelledError:
            # The time to stop in is over.
            if not started:
                await _send(answer, 503, "the service is stopping.", (b"retry-after", b"5"))
        except Exception as error:
            # A kind of error, never its words nor its trace: they may quote a text.
            LOG.error("%s %s failed: %s", scope["method"], self._told(scope["path"]), type(error).__name__)
            if not started:
                await _send(answer, 500, "this should not happen; the log has the kind of error.")

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._token is None:
            if _hostname(headers.get(b"host", b"")) not in self._hosts:
                raise Refused(
                    403, "the Host header names another machine; use the address that was printed at the start."
                )
            if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and path != "/":
                # A page elsewhere (another port is elsewhere) could not read the answer, but it could make us work.
                raise Refused(403, "this was asked by a page of another site.")
            return
        if path in self._open:
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            raise Refused(401, "a token is needed: Authorization: Bearer TOKEN.", (b"www-authenticate", b"Bearer"))

    def _told(self, path: str) -> str:
        """A path for the log: one that is ours, or nothing that a client chose."""
        return path if path in self._known else "(another path)"

    async def _drain(self, receive: Receive) -> None:
        """Read on for a moment: who is cut off while sending may never see the answer."""
        more = True
        left = DRAINED * self.limits.body_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINING * self.limits.slow_seconds):
                while more and left > 0:
                    message = await receive()
                    more = message.get("more_body", False)
                    left -= len(message.get("body", b""))

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most, close = self.limits.body_bytes, (b"connection", b"close")
        large = Refused(413, f"the body is larger than {most} bytes; send fewer texts at a time.", close)
        told = headers.get(b"content-length", b"0")
        if told.isdigit() and int(told) > most:
            raise large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.slow_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the connection was closed before the body had arrived.", close)
                    body += message.get("body", b"")
                    if len(body) > most:
                        break
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise Refused(408, f"the body took longer than {self.limits.slow_seconds:g} s.", close) from None
        await self._drain(receive)
        raise large


def _replayed(body: bytes, receive: Receive) -> Receive:
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return rest.pop() if rest else await receive()

    return again


async def _send(send: Send, code: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": sentence}).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": code, "headers": told})
    await send({"type": "http.response.body", "body": body})


def _hostname(host: bytes) -> str:
    found = HOST.fullmatch(host.decode("latin-1").lower())
    return found[1].strip("[]") if found else ""
