"""The guard of an application: it checks hosts and tokens, bounds bodies, and answers errors without quoting texts."""

import asyncio
import contextlib
import hmac
import json
import re
from collections.abc import Callable, Collection

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frostline.log import LOG
from frostline.web.failed_logins import FailedLogins
from frostline.web.live_streams import HEADERS_ONLY
from frostline.web.request_limits import Limits

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
"""Headers of every answer."""
DEFECT = "this should not happen; the log has the kind of error."
"""Sentence of an answer that a defect of the application prevented."""
CLOSE = (b"connection", b"close")
"""Header of an answer after which the connection is closed."""
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
"""A host name or address, and a port."""
DRAINED_SIZE = 8
"""How much of a body that is too large is still read, in units of the largest body."""
DRAINED_SECONDS = 0.2
"""How long a body that is too large is still read, in units of the time for a body."""
Count = Callable[[str, int], None]
"""Function that counts an answer by its path and its status."""


class Refused(Exception):
    """A request that gets this status and this sentence for an answer."""

    def __init__(self, code: int, sentence: str, *headers: tuple[bytes, bytes]):
        super().__init__(sentence)
        self.code, self.sentence, self.headers = code, sentence, headers


class Guard:
    """An application that only lets in requests that pass all checks.

    hosts  names that the Host header must be one of where there is no token, so that no page in a browser can reach the
           application under a name of its own
    token  the token that every request must carry; None where only this machine can connect
    open   paths that are served without a token
    known  further paths that the log may name
    count  is called with the path and the status of every answer
    failed is called for every call with a wrong token (not for one without any), which is also logged
    draining  says whether the server is stopping: answers then close their connections
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
        failed: Callable[[], None] = lambda: None,
        draining: Callable[[], bool] = lambda: False,
    ):
        self.app, self.limits, self.count = app, limits, count
        self.failed, self.draining = failed, draining
        self._failed_logins = FailedLogins()
        self._open, self._known = frozenset(open), frozenset(known) | frozenset(open)
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        headers_only = scope["method"] == "HEAD"

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self.count(scope["path"], message["status"])
                headers = [*message.get("headers", ()), *HEADERS]
                if self.draining() and CLOSE not in headers:
                    headers.append(CLOSE)
                message = {**message, "headers": headers}
            elif headers_only:
                message = {**message, "body": b""}
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._admit(scope, headers)
            if scope["method"] not in ("GET", "HEAD"):
                receive = _replayed(await self._body(headers, receive), receive)
            await self.app(_as_get(scope) if headers_only else scope, receive, answer)
        except Refused as refused:
            await _send(answer, refused.code, refused.sentence, *refused.headers)
        except asyncio.CancelledError:
            # The server stops, and the time for answers is over.
            if not started:
                await _send(answer, 503, "the service is stopping.", (b"retry-after", b"5"))
        except Exception as error:
            # The type of the error, never its message or trace: they may quote a text.
            LOG.error("%s %s failed: %s", scope["method"], self._path_for_log(scope["path"]), type(error).__name__)
            if not started:
                await _send(answer, 500, DEFECT)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = scope["path"]
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy in front may believe the one and we the other: the rest would be another client's call.
            raise Refused(400, "the call has Content-Length and Transfer-Encoding; send one of them.", CLOSE)
        if self._token is None:
            if _hostname(headers.get(b"host", b"")) not in self._hosts:
                raise Refused(
                    403, "the Host header names another machine; use the address that was printed at the start."
                )
            if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and path != "/":
                # A page of another site or port could not read the answer, but it could make the server work.
                raise Refused(403, "this was asked by a page of another site.")
            return
        if path in self._open:
            return
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            if b"authorization" in headers:
                self._failed_logins.add(scope.get("client"))
                self.failed()
            raise Refused(401, "a token is needed: Authorization: Bearer TOKEN.", (b"www-authenticate", b"Bearer"))

    def _path_for_log(self, path: str) -> str:
        """The path if it is known; a path that a client made up is not logged."""
        return path if path in self._known else "(another path)"

    async def _drain(self, receive: Receive) -> None:
        """Read on for a moment: a client that is cut off while sending may never see the answer."""
        more = True
        left = DRAINED_SIZE * self.limits.body_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_SECONDS * self.limits.slow_seconds):
                while more and left > 0:
                    message = await receive()
                    more = message.get("more_body", False)
                    left -= len(message.get("body", b""))

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self.limits.body_bytes
        large = Refused(413, f"the body is larger than {most} bytes; send fewer texts at a time.", CLOSE)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            raise large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.slow_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the connection was closed before the body had arrived.", CLOSE)
                    body += message.get("body", b"")
                    if len(body) > most:
                        break
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise Refused(408, f"the body took longer than {self.limits.slow_seconds:g} s.", CLOSE) from None
        await self._drain(receive)
        raise large


async def leave_to_guard(_: Request, error: Exception) -> Response:
    """Handler, for a guarded application, of exceptions that no other handler takes: the guard logs and answers them.

    Without it Starlette answers first and the guard logs later: a client could look into a log that has nothing yet.
    """
    raise error


def _as_get(scope: Scope) -> Scope:
    """A HEAD request as the GET request that it is answered like."""
    return {**scope, "method": "GET", "extensions": {**scope.get("extensions", {}), HEADERS_ONLY: {}}}


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Messages of a request whose body was read already."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return rest.pop() if rest else await receive()

    return again


async def _send(send: Send, code: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": sentence}).encode()
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": [*described, *headers]})
    await send({"type": "http.response.body", "body": body})


def _hostname(host: bytes) -> str:
    match = HOST.fullmatch(host.decode("latin-1").lower())
    return match[1].strip("[]") if match else ""
