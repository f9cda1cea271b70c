"""The ``.frost`` file of a baseline: one safetensors file with a JSON header, versioned and checksummed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_bytes
from torch import Tensor

from frostline.errors import BadBaseline
from frostline.files.atomic import write_atomically
from frostline.monitoring.baseline import Baseline
from frostline.monitoring.baseline_content import content_hash, content_tensors, judge_headers, judge_tensors
from frostline.monitoring.baseline_header import VERSION, brief, check_header
from frostline.monitoring.calibration import Conformal
from frostline.monitoring.corruption_directions import Directions
from frostline.monitoring.detector import PARTS, TABLE, Detector, Standards
from frostline.monitoring.judge import Judge
from frostline.monitoring.profile import LEVELS, clouds_of, names
from frostline.monitoring.reference_cloud import ReferenceCloud
from frostline.monitoring.token_probes import Probes

OLDEST = 2
"""The oldest format that can be read: 3 adds a hash of the model's files, 4 a deep level; files may lack both."""
LARGEST_FILE = 2**30
"""Largest size of a file that is read, in bytes."""


def save(base: Baseline, path: Path) -> Path:
    """Write a baseline in one atomic step: ``Baseline.save``."""
    about: dict[str, Any] = dict(base.about) | {"judges": judge_headers(base.judges)}
    tensors = content_tensors(base.judges, base.texts)
    about["checksum"] = content_hash(tensors, about)
    write_atomically(path, as_bytes(tensors, {"frostline": json.dumps(about)}))
    return path


def load_baseline(path: str | Path) -> Baseline:
    """Read a ``.frost`` file.

    Parameters
    ----------
    path
        The file, as ``Baseline.save`` or ``frostline baseline`` wrote it.

    Returns
    -------
    Baseline
        The baseline; it gives the same scores as the one that was saved.

    Raises
    ------
    BadBaseline
        The file is missing, damaged, of another program, or of a newer format.

    Examples
    --------
    >>> base = fl.load_baseline("enc.frost")  # doctest: +SKIP
    """
    path = Path(path)
    header, tensors = _read(path)
    about = _about(path, header)
    if any(tensor.dtype not in (torch.float32, torch.uint8) for tensor in tensors.values()):
        raise BadBaseline(f"{path} holds tensors of a kind no baseline has; make it anew.")
    if about.pop("checksum", None) != content_hash(tensors, about):
        raise BadBaseline(f"{path} is damaged: its contents do not match its checksum; copy it again.")
    try:
        check_header(about)
        headers = about.pop("judges")
        _, layers, dimension = about["shape"]
        judges = {level: _judge(tensors, level, headers[level], layers, dimension) for level in LEVELS}
        if "deep" in headers:
            full = judges["full"]
            judges["deep"] = replace(
                full, reference_cloud=_reference_cloud(tensors, headers["deep"]["inside"], full.clouds)
            )
        texts = _texts(tensors.pop("texts")) if "texts" in tensors else ()
        if others := set(tensors) - {f"{level}.{name}" for level in judges for name in judge_tensors(judges[level])}:
            raise ValueError(f"{len(others)} tensors are none of a baseline, {brief(min(others))} among them")
    except (ValueError, RecursionError) as error:
        raise BadBaseline(f"{path} lacks parts of a baseline ({error}); make it anew.") from None
    return Baseline(judges, {"files_sha256": None} | about | {"version": VERSION}, texts)


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    """The header as text, and the tensors."""
    if not path.is_file():
        raise BadBaseline(f"there is no file {path}; make one with: frostline baseline MODEL --text FILE -o {path}")
    if path.stat().st_size > LARGEST_FILE:
        raise BadBaseline(f"{path} has {path.stat().st_size / 2**30:.1f} GB; no baseline is larger than 1 GB.")
    try:
        with safe_open(path, framework="pt") as opened:
            header = (opened.metadata() or {}).get("frostline")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise BadBaseline(f"{path} is not a whole baseline ({brief(error)}); copy it again or make it anew.") from None
    if header is None:
        raise BadBaseline(f"{path} is a safetensors file, but not a baseline of frostline.")
    return header, tensors


