"""The tensors of a model, from its files or from a live one, under the names of its family's modules.

Nothing in a file is executed: tensors come from safetensors files (memory-mapped) or, where there is only a pytorch
.bin, through torch's reader of plain tensors.
"""

import json
import pickle
import re
import warnings
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from frostline.encoders.families import Family
from frostline.errors import BadModel

ADAPTER = re.compile(r"(^|[._])(loras?|adapters?|ia3|vera|dora|loha|lokr|hada|b?oft|prefix|prompts?)([._]|$)", re.I)
"""In names of tensors: what adapters of all kinds add to a model."""
WEIGHTS = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""Files of weights, and the index of each where they are several; the first that is there counts."""
ADAPTER_FILE = "adapter_config.json"
"""The file that marks a folder as that of an adapter."""
OLD_NORMS = {".gamma": ".weight", ".beta": ".bias"}
"""Endings of names in checkpoints of the first years."""


class InMemory:
    """The tensors of a live model, or of a pytorch .bin."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors = tensors
        self.names = frozenset(tensors)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name].detach()


class OnDisk:
    """The tensors of safetensors files, mapped into memory."""

    def __init__(self, files: list[Path]):
        from safetensors import SafetensorError, safe_open

        self._stack = ExitStack()
        self._home: dict[str, Any] = {}
        for file in files:
            try:
                opened = self._stack.enter_context(safe_open(file, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise BadModel(
                    f"{file} is not a whole safetensors file ({error}); copy or download it again."
                ) from None
            self._home |= dict.fromkeys(opened.keys(), opened)
        self.names = frozenset(self._home)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._home[name].get_tensor(name)
        return tensor


@dataclass(frozen=True, eq=False)
class Renamed:
    """The same tensors under the names of a family's modules; ``stored`` has the name each has in its file."""

    tensors: InMemory | OnDisk
    stored: Mapping[str, str]

    @property
    def names(self) -> Collection[str]:
        """Names by which tensors are read."""
        return self.stored.keys()

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[self.stored[name]]


def renamed(source: str, tensors: InMemory | OnDisk, family: Family) -> Renamed:
    """The tensors under the names of the family's modules."""
    stored: dict[str, str] = {}
    for name in sorted(tensors.names):
        present = name
        for old, new in family.renamed:
            present = present.replace(old, new)
        for old, new in OLD_NORMS.items():
            present = present.removesuffix(old) + new if present.endswith(old) else present
        if present in stored:
            raise BadModel(
                f"{source} holds one tensor under two names, {stored[present]} and {name}; which one is meant?"
            )
        stored[present] = name
    return Renamed(tensors, stored)


def has_weights(folder: Path) -> bool:
    """Whether a folder has weights in a format that is read here."""
    return any((folder / name).is_file() for pair in WEIGHTS for name in pair)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files of weights in a folder: one, or the shards that its index names."""
    for stem, index in WEIGHTS:
        if (folder / stem).is_file():
            return (folder / stem,)
        if (folder / index).is_file():
            return _shards(folder, folder / index)
    others = sorted(path.name for path in folder.iterdir() if path.suffix in (".h5", ".msgpack", ".onnx", ".ckpt"))
    also = f" It has {', '.join(others)}, which frostline does not read." if others else ""
    raise BadModel(f"{folder} has neither model.safetensors nor pytorch_model.bin.{also}")


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        raise BadModel(f"{index} is not an index of weight files.") from None
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise BadModel(f"{index.name} names {name!r}, which is not a file of {folder}; copy the model again.")
    return tuple(folder / name for name in names)


def plain(file: Path) -> dict[str, Tensor]:
    """Tensors of a pytorch .bin, and nothing else: a pickle that wants to run code is refused before it does."""
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise BadModel(f"{file} is not a whole pytorch file ({_first(error)}); copy it again.") from None
        # The format of the first years cannot be mapped.
        tensors = _unmapped(file)
    except (pickle.UnpicklingError, EOFError, OSError, ValueError) as error:
        raise BadModel(_refusal(file, error)) from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise BadModel(f"{file} holds more than named tensors; save it as safetensors.")
    return tensors


def _unmapped(file: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise BadModel(_refusal(file, error)) from None


def _refusal(file: Path, error: Exception) -> str:
    return (
        f"{file} cannot be read as plain tensors ({_first(error)}). Nothing in it was executed. If you trust where it "
        "comes from, convert it to safetensors elsewhere; otherwise delete it."
    )


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
