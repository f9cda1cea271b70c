"""The ``.frost`` file: one safetensors file with a JSON header, versioned and checksummed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_bytes
from torch import Tensor

from frostline.errors import BadBaseline
from frostline.files.atomic import write_atomically
from frostline.monitoring.baseline import LEVELS, VERSION, Baseline
from frostline.monitoring.baseline_header import brief, check_header
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.detector import PARTS, TABLE, Detector, Standards
from frostline.monitoring.directions import Directions
from frostline.monitoring.profile import clouds_of, names
from frostline.monitoring.reasons import Judge
from frostline.monitoring.word_probes import Probes

OLDEST = 2
"""The oldest format that can be read: format 3 adds a hash of the model's files, which nothing needs."""
LARGEST = 2**30
"""Bytes of a baseline that are read, at most."""


def save(found: Baseline, path: Path) -> Path:
    """Write a baseline, all at once."""
    about: dict[str, Any] = dict(found.about)
    tensors: dict[str, Tensor] = {}
    about["judges"] = {
        level: {
            "clouds": list(judge.clouds),
            "kinds": list(judge.detector.directions.kinds),
            "probes": list(judge.detector.probes.kinds),
        }
        for level, judge in found.judges.items()
    }
    for level, judge in found.judges.items():
        tensors |= {f"{level}.{name}": tensor.contiguous() for name, tensor in _tensors(judge).items()}
    if found.texts:
        told = json.dumps(found.texts, ensure_ascii=False).encode()
        tensors["texts"] = torch.from_numpy(np.frombuffer(told, dtype=np.uint8).copy())
    about["checksum"] = _checksum(tensors, about)
    write_atomically(path, as_bytes(tensors, {"frostline": json.dumps(about)}))
    return path


def load_baseline(path: str | Path) -> Baseline:
    """Read a ``.frost`` file; raises BadBaseline when it is damaged, foreign or newer."""
    path = Path(path)
    if not path.is_file():
        raise BadBaseline(f"there is no file {path}; make one with: frostline baseline MODEL --text FILE -o {path}")
    if path.stat().st_size > LARGEST:
        raise BadBaseline(f"{path} has {path.stat().st_size / 2**30:.1f} GB; no baseline is larger than 1 GB.")
    try:
        with safe_open(path, framework="pt") as opened:
            header = (opened.metadata() or {}).get("frostline")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise BadBaseline(f"{path} is not a whole baseline ({brief(error)}); copy it again or make it anew.") from None
    if header is None:
        raise BadBaseline(f"{path} is a safetensors file, but not a baseline of frostline.")
    try:
        about = json.loads(header)
        version = about["version"]
        if not isinstance(version, int):
            raise TypeError
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, RecursionError):
        raise BadBaseline(f"{path} has a header that cannot be read; make the baseline anew.") from None
    if version > VERSION:
        raise BadBaseline(
            f"{path} was made by a newer frostline (format {brief(version)}, this one reads {VERSION}); update."
        )
    if version < OLDEST:
        raise BadBaseline(
            f"{path} was made by an older frostline (format {brief(version)}, this reads {OLDEST} to {VERSION}); make "
            "it anew."
        )
    if any(tensor.dtype not in (torch.float32, torch.uint8) for tensor in tensors.values()):
        raise BadBaseline(f"{path} holds tensors of a kind no baseline has; make it anew.")
    if about.pop("checksum", None) != _checksum(tensors, about):
        raise BadBaseline(f"{path} is damaged: its contents do not match its checksum; copy it again.")
    try:
        check_header(about)
        told = about.pop("judges")
        _, layers, dimension = about["shape"]
        judges = {level: _judge(tensors, level, told[level], layers, dimension) for level in LEVELS}
        kept = _texts(tensors.pop("texts")) if "texts" in tensors else ()
        if others := set(tensors) - {f"{level}.{name}" for level in LEVELS for name in _tensors(judges[level])}:
            raise ValueError(f"{len(others)} tensors are none of a baseline, {brief(min(others))} among them")
    except (ValueError, RecursionError) as error:
        raise BadBaseline(f"{path} lacks parts of a baseline ({error}); make it anew.") from None
    return Baseline(judges, {"files_sha256": None} | about | {"version": VERSION}, kept)


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """Of everything in the file, its header too."""
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(judge: Judge) -> dict[str, Tensor]:
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


def _judge(tensors: Mapping[str, Tensor], level: str, told: Mapping[str, Any], layers: int, dimension: int) -> Judge:
    clouds = clouds_of(layers, level)
    if list(clouds) != told["clouds"]:
        raise ValueError(f"it looks at clouds {brief(told['clouds'])} of {layers} layers")
    numbers, kinds, probes = len(names(clouds)), len(told["kinds"]), len(told["probes"])
    own = _Checked(tensors, level)
    detector = Detector(
        Directions(
            tuple(told["kinds"]),
            own("directions.weights", kinds, len(clouds) * dimension + numbers),
            own("directions.offsets", kinds),
        ),
        Probes(
            tuple(told["probes"]), own("probes.weights", len(clouds), probes, dimension), own("probes.offsets", probes)
        ),
        own("codes", None, min(2, len(clouds)) * dimension),
        own("centre", numbers),
        own("whitening", numbers, numbers),
        own("cosines", len(clouds)),
        Standards(own("standards.kinds", kinds + probes, len(TABLE))),
        Standards(own("standards.parts", len(PARTS), len(TABLE))),
    )
    table = own("calibration.table", None, None, filled=True)
    edges = own("calibration.edges", len(table) - 1)
    if not bool((table[:, 1:] >= table[:, :-1]).all() and table[:, 0].isfinite().all() and (edges.diff() > 0).all()):
        raise ValueError(f"{level}.calibration is not in order")
    return Judge(clouds, detector, Conformal(table, edges))


@dataclass(frozen=True)
class _Checked:
    """The tensors of one level, each checked when it is taken."""

    tensors: Mapping[str, Tensor]
    level: str

    def __call__(self, name: str, *shape: int | None, filled: bool = False) -> Tensor:
        """``None`` in ``shape``: one or more. ``filled``: rows are filled up with infinity."""
        name = f"{self.level}.{name}"
        if name not in self.tensors:
            raise ValueError(f"there is no tensor {name}")
        found = self.tensors[name]
        fits = len(found.shape) == len(shape) and all(
            size > 0 if wanted is None else size == wanted for size, wanted in zip(found.shape, shape, strict=True)
        )
        if not fits or found.dtype != torch.float32:
            wanted = " × ".join("any" if size is None else str(size) for size in shape)
            kind = str(found.dtype).removeprefix("torch.")
            raise ValueError(f"{name} has shape {tuple(found.shape)} in {kind}, not {wanted} in float32")
        if bool((found.isnan() | found.isneginf() if filled else ~found.isfinite()).any()):
            raise ValueError(f"{name} holds entries that are no numbers")
        return found


def _texts(told: Tensor) -> tuple[str, ...]:
    """The texts that were kept: UTF-8 of a JSON list."""
    texts = json.loads(told.numpy().tobytes()) if told.dtype == torch.uint8 else None
    if not isinstance(texts, list) or any(not isinstance(text, str) for text in texts):
        raise ValueError("the texts that were kept are not texts")
    return tuple(texts)
