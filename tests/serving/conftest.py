"""A real server on a free port of this machine, with the tiny model of the monitoring tests."""

from contextlib import contextmanager

import pytest

from frostline.serving.app import make_app
from frostline.serving.service import Service
from frostline.web.request_limits import Limits
from frostline.web.server import hosts_of, listen, make_server, url_of
from tests.monitoring import conftest as monitoring
from tests.serving.client import Client

base, folder, frost = monitoring.base, monitoring.folder, monitoring.frost
SHORT = Limits(body_bytes=200_000, texts=64, characters=2000, waiting=256, seconds=20.0, slow_seconds=0.5)


@contextmanager
def serving(base, folder, path, *, token=None, limits=SHORT, **settings):
    """A client of a service that runs in a thread; the service is ``client.service``."""
    service = Service(base, folder, events=path, limits=limits, **settings)
    with listen("127.0.0.1", 0) as bound:
        server = make_server(
            make_app(service, token=token, hosts=hosts_of(bound)), limits, service.drain, service.refuse
        )
        client = Client(url_of(bound), token=token)
        client.service = service
        with server.beside(bound):
            client.wait_until_ready()
            yield client


@pytest.fixture(scope="module")
def client(base, folder, tmp_path_factory):
    with serving(base, folder, tmp_path_factory.mktemp("events") / "events.db") as client:
        yield client
