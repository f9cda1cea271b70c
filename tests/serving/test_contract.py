"""The OpenAPI description against the service: thousands of odd requests, no unexpected status."""

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.web.request_limits import Limits
from tests.serving.conftest import serving

# schemathesis does not know that a body can be too large (413), too.
ROOMY = Limits(body_bytes=2**25, texts=64)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["texts", "reasons", "x"]), inner),
    max_leaves=8,
)
BODIES = st.binary(max_size=200) | ANY_JSON.map(lambda value: json.dumps(value).encode())
BODIES |= st.lists(st.text(max_size=60), max_size=5).map(lambda texts: json.dumps({"texts": texts}).encode())


def found(client, examples, tmp_path):
    """What schemathesis finds (nothing: an empty text), with all its checks but one: what a schema cannot say, half a
    character in a text, is refused, too."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{client.url}/openapi.json", "--url", client.url]
    command += ["--max-examples", str(examples), "--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    command += ["--seed", "1", "--generation-database", "none", "--exclude-path", "/stream", "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280)
    if done.returncode == 0 and "No issues found" in done.stdout:
        return ""
    return done.stdout[-6000:] + done.stderr[-2000:]


def test_schemathesis_finds_nothing(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", limits=ROOMY) as client:
        assert found(client, 30, tmp_path) == ""
        assert client.get("/healthz").status == 200


@pytest.mark.slow
def test_schemathesis_finds_nothing_in_many_more(base, folder, tmp_path):
    with serving(base, folder, tmp_path / "e.db", limits=ROOMY) as client:
        assert found(client, 400, tmp_path) == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(body=BODIES)
def test_fuzzed_bodies_are_scored_or_refused(client, body):
    reply = client.post(body)
    assert reply.status in (200, 400, 422), reply.body
    assert ("texts" in reply.json()) == (reply.status == 200)
