"""A model folder, a hub id or a live model as an ``Encoder``: its family, its sizes, and its weights, one at a time."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from frostline.encoders.families import FAMILIES, SUPPORTED, Family, split_part, third_of
from frostline.encoders.model_folders import model_folder, without_config
from frostline.encoders.tensors import ADAPTER, InMemory, OnDisk, Renamed, plain, renamed, weight_files
from frostline.errors import BadModel
from frostline.extras import need

FURTHEST = 2**20
"""Tokens that a window of local attention is wide, at most."""
CONFIG_LIMIT = 4 * 2**20
"""Bytes of JSON read from a model folder."""
DECODERS = frozenset(
    (
        "gpt2",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3",
        "phi",
        "phi3",
        "opt",
        "bloom",
        "falcon",
        "mamba",
        "olmo",
        "mpt",
    )
)
"""Types of decoders, whose config.json may not say so itself."""
BOTH = frozenset(("t5", "mt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "blenderbot", "whisper", "led"))
"""Types of encoder-decoders, whose config.json may not say so itself."""
T5 = frozenset(("t5", "mt5", "umt5"))
"""Those of them whose encoder is also used alone."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A model's family, sizes and settings, with its weights to be read one at a time."""

    name: str
    family: Family
    layers: int
    dimension: int
    heads: int
    config: Mapping[str, Any]
    tensors: Renamed
    prefix: str
    folder: Path | None
    files: tuple[Path, ...]

    @property
    def heads_in_words(self) -> str:
        """The number of heads; those of a shared layer count once."""
        if self.family.shared:
            return f"{self.heads} heads shared by {self.layers} passes"
        return f"{self.layers} layers of {self.heads} heads"

    @property
    def head_size(self) -> int:
        """Coordinates of a head."""
        return self.dimension // self.heads

    def path(self, part: str, layer: int | None = None) -> str:
        """The name of a module, without the model's prefix."""
        name, _ = split_part(part)
        return name if layer is None else self.family.layer.format(layer) + name

    def has(self, part: str, layer: int | None = None) -> bool:
        """Whether the model has a weight of this part."""
        return self.stored(part, layer, ".weight") is not None

    def weight(self, part: str, layer: int | None = None) -> np.ndarray:
        """A weight in float64."""
        return third_of(self._read(self._wanted(part, layer)), part)

    def scale(self, part: str, layer: int | None = None) -> np.ndarray:
        """One number per coordinate: the weight of a norm, or of a layer scale."""
        scale = self.weight(part, layer)
        if scale.shape != (self.dimension,):
            name = self.tensors.stored[self._wanted(part, layer)]
            raise BadModel(f"{self.name}: tensor {name} is {scale.shape}; config.json says {(self.dimension,)}.")
        return scale

    def bias(self, part: str, layer: int | None = None) -> np.ndarray:
        """A bias in float64; zeros where the model has none."""
        name = self.stored(part, layer, ".bias")
        bias = np.zeros(self.dimension) if name is None else third_of(self._read(name), part)
        if bias.shape != (self.dimension,):
            raise BadModel(f"{self.name}: tensor {name} is {bias.shape}; config.json says {(self.dimension,)}.")
        return bias

    def shape(self, part: str, layer: int | None = None) -> tuple[int, ...]:
        """The shape of the whole tensor, also where a part is a third of it."""
        return tuple(self.tensors[self._wanted(part, layer)].shape)

    @property
    def positions(self) -> Literal["added", "relative", "rotary"]:
        """Whether positions are added to the tokens, or act inside attention: a bias or a rotation."""
        if self.family.positions != "configured":
            return self.family.positions
        kind = self.config.get("position_embedding_type", "absolute")
        if kind not in ("rotary", "absolute"):
            raise BadModel(f"{self.name}: position_embedding_type is {kind!r}; known are 'rotary' and 'absolute'.")
        return "rotary" if kind == "rotary" else "added"

    def window(self, layer: int) -> int | None:
        """Places to either side that a token of this layer sees; None: all tokens."""
        if self.family.window is None:
            return None
        reach = self.config.get(*self.family.window)
        kinds, every = self.config.get("layer_types"), self.config.get("global_attn_every_n_layers", 3)
        try:
            kind = kinds[layer] if kinds else ("full_attention" if layer % every == 0 else "sliding_attention")
            if kind == "full_attention":
                return None
            if kind != "sliding_attention" or not 1 <= int(reach) <= FURTHEST:
                raise ValueError
            return int(reach) // 2
        except (TypeError, ValueError, LookupError, ZeroDivisionError, OverflowError):
            raise BadModel(
                f"{self.name}: config.json does not say which layers are local, or how far they see."
            ) from None

    @property
    def epsilon(self) -> float:
        """The epsilon of the norms in a pre-norm model."""
        epsilon = self.config.get(*self.family.epsilon)
        if isinstance(epsilon, int | float) and 0 <= epsilon < 1:
            return float(epsilon)
        raise BadModel(f"{self.name}: config.json has no usable {self.family.epsilon[0]}.")

    def _read(self, name: str) -> np.ndarray:
        tensor = self.tensors[name]
        name = self.tensors.stored[name]
        if not tensor.is_floating_point():
            raise BadModel(
                f"{self.name}: tensor {name} holds {str(tensor.dtype).removeprefix('torch.')} numbers: a quantised "
                "model, whose scales are stored elsewhere; give the model it was made from, or a dequantised copy."
            )
        numbers = tensor.to("cpu", torch.float64).numpy()
        if not np.isfinite(numbers).all():
            bad = int((~np.isfinite(numbers)).sum())
            raise BadModel(f"{self.name}: tensor {name} has {bad} entries of {numbers.size} that are NaN or infinite.")
        return np.asarray(numbers)

    def _wanted(self, part: str, layer: int | None) -> str:
        name = self.stored(part, layer, ".weight")
        if name is None:
            wanted = f"{self.prefix}{self.path(part, layer)}.weight"
            raise BadModel(f"{self.name}: tensor {wanted} is missing; the weights are truncated or of another model.")
        return name

    def stored(self, part: str, layer: int | None, end: str) -> str | None:
        """The name of a tensor of this part; None where the model has none."""
        start = self.prefix + self.path(part, layer)
        return start + end if start + end in self.tensors.names else None

    def stored_as(self) -> str:
        """The precision of the weights."""
        name = self._wanted(self.family.query, 0)
        return str(self.tensors[name].dtype).removeprefix("torch.")

    def identity(self) -> str:
        """SHA-256 of the attention weights as bfloat16: the same for a file, a live model and a bfloat16 copy of it."""
        digest = hashlib.sha256()
        for layer in range(1 if self.family.shared else self.layers):
            for part in dict.fromkeys(
                split_part(p)[0] for p in (self.family.query, self.family.key, self.family.value)
            ):
                tensor = self.tensors[self._wanted(part, layer)]
                rounded = tensor.to("cpu", torch.bfloat16).contiguous()
                digest.update(rounded.view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 of the weights: of the files, or of the tensors of a live model."""
        digest = hashlib.sha256()
        for file in self.files:
            with file.open("rb") as stream:
                while block := stream.read(2**22):
                    digest.update(block)
        if not self.files:
            for name in sorted(self.tensors.names):
                digest.update(name.encode())
                digest.update(self.tensors[name].to("cpu").contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def load(source: "str | Path | nn.Module") -> Encoder:
    """An encoder from a local folder, a hub id, or a live ``transformers`` model."""
    if isinstance(source, nn.Module):
        config = getattr(source, "config", None)
        if config is None or not hasattr(config, "to_dict"):
            raise BadModel(
                f"the model, a {type(source).__name__}, has no .config of transformers; give a transformers model, a "
                "folder or a hub id."
            )
        return _encoder(type(source).__name__, config.to_dict(), InMemory(source.state_dict()), None, ())
    if not isinstance(source, str | Path):
        raise BadModel(f"the model is a {type(source).__name__}; give a transformers model, a folder or a hub id.")
    folder = _folder(str(source))
    config = _config(folder)
    _refuse(str(source), config)
    files = weight_files(folder)
    if files[0].suffix == ".bin":
        merged: dict[str, Tensor] = {}
        for file in files:
            merged |= plain(file)
        return _encoder(str(source), config, InMemory(merged), folder, files)
    return _encoder(str(source), config, OnDisk(list(files)), folder, files)


def _folder(source: str) -> Path:
    folder = Path(source).expanduser()
    if folder.is_dir():
        return model_folder(folder)
    if folder.exists():
        raise BadModel(f"{source} is a file; give the folder that holds config.json and the weights.")
    if source.count("/") > 1 or source.startswith((".", "/", "~")):
        raise BadModel(f"there is no folder {source}; give a model's folder (with config.json) or a hub id.")
    hub = need("huggingface_hub")
    try:
        downloaded = hub.snapshot_download(
            source, allow_patterns=["*.json", "*.safetensors", "*.bin", "*.txt", "*.model"], ignore_patterns=["*/*"]
        )
    except Exception as error:  # the hub's client has many ways to fail, all of them "not found here"
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise BadModel(
            f"{source} is no folder here, and the model hub did not give it ({reason}). "
            "Give the path of a downloaded model's folder."
        ) from None
    return Path(downloaded)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise BadModel(without_config(folder))
    if path.stat().st_size > CONFIG_LIMIT:
        raise BadModel(f"{path} has {path.stat().st_size} bytes, more than any config ({CONFIG_LIMIT}).")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadModel(f"{path} is not JSON ({error}).") from None
    if not isinstance(config, dict):
        raise BadModel(f"{path} holds a {type(config).__name__}, not a table of settings.")
    return config


def _refuse(name: str, config: Mapping[str, Any]) -> None:
    """Refuse architectures that the theory does not cover, with the reason."""
    kind = str(config.get("model_type", "")).lower()
    architectures = " ".join(map(str, config.get("architectures") or []))
    supported = f"Supported are encoders: {SUPPORTED}."
    if kind in T5 and (config.get("is_encoder_decoder") is False or "EncoderModel" in architectures):
        raise BadModel(
            f"{name} is the encoder of a T5 by itself. It has no decoder and could be audited, but frostline cannot "
            "fold its weights yet: its norms are RMSNorms, which leave the mean in, so that tokens lie on another "
            "sphere; its logits are not divided by √k; a bias by relative position, which the first layer holds for "
            f"all, is added to them; and its heads may have another size than d over their number. {supported}"
        )
    if config.get("is_encoder_decoder") or kind in BOTH:
        raise BadModel(
            f"{name} is an encoder-decoder ({kind or architectures}): its decoder attends causally and to another "
            f"sequence, and tokens are no longer one cloud that moves by itself, which the theory needs. {supported}"
        )
    if config.get("is_decoder") or kind in DECODERS or "ForCausalLM" in architectures or "LMHeadModel" in architectures:
        raise BadModel(
            f"{name} is a decoder ({kind or architectures}): with a causal mask every token sees another set of "
            f"tokens, so there is no common distribution whose limit the theory could predict. {supported}"
        )


def _encoder(
    name: str, config: Mapping[str, Any], stored: InMemory | OnDisk, folder: Path | None, files: tuple[Path, ...]
) -> Encoder:
    _refuse(name, config)
    family, tensors, prefix = _recognised(name, config, stored)
    layers = _count(name, config, "num_hidden_layers", "n_layers")
    heads = _count(name, config, "num_attention_heads", "n_heads")
    d = _count(name, config, "hidden_size", "dim")
    if d % heads:
        raise BadModel(f"{name}: hidden_size {d} is no multiple of {heads} heads.")
    if config.get("num_hidden_groups", 1) != 1 or config.get("inner_group_num", 1) != 1:
        raise BadModel(f"{name}: ALBERT with several groups of layers is not supported, only one shared layer.")
    encoder = Encoder(name, family, layers, d, heads, config, tensors, prefix, folder, files)
    for layer in range(1 if family.shared else layers):
        for part in (family.query, family.key, family.value, family.output):
            shape, wanted = encoder.shape(part, layer), (d if split_part(part)[1] is None else 3 * d, d)
            if shape != wanted:
                raise BadModel(f"{name}: {encoder.path(part, layer)}.weight is {shape}; config.json says {wanted}.")
    if not family.shared and encoder.stored(family.query, layers, ".weight") is not None:
        raise BadModel(f"{name}: config.json says {layers} layers, but the weights have more.")
    return encoder


def _recognised(name: str, config: Mapping[str, Any], stored: InMemory | OnDisk) -> tuple[Family, Renamed, str]:
    """The family by config.json, or by the names of the tensors where it does not say."""
    kind = str(config.get("model_type", "")).lower()
    families = [family for family in FAMILIES if kind in family.model_types]
    if kind and not families:
        raise BadModel(
            f"{name} is of type {kind!r}, which frostline does not know. Supported are: {SUPPORTED}. Other encoders "
            "need an adapter of their own, because a wrong guess about norms or positions gives wrong spectra."
        )
    for family in families or FAMILIES:
        tensors = renamed(name, stored, family)
        end = family.layer.format(0) + split_part(family.query)[0] + ".weight"
        fitting = sorted((tensor for tensor in tensors.names if tensor.endswith(end)), key=len)
        if fitting:
            prefix = fitting[0].removesuffix(end)
            if families or prefix.rstrip(".") in ("", *family.model_types):
                return family, tensors, prefix
    if any(ADAPTER.search(tensor) or ".base_layer." in tensor for tensor in stored.names):
        raise BadModel(
            f"{name} has an adapter wrapped around its weights, which is no part of them; merge it (merge_and_unload "
            "in peft) and give the result."
        )
    expected = families[0] if families else FAMILIES[0]
    what = f"a {expected.name}" if families else "any of: " + SUPPORTED
    raise BadModel(
        f"{name} has none of the tensors of {what} (they would end in {expected.layer.format(0)}"
        f"{split_part(expected.query)[0]}.weight); the weights are of another model."
    )


def _count(name: str, config: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 100_000:
            return value
    raise BadModel(f"{name}: config.json has no usable {keys[0]}.")
