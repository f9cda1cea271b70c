"""A model at work: its own tokens, logits and head outputs, taken from the forward pass by hooks."""

import copy
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from frostline.encoders.loading import Encoder, need
from frostline.errors import BadModel, BadText

Model: TypeAlias = Any
"""A transformers model: their own types are wider than what is used here."""
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
HEADS = ("pooler", "contact_head")
COMPUTED = ("position_ids", "inv_freq")
"""Tensors an encoder can do without, and those that are computed anew."""
LARGEST_IMAGE = 4096
BATCH_TOKENS = 2048
"""Padded tokens in one forward pass: what bounds memory."""


@dataclass(frozen=True, eq=False)
class Batch:
    """What the model reads, padded token ids or pixels, and which texts they are.

    ``present`` tells tokens from padding (b, n); None where there is no padding.
    """

    inputs: dict[str, Tensor]
    present: Tensor | None
    numbers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Seen:
    """One forward pass: the tokens that enter each layer and those that leave the last, (b, n, d) each.

    With ``close``: per layer what enters the output projection (the heads' outputs side by side) and what attention
    adds to the tokens.
    """

    batch: Batch
    states: tuple[Tensor, ...]
    contexts: tuple[Tensor, ...] = ()
    updates: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()


@dataclass(frozen=True, eq=False)
class Tokenized:
    """Token ids of each text, and what had to be done to get them."""

    ids: tuple[tuple[int, ...], ...]
    cut: int
    """Texts longer than the model allows, cut at its limit."""
    empty: int
    """Texts without a token of their own, left out."""
    padding: int
    unknown: int = 0
    """Tokens that the tokenizer does not know."""

    @property
    def tokens(self) -> int:
        return sum(map(len, self.ids))


def open_model(encoder: Encoder, *, random: int | None = None) -> Model:
    """The model itself in float32; ``random``: the same architecture with fresh weights, by this seed."""
    transformers = need("transformers")
    cls = getattr(transformers, encoder.family.model_class)
    config = settings(encoder)
    if random is None and encoder.folder is None:
        raise BadModel("give the model's folder, or pass the model itself.")
    missing: Collection[str] = ()
    with _quiet(transformers):
        try:
            if random is not None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(random)
                    model = cls(config)
            else:
                model, found = cls.from_pretrained(
                    encoder.folder, config=config, dtype=torch.float32, local_files_only=True, output_loading_info=True
                )
                missing = found["missing_keys"]
        except Exception as error:  # a config can be wrong in as many ways as there are settings
            reason = _reason(error)
            if "ignore_mismatched_sizes" in reason:
                reason = "tensors have other shapes than config.json says"
            raise BadModel(
                f"{encoder.name}: transformers cannot make it ({reason}); config.json and the weights may not fit."
            ) from None
    _check_whole(encoder, model, missing)
    return model.eval().requires_grad_(False)


def plain_copy(model: nn.Module) -> Model:
    """A live model to look at: without its head, in float32, not training; the model itself is not touched."""
    base: Model = getattr(model, "base_model", model)
    fine = not model.training and all(p.dtype == torch.float32 and p.device.type == "cpu" for p in base.parameters())
    return base if fine else copy.deepcopy(base).to("cpu", torch.float32).eval().requires_grad_(False)


def _check_whole(encoder: Encoder, model: Model, missing: Collection[str]) -> None:
    """transformers completes what is missing with random numbers; nothing measured on those would be true."""
    needed = sorted(name for name in missing if not name.startswith(HEADS) and not name.endswith(COMPUTED))
    if needed:
        raise BadModel(
            f"{encoder.name}: {len(needed)} tensors are missing, {needed[0]} among them; the weights are not whole."
        )
    for name, tensor in model.named_parameters():
        if not bool(torch.isfinite(tensor).all()):
            raise BadModel(f"{encoder.name}: tensor {name} has entries that are NaN or infinite.")


