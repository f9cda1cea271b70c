"""What the service costs: python -m benchmarks.serving [--baseline FILE --model FOLDER --text FILE] [--soak MINUTES]

Throughput: 32 texts a call over loopback, some clients at once, beside tokenizer and model alone at batch 32, in turns.
Latency: half as many calls as the bare model could answer one after another, evenly spaced or at random (Poisson).
The clients share the two cores with the service. ``--soak``: load without end instead; memory and open files.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from benchmarks.audits import minilm
from benchmarks.watching import kept
from benchmarks.watching import texts as made_up
from frostline.encoders.live_model import open_model
from frostline.encoders.load import load
from frostline.encoders.tokenization import open_tokenizer

BATCH = 32
CLIENTS = 3


class Bare:
    """Tokenizer and model, as one would call them."""

    def __init__(self, folder: str):
        encoder = load(folder)
        self.model, self.tokenizer = open_model(encoder), open_tokenizer(encoder)

    def __call__(self, texts: list[str]) -> float:
        start = time.perf_counter()
        inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode():
            self.model(**inputs)
        return time.perf_counter() - start


_sent_before = count()


def _sent(text: str) -> dict[str, str]:
    """The text as one of 20 sources sends it, told from all before by its last spaces: repeats would count for less."""
    number = next(_sent_before)
    spaces = f"{number:020b}".translate({ord("0"): " ", ord("1"): "\t"})
    return {"text": text + spaces, "id": str(number), "source": f"client {number % 20}"}


class Caller:
    """One connection that is kept while it is used; the service closes those that are idle for 5 s."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
        self.used = 0.0

    def __call__(self, texts: list[str]) -> float:
        start = time.perf_counter()
        if start - self.used > 2:
            self.connection.close()
        body = json.dumps({"texts": [_sent(text) for text in texts]})
        self.connection.request("POST", "/score", body, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        said = reply.read()
        if reply.status != 200:
            raise RuntimeError(said.decode())
        self.used = time.perf_counter()
        return self.used - start


@contextmanager
def served(baseline: str, model: str, folder: str, *flags: str) -> Iterator[tuple[str, int]]:
    """The address and the process number of a service."""
    command = [sys.executable, "-c", "import sys; from frostline.cli import main; sys.exit(main())", "serve", baseline]
    command += ["--model", model, "--port", "0", "--events", f"{folder}/events.db", "--json", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("}"):
                break
        found = json.loads(told)
        time.sleep(0.5)
        try:
            yield found["url"], found["pid"]
        finally:
            process.terminate()


def throughput(bare: Bare, url: str, batches: list[list[str]], rounds: int) -> list[tuple[float, float]]:
    """Seconds of the bare model and of the service for the same batches, in turns."""
    callers = [Caller(url) for _ in range(CLIENTS)]
    found = []
    for _ in range(rounds + 1):
        alone = sum(bare(batch) for batch in batches)
        start = time.perf_counter()
        threads = [
            threading.Thread(target=lambda own=own: [callers[own](batch) for batch in batches[own::CLIENTS]])
            for own in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.append((alone, time.perf_counter() - start))
    return found[1:]


def latencies(url: str, batches: list[list[str]], every: float, *, random: bool, count: int) -> np.ndarray:
    """Seconds from when a call was due until its answer was there."""
    rng = np.random.default_rng(0)
    due = np.cumsum(rng.exponential(every, count)) if random else every * np.arange(count)
    found = np.zeros(count)
    idle: list[Caller] = []
    lock, threads, begin = threading.Lock(), [], time.perf_counter()

    def call(number: int) -> None:
        with lock:
            caller = idle.pop() if idle else Caller(url)
        caller(batches[number % len(batches)])
        found[number] = time.perf_counter() - begin - due[number]
        with lock:
            idle.append(caller)

    for number in range(count):
        time.sleep(max(0.0, begin + due[number] - time.perf_counter()))
        threads.append(threading.Thread(target=call, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return found


def resources(process: int) -> tuple[float, int]:
    """Memory in MiB and open files of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    memory = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(memory.split()[1]) / 1024, len(list(Path(f"/proc/{process}/fd").iterdir()))


def soak(url: str, process: int, batches: list[list[str]], minutes: float) -> None:
    """Clients that come and go, one live page, a scraper; what the process holds, minute by minute."""
    until, stop = time.monotonic() + 60 * minutes, threading.Event()
    calls = 0

    def load() -> None:
        nonlocal calls
        rng = np.random.default_rng(threading.get_ident() % 2**32)
        while not stop.is_set():
            caller = Caller(url)
            for _ in range(int(rng.integers(1, 20))):
                own = batches[rng.integers(len(batches))]
                caller(own[: int(rng.integers(1, len(own) + 1))])
                calls += 1
            caller.connection.close()

    def look() -> None:
        while not stop.is_set():
            for path in ("/metrics", "/events?newest=true", "/stream?once=true", "/readyz"):
                caller = Caller(url)
                caller.connection.request("GET", path)
                caller.connection.getresponse().read()
                caller.connection.close()
            time.sleep(1)

    threads = [threading.Thread(target=work) for work in (load, load, load, load, look)]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        memory, files = resources(process)
        passed = minutes - (until - time.monotonic()) / 60
        print(f"{passed:5.1f} min: {calls} calls, {memory:.1f} MiB, {files} open files", flush=True)
        time.sleep(min(60, 6 * minutes))
    stop.set()
    for thread in threads:
        thread.join()


def row(what: str, ours: float, peer: float) -> dict[str, Any]:
    """As ``make bench`` shows it."""
    alone = "tokenizer and model alone"
    return {"what": what, "peer": alone, "ours_s": ours, "peer_s": peer, "ratio": peer / ours, "gap": 0.0}


def rows(
    baseline: str, model: str, texts: list[str], *, rounds: int, count: int, sizes: tuple[int, ...] = (BATCH, 1)
) -> Iterator[dict[str, Any]]:
    """Throughput, then latencies for calls of some sizes."""
    batches = [texts[n : n + BATCH] for n in range(0, len(texts) - BATCH + 1, BATCH)]
    bare = Bare(model)
    with tempfile.TemporaryDirectory() as folder, served(baseline, model, folder) as (url, _):
        pairs = np.array(throughput(bare, url, batches[:9], rounds))
        ratios = pairs[:, 0] / pairs[:, 1]
        share = f"{np.median(ratios):.3f} ± {1.25 * ratios.std() / np.sqrt(len(ratios)):.3f}"
        what = f"MiniLM served, {CLIENTS} clients, {BATCH} texts a call: share of the bare throughput {share}"
        yield row(what, *np.median(pairs[:, ::-1], axis=0).tolist())
        for size in sizes:
            own = batches if size == BATCH else [[text] for text in texts]
            alone = float(np.median([bare(batch) for batch in own[:60]]))
            # Half of what the bare model alone could answer, one call after the other.
            every, calls = 2 * alone, count if size > 1 else 4 * count
            for random in (False, True):
                late = latencies(url, own, every, random=random, count=calls)
                middle, most = np.quantile(late, [0.5, 0.99]).tolist()
                spaced = "at random" if random else "evenly spaced"
                told = f"median {1e3 * middle:.0f} ms, p99 {1e3 * most:.0f} ms, {most / alone:.2f} × bare"
                yield row(f"latency at half load, {size} texts a call, {spaced}: {told}", most, alone)


def in_bench() -> list[dict[str, Any]]:
    """Rows of make bench."""
    path = minilm()
    if path is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        baseline = str(kept(path).save(f"{folder}/enc.frost"))
        return list(rows(baseline, str(path), made_up(640, seed=1), rounds=4, count=60, sizes=(BATCH,)))


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--baseline")
    reading.add_argument("--model", default=None)
    reading.add_argument("--text", type=Path)
    reading.add_argument("--rounds", type=int, default=12)
    reading.add_argument("--count", type=int, default=300)
    reading.add_argument("--soak", type=float, metavar="MINUTES")
    given = reading.parse_args()
    model = given.model or str(minilm())
    texts = given.text.read_text().splitlines() if given.text else made_up(640, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        baseline = given.baseline
        if baseline is None:
            baseline = str(kept(Path(model)).save(f"{folder}/enc.frost"))
        if given.soak:
            with served(baseline, model, folder) as (url, process):
                soak(url, process, [texts[n : n + BATCH] for n in range(0, 640, BATCH)], given.soak)
            return
        for found in rows(baseline, model, texts[:640], rounds=given.rounds, count=given.count):
            print(found["what"], flush=True)


if __name__ == "__main__":
    main()
