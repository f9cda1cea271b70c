"""The files of kept texts: words and places as JSON, and what heads see as arrays of 16-bit floats."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load, save

from frostline.auditing.scenes import FRAMES, Scene
from frostline.auditing.sights import shapes_of
from frostline.files.atomic import write_atomically

SCENES = "scenes.json"
"""The token clouds that were kept."""
SIGHTS = "scenes.safetensors"
"""What their tokens see through every head; each array's name begins with the number of its text."""
Arrays = dict[str, Float[np.ndarray, "..."]]
"""The arrays of one text by their names."""
WHOLE = 0.01
"""How far the sum of five rounded shares may be from one."""


def write_scenes(folder: Path, scenes: Sequence[Scene]) -> None:
    """Write both files; without scenes, remove those of an older audit in the same folder."""
    # The arrays belong to the words beside them: never to those of another audit.
    (folder / SIGHTS).unlink(missing_ok=True)
    if not scenes:
        (folder / SCENES).unlink(missing_ok=True)
        return
    write_atomically(folder / SCENES, json.dumps([_plain(scene) for scene in scenes]).encode())
    arrays = {
        f"{number}.{name}": np.ascontiguousarray(array, dtype=np.float16)
        for number, scene in enumerate(scenes)
        for name, array in scene.sights.arrays().items()
    }
    write_atomically(folder / SIGHTS, save(arrays))


def read_sights(blob: bytes, layers: int, heads: int, texts: Sequence[tuple[int, int]]) -> list[Arrays]:
    """The arrays of each text from the bytes of ``SIGHTS``; of a text one knows how much is kept, and its length.

    Raises
    ------
    ValueError
        Something is missing, has another shape, is not finite, or is no share or place.
    """
    try:
        arrays = load(blob)
    except (SafetensorError, KeyError) as error:
        raise ValueError(str(error)) from None
    sights = []
    for number, (kept, length) in enumerate(texts):
        text: Arrays = {}
        for name, shape in shapes_of(layers, heads, kept, len(FRAMES)).items():
            array = arrays.get(f"{number}.{name}")
            if array is None or array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"{number}.{name}")
            text[name] = array
        if not _sensible(text, length):
            raise ValueError(f"{number}")
        sights.append(text)
    return sights


def _sensible(text: Arrays, length: int) -> bool:
    """Whether shares are shares and places are places."""
    shares, best = np.stack([text["law"], text["paid"]]), text["best"]
    whole = np.abs(shares.sum(-1, dtype=np.float64) - 1) <= WHOLE
    return bool(
        (shares >= 0).all()
        and whole.all()
        and ((best >= -1) & (best < length) & (best % 1 == 0)).all()
        and (text["freezing"] >= 0).all()
        and (text["count"] >= 0).all()
    )


def _plain(scene: Scene) -> dict[str, Any]:
    places = {name: np.round(tokens, 5).tolist() for name, tokens in scene.places.items()}
    return {
        "words": list(scene.words),
        "places": places,
        "clusters": scene.clusters.tolist(),
        "length": scene.length,
    }
