"""Slow clients of a real uvicorn: these tests fail when uvicorn changes what ``web/slow_clients.py`` relies on."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import uvicorn

from frostline.web.request_limits import Limits
from frostline.web.server import listen, make_server

SLOW_SECONDS = 0.3
LIMITS = Limits(slow_seconds=SLOW_SECONDS, connections=4, seconds=5.0)
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope, receive, send):
    """Answers /large with many bytes, and /late after the time that slow clients have."""
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
        return
    if scope["path"] == "/late":
        await asyncio.sleep(3 * SLOW_SECONDS)
    body = b"x" * (50_000_000 if scope["path"] == "/large" else 3)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving():
    refused, started = [], threading.Event()
    with listen("127.0.0.1", 0) as bound:
        server = make_server(app, LIMITS, started.set, lambda: refused.append(1))
        with server.beside(bound):
            while not server.started:
                time.sleep(0.01)
            yield bound.getsockname(), refused


@pytest.fixture(scope="module")
def address():
    with serving() as (address, _):
        yield address


def connect(address):
    return socket.create_connection(address, timeout=10)


def answers(connection, count):
    """The bytes of so many short answers."""
    received = b""
    while received.count(b"xxx") < count:
        piece = connection.recv(4096)
        assert piece, received
        received += piece
    return received


def seconds_until_cut(connection, drip):
    """Seconds until the server closes a connection over which bytes drip."""
    start = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() < start + 8:
            connection.sendall(drip)
            time.sleep(0.02)
    return time.monotonic() - start


def test_uvicorn_takes_a_protocol_and_names_its_own():
    """The public option ``http`` takes a class, and a loaded configuration has the class of the name "h11"."""
    config = uvicorn.Config(app, http="h11", log_config=None)
    config.load()
    assert issubclass(config.http_protocol_class, asyncio.Protocol)

    class Own(asyncio.Protocol):
        pass

    config = uvicorn.Config(app, http=Own, log_config=None)
    config.load()
    assert config.http_protocol_class is Own


def test_headers_that_drip_are_cut_off(address):
    with connect(address) as connection:
        connection.sendall(GET[:-2] % b"/")
        assert SLOW_SECONDS / 2 < seconds_until_cut(connection, b"X-A: b\r\n") < 10 * SLOW_SECONDS


def test_headers_of_the_second_request_have_their_time_too(address):
    with connect(address) as connection:
        for _ in range(4):
            connection.sendall(GET % b"/")
            assert answers(connection, 1).startswith(b"HTTP/1.1 200")
            time.sleep(SLOW_SECONDS / 3)
        connection.sendall(GET[:-2] % b"/")
        assert seconds_until_cut(connection, b"X-A: b\r\n") < 10 * SLOW_SECONDS


def test_a_late_answer_is_no_slow_client(address):
    """The application starts in the context of the bytes: else its connection would be closed before the answer."""
    with connect(address) as connection:
        connection.sendall(2 * GET % (b"/late", b"/late"))  # the second waits for the first, and starts from its task
        assert answers(connection, 2).count(b"HTTP/1.1 200") == 2


def test_answers_that_nobody_reads_are_cut_off(address):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address)
        connection.sendall(GET % b"/large")
        assert seconds_until_cut(connection, GET % b"/") < 20 * SLOW_SECONDS


def test_connections_beyond_the_limit_are_cut_and_counted():
    with serving() as (address, refused):
        idle = [connect(address) for _ in range(LIMITS.connections)]
        with suppress(ConnectionResetError), connect(address) as one_more:
            assert one_more.recv(10) == b""
        assert refused == [1]
        for connection in idle:
            connection.close()
        time.sleep(SLOW_SECONDS)
        with connect(address) as connection:
            connection.sendall(GET % b"/")
            assert answers(connection, 1).startswith(b"HTTP/1.1 200") and refused == [1]
