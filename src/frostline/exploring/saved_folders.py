"""Saved folders, opened for the page: an audit with token clouds, or a run directory."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load

from frostline.auditing.frost_line import FEWEST
from frostline.auditing.head_roles import WORDS
from frostline.auditing.save import FACTS
from frostline.auditing.scene_files import SCENES, SIGHTS, read_sights
from frostline.auditing.scenes import FRAMES
from frostline.errors import BadParameter, BadRun
from frostline.exploring.frames import show_again
from frostline.exploring.messages import pack
from frostline.runs.directory import ARRAYS, SUMMARY, load_run

MOST_BYTES = 64 * 2**20
"""Size of a file of an audit at most, in bytes."""
AGAIN = "To see it, make the audit again: frostline audit MODEL --text FILE --keep-texts 8 --out FOLDER"
"""Advice where an audit lacks what heads see."""


@dataclass(frozen=True)
class Opened:
    """An opened folder.

    about       facts that the page gets at once
    messages    the messages that follow
    sights      what heads see of each text of an audit: a message each, made when it is asked for
    """

    about: dict[str, Any]
    messages: Callable[[], Iterator[bytes]]
    sights: Sequence[Callable[[], bytes]] = ()


def open_folder(folder: Path) -> Opened:
    """An audit with kept texts, or a run of ``frostline simulate`` in d = 2 or 3."""
    if not folder.is_dir():
        raise BadParameter(f"{folder} is not a folder; give one that frostline audit or frostline simulate wrote.")
    if (folder / FACTS).is_file():
        return _audit(folder)
    if (folder / "claims").is_dir():
        raise BadParameter(f"{folder} is a reproduction; open {folder / 'index.html'} in a browser.")
    if (folder / SUMMARY).is_file():
        return _run(folder)
    raise BadParameter(f"{folder} holds neither an audit ({FACTS}) nor a run ({SUMMARY}).")


def _audit(folder: Path) -> Opened:
    if not (folder / SCENES).is_file():
        raise BadParameter(
            f"{folder} is an audit without token clouds to look at; make it again with: "
            f"frostline audit MODEL --text FILE --keep-texts 8 --out {folder}"
        )
    for name in (SCENES, FACTS):
        if (folder / name).stat().st_size > MOST_BYTES:
            raise BadParameter(f"{folder / name} is larger than {MOST_BYTES >> 20} MiB; keep fewer texts.")
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        saved = json.loads((folder / SCENES).read_text(encoding="utf-8"))
        scenes: list[dict[str, Any]] = [
            {
                "words": [_encodable(word) for word in scene["words"]],
                "clusters": np.asarray(scene["clusters"], dtype=np.int64),
                # Older audits do not say it; a text is no shorter than what is kept of it.
                "length": max(int(scene.get("length", 0)), len(scene["words"])),
                "places": {name: np.asarray(scene["places"][name], dtype=np.float32) for name in FRAMES},
            }
            for scene in saved
        ]
        line = facts.get("frost_line")
        # As FrostLine.frozen: enough texts, and the interval ends before the last cloud.
        frozen = line is not None and line["texts"] >= FEWEST and line["interval"][1] < len(line["share"]) - 1
        depth = int(line["depth"]) if frozen else None
        about: dict[str, Any] = {
            "what": "audit",
            "model": "/".join(Path(_encodable(facts["provenance"]["model"])).parts[-2:]),
            "sentence": _encodable(facts["sentence"]),
            "frames": FRAMES,
            "kinds": WORDS,
            "frost": depth,
            "texts": [" ".join(scene["words"])[:80] for scene in scenes],
        }
        _check(scenes)
        if depth is not None and not 0 <= depth < len(scenes[0]["clusters"]):
            raise ValueError
        about["heads"], about["without"], sights = _heads(folder, facts, scenes)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise BadRun(f"{folder} is not a whole audit: {type(error).__name__} in {SCENES} or {FACTS}.") from None
    blocks = [
        pack(
            "scene",
            {
                "words": scene["words"],
                "clusters": scene["clusters"].tolist(),
                "length": scene["length"],
                "frames": list(FRAMES),
            },
            *(scene["places"][name].astype("<f4") for name in FRAMES),
        )
        for scene in scenes
    ]
    return Opened(about, lambda: iter(blocks), [partial(_sights, arrays) for arrays in sights])


def _heads(
    folder: Path, facts: dict[str, Any], scenes: list[dict[str, Any]]
) -> tuple[list[list[dict[str, Any]]] | None, str, list[dict[str, np.ndarray]]]:
    """Each layer's heads in words, why there are none, and what they see of each text."""
    path = folder / SIGHTS
    if not path.is_file():
        return None, f"This audit does not hold what its heads see of the texts. {AGAIN}", []
    if path.stat().st_size > MOST_BYTES:
        return None, f"What heads see of these texts is larger than {MOST_BYTES >> 20} MiB: keep fewer. {AGAIN}", []
    layers = len(scenes[0]["clusters"]) - 1
    rows = facts["heads"]
    count = len(rows) // layers
    if [(row["layer"], row["head"]) for row in rows] != [(at // count, at % count) for at in range(layers * count)]:
        raise ValueError
    sights = read_sights(path.read_bytes(), layers, count, [(len(scene["words"]), scene["length"]) for scene in scenes])
    table = [_head(row) for row in rows]
    return [table[layer * count : (layer + 1) * count] for layer in range(layers)], "", sights


def _head(row: dict[str, Any]) -> dict[str, Any]:
    """A head in words: its role, the kind of token it looks at most, and the share that the law explains."""
    role = _encodable(row["role"])
    kind = next((kind for kind, words in WORDS.items() if role.startswith(words)), None)
    share = row["explained_bridge"]
    if share is not None and not np.isfinite(share):
        raise ValueError
    return {"role": role, "kind": kind, "explained": None if share is None else float(share)}


def _sights(arrays: dict[str, np.ndarray]) -> bytes:
    return pack("sights", {"names": list(arrays)}, *(array.astype("<f4") for array in arrays.values()))


def _encodable(text: object) -> str:
    """The text as it can be sent: half of a surrogate pair has no UTF-8."""
    return str(text).encode("utf-8", "replace").decode()


def _check(scenes: list[dict[str, Any]]) -> None:
    if not scenes:
        raise ValueError
    for scene in scenes:
        clouds, n = scene["clusters"].shape
        if clouds != len(scenes[0]["clusters"]) or clouds < 2:
            raise ValueError
        shapes = {places.shape for places in scene["places"].values()}
        if shapes != {(clouds, n, 3)} or n != len(scene["words"]):
            raise ValueError
        if not all(np.isfinite(places).all() for places in scene["places"].values()):
            raise ValueError


def _run(folder: Path) -> Opened:
    run = load_run(folder)
    d = run.tokens.shape[-1]
    if d not in (2, 3):
        raise BadParameter(f"{folder} is a run in d = {d}; the page shows 2 and 3. See its tokens.png instead.")
    if not len(run.times):
        raise BadParameter(f"{folder} is a run that kept no times; run it again with --save-at.")
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    about = {"what": "run", "name": folder.resolve().name, "sentence": _encodable(run.message)}
    kept = load((folder / ARRAYS).read_bytes()).get("curve")
    known = []
    if kept is not None and len(kept) > 1:
        times, values = kept.numpy().T
        known.append(
            pack("curve", {"times": times, "values": values, "words": {"Regime": summary["regime"]["meaning"]}})
        )
    if summary.get("phases"):
        known.append(pack("phases", summary["phases"]))
    return Opened(about, lambda: show_again(run, known))
