"""The deployment kit: rules, dashboard and unit name what there is; a real Prometheus scrapes and its rule fires."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from frostline.web.server import listen
from tests.monitoring.sentences import fresh
from tests.serving.conftest import serving
from tests.serving.test_app import STRANGE

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "frostline.rules.yml"
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus on this machine")


def names(expression):
    return set(re.findall(r"\bfrostline_[a-z_]+", expression))


def dashboard():
    return json.loads((DEPLOY / "grafana" / "frostline.json").read_text())


def asked():
    """Every expression of the dashboard."""
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def test_rules_and_dashboard_name_metrics_that_are_there(client):
    client.score(fresh(3))
    there = {name for name, *_ in client.metrics()}
    for named in (names(RULES.read_text()), set().union(*map(names, asked()))):
        assert named and named <= there


def test_the_dashboard_is_laid_out():
    board = dashboard()
    panels = board["panels"]
    assert {"title", "uid", "schemaVersion", "templating", "time"} <= set(board)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] and panel["title"] and panel["type"] in ("stat", "timeseries") for panel in panels)
    cells = [
        (panel["gridPos"]["x"] + i, panel["gridPos"]["y"] + j)
        for panel in panels
        for i in range(panel["gridPos"]["w"])
        for j in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


@needs_prometheus
def test_promtool_is_content(tmp_path):
    for check in (["check", "config", "prometheus.yml"], ["test", "rules", "frostline.rules.test.yml"]):
        done = subprocess.run(["promtool", *check], cwd=RULES.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    # The dashboard's expressions as rules, with Grafana's variables filled in.
    rules = [
        {"record": f"panel:{n}", "expr": expr.replace("$job", "frostline").replace("$__rate_interval", "1m")}
        for n, expr in enumerate(asked())
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", tmp_path / "panels.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_the_unit_is_content(tmp_path):
    """But for the program, which is not installed here."""
    unit, program = (DEPLOY / "frostline.service").read_text(), str(tmp_path / "frostline")
    shutil.copy(shutil.which("true"), program)
    (tmp_path / "frostline.service").write_text(unit.replace("/opt/frostline/bin/frostline", program))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / "frostline.service"], capture_output=True, text=True)
    assert done.returncode == 0 and "frostline.service" not in done.stderr, done.stderr


def test_commands_of_the_kit_are_commands(tmp_path):
    """Flags of the unit and of the container file are flags of frostline serve."""
    from typer.testing import CliRunner

    from frostline.cli import main

    said = CliRunner().invoke(main, ["serve", "--help"], env={"COLUMNS": "200"}).stdout
    container = (DEPLOY / "Containerfile").read_text()
    for text in ((DEPLOY / "frostline.service").read_text(), container):
        flags = set(re.findall(r"--(?:model|host|port|events|quiet|token-file)\b", text))
        assert {"--model", "--host", "--events"} <= flags and all(flag in said for flag in flags)
    copies = re.findall(r"^COPY (.*) \S+$", container, re.MULTILINE)
    assert copies
    for line in copies:
        assert all((DEPLOY.parent / name).exists() for name in line.split())


def ask(port, path):
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return json.loads(reply.read())["data"]


@needs_prometheus
def test_a_real_prometheus_scrapes_and_its_rule_fires(base, folder, tmp_path):
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    token = "a-token-for-prometheus"
    with serving(base, folder, tmp_path / "e.db", token=token, clear_after=40) as client:
        (tmp_path / "token").write_text(token)
        target = f"{client.address[0]}:{client.address[1]}"
        config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        for old, new in {
            "15s": "1s",
            "127.0.0.1:8421": target,
            "frostline.rules.yml": str(RULES),
            "    # authorization:": "    authorization:",
            "    #   credentials": "      credentials",
            "/etc/frostline/token": str(tmp_path / "token"),
        }.items():
            config = config.replace(old, new)
        (tmp_path / "prometheus.yml").write_text(config)
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        command.append(f"--web.listen-address=127.0.0.1:{port}")
        log = (tmp_path / "log").open("w")
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
        try:
            wait_for(lambda: ask(port, "/api/v1/query?query=up")["result"][0]["value"][1] == "1")
            client.score(fresh(10))
            assert ask(port, "/api/v1/alerts")["alerts"] == []
            client.score(STRANGE)
            alerts = wait_for(lambda: ask(port, "/api/v1/alerts")["alerts"])
            assert {alert["labels"]["alertname"] for alert in alerts} == {"FrostlineShift"}
            share = quote("sum(frostline_texts_total)")
            seen = len(STRANGE) + 10
            wait_for(lambda: int(ask(port, f"/api/v1/query?query={share}")["result"][0]["value"][1]) == seen)
            client.score(fresh(60)[:50])
            wait_for(lambda: not ask(port, "/api/v1/alerts")["alerts"])
        finally:
            running.terminate()
            running.wait()
            log.close()


def wait_for(found, seconds=60):
    until = time.monotonic() + seconds
    while True:
        try:
            value = found()
            if value:
                return value
        except (OSError, LookupError):
            value = None
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.2)
