"""The service over a real socket: answers, refusals with the right status, and nothing that leaks a text."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from dataclasses import replace

import pytest

from frostline.web.request_limits import Limits
from tests.monitoring.sentences import fresh
from tests.serving.client import Client
from tests.serving.conftest import SHORT, serving
from tests.tolerances import SAME_TEXT

STRANGE = [text for n in range(8) for text in ("ice " * (9 + n), "zq xv wk " * (2 + n), "qj " * n + "zq xv wk zq")]
"""Texts of which no two are the same: repeated ones would be no evidence."""


def test_scores_are_those_of_the_library(client, base, folder):
    texts = fresh(20)
    expected = base.score(folder, texts=texts)
    found = client.score(texts)
    for row, score, p in zip(found["texts"], expected.scores, expected.p_values, strict=True):
        assert row["score"] == pytest.approx(score, abs=SAME_TEXT) and row["strange"] == (p <= 0.01)
        assert len(row["observed"]) == len(row["expected"]) == len(found["layers"])
        assert row["reasons"] == [] or p <= 0.05


def test_a_deep_profile_says_what_is_expected(client, base, folder, tmp_path):
    """In answers and on the live page, with its spread; other profiles have none."""
    texts = fresh(20)
    wanted = base.score(folder, texts=texts, profile="deep")
    with serving(base, folder, tmp_path / "e.db", profile="deep") as deep:
        found = deep.score(texts)
        picture = json.loads(deep.service.picture())
    assert found["layers"] == [2, 3] == [row["layer"] for row in picture["layers"]]
    for number, row in enumerate(found["texts"]):
        for name in ("observed", "expected", "spread"):
            assert row[name] == pytest.approx(getattr(wanted, name)[number].tolist(), abs=SAME_TEXT)
    for place, row in enumerate(picture["layers"]):
        assert row["spread"] == pytest.approx(wanted.spread[0, place])
        assert row["expected"] == pytest.approx(wanted.expected[:, place].mean(), abs=SAME_TEXT)
    assert all(row["spread"] == [] for row in client.score(texts)["texts"])
    assert all("spread" not in row for row in json.loads(client.service.picture())["layers"])


def test_an_alarm_and_its_events(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", clear_after=30, clear_seconds=0, false_alarm_every=100) as client:
        before = client.score(fresh(10))["alarm"]
        assert not before["active"] and before["threshold"] > before["level"] >= 0
        found = client.score(STRANGE)
        assert found["alarm"]["active"] and "Alarm" in found["alarm"]["says"]
        caused = [event for row in found["texts"] for event in row["events"]]
        assert {event["kind"] for event in caused} >= {"strange", "alarm"}
        stored = {event["id"]: event for event in client.get("/events").json()["events"]}
        assert all(stored[event["id"]]["kind"] == event["kind"] for event in caused)
        reasons = [reason for row in found["texts"] for reason in row["reasons"]]
        assert reasons and all(len(reason["tokens"]) == len(reason["named"]) for reason in reasons)
        samples = client.metrics()
        assert samples[("frostline_alarm_active",)] == 1 and samples[("frostline_strange_texts_total",)] >= 5
        clear = client.score(fresh(60)[10:])
        assert not clear["alarm"]["active"]
        kinds = [event["kind"] for event in client.get("/events?newest=true&limit=1000").json()["events"]]
        assert kinds[-1] == "start" and kinds.count("alarm") == 1 == kinds.count("clear")
        # No word of a text, neither in the events nor in the file.
        told = client.get("/events").body + (tmp_path / "e.db").read_bytes() + (tmp_path / "e.db-wal").read_bytes()
        assert not re.search(rb"\bzq\b|\bice\b", told)


def test_texts_are_stored_only_when_asked_for(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", store_texts=True) as client:
        client.score(STRANGE)
        kept = [event["text"] for event in client.get("/events?kind=strange").json()["events"]]
        assert kept and set(kept) <= set(STRANGE)
        assert "zq" not in client.get("/stream?once=true").body.decode()


def test_a_restart_has_the_same_events_and_goes_on(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db") as client:
        level = client.score(STRANGE + fresh(5))["alarm"]
        events = client.get("/events").json()["events"]
    with serving(base, folder, tmp_path / "e.db") as client:
        again = client.get("/events").json()["events"]
        assert again[: len(events)] == events
        assert [event["kind"] for event in again[len(events) :]] == ["stop", "start"]
        samples = client.metrics()
        assert samples[("frostline_texts_total",)] == 0  # of this process
        assert client.get("/status").json()["all"]["texts"] == len(STRANGE) + 5
        assert samples[("frostline_alarm_active",)] == 1 == level["active"]
        assert samples[("frostline_alarm_evidence_nats",)] == pytest.approx(level["level"])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"texts": []}, 422, "at least 1"),
        ({"texts": "one text"}, 422, "list"),
        ({"texts": [1]}, 422, "string"),
        ({"texts": [None]}, 422, "string"),
        ({"texts": ["a"], "reason": True}, 422, "Extra"),
        ({"texts": ["a"], "reasons": "maybe"}, 422, "bool"),
        ({}, 422, "required"),
        ([], 422, "application/json"),
        ({"texts": ["a"] * 65}, 422, "64 at most"),
        ({"texts": ["a" * 2001]}, 422, "2001 characters"),
        (b'{"texts": ["\\ud800"]}', 422, "half a character"),
        (b"", 422, "required"),
        (b"{", 422, "JSON"),
        (b"\xff\xfe\xfa", 400, "parsing"),
        (b'{"texts": [' + b"[" * 60_000, 400, "parsing"),
        (b'{"texts": ["\xff"]}', 400, "parsing"),
        (b'{"texts": ["' + b"a" * 200_001 + b'"]}', 413, "200000 bytes"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict | list | bytes) else None,
)
def test_bad_bodies(client, body, status, said):
    reply = client.post(body)
    assert reply.status == status and said in reply.json()["error"], reply.body[:300]
    assert client.get("/healthz").status == 200


def test_wrong_paths_methods_and_types(client):
    assert client.get("/score").status == 405
    assert client.get("/nothing").status == 404
    assert client.ask("POST", "/events").status == 405
    assert client.ask("POST", "/score", b'{"texts": ["a"]}', {"Content-Type": "text/plain"}).status == 422
    for query in ("limit=0", "limit=1001", "after=-1", "kind=other", "since=nan", "after=99999999999999999999999"):
        assert client.get(f"/events?{query}").status == 422


def test_only_names_of_this_machine_are_answered(client):
    assert client.get("/healthz", headers={"Host": "evil.example"}).status == 403
    assert client.get("/healthz", headers={"Host": "LOCALHOST:80"}).status == 200
    assert client.get("/healthz", headers={"Host": "[::1]:80"}).status == 200
    for odd in ("[localhostx", "[127.0.0.1]evil.com", "127.0.0.1:evil@x", ""):
        assert client.get("/healthz", headers={"Host": odd}).status in (400, 403)


def test_token(base, folder, tmp_path):
    token = "correct-horse-battery"
    with serving(base, folder, tmp_path / "e.db", token=token) as client:
        for wrong in (None, "wrong", token + "x", token[:-1], ""):
            other = Client(client.url, token=wrong)
            for path in ("/metrics", "/events", "/stream?once=true", "/docs/more", "/nothing"):
                reply = other.get(path)
                assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
            assert other.post({"texts": ["a"]}).status == 401
            free = ("/", "/live.js", "/live.css", "/docs", "/openapi.json", "/healthz", "/readyz")
            assert all(other.get(path).status == 200 for path in free)
        odd = client.get("/metrics", headers={"Authorization": b"Bearer \xff\xfe".decode("latin-1")})
        assert odd.status == 401
        assert client.get("/metrics", headers={"Host": "any.example"}).status == 200
        assert len(client.score(fresh(2))["texts"]) == 2


def test_a_body_that_lies_about_its_length_or_drips(client):
    head = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(client.address, timeout=20) as slow:
        slow.sendall(head % 5000 + b'{"texts": ["')
        assert b" 408 " in slow.recv(4096)
    with socket.create_connection(client.address, timeout=20) as large:
        large.sendall(head % 10**12)
        assert b" 413 " in large.recv(4096)
    with socket.create_connection(client.address, timeout=20) as chunked:
        chunked.sendall(head.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked"))
        for _ in range(5):
            chunked.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        assert b" 413 " in chunked.recv(4096)


def test_connections_that_never_ask_are_closed(client):
    silent = socket.create_connection(client.address, timeout=20)
    dripping = socket.create_connection(client.address, timeout=20)
    start = time.monotonic()
    dripping.sendall(b"GET / HTTP/1.1\r\n")
    with pytest.raises(OSError):
        while time.monotonic() < start + 15:
            dripping.sendall(b"X-A: b\r\n")
            time.sleep(0.1)
    assert silent.recv(10) == b"" and time.monotonic() < start + 10
    silent.close()
    dripping.close()


def test_bodies_that_nobody_waits_for_and_answers_that_nobody_reads(client):
    with socket.create_connection(client.address, timeout=20) as dripping:
        dripping.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert b" 200 " in dripping.recv(4096)
        start = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < start + 15:
                dripping.sendall(b"a")
                time.sleep(0.05)
        assert time.monotonic() < start + 10
    with socket.create_connection(client.address, timeout=20) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        start = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < start + 15:
                deaf.sendall(b"GET /live.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
                time.sleep(0.02)
        assert time.monotonic() < start + 12


def test_half_a_million_wrong_texts_stop_nobody(client):
    reply = client.post(b'{"texts": [' + b"1," * 90_000 + b"1]}")
    assert reply.status == 422 and len(reply.body) < 500
    long_key = client.post({"texts": ["a"], "k" * 10_000: 1})
    assert long_key.status == 422 and len(long_key.body) < 500


def test_half_open_clients_leave_nothing_behind(client):
    for _ in range(30):
        connection = http.client.HTTPConnection(*client.address)
        connection.request("POST", "/score", json.dumps({"texts": fresh(3)}), {"Content-Type": "application/json"})
        connection.close()  # without waiting for the answer
    until = time.monotonic() + 30
    while client.metrics()[("frostline_waiting_texts",)] and time.monotonic() < until:
        time.sleep(0.1)
    assert client.metrics()[("frostline_waiting_texts",)] == 0


def test_200_connections_at_the_same_time(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", limits=Limits()) as client:
        assert _at_the_same_time(client, 200) == [200] * 200


def _at_the_same_time(client, count):
    """Statuses of calls over connections that are all open when the first is used."""
    texts, statuses, barrier = fresh(4), [], threading.Barrier(count)

    def one():
        with socket.create_connection(client.address, timeout=60) as connection:
            barrier.wait(60)
            body = json.dumps({"texts": texts[:1]}).encode()
            connection.sendall(
                b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            statuses.append(int(connection.makefile("rb").readline().split()[1]))

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def test_connections_beyond_the_limit_are_cut_and_counted(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", limits=replace(SHORT, connections=8, slow_seconds=2)) as client:
        idle = [socket.create_connection(client.address, timeout=20) for _ in range(8)]
        # Cut before or after it was read.
        with contextlib.suppress(OSError), socket.create_connection(client.address, timeout=20) as one_more:
            assert one_more.recv(10) == b""
        for connection in idle:
            connection.close()
        client.wait_until_ready()
        assert client.metrics()[("frostline_connections_refused_total",)] >= 1


def held_up(client, gate):
    """The service's model waits at the gate before every pass."""
    original = client.service.scorer.score

    def score(*given, **named):
        gate.wait(60)
        return original(*given, **named)

    client.service.scorer.score = score


