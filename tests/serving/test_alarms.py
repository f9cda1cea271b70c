"""Alarms over HTTP and from the command line: whose they are, why, and what operators do about them."""

import json
import sqlite3
import time
from collections import Counter

import pytest
from typer.testing import CliRunner

from frostline.cli import main
from tests.monitoring.sentences import fresh
from tests.serving.client import Client
from tests.serving.conftest import serving
from tests.serving.test_app import STRANGE


@pytest.fixture
def client(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", false_alarm_every=1000) as client:
        yield client


def send(client, texts, source="", **more):
    named = [{"text": text, "id": f"{source} {number}", "source": source} for number, text in enumerate(texts)]
    reply = client.post({"texts": named} | more)
    assert reply.status == 200, reply.body
    return reply.json()


def control(client, **asked):
    return client.ask("POST", "/alarm", json.dumps(asked).encode(), {"Content-Type": "application/json"})


def test_the_status_names_the_source_since_when_why_and_three_texts(client):
    send(client, fresh(30)[:15], "library")
    found = send(client, STRANGE, "shop")
    assert found["alarm"]["active"] and found["alarm"]["sources"] == ["shop"]
    assert found["texts"][3]["id"] == "shop 3" and found["texts"][3]["source"] == "shop"
    status = client.get("/status").json()
    assert "shop" in status["says"] and status["severity"] == "warning" and status["all"]["severity"] == "none"
    shop, library = status["sources"]
    assert shop["source"] == "shop" and shop["why"] and len(shop["examples"]) == 3 and "shop" in shop["examples"][0]
    assert shop["since"] <= status["now"] and library["severity"] == "none" and library["texts"] == 15
    samples = client.metrics()
    assert samples[("frostline_source_alarm_severity", ("source", "shop"))] == 1
    assert samples[("frostline_source_alarm_severity", ("source", "library"))] == 0
    assert samples[("frostline_source_texts_total", ("source", "shop"))] == len(STRANGE)
    about = next(dict(name[1:]) for name in samples if name[0] == "frostline_build_info")
    assert about["baseline_hash"] == status["baseline_hash"] != about["model_hash"]
    alarm = client.get("/events?kind=alarm").json()["events"][0]
    assert (
        alarm["source"] == "shop"
        and alarm["text_id"].startswith("shop")
        and alarm["baseline"] == about["baseline_hash"]
    )


def test_the_example_of_the_documentation_never_rings(client):
    for _ in range(100):
        found = client.score(["some text"])
    assert found["texts"][0]["repeated"] and not found["alarm"]["active"]
    assert client.get("/status").json()["repeated"] == 99
    assert len(client.get("/events?kind=strange").json()["events"]) <= 1


def test_a_dry_run_scores_and_counts_for_nothing(client):
    before = client.get("/status").json()
    found = send(client, STRANGE, "probe", dry_run=True)
    assert found["texts"][0]["p_value"] <= 0.05 and not found["alarm"]["active"]
    after = client.get("/status").json()
    assert after["all"] == before["all"] and after["sources"] == []
    assert client.metrics()[("frostline_dry_run_texts_total",)] == len(STRANGE)


def test_an_operator_acknowledges_resets_and_silences(client):
    assert control(client, action="reset", who="ada", why="nothing there").status == 422
    send(client, STRANGE, "shop")
    event = control(client, action="acknowledge", who="ada", why="new customer", source="shop").json()
    assert event["kind"] == "acknowledged" and event["details"]["who"] == "ada"
    assert client.metrics()[("frostline_alarm_acknowledged",)] == 1
    assert control(client, action="reset", who="ada", why="mended").status == 200
    assert client.metrics()[("frostline_alarm_severity",)] == 0
    assert control(client, action="maintenance", who="ada", why="import", seconds=60).status == 200
    assert client.get("/status").json()["maintenance"]["who"] == "ada"
    kinds = [event["kind"] for event in client.get("/events?newest=true").json()["events"]]
    assert kinds[:3] == ["maintenance", "reset", "acknowledged"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"action": "sing", "who": "a", "why": "b"}, "acknowledge"),
        ({"action": "reset", "who": "", "why": "b"}, "at least 1"),
        ({"action": "reset", "who": "a"}, "required"),
        ({"action": "reset", "who": "a\nb", "why": "b"}, "control character"),
        ({"action": "reset", "who": "a", "why": "  "}, "at least 1"),
        ({"action": "maintenance", "who": "a", "why": "b", "seconds": 60, "source": "shop"}, "all sources"),
        ({"action": "maintenance", "who": "a", "why": "b", "seconds": 1e9}, "604800"),
        ({"action": "reset", "who": "a", "why": "b", "source": "nobody"}, "nobody"),
    ],
)
def test_bad_controls(client, asked, said):
    reply = control(client, **asked)
    assert reply.status == 422 and said in reply.json()["error"]


@pytest.mark.parametrize(
    "text",
    [{"text": "a", "id": "x" * 129}, {"text": "a", "source": "x" * 65}, {"id": "1"}, {"text": "a", "source": "\n"}],
)
def test_bad_names_of_texts(client, text):
    assert client.post({"texts": [text]}).status == 422


@pytest.mark.parametrize("mark", ["\x9b", "\u202e", "\u2066", "\u200f", "\u2028", "\x00"])
@pytest.mark.parametrize("name", ["id", "source"])
def test_a_name_reverses_or_hides_nothing_around_it(client, mark, name):
    reply = client.post({"texts": ["normal", {"text": "a", name: f"a{mark}b"}]})
    assert reply.json()["error"] == f"body texts 1 {name}: it has a control character or a direction mark"
    assert send(client, fresh(1), "\u05d0\u05d1 \U0001f469\u200d\U0001f680")["texts"][0]["status"] == "scored"


