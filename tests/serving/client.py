"""What a client sees: status, headers, body. Nothing but the standard library."""

import http.client
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


class Client:
    def __init__(self, url, *, token=None):
        self.url, self.token = url, token
        self.address = (urlsplit(url).hostname, urlsplit(url).port)

    def ask(self, method, path, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        told = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            connection.request(method, path, body, told | (headers or {}))
            got = connection.getresponse()
            return Reply(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
        finally:
            connection.close()

    def get(self, path, **settings):
        return self.ask("GET", path, **settings)

    def post(self, value, **settings):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("POST", "/score", body, {"Content-Type": "application/json"}, **settings)

    def score(self, texts):
        reply = self.post({"texts": texts})
        assert reply.status == 200, reply.body
        return reply.json()

    def metrics(self):
        """Samples by name and labels."""
        from prometheus_client.parser import text_string_to_metric_families

        families = text_string_to_metric_families(self.get("/metrics").body.decode())
        return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}

    def wait_until_ready(self, seconds=60):
        until = time.monotonic() + seconds
        while True:
            try:
                return self.get("/readyz")
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