def settings(encoder: Encoder) -> Any:
    """config.json as transformers reads it, with its defaults; old folders do not say their model_type."""
    transformers = need("transformers")
    cls = getattr(transformers, encoder.family.model_class)
    told = {name: value for name, value in encoder.config.items() if name not in ("model_type", "architectures")}
    try:
        with _quiet(transformers):
            return cls.config_class(**told)
    except Exception as error:  # whatever their validation raises
        raise BadModel(
            f"{encoder.name}: config.json is not one of a {encoder.family.name} ({_reason(error)})."
        ) from None


def _reason(error: Exception) -> str:
    """The first words of somebody else's error."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No advertisements or bars from the libraries: our own report says what matters."""
    before = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        transformers.logging.set_verbosity(before)
        if bars:
            transformers.logging.enable_progress_bar()


def open_tokenizer(encoder: Encoder) -> Any:
    """The tokenizer in the model's folder."""
    transformers = need("transformers")
    if encoder.folder is None or not any((encoder.folder / name).is_file() for name in TOKENIZER_FILES):
        raise BadText(
            f"{encoder.name} has no tokenizer that can be read (none of {', '.join(TOKENIZER_FILES)}); without one "
            "only weights can be audited."
        )
    try:
        with _quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                encoder.folder,
                config=settings(encoder),
                local_files_only=True,
                trust_remote_code=False,
            )
    except Exception as error:  # a tokenizer's files can be wrong in many ways too
        raise BadText(
            f"{encoder.name} has no tokenizer that can be read ({_reason(error)}); pass one, or audit weights alone."
        ) from None
    return tokenizer


