"""The deployment kit: rules, dashboard and unit name what there is; a real Prometheus scrapes and its rule fires."""

import json
import re
import shutil
import subprocess
import time
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from frostline.web.request_limits import Limits
from frostline.web.server import listen, longest_stop
from tests.monitoring.sentences import fresh
from tests.serving.client import Client
from tests.serving.conftest import serving
from tests.serving.manifests import DEPLOY, objects, packages, pods, size, stages, unit
from tests.serving.process import process
from tests.serving.test_app import STRANGE

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
    manifest = " ".join(pods("serve.yaml")[0]["containers"][0]["command"])
    for text in ((DEPLOY / "frostline.service").read_text(), container, manifest):
        flags = set(re.findall(r"--(?:model|host|port|events|quiet|token-file)\b", text))
        assert {"--model", "--host", "--events"} <= flags and all(flag in said for flag in flags)
    copies = re.findall(r"^COPY (.*) \S+$", container, re.MULTILINE)
    assert copies
    for line in copies:
        assert all((DEPLOY.parent / name).exists() for name in line.split())


def test_the_image_that_serves_has_no_dask_and_the_other_has_it():
    assert {"serve", "sweep"} <= set(stages())
    serving, sweeping = packages("serve"), packages("sweep")
    assert {"torch", "fastapi", "uvicorn", "prometheus-client", "transformers"} <= serving
    assert not {name for name in serving if "dask" in name or name == "distributed"}
    assert {"torch", "distributed"} <= sweeping and "fastapi" not in sweeping


