"""Answers that last as long as a client looks on: each holds one of a limited number of places until it has ended."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

HEADERS_ONLY = "frostline.headers_only"
"""Name of the ASGI extension in the scope of a HEAD request, which the application sees as GET."""


class LiveStreams:
    """Places of streams. A stream takes its place before its first byte is sent, and gives it back however it ends.

    most   largest number of streams at the same time
    busy   the sentence for a client that finds no place
    retry  seconds after which that client may come again
    """

    def __init__(self, most: int, busy: str, *, retry: int = 10):
        self.most, self.busy, self.retry = most, busy, retry
        self._holders: set[object] = set()

    @property
    def open(self) -> int:
        """Number of streams that have not ended."""
        return len(self._holders)

    def answer(self, pieces: AsyncGenerator[str | bytes, None], media_type: str) -> Response:
        """An answer with these pieces. A client that finds no place gets 503, and no piece is made for it."""
        return _Stream(self, pieces, media_type)

    def take(self, holder: object) -> None:
        """Take a place; raises HTTPException (503) when none is free."""
        if self.open >= self.most:
            raise HTTPException(503, self.busy, {"Retry-After": str(self.retry)})
        self._holders.add(holder)

    def give_back(self, holder: object) -> None:
        """Give the place back, if it was not given back before."""
        self._holders.discard(holder)


class _Stream(StreamingResponse):
    """A streaming answer in a place of its own; to a HEAD request it sends its headers and makes no piece."""

    def __init__(self, streams: LiveStreams, pieces: AsyncGenerator[str | bytes, None], media_type: str):
        super().__init__(self._placed(pieces), media_type=media_type)
        self._streams, self._pieces = streams, pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.take(self)
        try:
            if HEADERS_ONLY not in scope.get("extensions", {}):
                # Closed here, and not by the garbage collector: a generator that was cut off has work to end.
                async with contextlib.aclosing(self._pieces):
                    await super().__call__(scope, receive, send)
                return
        finally:
            self._streams.give_back(self)
        # The place is free again before the client can ask for it.
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b""})

    async def _placed(self, pieces: AsyncGenerator[str | bytes, None]) -> AsyncIterator[str | bytes]:
        """The pieces; after the last one the place is free, before the client sees the end."""
        async for piece in pieces:
            yield piece
        self._streams.give_back(self)
