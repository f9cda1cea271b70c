"""Pages of an SQLite file, read without SQLite, which gives up at the first damaged one.

The format is described at https://www.sqlite.org/fileformat2.html. Nothing here trusts a byte: a page that is no page
of a table or of an index gives no records.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

MAGIC = b"SQLite format 3\0"
"""The first bytes of every SQLite file."""
HEADER = 100
"""Bytes of the header of an SQLite file."""
USUAL_SIZE = 4096
"""Bytes of a page where no header says it."""
FRAME_HEADER = 24
"""Bytes in front of each page in a write-ahead log."""
LOG_HEADER = 32
"""Bytes at the beginning of a write-ahead log."""
TABLE_LEAF = 0x0D
"""First byte of a page that holds rows of a table."""
INDEX_PAGES = {0x0A: 8, 0x02: 12}
"""First bytes of pages that hold entries of an index (leaves and inner ones), with the bytes of their headers."""
INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of the integers of each serial type."""


class Pages:
    """The newest image of every page: of the write-ahead log where a transaction was finished there, else of the file.

    Use as a context manager.
    """

    def __init__(self, path: Path):
        self._file = open(path, "rb")  # noqa: SIM115 (__exit__ closes it)
        self._header = self._file.read(HEADER)
        log = Path(f"{path}-wal")
        content = log.read_bytes() if log.is_file() else b""
        self.has_header = self._header[:16] == MAGIC and len(self._header) == HEADER
        size = int.from_bytes(self._header[16:18]) if self.has_header else int.from_bytes(content[8:12])
        size = 65536 if size == 1 else size
        self.size = size if 512 <= size <= 65536 and size & (size - 1) == 0 else USUAL_SIZE
        self.usable = self.size - (self._header[20] if self.has_header else 0)
        self._logged = _logged_pages(content, self.size)
        self.count = max(self._file.seek(0, 2) // self.size, *self._logged, 0)

    def __enter__(self) -> "Pages":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def page(self, number: int) -> bytes:
        """The page of this number; the first has number 1."""
        if number in self._logged:
            return self._logged[number]
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size)

    def application_ids(self) -> set[int]:
        """The application's number at the beginning of the file, and that in the write-ahead log."""
        firsts = (self._header, self._logged.get(1, b""))
        return {int.from_bytes(first[68:72]) for first in firsts if first[:16] == MAGIC and len(first) >= HEADER}

    def records(self, most: int | None = None) -> Iterator[tuple[int | None, list[Any]]]:
        """Number and values of every row; entries of indexes have None in place of a number.

        most: number of pages to look at, all of them if it is None
        """
        free = self._free_pages()
        for number in range(1, self.count + 1 if most is None else min(self.count, most) + 1):
            if number not in free:
                yield from self._records_of(self.page(number), HEADER if number == 1 else 0)

    def _records_of(self, page: bytes, start: int) -> Iterator[tuple[int | None, list[Any]]]:
        if len(page) <= start + 12:
            return
        is_table = page[start] == TABLE_LEAF
        if not is_table and page[start] not in INDEX_PAGES:
            return
        pointers = start + (8 if is_table else INDEX_PAGES[page[start]])
        for k in range(int.from_bytes(page[start + 3 : start + 5])):
            at = int.from_bytes(page[pointers + 2 * k : pointers + 2 * k + 2])
            with suppress(IndexError, ValueError, struct.error):
                # An inner page of an index has the number of a child before the entry.
                length, at = _varint(page, at + (4 if page[start] == 0x02 else 0))
                number = None
                if is_table:
                    number, at = _varint(page, at)
                    number -= 2**64 if number >= 2**63 else 0
                yield number, _values(self._payload(page, at, length, is_table))

    def _payload(self, page: bytes, at: int, length: int, is_table: bool) -> bytes:
        """The bytes of a record, of which some may lie on other pages."""
        usable = self.usable
        if length > self.count * self.size:
            raise ValueError("longer than the file")
        room = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if length <= room:
            return page[at : at + length]
        least = (usable - 12) * 32 // 255 - 23
        here = least + (length - least) % (usable - 4)
        here = here if here <= room else least
        parts, missing = [page[at : at + here]], length - here
        following = int.from_bytes(page[at + here : at + here + 4])
        while missing > 0:
            if not 1 < following <= self.count:
                raise ValueError("a chain of pages that leads nowhere")
            page = self.page(following)
            following = int.from_bytes(page[:4])
            parts.append(page[4 : min(usable, 4 + missing)])
            missing -= usable - 4
        return b"".join(parts)

    def _free_pages(self) -> set[int]:
        """Pages that hold what was deleted long ago."""
        free = set[int]()
        trunk = int.from_bytes(self.page(1)[32:36]) if self.has_header else 0
        while 1 < trunk <= self.count and trunk not in free:
            free.add(trunk)
            page = self.page(trunk)
            count = min(int.from_bytes(page[4:8]), self.usable // 4 - 2)
            free.update(int.from_bytes(page[8 + 4 * k : 12 + 4 * k]) for k in range(count))
            trunk = int.from_bytes(page[:4])
        return free


def lost_transactions(path: Path) -> int:
    """Number of finished transactions in the write-ahead log of a file that SQLite would pass over without a word.

    It reads a log up to the first frame whose checksum is wrong. Where power failed, the last transaction may end so,
    and nobody was told that it is on the disk; one before it was synced, and only damage explains that it is wrong.
    """
    log = Path(f"{path}-wal")
    content = log.read_bytes() if log.is_file() else b""
    size = int.from_bytes(content[8:12])
    if not _has_header(content) or not 512 <= size <= 65536:
        return sum(ends for *_, ends in _frames(content, USUAL_SIZE))
    order = ">" if content[3] & 1 else "<"
    sums, lost, is_sound = (0, 0), 0, True
    for at, _, ends in _frames(content, size):
        if is_sound:
            sums = _checksum(content[at : at + 8], order, sums if at > LOG_HEADER else _checksum(content[:24], order))
            sums = _checksum(content[at + FRAME_HEADER : at + FRAME_HEADER + size], order, sums)
            is_sound = sums == struct.unpack_from(">II", content, at + 16)
        lost += ends and not is_sound
    return max(0, lost - 1)


def _has_header(log: bytes) -> bool:
    return log[:3] == b"\x37\x7f\x06" and log[3] & 0xFE == 0x82


def _frames(log: bytes, size: int) -> Iterator[tuple[int, int, bool]]:
    """Place, number of the page, and whether a transaction ends with it, of each frame of a write-ahead log.

    Frames of an older round lie behind those of this one and have other salts.
    """
    places = range(LOG_HEADER, len(log) - FRAME_HEADER - size + 1, FRAME_HEADER + size)
    salts = log[16:24]
    if not _has_header(log):
        ((salts, _),) = Counter(log[at + 8 : at + 16] for at in places).most_common(1) or ((b"", 0),)
    for at in places:
        if log[at + 8 : at + 16] == salts:
            number, ends = struct.unpack_from(">II", log, at)
            yield at, number, ends != 0


def _checksum(data: bytes, order: str, sums: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The running checksum of a write-ahead log."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = first + even + second & 0xFFFFFFFF
        second = second + odd + first & 0xFFFFFFFF
    return first, second


def _logged_pages(log: bytes, size: int) -> dict[int, bytes]:
    """Pages in a write-ahead log, up to the end of the last finished transaction."""
    pages, unfinished = dict[int, bytes](), dict[int, bytes]()
    for at, number, ends in _frames(log, size):
        unfinished[number] = log[at + FRAME_HEADER : at + FRAME_HEADER + size]
        if ends:
            pages |= unfinished
            unfinished.clear()
    return pages


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place behind it."""
    value = 0
    for k in range(8):
        byte = data[at + k]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + k + 1
    return value << 8 | data[at + 8], at + 9


def _values(record: bytes) -> list[Any]:
    """Values of a record. Raises ValueError unless its lengths agree to the byte."""
    header, at = _varint(record, 0)
    kinds = []
    while at < header:
        kind, at = _varint(record, at)
        kinds.append(kind)
    if at != header:
        raise ValueError("a header that ends elsewhere")
    values: list[Any] = []
    for kind in kinds:
        length = INTEGERS.get(kind, 8 if kind == 7 else (kind - 12) // 2 if kind >= 12 else 0)
        part = record[at : at + length]
        if len(part) < length or kind in (10, 11):
            raise ValueError("a record that is cut off")
        if kind in INTEGERS:
            values.append(int.from_bytes(part, signed=True))
        elif kind == 7:
            values.append(struct.unpack(">d", part)[0])
        elif kind >= 12:
            values.append(part.decode() if kind % 2 else part)
        else:
            values.append(None if kind == 0 else kind - 8)
        at += length
    if at != len(record):
        raise ValueError("a record that is too long")
    return values
