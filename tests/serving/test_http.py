"""The service over HTTP as proxies, browsers and load balancers use it; empty texts; answers and their schema."""

import http.client
import json
import threading
from contextlib import ExitStack

import pytest
from fastapi.exceptions import ResponseValidationError

from frostline.serving.app import MOST_PAGES
from tests.monitoring.sentences import fresh
from tests.serving.client import Client
from tests.serving.conftest import serving
from tests.serving.test_app import asked, held_up
from tests.web.burst import burst

EMPTY = {"score": None, "p_value": None, "strange": False, "reasons": [], "events": []}


def test_head_is_answered_like_get_on_every_route(client):
    paths = [path for path, operations in client.get("/openapi.json").json()["paths"].items() if "get" in operations]
    assert {"/events", "/metrics", "/healthz", "/readyz", "/stream"} <= set(paths)
    for path in [*paths, "/", "/live.js", "/live.css", "/docs", "/openapi.json", "/nothing"]:
        # The stream of a GET would not end.
        got = client.get(path + ("?once=true" if path == "/stream" else ""))
        head = client.ask("HEAD", path)
        assert (head.status, head.body) == (got.status, b"")
        assert head.headers["content-type"] == got.headers["content-type"]


def test_a_burst_opens_no_more_live_pages_than_there_are_places(client):
    with ExitStack() as stack:
        statuses = [reply.status for reply in burst(stack, client.address, "/stream", 3 * MOST_PAGES)]
    assert statuses.count(200) == MOST_PAGES and statuses.count(503) == 2 * MOST_PAGES


def test_empty_texts_have_a_status_and_the_others_are_scored(base, folder, tmp_path):
    texts = fresh(4)
    with serving(base, folder, tmp_path / "e.db") as client:
        alone = client.score(texts)["texts"]
        mixed = client.score(["", texts[0], texts[1], "  \n", texts[2], texts[3], "\u200b"])
        assert "".join(row["status"][0] for row in mixed["texts"]) == "essesse"
        assert [row["score"] for row in mixed["texts"] if row["status"] == "scored"] == pytest.approx(
            [row["score"] for row in alone], abs=1e-6
        )
        for place in (0, 3, 6):
            assert EMPTY.items() <= mixed["texts"][place].items()
        nothing = client.score(["", " "])
        assert [row["status"] for row in nothing["texts"]] == ["empty"] * 2
        assert nothing["alarm"] == mixed["alarm"] and nothing["layers"] == mixed["layers"]
        assert client.metrics()[("frostline_texts_total",)] == 8
        assert client.service.batcher.waiting == 0


def test_an_answer_that_its_schema_does_not_describe_is_not_sent(base, folder, tmp_path, caplog):
    with serving(base, folder, tmp_path / "e.db") as client:
        answer = client.service.answer
        for odd in ({"extra": 1}, {"layers": "none"}, {"alarm": None}):
            client.service.answer = lambda *given, odd=odd, **named: answer(*given, **named) | odd
            assert client.post({"texts": ["the ice melts"]}).status == 500
        client.service.answer = answer
        assert client.post({"texts": ["the ice melts"]}).status == 200
    assert ResponseValidationError.__name__ in caplog.text and "melts" not in caplog.text


def test_calls_that_arrived_are_answered_and_their_connections_closed(base, folder, tmp_path):
    gate, replies = threading.Event(), []
    with serving(base, folder, tmp_path / "e.db") as client:
        assert "connection" not in client.get("/readyz").headers
        idle = http.client.HTTPConnection(*client.address, timeout=20)
        idle.connect()
        held_up(client, gate)
        asking = asked(client, [[text] for text in fresh(2)], replies)
        client.service.drain()
        idle.request("POST", "/score", json.dumps({"texts": ["a"]}), {"Content-Type": "application/json"})
        refused = idle.getresponse()
        assert refused.status == 503 and refused.headers["connection"] == "close"
        refused.read()
        idle.close()
        reply = client.get("/readyz")
        assert reply.status == 503 and reply.headers["connection"] == "close" and not reply.json()["ready"]
        gate.set()
        for one in asking:
            one.join()
    assert [(reply.status, reply.headers["connection"]) for reply in replies] == [(200, "close")] * 2


def test_failed_logins_are_in_the_log_and_in_a_metric(base, folder, tmp_path, caplog):
    with serving(base, folder, tmp_path / "e.db", token="correct-horse-battery") as client:
        for _ in range(3):
            assert Client(client.url, token="wrong-horse-battery").get("/metrics").status == 401
        assert client.metrics()[("frostline_failed_logins_total",)] == 3
    assert caplog.text.count("failed log-in") == 1 and "127.0.0.1" in caplog.text and "horse" not in caplog.text
