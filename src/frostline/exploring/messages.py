"""Messages to the page: a JSON header and a block of numbers, each with its length in front (little-endian)."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from frostline.files.plain_json import plain

FINEST = 32767
"""The integer for 1: positions are sent with 16 bits, which suffice for a picture and keep long runs small."""


def pack(kind: str, facts: dict[str, Any], *arrays: np.ndarray) -> bytes:
    """One message. The bytes of the arrays follow one another; the header has their types and shapes."""
    block = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    shapes = [{"dtype": str(array.dtype), "shape": list(array.shape)} for array in arrays]
    # Spaces pad the header, so that the numbers begin where a typed array of JavaScript can begin.
    header = json.dumps(plain({"kind": kind, **facts, "arrays": shapes}), allow_nan=False).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<II", len(header), len(block)) + header + block


def unpack(blob: bytes) -> Iterator[tuple[dict[str, Any], list[np.ndarray]]]:
    """Read the messages of a stream, as the page does; for tests and scripts."""
    begin = 0
    while begin < len(blob):
        header, block = struct.unpack_from("<II", blob, begin)
        facts = json.loads(blob[begin + 8 : begin + 8 + header])
        begin += 8 + header
        arrays, offset = [], begin
        for layout in facts.pop("arrays"):
            shape = layout["shape"]
            arrays.append(np.frombuffer(blob, layout["dtype"], int(np.prod(shape)), offset).reshape(shape))
            offset += arrays[-1].nbytes
        begin += block
        yield facts, arrays


def coarse(x: np.ndarray) -> np.ndarray:
    """Unit vectors as 16-bit integers."""
    return np.rint(np.clip(x, -1, 1) * FINEST).astype("<i2")
