"""Content of a baseline, as tensors with names, and its SHA-256."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from frostline.monitoring.judge import Judge
from frostline.monitoring.reference_cloud import LEARNED


def content_tensors(judges: Mapping[str, Judge], texts: tuple[str, ...]) -> dict[str, Tensor]:
    """All tensors of a baseline: those of every level, and the texts if they were kept."""
    tensors = {
        f"{level}.{name}": tensor.contiguous()
        for level, judge in judges.items()
        for name, tensor in judge_tensors(judge).items()
    }
    if texts:
        encoded = json.dumps(texts, ensure_ascii=False).encode()
        tensors["texts"] = torch.from_numpy(np.frombuffer(encoded, dtype=np.uint8).copy())
    return tensors


def judge_headers(judges: Mapping[str, Judge]) -> dict[str, dict[str, list[Any]]]:
    """The rest of every level: clouds it looks at and names of kinds of broken text; layers that a deep one looks into.

    The deep judge is the full one with a reference cloud: nothing else of it is in a file.
    """
    return {
        level: {"inside": list(judge.inside)}
        if judge.reference_cloud is not None
        else {
            "clouds": list(judge.clouds),
            "kinds": list(judge.detector.directions.kinds),
            "probes": list(judge.detector.probes.kinds),
        }
        for level, judge in judges.items()
    }


def judge_tensors(judge: Judge) -> dict[str, Tensor]:
    """The tensors of one level."""
    if judge.reference_cloud is not None:
        return {f"reference_cloud.{name}": getattr(judge.reference_cloud, name) for name in LEARNED}
    detector = judge.detector
    return {
        "directions.weights": detector.directions.weights,
        "directions.offsets": detector.directions.offsets,
        "probes.weights": detector.probes.weights,
        "probes.offsets": detector.probes.offsets,
        "codes": detector.codes,
        "centre": detector.centre,
        "whitening": detector.whitening,
        "cosines": detector.cosines,
        "standards.kinds": detector.kinds.quantiles,
        "standards.parts": detector.parts.quantiles,
        "calibration.table": judge.conformal.table,
        "calibration.edges": judge.conformal.edges,
    }


def content_hash(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """SHA-256 of tensors and of a header."""
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
