"""Messages to the page: a JSON header and a block of numbers, each with its length in front (little-endian)."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from frostline.files.plain_json import plain

FINEST = 32767
"""Positions travel as 16-bit integers: a picture needs no more, and a long run of them fits into a page."""


def pack(kind: str, facts: dict[str, Any], *arrays: np.ndarray) -> bytes:
    """One message. Arrays travel as they are, one after another; the header has their types and shapes."""
    block = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    shapes = [{"dtype": str(array.dtype), "shape": list(array.shape)} for array in arrays]
    # Spaces behind the header, so that the numbers begin where a typed array can begin.
    header = json.dumps(plain({"kind": kind, **facts, "arrays": shapes}), allow_nan=False).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<II", len(header), len(block)) + header + block


def unpack(blob: bytes) -> Iterator[tuple[dict[str, Any], list[np.ndarray]]]:
    """The messages of a stream: what the page does, for tests and scripts."""
    at = 0
    while at < len(blob):
        header, block = struct.unpack_from("<II", blob, at)
        facts = json.loads(blob[at + 8 : at + 8 + header])
        at += 8 + header
        arrays, inside = [], at
        for array in facts.pop("arrays"):
            found = np.frombuffer(blob, array["dtype"], int(np.prod(array["shape"])), inside).reshape(array["shape"])
            arrays.append(found)
            inside += found.nbytes
        at += block
        yield facts, arrays


def coarse(x: np.ndarray) -> np.ndarray:
    """Unit vectors as 16-bit integers."""
    return np.rint(np.clip(x, -1, 1) * FINEST).astype("<i2")
