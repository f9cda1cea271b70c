"""The OpenAPI description against the service: thousands of odd requests, no unexpected status."""

import subprocess
import sys

import pytest

from tests.serving.conftest import serving


def run(client, examples, tmp_path):
    """schemathesis with all its checks but one: what a schema cannot say (a text without tokens) is refused, too."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{client.url}/openapi.json", "--url", client.url]
    command += ["--max-examples", str(examples), "--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    command += ["--seed", "1", "--generation-database", "none", "--exclude-path", "/stream", "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_schemathesis_finds_nothing(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db") as client:
        run(client, 30, tmp_path)
        assert client.get("/healthz").status == 200


@pytest.mark.slow
def test_schemathesis_finds_nothing_in_many_more(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db") as client:
        run(client, 400, tmp_path)
