"""Without the packages of an extra, every public function that needs one says which, and what to type."""

import json
import subprocess
import sys

from tests.encoders import tiny

# Run where nothing of any extra can be imported.
CODE = r"""
import json
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

folder, place, BLOCKED = sys.argv[1], sys.argv[2], sys.argv[3].split()
sys.meta_path.insert(0, Gone())

import frostline as fl
from frostline.auditing.comparison.checkpoints import SpectraLogger
from frostline.monitoring.baseline import Baseline
from frostline.sweeping.cluster import connected
from typer.testing import CliRunner
from frostline.cli import main

theory = {"command": "theory", "spec": {"tokens": 5, "dimension": 2, "beta": 1.0, "B": [1.0, 0.5]}}
empty = Baseline({}, {"shape": ["BERT", 3, 32]}, ("a text",))

def command(*words):
    done = CliRunner().invoke(main, list(words))
    if done.exit_code == 2:
        raise fl.errors.FrostlineError(" ".join(done.stderr.split()))
    raise done.exception or SystemExit(done.exit_code)

open(place + "/texts", "w").write("one text\n")
open(place + "/sweep.toml", "w").write('command = "theory"\nspec = {tokens = 5, dimension = 2, beta = 1.0, B = [1.0]}')
calls = {
    "sweep": lambda: fl.sweep(theory | {"out": place + "/one"}),
    "sweep on a cluster": lambda: fl.sweep(theory | {"out": place + "/two"}, cluster="tcp://127.0.0.1:1"),
    "explorer": lambda: __import__("frostline.exploring.app"),
    "connected": lambda: connected(None, 1, 1).__enter__(),
    "audit": lambda: fl.audit(folder),
    "diff at work": lambda: fl.diff(folder, folder, texts=["one text", "another"]),
    "baseline": lambda: fl.baseline(folder, ["one text"]),
    "score": lambda: empty.score(folder, ["one text"]),
    "merge": lambda: fl.merge(folder, [empty, empty]),
    "callback": lambda: SpectraLogger().callback(),
    "frostline sweep": lambda: command("sweep", place + "/sweep.toml", "--out", place + "/three"),
    "frostline audit": lambda: command("audit", folder, "--out", place + "/four"),
    "frostline audit --workers": lambda: command(
        "audit", folder, "--text", place + "/texts", "--workers", "1", "--out", place + "/four"
    ),
    "frostline baseline": lambda: command("baseline", folder, "--text", place + "/texts", "-o", place + "/b.frost"),
    "frostline serve": lambda: command("serve", place + "/b.frost", "--model", folder),
    "frostline explore": lambda: command("explore", "--no-browser"),
}
told = {}
for name, call in calls.items():
    try:
        told[name] = f"returned {call()!r}"
    except fl.errors.FrostlineError as error:
        told[name] = str(error)
    except BaseException as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""
NEEDED = {
    "sweep": "cluster",
    "sweep on a cluster": "cluster",
    "connected": "cluster",
    "frostline sweep": "cluster",
    "frostline audit --workers": "cluster",
    "frostline serve": "monitor",
    "frostline explore": "explore",
    "explorer": "explore",
}
"""All others need encoders."""


GONE = (
    *("transformers", "huggingface_hub", "tokenizers"),
    *("fastapi", "starlette", "uvicorn", "prometheus_client", "opentelemetry"),
    *("dask", "distributed"),
)
"""All that the extras bring and the core does not, by the names they are imported by."""


def test_every_function_that_needs_an_extra_says_so(tmp_path):
    model = tiny.save(tiny.model("BERT"), tmp_path / "model")
    command = [sys.executable, "-c", CODE, str(model), str(tmp_path), " ".join(GONE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == 16 and set(NEEDED) <= set(told)
    for name, said in told.items():
        extra = NEEDED.get(name, "encoders")
        assert f"type: pip install 'frostline[{extra}]'" in said, (name, said)