def _about(path: Path, header: str) -> dict[str, Any]:
    """The header as a dictionary, of a version that can be read."""
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
    return about


def _judge(tensors: Mapping[str, Tensor], level: str, header: Mapping[str, Any], layers: int, dimension: int) -> Judge:
    clouds = clouds_of(layers, level)
    if list(clouds) != header["clouds"]:
        raise ValueError(f"it looks at clouds {brief(header['clouds'])} of {layers} layers")
    numbers, kinds, probes = len(names(clouds)), len(header["kinds"]), len(header["probes"])
    checked = _Checked(tensors, level)
    detector = Detector(
        Directions(
            tuple(header["kinds"]),
            checked("directions.weights", kinds, len(clouds) * dimension + numbers),
            checked("directions.offsets", kinds),
        ),
        Probes(
            tuple(header["probes"]),
            checked("probes.weights", len(clouds), probes, dimension),
            checked("probes.offsets", probes),
        ),
        checked("codes", None, min(2, len(clouds)) * dimension),
        checked("centre", numbers),
        checked("whitening", numbers, numbers),
        checked("cosines", len(clouds)),
        Standards(checked("standards.kinds", kinds + probes, len(TABLE))),
        Standards(checked("standards.parts", len(PARTS), len(TABLE))),
    )
    table = checked("calibration.table", None, None, filled=True)
    edges = checked("calibration.edges", len(table) - 1)
    if not bool((table[:, 1:] >= table[:, :-1]).all() and table[:, 0].isfinite().all() and (edges.diff() > 0).all()):
        raise ValueError(f"{level}.calibration is not in order")
    return Judge(clouds, detector, Conformal(table, edges))


def _reference_cloud(tensors: Mapping[str, Tensor], inside: list[int], clouds: tuple[int, ...]) -> ReferenceCloud:
    """The reference cloud of a deep judge."""
    if not inside or not set(inside) < set(clouds) or sorted(set(inside)) != inside:
        raise ValueError(f"it looks into layers {brief(inside)}, which no clouds of {list(clouds)} enter")
    checked = _Checked(tensors, "deep")
    keys = checked("reference_cloud.keys", len(inside), None, None)
    _, heads, size = keys.shape
    spread = checked("reference_cloud.spread", len(inside))
    if not bool((spread > 0).all()):
        raise ValueError("deep.reference_cloud.spread is not above zero")
    return ReferenceCloud(
        tuple(inside),
        keys,
        checked("reference_cloud.values", len(inside), heads, size),
        checked("reference_cloud.keys_keys", len(inside), heads, size, size),
        checked("reference_cloud.keys_values", len(inside), heads, size, size),
        checked("reference_cloud.line", len(inside), 2),
        spread,
    )


@dataclass(frozen=True)
class _Checked:
    """The tensors of one level, each checked when it is read."""

    tensors: Mapping[str, Tensor]
    level: str

    def __call__(self, name: str, *shape: int | None, filled: bool = False) -> Tensor:
        """The tensor, of this shape (None: any size above zero); ``filled`` rows are filled up with infinity."""
        name = f"{self.level}.{name}"
        if name not in self.tensors:
            raise ValueError(f"there is no tensor {name}")
        tensor = self.tensors[name]
        fits = len(tensor.shape) == len(shape) and all(
            size > 0 if wanted is None else size == wanted for size, wanted in zip(tensor.shape, shape, strict=True)
        )
        if not fits or tensor.dtype != torch.float32:
            wanted = " × ".join("any" if size is None else str(size) for size in shape)
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"{name} has shape {tuple(tensor.shape)} in {kind}, not {wanted} in float32")
        if bool((tensor.isnan() | tensor.isneginf() if filled else ~tensor.isfinite()).any()):
            raise ValueError(f"{name} holds entries that are no numbers")
        return tensor


def _texts(encoded: Tensor) -> tuple[str, ...]:
    """The texts that were kept: UTF-8 of a JSON list."""
    texts = json.loads(encoded.numpy().tobytes()) if encoded.dtype == torch.uint8 else None
    if not isinstance(texts, list) or any(not isinstance(text, str) for text in texts):
        raise ValueError("the texts that were kept are not texts")
    return tuple(texts)
