"""The explorer over a real socket: runs as streams, predictions, exports, refusals; work ends with its page."""

import gc
import http.client
import io
import json
import os
import socket
import time
import tomllib
import zipfile
from contextlib import ExitStack

import numpy as np
import pytest

import frostline as fl
from frostline.exploring.address import read, to_spec
from frostline.exploring.app import MOST_STREAMS
from frostline.exploring.messages import FINEST, unpack
from frostline.exploring.saved_folders import open_folder
from frostline.files.plain_json import plain
from frostline.runs import schema as specs
from frostline.runs.predict import predict
from frostline.runs.schema import to_table
from tests.exploring.conftest import exploring
from tests.web.burst import burst

SMALL = "n=100&until=1"


def test_a_run_is_streamed(client):
    messages = list(unpack(client.get(f"/run?{SMALL}").body))
    kinds = [facts["kind"] for facts, _ in messages]
    assert kinds[0] == "opening" and kinds.count("frame") == 11 and kinds[-1] == "end"


def test_predictions_are_those_of_the_library(client):
    assert client.get(f"/theory?{SMALL}").json() == plain(predict(to_spec(read(SMALL))))


def test_rows_of_sliders_are_those_of_the_spec(client):
    for d, name in ((2, "B"), (3, "B"), (3, "V")):
        asked = f"d={d}&B=1,0.5,0.2&Bturn=30,20,10&V=1,-1,0&Vturn=90,0,180"
        typed = client.get(f"/rows/{name}?{asked}").json()["rows"]
        rows = np.array([row.split(",") for row in typed.split(";")], dtype=float)
        assert rows == pytest.approx(np.array(getattr(to_spec(read(asked)), name)), abs=1e-9)
    for path, said in (("/rows/B?B=x,1,1", "'x'"), ("/rows/C?", "no matrix 'C'"), ("/rows/V?V=1e99,1,1", "1e+09")):
        reply = client.get(path)
        assert reply.status == 422 and said in reply.json()["error"]


def test_the_spec_makes_the_same_run(client, tmp_path):
    reply = client.get(f"/spec.toml?{SMALL}")
    assert "run.toml" in reply.headers["content-disposition"]
    assert tomllib.loads(reply.body.decode()) == to_table(to_spec(read(SMALL)))


def test_the_run_directory_opens(client, tmp_path):
    archive = zipfile.ZipFile(io.BytesIO(client.get(f"/run.zip?{SMALL}").body))
    archive.extractall(tmp_path)
    run = fl.load_run(tmp_path / "run")
    assert run.status == "finished" and len(run.initial) == 100
    # It is the run that was seen: the same layers.
    seen = [arrays[0] for facts, arrays in unpack(client.get(f"/run?{SMALL}").body) if facts["kind"] == "frame"]
    assert run.steps == 10 and np.abs(seen[-1] / FINEST - run.tokens[-1]).max() <= 1 / FINEST
    assert {"run/tokens.png", "run/tokens.svg", "run/distance.svg"} <= set(archive.namelist())


@pytest.mark.parametrize("path", ["/run", "/theory", "/spec.toml", "/run.zip"])
@pytest.mark.parametrize(
    ("asked", "said"), [("n=10000000", "100,000"), ("B=nan,1,1", "NaN"), ("x=1", "unknown key"), ("n=%ff%fe", "whole")]
)
def test_bad_settings_are_sentences(client, path, asked, said):
    reply = client.get(f"{path}?{asked}")
    if reply.status == 200 and path == "/run":
        # The heads are made in the stream.
        ((facts, _),) = unpack(reply.body)
        assert facts["kind"] == "error" and said in facts["says"]
    elif reply.status == 200:
        assert path == "/spec.toml" and "nan" in reply.body.decode()
    else:
        assert reply.status == 422 and said in reply.json()["error"]


