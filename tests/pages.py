"""Pages of documentation as programs: their blocks, and a place where they run."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/cli.md", "docs/api.md")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if str(path.relative_to(ROOT)) not in GENERATED and "_site" not in path.parts
)
ELSEWHERE = {
    "make demo      # sets up": "docs/start.md runs make demo; make test is what runs this",
    "frostline reproduce --out reproduction": "README.md runs it; --full takes an hour",
    "pip install 'frostline[monitor]'": "tests/test_package.py installs every extra into an environment of its own",
    "pip install paramiko": "needs other machines; the blocks above it start the same workers here",
    "python examples/queued_sweep.py slurm": "needs Slurm; the block above it runs the same script with local jobs",
    "kubectl create configmap": "needs Kubernetes; tests/sweeping/test_clusters.py runs every command of the manifest",
    "podman build --format docker --target serve": "needs a registry; tests/serving/test_deployment.py reads the file",
    "kubectl apply -f deploy/kubernetes/serve.yaml": "needs Kubernetes; the same tests validate it and run its command",
    "# without a GPU, let pip find": "needs a machine of its own; tests/serving/test_deployment.py checks the unit",
}
"""How blocks that are not run here begin, and where they are run instead."""
IGNORED = (
    ".git",
    ".venv",
    "demo",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "__pycache__",
    "_site",
)


def blocks(page):
    """(info string, text) of every fenced block, in order."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```", (ROOT / page).read_text(), flags=re.S | re.M)


def kinds(page):
    return {info for info, _ in blocks(page)}


class Sandbox:
    """A copy of the repository with everything that pages take for granted: a model, texts, the environment."""

    def __init__(self, folder, models, texts):
        self.folder, self.running = folder, []
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*IGNORED), dirs_exist_ok=True)
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "path" / "to" / "checkpoints").mkdir(parents=True)
        for name, model in models.items():
            (folder / "path" / "to" / name).symlink_to(model)
        for name, lines in texts.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
        (folder / "limits.toml").write_text("[beta_max]\nmax = 1000000\n")
        self.namespace = {}

    @property
    def environment(self):
        own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COLUMNS")}
        path = f"{self.folder}/.venv/bin:{own['PATH']}"
        # A browser that opens nothing.
        return own | {"PATH": path, "PYTHONPATH": str(self.folder / "src"), "BROWSER": "true", "MPLBACKEND": "agg"}

    def run(self, info, text):
        """Whether the block was run; it fails if the block does."""
        if info == "python" and "__main__" in text:
            # What starts processes of its own is a script.
            (self.folder / "script.py").write_text(text)
            self.run("sh", "python script.py")
        elif info == "python":
            with contextlib.chdir(self.folder):
                exec(compile(text, "page", "exec"), self.namespace)
        elif info == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(
                command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900
            )
            assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        elif info == "sh background":
            self.start(text)
        elif info == "sh elsewhere":
            assert any(text.startswith(begin) for begin in ELSEWHERE), text
        return info in ("python", "sh", "sh background")

    def start(self, text):
        """What stays until Ctrl-C: started, and left running until the page is over."""
        said = self.folder.parent / f"said-{len(self.running)}"
        with said.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-euc", text],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.running.append((process, said))
        until = time.monotonic() + 120
        # What waits for others says where: http://…, or tcp://… of a scheduler and its workers.
        while "://" not in said.read_text():
            assert process.poll() is None and time.monotonic() < until, said.read_text()
            time.sleep(0.1)

    def close(self):
        """Ctrl-C, as the pages say; first what was started last, which may depend on the others."""
        wrong = []
        for process, said in reversed(self.running):
            if process.poll() is not None:
                wrong.append(f"it ended by itself: {said.read_text()}")
                continue
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                wrong.append(f"Ctrl-C did not end it: {said.read_text()}")
        assert not wrong, wrong


@contextlib.contextmanager
def one_at_a_time():
    """Pages use the ports that users get."""
    with open(Path(tempfile.gettempdir()) / "frostline-pages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
