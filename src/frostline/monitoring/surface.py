"""The surface of a text: its scripts, markup, length and repetition, beside those of the reference texts.

These are facts that anybody sees in a text without knowing the model. Reasons name them before anything that takes a
model to see. They are read from token ids, so that a watched pass and a scored text give the same: letters and markup
are those of the decoded ids.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

HIGH = 0.99
"""Share of the reference texts that lie below the number a text is compared with."""
LONGER = 1.25
"""A text is long (or short) from this many times the length of 99 % of the reference on."""
MARGINS = {"emoji": 0.03, "digits": 0.1, "unknown": 0.05, "markup": 0.04, "repetition": 0.1}
"""Shares of a text, and how far above 99 % of the reference each must lie to be named."""
FOREIGN_LETTERS = 0.03
"""Share of the letters, above that of 99 % of the reference, from which a script is named."""
RUN = 3
"""Tokens in a run: one that came before in the same text is a repetition."""
MOST_TEXTS = 5000
"""Largest number of reference texts whose surfaces are read."""
MOST_SCRIPTS = 200
"""Largest number of scripts in a reference."""
PARTS = ("script", "markup", "repetition", "length")
"""Kinds of surface reasons, in the order in which they are named."""
HTML, LINKS, CODE = "HTML or XML", "links", "code or markup"
"""Names of what markup characters are signs of."""
SYMBOLS = frozenset("<>{}[]()=;/\\_#$%&*+|~^@`")
"""Characters that are frequent in code and rare in prose."""
TAG = re.compile(r"<\s?[/!?]?\s?[A-Za-z][^<>]{0,300}>")
"""One tag of HTML or XML, spaces as a tokenizer may put them."""
SURE_TAG = re.compile(r"<\s?[/!]\s?[A-Za-z]|/\s?>")
"""Something only HTML and XML have: the end of an element, a declaration."""
JSON_KEY = re.compile(r"\"\s?\w[\w .-]{0,60}\"\s?:")
"""The name of a value in JSON."""
LINK = re.compile(r"(?:https?|ftp)\s?:\s?/\s?/\s?\S+|\bwww\s?\.\s?\S+")
"""The beginning of a link."""
NAMES_OF_SCRIPTS = {"Cjk": "Han", "Fullwidth": "full-width", "Mathematical": "mathematical"}
"""Scripts whose name is not the first word of the names of their letters."""


@dataclass(frozen=True)
class Surface:
    """The surface of one text.

    tokens   number of its tokens, special ones included
    shares   repetition: of the runs of three tokens; unknown: of the tokens; the others: of the characters
    scripts  shares of the letters, by script
    signs    what its markup characters are signs of: HTML or XML, links, code; empty where there are none
    """

    tokens: int
    shares: Mapping[str, float]
    scripts: Mapping[str, float]
    signs: str = ""


def read_surface(ids: Sequence[int], tokenizer: Any = None) -> Surface:
    """The surface of a text from its token ids; without a tokenizer only its length and its repetition."""
    unknown = _unknown_id(tokenizer)
    known = [number for number in ids if number != unknown]
    runs = list(zip(*(known[start:] for start in range(RUN)), strict=False))
    shares = {"repetition": 1 - len(set(runs)) / len(runs) if runs else 0.0}
    if not hasattr(tokenizer, "decode"):
        return Surface(len(ids), shares, {})
    text = str(tokenizer.decode(list(ids), skip_special_tokens=True))
    shares["unknown"] = 1 - len(known) / max(1, len(ids))
    characters = Counter("".join(text.split()))
    visible = max(1, characters.total())
    shares["emoji"] = sum(count for char, count in characters.items() if _is_emoji(char)) / visible
    shares["digits"] = sum(count for char, count in characters.items() if char.isdigit()) / visible
    marked, signs = _markup(text)
    shares["markup"] = marked / visible
    letters: Counter[str] = Counter()
    for char, count in characters.items():
        if char.isalpha():
            letters[script_of(char)] += count
    return Surface(
        len(ids), shares, {script: count / letters.total() for script, count in letters.most_common()}, signs
    )


@dataclass(frozen=True)
class SurfaceReference:
    """Surfaces of the reference texts, summed up.

    length   tokens of the shortest and of the longest texts: 1 % have fewer than the first, 1 % more than the second
    shares   of 99 % of the texts at most this share
    scripts  mean share of the letters, and the share that 99 % of the texts have at most, by script
    """

    length: tuple[float, float]
    shares: Mapping[str, float]
    scripts: Mapping[str, tuple[float, float]]

    @classmethod
    def learn(cls, surfaces: Sequence[Surface]) -> "SurfaceReference":
        """The reference of these surfaces."""
        low, high = np.quantile([surface.tokens for surface in surfaces], (1 - HIGH, HIGH)).tolist()
        shares = {
            name: float(np.quantile([surface.shares[name] for surface in surfaces], HIGH))
            for name in surfaces[0].shares
        }
        means: Counter[str] = Counter()
        for surface in surfaces:
            means.update(surface.scripts)
        scripts = {}
        for script, _ in means.most_common(MOST_SCRIPTS):
            column = [surface.scripts.get(script, 0.0) for surface in surfaces if surface.scripts]
            scripts[script] = (float(np.mean(column)), float(np.quantile(column, HIGH)))
        return cls((low, high), shares, scripts)

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "SurfaceReference | None":
        """The reference in the header of a baseline; None in baselines that were made before there was one."""
        header = about.get("surface")
        if header is None:
            return None
        scripts = {script: tuple(pair) for script, pair in header["scripts"].items()}
        return cls(tuple(header["length"]), header["shares"], scripts)

    def header(self) -> dict[str, Any]:
        """The reference as the header of a ``.frost`` file has it."""
        return {
            "length": list(self.length),
            "shares": {name: round(share, 6) for name, share in self.shares.items()},
            "scripts": {name: [round(share, 6) for share in pair] for name, pair in self.scripts.items()},
        }

    def explain(self, surface: Surface) -> tuple[tuple[str, str], ...]:
        """Everything about a surface that lies outside the reference: the kind of reason, and the reason in words."""
        reasons = ((part, _WORDS_OF_PART[part](self, surface)) for part in PARTS)
        return tuple((part, says) for part, says in reasons if says)

    def outside(self, surface: Surface, name: str) -> bool:
        """Whether a share of the text lies clearly above that of the reference."""
        return surface.shares.get(name, 0.0) > self.shares.get(name, 1.0) + MARGINS[name]

    def usually(self, name: str) -> str:
        """The share that the reference has at most, in words."""
        most = self.shares[name]
        return "usually none" if most < 0.001 else f"usually at most {ceil(100 * most)} %"


def learn_surface(all_ids: Sequence[Sequence[int]], tokenizer: Any) -> dict[str, Any]:
    """The surfaces of reference texts, as the header of a ``.frost`` file has them."""
    return SurfaceReference.learn([read_surface(ids, tokenizer) for ids in all_ids[:MOST_TEXTS]]).header()


def is_surface(value: Any) -> bool:
    """True for a value that ``learn_surface`` may have made: what a file holds anybody may have written."""
    if not isinstance(value, dict) or not all(key in value for key in ("length", "shares", "scripts")):
        return False
    length, shares, scripts = value["length"], value["shares"], value["scripts"]
    return (
        _are_numbers(length, 2, most=1e9)
        and isinstance(shares, dict)
        and set(shares) <= set(MARGINS)
        and _are_numbers(list(shares.values()), len(shares))
        and isinstance(scripts, dict)
        and len(scripts) <= MOST_SCRIPTS
        and all(_is_script(name) and _are_numbers(pair, 2) for name, pair in scripts.items())
    )


@lru_cache(maxsize=2**14)
def script_of(letter: str) -> str:
    """The script of a letter: the first word of its name, as "Cyrillic" of CYRILLIC SMALL LETTER A."""
    first = re.split(r"[\s-]", unicodedata.name(letter, "unnamed"))[0].title()
    return NAMES_OF_SCRIPTS.get(first, first)


def _script(usual: SurfaceReference, text: Surface) -> str:
    foreign = [
        (share, script)
        for script, share in text.scripts.items()
        if share > usual.scripts.get(script, (0, 0))[1] + FOREIGN_LETTERS
    ]
    if foreign and usual.scripts:
        share, script = max(foreign)
        most = max(usual.scripts, key=lambda name: usual.scripts[name][0])
        reference = f"the reference is {_percent(usual.scripts[most][0])} {most}"
        if share >= 0.5:
            return f"written in {script} script; {reference}"
        return f"{_percent(share)} of its letters are {script}; {reference}"
    for name, says in (
        ("emoji", "of its characters are emoji"),
        ("unknown", "of its tokens are unknown to the tokenizer (emoji or rare characters)"),
        ("digits", "of its characters are digits"),
    ):
        if usual.outside(text, name):
            return f"{_percent(text.shares[name])} {says}, {usual.usually(name)}"
    return ""


def _markup_words(usual: SurfaceReference, text: Surface) -> str:
    if not usual.outside(text, "markup"):
        return ""
    return f"{text.signs}: {_percent(text.shares['markup'])} markup characters, {usual.usually('markup')}"


def _repetition(usual: SurfaceReference, text: Surface) -> str:
    if not usual.outside(text, "repetition"):
        return ""
    return f"{_percent(text.shares['repetition'])} of it repeats earlier words of the text, " + usual.usually(
        "repetition"
    )


def _length(usual: SurfaceReference, text: Surface) -> str:
    low, high = usual.length
    if text.tokens > LONGER * high:
        times = text.tokens / high
        longer = "longer than" if times < 1.95 else f"{times:.0f} times as long as"
        return f"{longer} 99 % of the reference ({text.tokens} tokens; {high:.0f})"
    if text.tokens < low / LONGER:
        return f"shorter than 99 % of the reference ({text.tokens} tokens; {low:.0f})"
    return ""


_WORDS_OF_PART: Mapping[str, Callable[[SurfaceReference, Surface], str]] = {
    "script": _script,
    "markup": _markup_words,
    "repetition": _repetition,
    "length": _length,
}
"""Function that writes the reason of a kind; an empty one where the text is as the reference."""


def _markup(text: str) -> tuple[int, str]:
    """Number of characters of tags, links and code, and what they are signs of."""
    prose = text
    for pattern in (TAG, JSON_KEY, LINK):
        prose = pattern.sub(" ", prose)
    marked = _visible(text) - _visible(prose) + sum(char in SYMBOLS for char in prose)
    if not marked:
        return 0, ""
    return marked, HTML if SURE_TAG.search(text) else LINKS if LINK.search(text) else CODE


def _visible(text: str) -> int:
    return len("".join(text.split()))


def _unknown_id(tokenizer: Any) -> int | None:
    """The id of the unknown token; None where the tokenizer puts that token around every text."""
    special = {getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos", "pad")}
    unknown = getattr(tokenizer, "unk_token_id", None)
    return None if unknown in special else unknown


def _is_emoji(char: str) -> bool:
    return 0x2600 <= ord(char) <= 0x27BF or 0x1F000 <= ord(char) <= 0x1FAFF


def _percent(share: float) -> str:
    """A share in words that never says 100 % of what is less, or 0 % of what is more."""
    if share >= 1:
        return "100 %"
    return "under 1 %" if share < 0.01 else "over 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def _are_numbers(values: Any, count: int, *, most: float = 1.0) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and all(0 <= value <= most for value in values)
    )


def _is_script(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 40 and name.isascii() and name.replace("-", "").isalpha()