def test_a_defect_is_a_sentence_too(client, monkeypatch, caplog):
    """The log has the kind of error before the client has the answer that says so, however slow the log is."""
    caplog.handler.addFilter(lambda record: not time.sleep(0.2))
    monkeypatch.setattr(client.service, "status", lambda: 1 / 0)
    reply = client.get("/status")
    assert reply.status == 500 and "the log has the kind of error" in reply.json()["error"]
    assert "GET /status failed: ZeroDivisionError" in caplog.text


def test_metrics_are_read_while_new_sources_come(client):
    class Growing(Counter):
        def __getitem__(self, name):
            labelled.setdefault(f"source {len(labelled)}", Counter())
            return super().__getitem__(name)

    labelled = client.service.stream.labels.counts
    labelled["first"] = Growing(texts=3)
    assert client.metrics()[("frostline_source_texts_total", ("source", "first"))] == 3


def test_a_restart_with_another_baseline_begins_anew(base, folder, tmp_path):
    import frostline as fl
    from tests.monitoring.sentences import sentences

    with serving(base, folder, tmp_path / "e.db", false_alarm_every=1000) as client:
        send(client, STRANGE)
        old = client.get("/status").json()
        assert old["alarm"]
    other = fl.baseline(folder, sentences(900, seed=0), seed=1, name="second")
    with serving(other, folder, tmp_path / "e.db", false_alarm_every=1000) as client:
        status = client.get("/status").json()
        assert not status["alarm"] and status["all"]["texts"] == 0 and status["baseline"] == "second"
        assert status["baseline_hash"] != old["baseline_hash"]
        assert client.get("/events?kind=alarm").json()["events"][0]["baseline"] == old["baseline_hash"]
    with serving(base, folder, tmp_path / "e.db", false_alarm_every=1000) as client:
        assert client.get("/status").json()["alarm"]  # its own state is still there


def test_a_restart_says_why_and_reads_events_that_were_edited(base, folder, tmp_path):
    path = tmp_path / "e.db"
    with serving(base, folder, path, false_alarm_every=1000) as client:
        send(client, STRANGE, "shop")
        before = client.get("/status").json()["sources"][0]
    client.service.close()
    with sqlite3.connect(path) as file:
        for reasons in ("5", "[5]", '[{"part": [], "sigma": 1, "says": {}}]', '[{"part": "x", "sigma": NaN}]'):
            row = ("strange", 1.0, 1, f'{{"reasons": {reasons}}}', "other", base.identity[:12])
            columns = "kind, time, texts, details, source, baseline"
            file.execute(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
    with serving(base, folder, path, false_alarm_every=1000) as client:
        after = client.get("/status").json()["sources"][0]
        assert after["why"] == before["why"] != "" and after["examples"] == before["examples"]


def call(client, *words):
    return CliRunner().invoke(main, ["alarm", *words, "--url", client.url])


def test_the_command_shows_and_changes_alarms(client):
    assert "All is well" in call(client, "status").output or "Waiting" in call(client).output
    send(client, STRANGE, "shop")
    shown = call(client, "status", "--check")
    assert shown.exit_code == 1 and "shop" in shown.output and "for example" in shown.output
    assert json.loads(call(client, "status", "--json").output)["alarm"] is True
    assert "acknowledged" in call(client, "acknowledge", "--who", "ada", "--why", "looking").output
    again = " ".join(call(client).output.split())
    assert "(acknowledged by ada: looking)" in again
    assert time.strftime("warning since %Y-%m-%d", time.gmtime()) in again
    assert call(client, "reset", "--who", "ada", "--why", "done", "--source", "shop").exit_code == 0
    assert call(client, "status", "--check").exit_code == 0
    assert call(client, "maintenance", "--last", "10m", "--who", "ada", "--why", "import").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reset",), "--who NAME and --why"),
        (("reset", "--who", "a", "--why", "b"), "no alarm"),
        (("maintenance", "--who", "a", "--why", "b", "--last", "soon"), "30m, 2h"),
        (("dance",), "Invalid value"),
        (("maintenance", "--who", "a", "--why", "b", "--source", "shop"), "all sources"),
        (("status", "--token-file", "/no/such/file"), "cannot be read"),
    ],
)
def test_bad_commands_are_a_sentence(client, words, said):
    found = call(client, *words)
    assert found.exit_code == 2 and said in " ".join(found.output.split())


@pytest.mark.parametrize("content", [b"\x8f\xff", b"two\nlines", "é".encode()], ids=["bytes", "two lines", "no ASCII"])
def test_bad_tokens_are_a_sentence(content, client, tmp_path, monkeypatch):
    (tmp_path / "token").write_bytes(content)
    found = call(client, "status", "--token-file", str(tmp_path / "token"))
    assert found.exit_code == 2 and "token" in found.output
    monkeypatch.setenv("FROSTLINE_TOKEN", content.decode(errors="replace"))
    found = call(client, "status")
    assert found.exit_code == 2 and "FROSTLINE_TOKEN" in found.output


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://[", "{}/healthz?", "{}/docs?"])
def test_what_is_no_service_is_a_sentence(url, client):
    found = CliRunner().invoke(main, ["alarm", "--url", url.format(client.url)])
    assert found.exit_code == 2 and "is not frostline serve" in " ".join(found.output.split())


def test_no_service_is_a_sentence(client):
    nobody = Client("http://127.0.0.1:9")
    found = call(nobody, "status")
    assert found.exit_code == 2 and "does not answer" in found.output
    assert "not an address" in " ".join(call(Client("ftp://x"), "status").output.split())
