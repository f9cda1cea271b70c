"""Files of an older frostline: read, brought up to date, and nothing is lost."""

import json
import sqlite3
import time

import pytest
from safetensors.torch import load_file, save_file

from frostline.monitoring.baseline_content import content_hash
from frostline.monitoring.baseline_file import load_baseline
from frostline.serving.events import APPLICATION, Events, connect, select
from tests.monitoring.sentences import fresh
from tests.monitoring.test_baseline import open_header
from tests.serving.conftest import serving

# What the first format of event files looked like.
FIRST = f"""
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, texts INTEGER NOT NULL,
  p_value REAL, score REAL, level REAL, details TEXT NOT NULL, text TEXT
);
CREATE INDEX events_by_time ON events (time);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO events VALUES (7, {time.time()}, 'strange', 5, 0.01, 2.0, 1.5, '{{"reasons": []}}', NULL);
INSERT INTO state VALUES ('stream', '{{"texts": 5, "level": 1.5}}');
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = 1;
"""


@pytest.fixture
def old_events(tmp_path):
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.executescript(FIRST)
    connection.close()
    return tmp_path / "old.db"


def test_older_event_files_are_brought_up_to_date(old_events):
    reader = connect(old_events)
    assert [event.id for event in select(reader)] == [7] and list(select(reader, source="shop")) == []
    reader.close()
    with Events(old_events, baseline="3fa9c10b2d44") as events:
        assert events.state() == {}  # an alarm of an unknown baseline is not gone on with
    with Events(old_events) as events:
        (kept,) = events.select()
        assert (kept.id, kept.p_value, kept.replica, kept.source) == (7, 0.01, "", "") and events.state()[
            "level"
        ] == 1.5
    connect(old_events).close()


def test_evidence_of_an_alarm_with_other_bets_is_forgotten(base, folder, tmp_path):
    """Eight bets had eight sums. Texts are counted on, and who was ringing goes on until it is over."""
    quiet = {"state": [5e6] * 8, "ringing": False, "rings": 0, "rang_in_all": 1, "texts_since": 9}
    ringing = quiet | {"ringing": True, "rings": 1, "began_ago": 60.0, "rang_ago": 50.0}
    state = {"texts": 40, "course": quiet, "sources": {"shop": {"texts": 30, "course": ringing}}}
    with Events(tmp_path / "e.db", baseline=base.identity[:12]) as events:
        events.add([], state)
    with serving(base, folder, tmp_path / "e.db", false_alarm_every=1000) as client:
        status = client.get("/status").json()
        (shop,) = status["sources"]
        assert (status["all"]["texts"], status["all"]["level"], status["all"]["severity"]) == (40, 0.0, "none")
        assert (shop["texts"], shop["level"], shop["severity"]) == (30, 0.0, "warning")
        assert client.score(["some text"])["alarm"]["sources"] == ["shop"]
    with Events(tmp_path / "e.db", baseline=base.identity[:12]) as events:
        assert len(events.state()["course"]["state"]) == 4


def test_older_baselines_are_read(base, frost, folder, old_events, tmp_path):
    """Format 2 had no hash of the model's files."""
    tensors, told = load_file(frost), json.loads(open_header(frost))
    assert told.pop("files_sha256") and told.pop("version") == 4
    told["version"] = 2
    del told["checksum"]
    told["checksum"] = content_hash(tensors, told)
    save_file(tensors, tmp_path / "old.frost", {"frostline": json.dumps(told)})
    old = load_baseline(tmp_path / "old.frost")
    assert old.about["version"] == 4 and old.about["files_sha256"] is None
    texts = fresh(5)
    assert (old.score(folder, texts=texts).scores == base.score(folder, texts=texts).scores).all()
    assert load_baseline(old.save(tmp_path / "new.frost")).about == old.about
    with serving(old, folder, old_events) as client:
        assert client.get("/readyz").json() == {"ready": True, "degraded": []}
        assert client.get("/events").json()["events"][0]["id"] == 7  # kept, and the state of no known baseline is not
        assert client.get("/status").json()["all"]["texts"] == 0


def test_other_files_of_the_same_attention_are_noticed(base, folder, tmp_path):
    from tests.encoders import tiny

    changed = tiny.model("BERT", spread=0.1)
    changed.embeddings.word_embeddings.weight.data[10] += 0.5
    other = tiny.save(changed, tmp_path / "other")
    with serving(base, other, tmp_path / "e.db") as client:
        (said,) = client.get("/readyz").json()["degraded"]
        assert client.metrics()[("frostline_degraded",)] == 1
        assert "embeddings" in said
        assert client.post({"texts": fresh(2)}).status == 200
