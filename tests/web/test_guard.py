"""The guard over a real socket: HEAD, connections that close, framing that two servers read differently, log-ins."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest
from fastapi import FastAPI

from frostline.web.failed_logins import MOST_ADDRESSES, FailedLogins
from frostline.web.guard import Guard
from frostline.web.live_streams import LiveStreams
from frostline.web.request_limits import Limits
from frostline.web.server import hosts_of, listen, make_server, url_of
from tests.serving.client import Client

TOKEN = "correct-horse-battery"


@contextmanager
def serving(**settings):
    """A client of a guarded application with a short route, an endless one, and one that takes a body."""
    app, streams = FastAPI(openapi_url=None), LiveStreams(1, "one is open.")

    async def endless():
        while True:
            yield b"data"

    @app.get("/short")
    async def short():
        return {"a": 1}

    @app.get("/stream")
    async def stream():
        return streams.answer(endless(), "text/plain")

    @app.post("/body")
    async def body():
        return {"b": 2}

    with listen("127.0.0.1", 0) as bound:
        guard = Guard(app, Limits(slow_seconds=0.5), hosts=hosts_of(bound), **settings)
        server = make_server(guard, Limits(slow_seconds=0.5), lambda: None)
        client = Client(url_of(bound), token=settings.get("token"))
        client.streams = streams
        with server.beside(bound):
            while not server.started:
                time.sleep(0.01)
            yield client


@pytest.fixture(scope="module")
def client():
    with serving() as client:
        yield client


def told(client, request):
    """Everything the server sends until it closes the connection."""
    with socket.create_connection(client.address, timeout=10) as connection:
        connection.sendall(request)
        received = b""
        while piece := connection.recv(4096):
            received += piece
    return received


def test_head_is_get_without_a_body(client):
    for path, status in (("/short", 200), ("/none", 404)):
        got, asked = client.ask("GET", path), client.ask("HEAD", path)
        assert asked.status == got.status == status and asked.body == b"" != got.body
        assert {**asked.headers, "date": ""} == {**got.headers, "date": ""}
    assert client.ask("HEAD", "/body").status == client.ask("GET", "/body").status == 405
    refused = client.ask("HEAD", "/short", headers={"Host": "evil.example"})
    assert refused.status == 403 and refused.body == b""


def test_head_of_a_stream_ends_at_once_and_leaves_its_place_free(client):
    for _ in range(3):
        reply = client.ask("HEAD", "/stream")
        assert reply.status == 200 and reply.headers["content-type"].startswith("text/plain")
    assert client.streams.open == 0


@pytest.mark.parametrize("method", ["GET /short", "POST /body", "HEAD /short"])
def test_two_framings_of_one_body_are_refused_and_the_connection_closed(client, method):
    request = b"%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    # What follows is a call of its own to one of the two framings: it gets no answer.
    received = told(client, request % method.encode() + b"GET /short HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 400") and received.count(b"HTTP/1.1") == 1
    assert b"connection: close" in received.lower()


def test_answers_close_their_connections_while_the_server_stops():
    stopping = threading.Event()
    request = b"%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with serving(draining=stopping.is_set) as client:
        assert "connection" not in client.get("/short").headers
        stopping.set()
        for asked in (b"GET /short", b"GET /none", b"POST /body", b"HEAD /short"):
            received = told(client, request % asked).lower()  # returns: the server closed the connection
            assert received.count(b"connection: close") == 1


def test_wrong_tokens_are_logged_and_counted_but_not_missing_ones(caplog):
    failed = []
    with serving(token=TOKEN, failed=lambda: failed.append(1)) as client:
        client.get("/short")
        client.get("/short", headers={"Authorization": ""})
        Client(client.url).get("/short")
        assert len(failed) == 1
        for _ in range(5):
            assert Client(client.url, token="wrong-horse-battery").get("/short").status == 401
    assert len(failed) == 6
    lines = [record.getMessage() for record in caplog.records if "log-in" in record.getMessage()]
    assert lines == ["1 failed log-in (wrong token): 1 from 127.0.0.1"] and "horse" not in caplog.text


class Clock:
    """An event loop's clock that is wound by hand."""

    def __init__(self):
        self.later = []

    def call_later(self, seconds, act):
        self.later.append(act)
        return act

    def wind(self):
        self.later.pop()()


def test_many_failed_logins_are_one_line(caplog, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("frostline.web.failed_logins.asyncio.get_running_loop", lambda: clock)
    logins = FailedLogins()
    for number in range(3000):
        logins.add((f"10.0.{number // 250}.{number % 250}", 1))
    for _ in range(7):
        logins.add(("2001:db8::1", 1))
    logins.add(("10.0.0.2\nCRITICAL the disk burns", 1))
    logins.add(None)
    assert len(caplog.records) == 1 and len(logins._unsaid) == MOST_ADDRESSES + 1
    clock.wind()
    assert len(caplog.records) == 2 and "\n" not in caplog.records[1].getMessage()
    assert caplog.records[1].getMessage().startswith("3008 failed log-ins (wrong token): 2008 from other addresses, ")
    # Silence, then the next one is said at once.
    clock.wind()
    assert len(caplog.records) == 2 and not clock.later
    logins.add(("10.0.0.1", 1))
    assert len(caplog.records) == 3
