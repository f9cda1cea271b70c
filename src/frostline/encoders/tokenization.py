"""Texts as token ids: the tokenizer beside a model, texts it had to cut, tokens it does not know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frostline.encoders.live_model import quiet, reason_of, settings
from frostline.encoders.load import Encoder
from frostline.errors import BadModel, BadText
from frostline.extras import need

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
"""Names of the files that a tokenizer can be read from."""
CHARACTERS_PER_TOKEN = 40
"""Characters of a text that are read for each token kept: a page of a book does not take tokenizing the book."""
UNSAID_LENGTH = 512
"""Tokens that a model allows in a text where config.json does not say."""


@dataclass(frozen=True, eq=False)
class Tokenized:
    """Token ids of each text, with the number of texts that were cut or left out."""

    ids: tuple[tuple[int, ...], ...]
    cut: int
    """Texts longer than the model allows, cut at its limit."""
    empty: int
    """Texts without a token of their own, left out."""
    padding: int
    """The id of the padding token."""
    unknown: int = 0
    """Tokens that the tokenizer does not know."""

    @property
    def tokens(self) -> int:
        """Tokens in all texts."""
        return sum(map(len, self.ids))


def open_tokenizer(encoder: Encoder) -> Any:
    """The tokenizer in the model's folder."""
    transformers = need("transformers")
    if encoder.folder is None or not any((encoder.folder / name).is_file() for name in TOKENIZER_FILES):
        raise BadText(
            f"{encoder.name} has no tokenizer that can be read (none of {', '.join(TOKENIZER_FILES)}); without one "
            "only weights can be audited."
        )
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                encoder.folder,
                config=settings(encoder),
                local_files_only=True,
                trust_remote_code=False,
            )
    except Exception as error:  # a tokenizer's files can be wrong in many ways too
        raise BadText(
            f"{encoder.name} has no tokenizer that can be read ({reason_of(error)}); pass one, or audit weights alone."
        ) from None
    return tokenizer


def tokenize(encoder: Encoder, tokenizer: Any, texts: Sequence[str], *, most: int | None = None) -> Tokenized:
    """Token ids of the texts, each cut at what the model allows (or at ``most`` tokens)."""
    limit = longest(encoder)
    limit = limit if most is None else min(limit, most)
    special = tokenizer.num_special_tokens_to_add()
    all_ids: list[tuple[int, ...]] = []
    cut = empty = 0
    for text in texts:
        if not isinstance(text, str):
            raise BadText(f"texts must be strings; one is a {type(text).__name__}.")
        if not is_unicode(text):
            raise BadText("a text holds half a character (a lone surrogate), which no tokenizer reads.")
        beginning = text[: CHARACTERS_PER_TOKEN * limit]
        ids = tokenizer(beginning, truncation=False, verbose=False)["input_ids"]
        if len(ids) <= special:
            empty += 1
            continue
        cut += len(ids) > limit or len(text.rstrip()) > len(beginning)
        if len(ids) > limit:
            ids = tokenizer(beginning, truncation=True, max_length=limit)["input_ids"]
        all_ids.append(tuple(ids))
    if not all_ids:
        raise BadText("no text is left: every one is empty.")
    vocabulary = int(encoder.config.get("vocab_size", 0))
    largest = max(map(max, all_ids))
    if vocabulary and largest >= vocabulary:
        raise BadText(
            f"the tokenizer gives id {largest}, but the model knows only {vocabulary}: it belongs to another model."
        )
    padding, unknown_id = tokenizer.pad_token_id, getattr(tokenizer, "unk_token_id", None)
    # Tokenizers of bytes know everything; some name as unknown a token that they put around every text.
    special_ids = {getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos", "pad")}
    is_told = unknown_id is not None and unknown_id not in special_ids
    unknown = sum(ids.count(unknown_id) for ids in all_ids) if is_told else 0
    return Tokenized(tuple(all_ids), cut, empty, 0 if padding is None else int(padding), unknown)


def is_unicode(text: str) -> bool:
    """Whether a text has no half characters, which no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def longest(encoder: Encoder) -> int:
    """Tokens that the model allows in a text."""
    positions = encoder.config.get("max_position_embeddings") or UNSAID_LENGTH
    if not isinstance(positions, int) or positions < 1:
        raise BadModel(f"{encoder.name}: config.json says max_position_embeddings {positions!r}.")
    # RoBERTa and MPNet number positions from the padding index on.
    if encoder.family.model_types[0] in ("roberta", "xlm-roberta", "camembert", "mpnet", "esm"):
        positions -= int(encoder.config.get("pad_token_id") or 1) + 1
    return max(positions, 1)