def asked(client, calls, replies):
    """Threads that post these lists of texts, under way; every text waits."""
    asking = [threading.Thread(target=lambda own=own: replies.append(client.post({"texts": own}))) for own in calls]
    for one in asking:
        one.start()
    until = time.monotonic() + 30
    while client.service.batcher.waiting < sum(map(len, calls)):
        assert time.monotonic() < until, "the texts never arrived"
        time.sleep(0.01)
    return asking


def test_overload_is_said_with_a_time_to_come_again(base, folder, tmp_path):
    """As many texts wait as may; who comes then is sent away and not scored, the others are answered."""
    gate, replies = threading.Event(), []
    with serving(base, folder, tmp_path / "e.db") as client:
        held_up(client, gate)
        asking = asked(client, [fresh(64)] * 4, replies)
        reply = client.post({"texts": ["the ice melts"]})
        assert reply.status == 503 and int(reply.headers["retry-after"]) >= 1 and "256 texts" in reply.json()["error"]
        assert not replies
        gate.set()
        for one in asking:
            one.join()
        assert [one.status for one in replies] == [200] * 4
        assert client.metrics()[("frostline_texts_total",)] == 256
        assert client.post({"texts": ["the ice melts"]}).status == 200


def test_stopping_answers_what_has_arrived(base, folder, tmp_path):
    gate, replies = threading.Event(), []
    with serving(base, folder, tmp_path / "e.db") as client:
        held_up(client, gate)
        asking = asked(client, [[text] for text in fresh(6)], replies)
        assert not replies
        threading.Timer(0.5, gate.set).start()  # when the service is stopping
    for one in asking:
        one.join()
    assert [reply.status for reply in replies] == [200] * 6