def test_images_run_as_a_number_and_name_a_whole_version_of_python():
    (base,) = {base for base, _ in stages().values() if base not in stages()}
    assert re.search(r"/python:3\.\d+\.\d+-slim-\w+$", base)
    users = {line.split()[1] for _, lines in stages().values() for line in lines if line.startswith("USER ")}
    (user,) = users
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    for name in ("serve", "sweep"):
        assert f"USER {user}" in stages()[name][1]
    uid, gid = map(int, user.split(":"))
    for pod in (*pods("serve.yaml"), *pods("sweep.yaml")):
        context = pod["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (uid, gid, gid)


def test_whoever_ends_the_server_waits_until_it_has_ended():
    """Grace periods cover the longest stop, and are not so long that a hung process is left alone for minutes."""
    stop = longest_stop(Limits())
    (pod,) = pods("serve.yaml")
    (container,) = pod["containers"]
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep" and int(seconds) >= 5
    (systemd,) = unit()["TimeoutStopSec"]
    (podman,) = re.findall(r"--stop-timeout (\d+)", (DEPLOY / "Containerfile").read_text())
    for grace in (int(systemd), int(podman), pod["terminationGracePeriodSeconds"] - int(seconds)):
        assert stop < grace <= 1.5 * stop


def test_the_server_itself_waits_no_longer_than_it_says():
    from frostline.web.server import CLOSING, make_server

    server = make_server(lambda *_: None, Limits(), lambda: None)
    assert server.config.timeout_graceful_shutdown + CLOSING == longest_stop(Limits())


def test_the_unit_is_locked_up():
    settings = unit()
    assert settings["SystemCallFilter"] == ["@system-service", "~@privileged"]
    assert settings["SystemCallErrorNumber"] == ["EPERM"] and settings["SystemCallArchitectures"] == ["native"]
    assert settings["CapabilityBoundingSet"] == [""] and settings["DynamicUser"] == ["yes"]
    # Compiled code is made at run time.
    assert "MemoryDenyWriteExecute" not in settings
    (most,), (pod,) = settings["MemoryMax"], pods("serve.yaml")
    assert size(most) == size(pod["containers"][0]["resources"]["limits"]["memory"]) >= 2**30


@pytest.mark.parametrize("name", ["serve.yaml", "sweep.yaml"])
def test_manifests_are_those_kubernetes_knows(name):
    from kubernetes_validate import ValidationError, validate

    for part in objects(name):
        for version in ("1.29", "1.37"):
            validate(part, version, strict=True)
            with pytest.raises(ValidationError):
                validate({**part, "spec": {**part["spec"], "replicsa": 1}}, version, strict=True)


@pytest.mark.parametrize("name", ["serve.yaml", "sweep.yaml"])
def test_pods_may_do_nothing_they_need_not(name):
    for pod in pods(name):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            limit = size(container["resources"]["limits"]["memory"])
            assert limit >= size(container["resources"]["requests"]["memory"])
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            # The root is read-only: temporary files and compiled loops need a place.
            assert set(mounts) == volumes and mounts["tmp"] == "/tmp"
            folders = [one["value"] for one in container.get("env", ()) if one["name"] in ("HOME", "NUMBA_CACHE_DIR")]
            assert all(folder.startswith("/tmp") for folder in folders)


def test_the_manifest_for_serving_hangs_together(client):
    """Selectors, ports, probes and the token name what there is; every written file lies on a volume."""
    by_kind = {part["kind"]: part for part in (*objects("serve.yaml"), *objects("servicemonitor.yaml"))}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert by_kind[kind]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert by_kind["Service"]["spec"]["selector"].items() <= labels.items()
    # One at a time may leave, and there is another one then.
    assert by_kind["PodDisruptionBudget"]["spec"]["maxUnavailable"] < by_kind["Deployment"]["spec"]["replicas"]
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert by_kind["Service"]["spec"]["ports"][0]["targetPort"] == port["name"] and port["containerPort"] == 8421
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port["name"] and client.get(asked["path"]).status == 200
    # A service that stops, or has trouble with its disk, is not to be killed for it.
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    command = container["command"]
    for flag in ("--model", "--token-file", "--events"):
        value = command[command.index(flag) + 1]
        assert any(value.startswith(f"{mount}/") for mount in mounts)
    assert command[:2] == ["frostline", "serve"] and command[2].startswith("/models/")


def test_the_command_of_the_manifest_serves_here(frost, folder, tmp_path):
    """With folders of this machine in place of its volumes; HEAD is how some load balancers ask."""
    (pod,) = pods("serve.yaml")
    (tmp_path / "token").write_text("correct-horse-battery\n")
    program, verb, baseline, *words = pod["containers"][0]["command"]
    given = dict(zip(words[:-1:2], words[1::2], strict=True))
    assert (program, verb, baseline, words[-1]) == ("frostline", "serve", "/models/enc.frost", "--quiet")
    assert (given.pop("--model"), given.pop("--events")) == ("/models/model", "/var/lib/frostline/events.db")
    assert given == {"--host": "0.0.0.0", "--token-file": "/etc/frostline/token"}
    flags = ["--host", "0.0.0.0", "--token-file", tmp_path / "token", "--quiet"]
    with process(frost, folder, tmp_path / "e.db", *flags) as client:
        client = Client(client.url.replace("0.0.0.0", "127.0.0.1"), token="correct-horse-battery")
        assert len(client.score(fresh(2))["texts"]) == 2 and client.ask("HEAD", "/readyz").status == 200
        assert Client(client.url).get("/metrics").status == 401


def test_the_token_is_one_secret_and_the_monitor_uses_it():
    """The kind ServiceMonitor is the Prometheus operator's: its fields are checked here."""
    (monitor,) = objects("servicemonitor.yaml")
    (service,) = [part for part in objects("serve.yaml") if part["kind"] == "Service"]
    (pod,) = pods("serve.yaml")
    (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    command = pod["containers"][0]["command"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1" and monitor["kind"] == "ServiceMonitor"
    assert set(monitor) == {"apiVersion", "kind", "metadata", "spec"} and monitor["metadata"]["name"]
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    assert monitor["spec"]["selector"] == {"matchLabels": service["metadata"]["labels"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"] and endpoint["path"] == "/metrics"
    assert re.fullmatch(r"\d+s", endpoint["interval"])
    credentials = {"name": secret, "key": command[command.index("--token-file") + 1].rpartition("/")[2]}
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": credentials}
    # The rules ask for job="frostline"; the operator names jobs after services.
    assert service["metadata"]["name"] == "frostline"
    # A file of the secret is read by the group that the pod's user is in, and by nobody else.
    (mode,) = [volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume]
    assert mode == 0o440


def ask(port, path):
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return json.loads(reply.read())["data"]


@needs_prometheus
def test_a_real_prometheus_scrapes_and_its_rule_fires(base, folder, tmp_path):
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    token = "a-token-for-prometheus"
    with serving(base, folder, tmp_path / "e.db", token=token, clear_after=40, clear_seconds=0) as client:
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
