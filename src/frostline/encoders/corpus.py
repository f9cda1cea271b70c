"""Texts to audit with: a file of lines, a folder of such files, or the sample that ships with frostline."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from frostline.arrays import evenly_spread
from frostline.encoders.tokenization import Tokenized
from frostline.errors import BadText

SAMPLE = "sample"
"""The name under which commands take the texts that ship with frostline."""
WARNED_SHARE = 0.1
"""Share of unknown tokens from which an audit begins with a warning."""
REFUSED_SHARE = 0.5
"""Share of unknown tokens from which an audit refuses the texts."""
LARGEST_FILE = 2**30
"""Bytes of a text file that are read at most."""


def sample() -> list[str]:
    """The 320 texts of eight domains that ship with frostline."""
    lines = (files("frostline.encoders") / "sample.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines]


def read_texts(source: str | Path) -> list[str]:
    """One text per line of a UTF-8 file, of all .txt files of a folder in the order of their names, or the sample.

    Empty lines are left out.
    """
    if str(source) == SAMPLE:
        return sample()
    path = Path(source)
    if path.is_dir():
        shards = sorted(path.glob("*.txt"))
        if not shards:
            raise BadText(f"the folder {path} has no .txt file; a corpus of several files is a folder of them.")
        return [text for shard in shards for text in read_texts(shard)]
    if not path.is_file():
        raise BadText(f"there is no file {path}; give a file with one text per line, or: --text sample")
    if path.stat().st_size > LARGEST_FILE:
        raise BadText(f"{path} has {path.stat().st_size / 2**30:.1f} GB, more than 1 GB; give a part of it.")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise BadText(f"{path} is not UTF-8 text (byte {error.start}); convert it first.") from None
    if any("\0" in line for line in lines[:1000]):
        raise BadText(f"{path} holds zero bytes: it is not a text file.")
    return checked([line.strip() for line in lines if line.strip()], str(path))


def some(texts: list[str], most: int | None) -> list[str]:
    """All texts, or this many of them, evenly spread."""
    return texts if most is None else [texts[number] for number in evenly_spread(len(texts), most)]


def checked(texts: Sequence[str], name: str = "the corpus") -> list[str]:
    """The texts as a list; refused when there are none."""
    if not texts:
        raise BadText(f"{name} has no text: every line is empty.")
    return list(texts)


def unread(tokenized: Tokenized, special: int, limit: int) -> str:
    """A warning about texts that the model cannot read in full; "" where it can.

    ``special``: tokens that the tokenizer adds to each text; ``limit``: tokens that the model allows in one. A
    tokenizer of bytes knows every token, so that there is no warning.
    """
    texts, tokens = len(tokenized.ids), tokenized.tokens - special * len(tokenized.ids)
    share = tokenized.unknown / max(tokens, 1)
    if share >= REFUSED_SHARE:
        raise BadText(
            f"{tokenized.unknown} of {tokens} tokens ({100 * share:.0f} %) are unknown to the tokenizer, and from "
            f"{100 * REFUSED_SHARE:.0f} % on the model has not read the texts. Give texts in a language and script "
            "that it was made for, or the tokenizer that belongs to it; its weights can be read without texts."
        )
    parts = [f"{100 * share:.0f} % of the tokens are unknown to the tokenizer"] if share >= WARNED_SHARE else []
    if tokenized.cut:
        parts.append(f"{tokenized.cut} of {texts} texts {'is' if tokenized.cut == 1 else 'are'} cut at {limit} tokens")
    if not parts:
        return ""
    return f"{' and '.join(parts)}: what follows is about what the model was given, not about all of the text."
