"""The command as operators run it: starting, stopping, kill -9, a full disk, bad settings."""

import json
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from frostline.serving.events import Events
from tests.monitoring.sentences import fresh
from tests.serving.process import RUN, process
from tests.serving.test_app import STRANGE


def test_ctrl_c_and_sigterm_end_it_cleanly(base, frost, folder, tmp_path):
    for sent in (signal.SIGINT, signal.SIGTERM):
        with process(frost, folder, tmp_path / "e.db") as client:
            client.score(fresh(4))
            client.process.send_signal(sent)
            assert client.process.wait(60) == 0
            (said,) = client.process.stderr.read().splitlines()
            assert said.endswith("INFO stopping; 0 texts wait. A second signal ends it at once")
    with Events(tmp_path / "e.db", baseline=base.identity[:12]) as events:
        assert [event.kind for event in events.select() if event.kind != "strange"] == ["start", "stop"] * 2
        assert events.state()["texts"] == 8


def killed_while_writing(frost, folder, path, rng):
    """Numbers of the events that were acknowledged before the process was killed."""
    said = []
    with process(frost, folder, path) as client:

        def write():
            try:
                while True:
                    rows = client.score([f"{text} {rng.random()}" for text in rng.sample(STRANGE, 3)])["texts"]
                    said.extend(event["id"] for row in rows for event in row["events"])
            except Exception:
                return

        writers = [threading.Thread(target=write) for _ in range(3)]
        for writer in writers:
            writer.start()
        while len(said) < 5:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.3)
        client.process.kill()
        for writer in writers:
            writer.join()
    return said


def check_kills(frost, folder, tmp_path, count):
    rng, said = random.Random(0), []
    for _ in range(count):
        said += killed_while_writing(frost, folder, tmp_path / "e.db", rng)
    with Events(tmp_path / "e.db") as events:
        stored = {event.id for event in events.select()}
    assert None not in said and len(said) >= 5 * count and set(said) <= stored


def test_no_acknowledged_event_is_lost_over_kill_9(frost, folder, tmp_path):
    check_kills(frost, folder, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_acknowledged_event_is_lost_over_20_kill_9(frost, folder, tmp_path):
    check_kills(frost, folder, tmp_path, 20)


def test_a_full_disk_is_said_and_scoring_goes_on(frost, folder, tmp_path):
    """No file of this process may grow beyond 300 kB: its write-ahead log reaches that soon."""

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))

    with process(frost, folder, tmp_path / "e.db", before=small_disk) as client:
        for number in range(60):
            found = client.score([f"{text} {number}" for text in STRANGE])
            if client.get("/readyz").json()["degraded"]:
                break
        reply = client.get("/readyz")
        assert reply.status == 200 and "not stored" in reply.json()["degraded"][0]
        found = client.score([f"{text} 60" for text in STRANGE])
        assert None in [event["id"] for row in found["texts"] for event in row["events"]]
        samples = client.metrics()
        assert samples[("frostline_event_store_up",)] == 0 and samples[("frostline_events_pending",)] > 0
        assert client.get("/events").status == 200
        # There is room again: what waited is written.
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found = client.score([f"{text} 61" for text in STRANGE])
        assert None not in [event["id"] for row in found["texts"] for event in row["events"]]
        assert client.get("/readyz").json() == {"ready": True, "degraded": []}
        strange = client.metrics()[("frostline_strange_texts_total",)]
    with Events(tmp_path / "e.db") as events:
        assert len(events.select(kind="strange")) == strange


EACH = """
import io, json, sys
from contextlib import redirect_stderr
from frostline.cli import main
for flags in json.loads(sys.argv[1]):
    sys.argv[1:] = ["serve", "--port", "0", *flags]
    with redirect_stderr(io.StringIO()) as said:
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, said.getvalue().strip().splitlines()]))
"""


def serve_each(several):
    """Exit code and lines of stderr of each call, one after the other in one new process."""
    flags = json.dumps([[str(flag) for flag in one] for one in several])
    done = subprocess.run([sys.executable, "-c", EACH, flags], capture_output=True, text=True, timeout=120, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_bad_settings_are_one_sentence(frost, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "notes.txt").write_text("not a database" * 100)
    model = ["--model", folder]
    cases = {
        "needs a token|set FROSTLINE_TOKEN": [frost, *model, "--host", "0.0.0.0"],
        "at least 16": [frost, *model, "--token-file", "short"],
        "cannot be used": [frost, *model, "--events", "notes.txt"],
        "there is no file": ["none.frost", *model],
        "No such file": [frost, *model, "--token-file", "none"],
        "give a file in a folder": [frost, *model, "--events", "no/such/folder/e.db"],
        "one in 10 to one in": [frost, *model, "--false-alarm-every", "1"],
        "no config.json|not there": [frost, "--model", tmp_path],
    }
    for said, (code, lines) in zip(cases, serve_each(cases.values()), strict=True):
        assert code == 2 and len(lines) == 1, (said, lines)
        assert any(one in lines[0] for one in said.split("|")), lines


def test_strange_token_files_are_one_sentence(frost, folder, tmp_path):
    strange = {
        "no token has": b"correct-horse-\xff\xfe-battery",
        "no token has ": b"correct-horse-\x00-battery",
        "byte-order mark": b"\xef\xbb\xbfcorrect-horse-battery",
        "is empty": b"\n",
        "several lines": b"correct-horse-battery\ncorrect-horse-battery\n",
        "more than 4096 bytes": b"a" * 10**7,
    }
    paths = []
    for number, content in enumerate(strange.values()):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(content)
    said = [*strange, "Is a directory", "No such file"]
    results = serve_each([frost, "--model", folder, "--token-file", path] for path in [*paths, tmp_path, "none"])
    for words, (code, lines) in zip(said, results, strict=True):
        assert code == 2 and len(lines) == 1 and words.strip() in lines[0] and "horse" not in lines[0], lines


def test_a_port_or_an_event_file_in_use(frost, folder, tmp_path):
    with process(frost, folder, tmp_path / "e.db") as client:
        calls = [
            (frost, "--model", folder, "--events", tmp_path / "f.db", "--port", client.address[1]),
            (frost, "--model", folder, "--events", tmp_path / "e.db", "--port", "0"),
        ]
        said = ["cannot be used", "in use by another"]
        for words, (code, lines) in zip(said, serve_each(calls), strict=True):
            assert code == 2 and words in lines[0], lines


def test_events_can_be_exported_meanwhile(frost, folder, tmp_path):
    with process(frost, folder, tmp_path / "e.db", "--name", "left") as client:
        client.score(STRANGE)
        command = [sys.executable, "-c", RUN, "events", str(tmp_path / "e.db")]
        asked = subprocess.run([*command, "--json", "--kind", "strange"], capture_output=True, text=True, check=True)
        rows = [json.loads(line) for line in asked.stdout.splitlines()]
        assert len(rows) == client.metrics()[("frostline_strange_texts_total",)] > 0
        assert all(row["replica"] == "left" and row["time"].endswith("Z") for row in rows)
        table = subprocess.run([*command, "--csv"], capture_output=True, text=True, check=True).stdout.splitlines()
        assert table[0].startswith("kind,texts,time") and len(table) > len(rows)
        people = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "alarm" in people and "σ" in people
        for wrong in (["--kind", "x"], ["--since", "yesterday"]):
            assert subprocess.run([*command, *wrong], capture_output=True).returncode == 2
