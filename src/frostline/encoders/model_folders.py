"""Folders of models: the one to read (of sentence-transformers, a part of it), and other models in and beside it."""

import json
import re
from pathlib import Path
from typing import Any

from frostline.encoders.tensors import ADAPTER_FILE, has_weights

MODULES = "modules.json"
"""The file in which sentence-transformers lists the modules of a model."""
OF_TRAINING = re.compile(r"^(checkpoint|best|last|final|epoch|step)", re.I)
"""Names of folders that training writes: no others are looked for beside a model's own."""
MOST = 1000
"""Entries of a folder that are looked at."""


def model_folder(folder: Path) -> Path:
    """The folder itself, or the one that modules.json of sentence-transformers names (``0_Transformer``)."""
    if (folder / "config.json").is_file():
        return folder
    modules = _json(folder / MODULES)
    for module in modules if isinstance(modules, list) else []:
        path = module.get("path") if isinstance(module, dict) else None
        # A plain name: nothing outside the folder is read.
        if not isinstance(path, str) or path != Path(path).name or path == "..":
            continue
        if str(module.get("type", "")).endswith("Transformer") and (folder / path / "config.json").is_file():
            return folder / path
    return folder


def short_name(name: str) -> str:
    """The last two parts of a model's path or hub id.

    >>> short_name("/models/sentence-transformers/all-MiniLM-L6-v2")
    'sentence-transformers/all-MiniLM-L6-v2'
    """
    return "/".join(Path(name).parts[-2:])


def models_in(folder: Path) -> list[Path]:
    """The subfolders that hold a model."""
    return [path for path in _folders(folder) if _is_model(path)]


def described(folder: Path) -> str:
    """The other models in a folder and those of a training beside it, in words; empty where there are none."""
    own_folder = model_folder(folder)
    inside = [path.name for path in models_in(folder) if path != own_folder]
    beside = [
        path.name
        for path in _folders(folder.absolute().parent)
        if OF_TRAINING.match(path.name) and path.name != folder.absolute().name and _is_model(path)
    ]
    places = (("in it", inside), ("beside it", beside))
    return "; ".join(
        f"{where} {'is' if len(names) == 1 else 'are'} {', '.join(names)}" for where, names in places if names
    )


def without_config(folder: Path) -> str:
    """The error about a folder without config.json, with the folders in it that hold a model."""
    if (folder / ADAPTER_FILE).is_file():
        return (
            f"{folder} holds an adapter alone ({ADAPTER_FILE}); merge it into the model it belongs to "
            "(merge_and_unload in peft) and give the folder of the result."
        )
    inside = [path.name for path in models_in(folder)]
    if inside:
        return f"{folder} has no config.json; in it are models: {', '.join(inside)}. Give one of these folders."
    return f"{folder} has no config.json; give the folder of a model as transformers saves it."


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path, _ in zip(folder.iterdir(), range(MOST), strict=False) if path.is_dir())
    except OSError:
        return []


def _is_model(folder: Path) -> bool:
    """Whether the folder holds a model; modules of sentence-transformers have no model_type in their config.json."""
    config = _json(folder / "config.json")
    return isinstance(config, dict) and bool({"model_type", "architectures"} & config.keys()) and has_weights(folder)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
