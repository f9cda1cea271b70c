"""An explorer on a free port of this machine."""

from contextlib import contextmanager

import pytest

from frostline.exploring.app import Explorer, make_app
from frostline.web.request_limits import Limits
from frostline.web.server import hosts_of, listen, make_server, url_of
from tests.serving.client import Client


@contextmanager
def exploring(opened=None):
    explorer = Explorer(opened)
    with listen("127.0.0.1", 0) as bound:
        server = make_server(make_app(explorer, hosts=hosts_of(bound)), Limits(), explorer.stop)
        client = Client(url_of(bound))
        client.explorer, client.server = explorer, server
        try:
            with server.beside(bound):
                client.wait_until_ready()
                yield client
        finally:
            explorer.close()


@pytest.fixture(scope="module")
def client():
    with exploring() as client:
        yield client