def test_only_this_machine_is_answered(client):
    assert client.get("/", headers={"Host": "evil.example"}).status == 403
    assert client.get("/run", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status == 200
    assert client.get("/nothing").status == 404 and client.get("/opened").status == 404
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


def wait_for(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def test_closing_the_page_ends_the_work(client):
    explorer = client.explorer
    for n in range(5):
        connection = http.client.HTTPConnection(*client.address)
        connection.request("GET", f"/run?n=3000&seed={n}&until=100")
        connection.getresponse().read(2000)
        assert explorer.running >= 1
        connection.close()
    assert wait_for(lambda: explorer.running == 0)
    # Nothing is left in the thread that computes: a new page is served at once.
    assert client.get(f"/run?{SMALL}").status == 200


def test_a_page_that_stops_reading_and_goes_away_is_not_counted(client):
    """The run is then ended while a frame is being sent: at once, and not when the garbage is collected."""
    with socket.create_connection(client.address) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(b"GET /run?n=20000&until=40 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        gc.disable()
        try:
            assert wait_for(lambda: client.explorer.running == 1)
            time.sleep(5)
            reader.close()
            assert wait_for(lambda: client.explorer.running == 0, seconds=10)
        finally:
            gc.enable()


def test_an_export_that_nobody_waits_for_is_given_up(client):
    connection = http.client.HTTPConnection(*client.address)
    connection.request("GET", "/run.zip?n=20000&until=100")
    time.sleep(1)
    connection.close()
    start = time.monotonic()
    assert client.get(f"/run.zip?{SMALL}").status == 200 and time.monotonic() < start + 60


def test_two_pages_take_turns(client):
    first = http.client.HTTPConnection(*client.address, timeout=60)
    first.request("GET", "/run?n=2000&until=30")
    slow = first.getresponse()
    slow.read(1000)
    assert len(list(unpack(client.get(f"/run?{SMALL}").body))) > 12 and client.explorer.running == 1
    first.close()
    slow.close()
    assert wait_for(lambda: client.explorer.running == 0)


def test_folders_that_cannot_be_opened(tmp_path):
    (tmp_path / "audit").mkdir()
    with pytest.raises(fl.errors.FrostlineError, match="not a folder"):
        open_folder(tmp_path / "none")
    with pytest.raises(fl.errors.FrostlineError, match="neither an audit"):
        open_folder(tmp_path / "audit")
    (tmp_path / "audit" / "audit.json").write_text("{}")
    with pytest.raises(fl.errors.FrostlineError, match="--keep-texts"):
        open_folder(tmp_path / "audit")
    for text in ("[", "[1]", '[{"words": ["a"], "places": {}, "clusters": [[0]]}]', "[" * 100_000):
        (tmp_path / "audit" / "scenes.json").write_text(text)
        with pytest.raises(fl.errors.FrostlineError, match="not a whole audit"):
            open_folder(tmp_path / "audit")


def test_a_burst_starts_no_more_runs_than_there_are_places(client):
    with ExitStack() as stack:
        statuses = [reply.status for reply in burst(stack, client.address, "/run?n=20000&until=100", 60)]
    assert statuses.count(200) == MOST_STREAMS and statuses.count(503) == 60 - MOST_STREAMS
    assert wait_for(lambda: client.explorer.running == 0)


def test_head_is_answered_like_get(client):
    for path in (
        "/",
        "/explore.css",
        "/explore.js",
        "/audit.js",
        "/heads.js",
        "/about",
        "/healthz",
        "/opened",
        "/theory",
        "/rows/B",
        "/spec.toml",
    ):
        got, head = client.get(path), client.ask("HEAD", path)
        assert (head.status, head.body) == (got.status, b"")
        assert head.headers["content-type"] == got.headers["content-type"]
    assert client.ask("HEAD", f"/run?{SMALL}").status == 200 and client.explorer.running == 0


SLOW = "n=2000&B2=0,1,0;-1,0,0;0,0,1&V2=1,1,1&until=0.3"
"""Two heads whose tokens never rest: their limits are looked for, for a minute."""


@pytest.mark.parametrize("path", ["/run", "/run.zip", "/theory"])
def test_slow_work_that_nobody_waits_for_is_given_up(client, path):
    asked = "n=100000&B=0,1,0;0,0,0;0,0,0" if path == "/theory" else SLOW
    connection = http.client.HTTPConnection(*client.address)
    connection.request("GET", f"{path}?{asked}")
    time.sleep(1.5)
    connection.close()
    start = time.monotonic()
    assert client.get(f"{path}?{SMALL}").status == 200 and time.monotonic() < start + 20


def test_slow_work_does_not_hold_up_the_end():
    with exploring() as client:
        connection = http.client.HTTPConnection(*client.address)
        connection.request("GET", f"/run?{SLOW}")
        time.sleep(1.5)
        start = time.monotonic()
    assert time.monotonic() < start + 20
    connection.close()


def test_an_export_without_room_is_a_sentence(client, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    answer = client.get(f"/run.zip?{SMALL}")
    assert answer.status == 507 and "TMPDIR" in answer.json()["error"]


def test_a_defect_is_a_sentence_that_the_log_explains(client, monkeypatch, caplog):
    """The log has the kind of error before the client has the answer that says so, however slow the log is."""
    caplog.handler.addFilter(lambda record: not time.sleep(0.2))
    monkeypatch.setattr(client.explorer, "predict", lambda *given: 1 / 0)
    answer = client.get(f"/theory?{SMALL}")
    assert answer.status == 500 and "the log has the kind of error" in answer.json()["error"]
    assert "GET /theory failed: ZeroDivisionError" in caplog.text


def test_what_cannot_be_run_is_not_handed_out(client):
    assert client.get("/spec.toml?beta=0").status == 422


def test_pages_of_other_ports_are_refused(client):
    for site, status in (("same-site", 403), ("cross-site", 403), ("same-origin", 200), ("none", 200)):
        assert client.get(f"/theory?{SMALL}", headers={"Sec-Fetch-Site": site}).status == status


def test_other_folders_are_called_what_they_are(tmp_path):
    (tmp_path / "claims").mkdir()
    with pytest.raises(fl.errors.FrostlineError, match=r"is a reproduction; open .*index.html"):
        open_folder(tmp_path)
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "audit.json")
    with pytest.raises(fl.errors.FrostlineError, match="neither an audit"):
        open_folder(pipe)


@pytest.mark.parametrize(
    "change",
    [
        {"times": [0.0]},
        {"times": [[0.0, 1.0]]},
        {"times": [1.0, 0.5]},
        {"tokens": [[[1.0, 0.0]]]},
        {"initial": [[1.0, 0.0]]},
        {"weights": [0.5]},
        {"tokens": "nan"},
    ],
    ids=str,
)
def test_runs_that_do_not_fit_together_are_refused(tmp_path, change):
    import hashlib

    import torch
    from safetensors.torch import load_file, save_file

    from frostline.runs.record import record

    table = {"tokens": 4, "dimension": 2, "B": [1, 0.5], "beta": 5.0, "until": 1.0, "save_at": [0, 1]}
    folder = record(specs.parse(table), out=tmp_path / "run").folder
    arrays = load_file(folder / "arrays.safetensors")
    for name, value in change.items():
        arrays[name] = arrays[name] * np.nan if value == "nan" else torch.tensor(value, dtype=torch.float64)
    save_file(arrays, folder / "arrays.safetensors", metadata={"format": "frostline-run-1"})
    told = json.loads((folder / "provenance.json").read_text())
    told["sha256"]["arrays.safetensors"] = hashlib.sha256((folder / "arrays.safetensors").read_bytes()).hexdigest()
    (folder / "provenance.json").write_text(json.dumps(told))
    # Not the checksum, which fits.
    with pytest.raises(fl.errors.BadRun, match=r"not written by this version of frostline: (its times|it has)"):
        open_folder(folder)
