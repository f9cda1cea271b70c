"""The ``.frost`` file: one safetensors file with a JSON header, versioned and checksummed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_bytes
from torch import Tensor

from frostline.errors import BadBaseline
from frostline.monitoring.baseline import LEVELS, VERSION, Baseline
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.detector import PARTS, TABLE, Detector, Standards
from frostline.monitoring.directions import Directions
from frostline.monitoring.judging import Judge
from frostline.monitoring.profiles import clouds_of, names
from frostline.monitoring.words import Probes
from frostline.store import write_atomically

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
    except (SafetensorError, OSError, ValueError) as error:
        raise BadBaseline(f"{path} is not a whole baseline ({error}); copy it again or make it anew.") from None
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
        raise BadBaseline(f"{path} was made by a newer frostline (format {version}, this one reads {VERSION}); update.")
    if version < OLDEST:
        raise BadBaseline(
            f"{path} was made by an older frostline (format {version}, this reads {OLDEST} to {VERSION}); make it anew."
        )
    if any(tensor.dtype not in (torch.float32, torch.uint8) for tensor in tensors.values()):
        raise BadBaseline(f"{path} holds tensors of a kind no baseline has; make it anew.")
    if about.pop("checksum", None) != _checksum(tensors, about):
        raise BadBaseline(f"{path} is damaged: its contents do not match its checksum; copy it again.")
    try:
        told = about.pop("judges")
        _, layers, dimension = about["shape"]
        judges = {level: _judge(tensors, level, told[level], int(layers), int(dimension)) for level in LEVELS}
        texts = json.loads(tensors["texts"].numpy().tobytes()) if "texts" in tensors else []
        if not isinstance(texts, list) or any(not isinstance(text, str) for text in texts):
            raise TypeError("texts are not texts")
        if missing := {"model", "model_sha256", "tokenizer_sha256", "texts"} - set(about):
            raise KeyError(*missing)
        return Baseline(judges, {"files_sha256": None} | about | {"version": VERSION}, tuple(texts))
    except (KeyError, ValueError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise BadBaseline(f"{path} lacks parts of a baseline ({error}); make it anew.") from None


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
        raise ValueError(f"it looks at clouds {told['clouds']} of {layers} layers")
    own = {name.removeprefix(f"{level}."): tensor for name, tensor in tensors.items() if name.startswith(f"{level}.")}
    detector = Detector(
        Directions(tuple(told["kinds"]), own["directions.weights"], own["directions.offsets"]),
        Probes(tuple(told["probes"]), own["probes.weights"], own["probes.offsets"]),
        own["codes"],
        own["centre"],
        own["whitening"],
        own["cosines"],
        Standards(own["standards.kinds"]),
        Standards(own["standards.parts"]),
    )
    numbers, kinds = len(names(clouds)), len(told["kinds"]) + len(told["probes"])
    expected = {
        "directions.weights": (len(told["kinds"]), len(clouds) * dimension + numbers),
        "directions.offsets": (len(told["kinds"]),),
        "probes.weights": (len(clouds), len(told["probes"]), dimension),
        "probes.offsets": (len(told["probes"]),),
        "codes": (len(own["codes"]), min(2, len(clouds)) * dimension),
        "centre": (numbers,),
        "whitening": (numbers, numbers),
        "cosines": (len(clouds),),
        "standards.kinds": (kinds, len(TABLE)),
        "standards.parts": (len(PARTS), len(TABLE)),
        "calibration.table": (len(own["calibration.edges"]) + 1, own["calibration.table"].shape[1]),
    }
    for name, shape in expected.items():
        if own[name].shape != shape or own[name].dtype != torch.float32:
            raise ValueError(f"{level}.{name} has shape {tuple(own[name].shape)}, not {shape}")
        # Rows of the table are filled up with infinity; nothing else may hold what is no number.
        if bool((own[name].isnan() if name == "calibration.table" else ~own[name].isfinite()).any()):
            raise ValueError(f"{level}.{name} holds entries that are no numbers")
    return Judge(clouds, detector, Conformal(own["calibration.table"], own["calibration.edges"]))