def tokenize(encoder: Encoder, tokenizer: Any, texts: Sequence[str], *, most: int | None = None) -> Tokenized:
    """Token ids of the texts, cut at what the model allows (or at ``most`` tokens)."""
    limit = longest(encoder)
    limit = limit if most is None else min(limit, most)
    special = tokenizer.num_special_tokens_to_add()
    ids, cut, empty = [], 0, 0
    for text in texts:
        if not isinstance(text, str):
            raise BadText(f"texts must be strings; one is a {type(text).__name__}.")
        if not is_unicode(text):
            raise BadText("a text holds half a character (a lone surrogate), which no tokenizer reads.")
        # Characters beyond this cannot become tokens that are kept: do not tokenize a book to keep a page.
        found = tokenizer(text[: 40 * limit], truncation=False, verbose=False)["input_ids"]
        if len(found) <= special:
            empty += 1
            continue
        cut += len(found) > limit or len(text.rstrip()) > 40 * limit
        if len(found) > limit:
            found = tokenizer(text[: 40 * limit], truncation=True, max_length=limit)["input_ids"]
        ids.append(tuple(found))
    if not ids:
        raise BadText("no text is left: every one is empty.")
    vocabulary = int(encoder.config.get("vocab_size", 0))
    largest = max(map(max, ids))
    if vocabulary and largest >= vocabulary:
        raise BadText(
            f"the tokenizer gives id {largest}, but the model knows only {vocabulary}: it belongs to another model."
        )
    padding, strange = tokenizer.pad_token_id, getattr(tokenizer, "unk_token_id", None)
    # Tokenizers of bytes know everything; some name as unknown a token that they put around every text.
    around = {getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos", "pad")}
    unknown = 0 if strange is None or strange in around else sum(own.count(strange) for own in ids)
    return Tokenized(tuple(ids), cut, empty, 0 if padding is None else int(padding), unknown)


def is_unicode(text: str) -> bool:
    """Whether a text has no half characters, which no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def longest(encoder: Encoder) -> int:
    """Tokens that the model allows in a text."""
    told = encoder.config.get("max_position_embeddings") or 512
    if not isinstance(told, int) or told < 1:
        raise BadModel(f"{encoder.name}: config.json says max_position_embeddings {told!r}.")
    found = told
    # RoBERTa and MPNet number positions from the padding index on.
    if encoder.family.model_types[0] in ("roberta", "xlm-roberta", "camembert", "mpnet", "esm"):
        found -= int(encoder.config.get("pad_token_id") or 1) + 1
    return max(found, 1)


def batches(tokenized: Tokenized, *, tokens: int = BATCH_TOKENS) -> Iterator[Batch]:
    """The texts in batches of about equal length, longest first: memory is known from the start."""
    order = sorted(range(len(tokenized.ids)), key=lambda number: -len(tokenized.ids[number]))
    start = 0
    while start < len(order):
        longest = len(tokenized.ids[order[start]])
        chosen = order[start : start + max(1, tokens // longest)]
        ids = torch.full((len(chosen), longest), tokenized.padding)
        present = torch.zeros((len(chosen), longest), dtype=torch.bool)
        for row, number in enumerate(chosen):
            own = tokenized.ids[number]
            ids[row, : len(own)] = torch.tensor(own)
            present[row, : len(own)] = True
        yield Batch({"input_ids": ids, "attention_mask": present.long()}, present, tuple(chosen))
        start += len(chosen)


def noise(encoder: Encoder, *, images: int, seed: int) -> Iterator[Batch]:
    """Images of noise, one at a time: what shows that extraction is right where there is nothing real to look at."""
    size, channels = encoder.config.get("image_size", 224), encoder.config.get("num_channels", 3)
    height, width = size if isinstance(size, list | tuple) and len(size) == 2 else (size, size)
    for name, value in (("image_size", height), ("image_size", width), ("num_channels", channels)):
        if not isinstance(value, int) or not 1 <= value <= LARGEST_IMAGE:
            raise BadModel(f"{encoder.name}: config.json says {name} {value!r}.")
    rng = np.random.default_rng([10, seed])
    for number in range(images):
        pixels = torch.from_numpy(rng.standard_normal((1, channels, height, width), dtype=np.float32))
        yield Batch({"pixel_values": pixels}, None, (number,))


def see(encoder: Encoder, model: Model, batch: Batch, *, close: bool = False, weights: bool = False) -> Seen:
    """Run the model once and keep what ``Seen`` names; ``weights``: the attention weights too."""
    family = encoder.family
    contexts: list[Tensor] = []
    updates: list[Tensor] = []

    def keep_given(module: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        contexts.append(given[0])

    def keep_result(module: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        updates.append(result)

    with ExitStack() as hooks, torch.inference_mode():
        if close:
            for layer in range(1 if family.shared else encoder.layers):
                for name, keep in ((family.output, keep_given), (family.layer_scale or family.output, keep_result)):
                    module = model.get_submodule(encoder.path(name, layer))
                    hooks.callback(module.register_forward_hook(keep).remove)
        asked = {"output_attentions": True} if weights else {}
        try:
            found = model(**batch.inputs, output_hidden_states=True, **asked)
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError, AssertionError) as error:
            raise BadModel(
                f"{encoder.name}: the model itself fails on this input ({_reason(error)}); its settings may be wrong."
            ) from None
    last = found.last_hidden_state
    if not bool(torch.isfinite(last if batch.present is None else last[batch.present]).all()):
        raise BadModel(f"{encoder.name}: its own output is NaN or infinite; weights this large cannot be audited.")
    heads = tuple(found.attentions) if weights else ()
    # Some models list the last state before its norm: it is the normed one that is meant.
    states = (*found.hidden_states[:-1], last)
    return Seen(batch, states, tuple(contexts), tuple(updates), heads)


def rows(seen: Seen, state: Tensor) -> Iterator[np.ndarray]:
    """The tokens of each text, without padding, in float64."""
    for row, own in enumerate(state):
        kept = own if seen.batch.present is None else own[seen.batch.present[row]]
        yield kept.double().numpy()
