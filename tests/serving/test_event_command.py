"""frostline events: what people and other programs see of an event."""

import csv
import json

import pytest
from typer.testing import CliRunner

from frostline.cli import main
from frostline.serving.events import Event, Events

TIME = 1.8e9
GIVEN = [
    Event("start", 0, TIME, baseline="3fa9c10b2d44"),
    Event("strange", 1, TIME, p_value=0.004, source="shop", text_id="order 7", details={"reasons": [{"wrong": 1}, 5]}),
    Event("strange", 2, TIME, p_value=0.004, source="=cmd()", text_id="@x", replica="-1", text="+2"),
    Event("acknowledged", 3, TIME, source="shop", details={"who": "Ada\x1b[2J", "why": "a known import"}),
    Event("reset", 4, 1e18, details={"reasons": "none"}),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("events") / "e.db"
    with Events(path) as events:
        events.add(GIVEN)
    return path


def call(*words):
    done = CliRunner().invoke(main, ["events", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_people_see_who_sent_a_text_and_who_acknowledged_an_alarm(path):
    shown = " ".join(call(path).split())
    assert "source shop, text order 7" in shown and "baseline 3fa9c10b2d44" in shown
    assert "acknowledged (event 4, after 3 texts, source shop) by Ada\\x1b[2J: a known import" in shown
    assert "1e+18 s after 1970 reset" in shown


def test_one_source_only(path):
    rows = [json.loads(line) for line in call(path, "--json", "--source", "shop").splitlines()]
    assert [(row["id"], row["source"], row["text_id"]) for row in rows] == [(2, "shop", "order 7"), (4, "shop", "")]
    assert rows[1]["details"]["why"] == "a known import"
    assert call(path, "--source", "nobody") == "No such events.\n"


def test_new_kinds_can_be_asked_for(path):
    assert [json.loads(line)["kind"] for line in call(path, "--json", "--kind", "acknowledged").splitlines()] == [
        "acknowledged"
    ]


def test_tables_have_the_new_columns_and_no_formulas(path):
    rows = list(csv.DictReader(call(path, "--csv").splitlines()))
    assert [row["source"] for row in rows] == ["", "shop", "'=cmd()", "shop", ""]
    assert [rows[2][name] for name in ("text_id", "replica", "text")] == ["'@x", "'-1", "'+2"]
    assert rows[0]["baseline"] == "3fa9c10b2d44" and json.loads(rows[3]["details"])["why"] == "a known import"
