"""A small audit as a folder, with made-up numbers that fit together: two layers of three heads, two texts."""

import json

import numpy as np
from safetensors.numpy import save_file

from frostline.auditing.scene_files import SCENES, SIGHTS
from frostline.auditing.scenes import FRAMES
from frostline.auditing.sights import UPPER, shapes_of

WORDS = ["[CLS]", "the", "ice", "melt", "##s", "[SEP]"]
LAYERS, HEADS = 2, 3
ROLES = ["first token 0.700", "cloud 0.450 (tilted), itself 0.300", "previous token 0.999"]


def facts_of():
    line = {"texts": 100, "interval": [1, 1], "share": [1.0, 0.05, 0.04, 0.0], "depth": 1}
    heads = [
        {"layer": layer, "head": head, "role": ROLES[head], "explained_bridge": (0.95, -0.3, None)[head]}
        for layer in range(LAYERS)
        for head in range(HEADS)
    ]
    return {"sentence": "A small encoder.", "provenance": {"model": "a/b"}, "frost_line": line, "heads": heads}


def scenes_of(rng):
    # Clouds of different sizes.
    sizes = np.array([0.05, 0.2, 0.1])[:, None, None]
    places = {name: (sizes * rng.normal(size=(LAYERS + 1, len(WORDS), 3))).tolist() for name in FRAMES}
    clusters = [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 0], [0] * 6]
    return [{"words": WORDS, "clusters": clusters, "places": places, "length": len(WORDS)}] * 2


def sights_of(rng):
    """Shares that differ by head and token, tokens 1 to 4 as the best ones, a frozen cloud in the last head."""
    arrays = {}
    for text in range(2):
        shapes = shapes_of(LAYERS, HEADS, len(WORDS), len(FRAMES))
        made = {name: rng.normal(scale=0.05, size=shape) for name, shape in shapes.items()}
        for name in ("law", "paid"):
            made[name] = rng.dirichlet(np.ones(5), size=shapes["law"][:-1])
        made["best"] = np.broadcast_to([1, 2, 1, 4, 3, 2], shapes["best"])
        made["freezing"] = np.broadcast_to(np.array([0.25, 0.5, 1.75])[:, None], shapes["freezing"])
        made["count"] = np.broadcast_to([4, 3, 3, 3, 3, 4], shapes["count"])
        made["covariance"] = np.broadcast_to(np.diag([0.04, 0.02, 0.01])[UPPER], shapes["covariance"])
        arrays |= {f"{text}.{name}": np.ascontiguousarray(array, np.float16) for name, array in made.items()}
    return arrays


def write_audit(folder, *, sights=True):
    rng = np.random.default_rng(0)
    (folder / "audit.json").write_text(json.dumps(facts_of()))
    (folder / SCENES).write_text(json.dumps(scenes_of(rng)))
    if sights:
        save_file(sights_of(rng), folder / SIGHTS)
    return folder