LABELS = {"le", "layer", "route", "code", "version", "model", "model_hash", "baseline", "baseline_hash", "source"}


def test_metrics_follow_the_conventions(client):
    from prometheus_client.parser import text_string_to_metric_families

    client.score(fresh(3))
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(reply.body.decode()))
    own = [family for family in families if family.name.startswith("frostline_")]
    assert len(own) > 15 and {"process_open_fds", "process_resident_memory_bytes"} <= {f.name for f in families}
    for family in own:
        assert re.fullmatch(r"[a-z_]+", family.name) and family.documentation.endswith(".")
        assert all(set(s.labels) <= LABELS for s in family.samples)
        if family.type == "counter":
            assert all(s.name.endswith(("_total", "_created")) for s in family.samples)
    samples = client.metrics()
    judged = samples[("frostline_texts_total",)] - samples[("frostline_repeated_texts_total",)]
    assert samples[("frostline_p_value_count",)] == judged > 0
    assert samples[("frostline_p_value_bucket", ("le", "+Inf"))] == judged
    assert ("frostline_resultant_observed_ratio", ("layer", "0")) in samples
    # Paths that clients choose are no labels.
    client.get("/" + "x" * 50)
    assert not any("xxx" in str(name) for name in client.metrics())


def test_pages_and_their_headers(client):
    for path, kind in (("/", "text/html"), ("/docs", "text/html"), ("/live.js", "text/javascript")):
        reply = client.get(path)
        assert reply.status == 200 and reply.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert b"http://" not in reply.body.replace(client.url.encode(), b"").replace(
            b"http://www.w3.org/2000/svg", b""
        )


def test_logs_hold_no_text(base, folder, tmp_path, caplog):
    with serving(base, folder, tmp_path / "e.db") as client:

        def fail(*given, **named):
            raise RuntimeError("zq, a word of a text")

        client.service.picture = fail
        with pytest.raises(http.client.IncompleteRead):
            client.get("/stream?once=true")
        client.service.answer = fail
        reply = client.post({"texts": STRANGE})
        assert reply.status == 500 and b"zq" not in reply.body
    assert "RuntimeError" in caplog.text and "zq" not in caplog.text and "Traceback" not in caplog.text
