"""What a folder holds around encoder and tokenizer: pooling and other modules of sentence-transformers, image settings."""

import filecmp
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from frostline.auditing.parts import Part, differences, printable, read_json
from frostline.auditing.rounding import Verdict, compare, worst
from frostline.encoders.capture import TOKENIZER_FILES
from frostline.encoders.loading import Encoder
from frostline.encoders.tensors import InMemory, OnDisk, plain, weight_files
from frostline.errors import BadModel

MODULES = "modules.json"
MOST_MODULES = 32
"""Modules of one sentence-transformers model."""
USUAL: Mapping[str, Any] = {
    "max_seq_length": None,
    "do_lower_case": False,
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
    "include_prompt": True,
    "default_prompt_name": None,
    "similarity_fn_name": "cosine",
    "bias": True,
}
"""Settings of sentence-transformers that older versions do not write, and what they are then."""
IDLE = (
    "__version__",
    "model_type",
    "word_embedding_dimension",
    "embedding_dimension",
    "module_input_name",
)
"""Settings that say nothing about the result, or that the weights say too."""
CUTTING = "sentence_*_config.json"
"""How texts are cut before the encoder; the name of its family is in that of the file."""
IMAGES = ("preprocessor_config.json", "processor_config.json")
READ = {MODULES, "config.json", "config_sentence_transformers.json", *TOKENIZER_FILES, *IMAGES} | {
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
}
"""Files that are compared for what they say."""
HARMLESS = ("README", "LICENSE", "LICENCE", "NOTICE", ".")
"""Beginnings of the names of files that change no result."""


def compare_around(one: Encoder, other: Encoder) -> tuple[list[Part], list[str]]:
    """Parts of two folders around encoder and tokenizer, and the files that were not compared."""
    roots = [_root(encoder) for encoder in (one, other)]
    if roots[0] is None or roots[1] is None:
        return [], _only_in_memory(roots)
    differ = list(_modules(*roots))
    verdict = worst({line: each for each, line in differ})
    found = [Part("pooling and modules", verdict, tuple(line for _, line in differ))]
    if one.family.reads == "images":
        found.append(Part.of("image settings", list(_files(*roots, IMAGES))))
    used = {path.resolve() for encoder in (one, other) for path in encoder.files}
    return found, list(_left(*roots, used))


def _only_in_memory(roots: list[Path | None]) -> list[str]:
    """Nothing where both are in memory: neither has more than its weights and settings."""
    folder = next((root for root in roots if root is not None), None)
    return (
        [] if folder is None or not (folder / MODULES).is_file() else ["pooling and modules (one model is in memory)"]
    )


def _root(encoder: Encoder) -> Path | None:
    """The folder of the whole artefact: the encoder may be a module in it."""
    folder = encoder.folder
    if folder is None or (folder / MODULES).is_file():
        return folder
    inside = any(place == folder.name for _, place in _listed(folder.parent))
    return folder.parent if inside else folder


def _listed(root: Path) -> list[tuple[str, str]]:
    """Modules of a sentence-transformers folder: class and place, the place inside the folder."""
    if not (root / MODULES).is_file():
        return []
    told = read_json(root / MODULES)
    if not isinstance(told, list) or len(told) > MOST_MODULES or not all(isinstance(one, dict) for one in told):
        raise BadModel(f"{root / MODULES} is no list of at most {MOST_MODULES} modules.")
    found = []
    for one in told:
        kind, place = str(one.get("type", "")).rsplit(".", 1)[-1], PurePosixPath(str(one.get("path", "")))
        if place.is_absolute() or ".." in place.parts:
            raise BadModel(f"{root / MODULES} names the folder {printable(place)}, which is outside the model.")
        found.append((kind, "" if str(place) == "." else str(place)))
    return found


def _modules(one: Path, other: Path) -> Iterator[tuple[Verdict, str]]:
    listed = [_listed(root) for root in (one, other)]
    names = [", ".join(printable(kind) for kind, _ in modules) or "none" for modules in listed]
    if names[0] != names[1]:
        yield "changed", f"modules: {names[0]} and {names[1]}"
    words = [] if listed[0] or listed[1] else [*_transformer(one, other, "")]
    for number, ((kind, place), (kind_too, place_too)) in enumerate(zip(*listed, strict=False)):
        name, folders = f"{number} {printable(kind)}", (one / place, other / place_too)
        if kind == kind_too == "Transformer":
            words += _transformer(*folders, f"{name}.")
        elif kind == kind_too:
            words += differences(*(_usual(_told(folder / "config.json")) for folder in folders), name)
            yield from _of_weights(*map(_weights, folders), name)
    for line in (*words, *_files(one, other, ("config_sentence_transformers.json",))):
        yield "changed", line


def _of_weights(one: InMemory | OnDisk, other: InMemory | OnDisk, name: str) -> Iterator[tuple[Verdict, str]]:
    for part in sorted(one.names | other.names):
        if part not in one.names or part not in other.names:
            yield (
                "changed",
                f"{name}: {printable(part)} only in the {'tuned' if part not in one.names else 'base'} model",
            )
        elif one[part].shape != other[part].shape:
            yield "changed", f"{name}: {printable(part)} has another shape"
        elif (found := compare(one[part], other[part], printable(part))).verdict != "unchanged":
            yield found.verdict, f"{name}: {printable(part)} {found.verdict}, {found.why}"


def _transformer(one: Path, other: Path, name: str) -> Iterator[str]:
    """How texts are cut before the encoder."""
    told = [next(iter(sorted(folder.glob(CUTTING))), folder / "none") for folder in (one, other)]
    for line in differences(*(_usual(_told(path)) for path in told)):
        yield name + line


def _files(one: Path, other: Path, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield from differences(*(_usual(_told(root / name)) for root in (one, other)), name.removesuffix(".json"))


def _told(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict):
        raise BadModel(f"{path} holds a {type(found).__name__}, not a table of settings.")
    return found


def _usual(told: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is as usual, under the names that newer versions give."""
    found = {key: value for key, value in told.items() if key not in IDLE and not key.startswith("pooling_mode_")}
    modes = sorted(
        key.removeprefix("pooling_mode_") for key, on in told.items() if key.startswith("pooling_mode_") and on
    )
    if modes:
        found.setdefault("pooling_mode", "+".join(NEWER.get(mode, mode) for mode in modes))
    if isinstance(found.get("prompts"), dict):
        found["prompts"] = {name: text for name, text in found["prompts"].items() if text}
    return {key: value for key, value in found.items() if value != USUAL.get(key) and value not in (None, {})}


NEWER = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}
"""Names of pooling since sentence-transformers 5, where they changed."""


def _weights(folder: Path) -> InMemory | OnDisk:
    try:
        files = weight_files(folder)
    except (BadModel, OSError):
        return InMemory({})
    return InMemory(plain(files[0])) if files[0].suffix == ".bin" else OnDisk(list(files))


def _left(one: Path, other: Path, used: set[Path]) -> Iterator[str]:
    """Files and folders of the two that were not compared and are not equal."""
    names = sorted({path.name for root in (one, other) for path in root.iterdir()})
    known = READ | {place.split("/")[0] for root in (one, other) for _, place in _listed(root)}
    for name in names:
        paths = [root / name for root in (one, other)]
        if name in known or name.startswith(HARMLESS) or fnmatch(name, CUTTING):
            continue
        if name.endswith(".index.json") or any(path.resolve() in used for path in paths):
            continue
        if not (all(path.is_file() for path in paths) and filecmp.cmp(*paths, shallow=False)):
            yield printable(name) + ("/" if any(path.is_dir() for path in paths) else "")
