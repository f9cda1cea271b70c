"""Places of streams: a burst takes no more than there are, and every end of a stream gives its place back."""

import asyncio
import gc

import pytest
from starlette.exceptions import HTTPException

from frostline.web.live_streams import LiveStreams

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def never():
    await asyncio.Event().wait()


async def leaves():
    """The client looks on for a moment."""
    for _ in range(10):
        await asyncio.sleep(0)
    return {"type": "http.disconnect"}


async def answered(streams, pieces, *, receive=never, sent=None):
    """Status and body of one stream, or the exception that ended it."""
    sent = [] if sent is None else sent

    async def send(message):
        await asyncio.sleep(0)
        sent.append(message)

    await streams.answer(pieces, "text/plain")(SCOPE, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def test_a_burst_takes_no_more_places_than_there_are():
    streams, started = LiveStreams(4, "no place."), []

    async def burst():
        gate = asyncio.Event()

        async def pieces():
            started.append(1)
            await gate.wait()
            yield "a"

        tasks = [asyncio.create_task(answered(streams, pieces())) for _ in range(60)]
        while len(started) < 4:
            await asyncio.sleep(0)
        assert streams.open == 4
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(burst())
    assert results.count((200, b"a")) == 4 == len(started)
    refused = [result for result in results if isinstance(result, HTTPException)]
    assert len(refused) == 56
    assert {(one.status_code, one.detail, one.headers["Retry-After"]) for one in refused} == {(503, "no place.", "10")}
    assert streams.open == 0


async def fails():
    yield "a"
    raise RuntimeError


async def fails_first():
    raise RuntimeError
    yield


@pytest.mark.parametrize("pieces", [fails, fails_first])
def test_a_stream_that_fails_gives_its_place_back(pieces):
    streams = LiveStreams(1, "no place.")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            asyncio.run(answered(streams, pieces()))
    assert streams.open == 0


@pytest.mark.parametrize("end", ["client", "cancelled", "send"])
def test_a_stream_that_is_cut_off_gives_its_place_back_and_is_closed(end):
    streams, closed = LiveStreams(1, "no place."), []

    async def pieces():
        try:
            while True:
                yield "a"
                await asyncio.sleep(0)
        finally:
            closed.append(1)

    class Broken(list):
        def append(self, message):
            if len(self) > 3:
                raise ConnectionError
            super().append(message)

    async def cut_off():
        receive, sent = leaves if end == "client" else never, Broken() if end == "send" else []
        task = asyncio.create_task(answered(streams, pieces(), receive=receive, sent=sent))
        while not sent:
            await asyncio.sleep(0)
        assert streams.open == 1
        if end == "cancelled":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # Before the loop ends, which would close every generator.
        assert streams.open == 0
        return list(closed)

    gc.disable()
    try:
        assert asyncio.run(cut_off()) == [1]
    finally:
        gc.enable()
