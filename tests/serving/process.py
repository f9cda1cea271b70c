"""frostline serve as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

from tests.serving.client import Client

RUN = "import sys; from frostline.cli import main; sys.exit(main())"


@contextmanager
def process(frost, folder, events, *flags, token=None, before=None):
    """A client of a new process; ``client.process`` is the process, ended by SIGTERM if it has not ended by then."""
    command = [sys.executable, "-c", RUN, "serve", frost, "--model", folder, "--events", events, *flags]
    with subprocess.Popen(
        [*map(str, command), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ({"FROSTLINE_TOKEN": token} if token else {}),
        preexec_fn=before,
    ) as started:
        told = ""
        try:
            for line in started.stdout:
                told += line
                if line.startswith("}"):
                    break
            if not told.strip():
                raise AssertionError(started.stderr.read())
            client = Client(json.loads(told)["url"], token=token)
            client.process = started
            client.wait_until_ready()
            yield client
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGTERM)
            started.wait(60)
