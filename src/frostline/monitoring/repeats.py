"""Repeated texts: a text that was just seen is no new evidence, whoever sends it again."""

from collections import OrderedDict
from hashlib import blake2b

WINDOW = 100_000
"""Number of different texts that are remembered."""


class Repeats:
    """Remembers the last different texts, as digests of eight bytes: 10⁵ of them take some ten megabytes."""

    def __init__(self, window: int = WINDOW):
        self.window = window
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def seen(self, text: str) -> bool:
        """Whether the text is one of those remembered; from now on it is."""
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        known = digest in self._digests
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > self.window:
            self._digests.popitem(last=False)
        return known
