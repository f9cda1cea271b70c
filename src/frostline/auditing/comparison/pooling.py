"""What a folder holds around encoder and tokenizer: pooling and other modules of sentence-transformers; image sizes."""

import filecmp
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from frostline.auditing.comparison.parts import Part, differences, read_json, shown
from frostline.auditing.comparison.rounding import Verdict, compare, worst
from frostline.encoders.load import Encoder
from frostline.encoders.tensors import InMemory, OnDisk, plain, weight_files
from frostline.encoders.tokenization import TOKENIZER_FILES
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
NEWER = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean"}
"""Names of pooling that sentence-transformers has changed."""
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
    mine, theirs = _root(one), _root(other)
    if mine is None or theirs is None:
        return [], _only_in_memory(mine or theirs)
    differ = list(_modules(mine, theirs))
    verdict = worst({line: each for each, line in differ})
    found = [Part("pooling and modules", verdict, tuple(line for _, line in differ))]
    if one.family.reads == "images":
        found.append(Part.of("image settings", list(_files(mine, theirs, IMAGES))))
    used = {path.resolve() for encoder in (one, other) for path in encoder.files}
    return found, [*_unread_vocabularies(one, other), *_left(mine, theirs, used)]


def _only_in_memory(folder: Path | None) -> list[str]:
    """Nothing where both are in memory: neither has more than its weights and settings."""
    return (
        [] if folder is None or not (folder / MODULES).is_file() else ["pooling and modules (one model is in memory)"]
    )


def _root(encoder: Encoder) -> Path | None:
    """The folder of the whole artefact: the encoder may be a module in it."""
    folder = encoder.folder
    if folder is None or (folder / MODULES).is_file():
        return folder
    try:
        inside = any(place == folder.name for _, place in _listed(folder.parent))
    except BadModel:
        # A file of that name which is nothing of this model.
        inside = False
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
            raise BadModel(f"{root / MODULES} names the folder {shown(place)}, which is outside the model.")
        found.append((kind, "" if str(place) == "." else str(place)))
    return found


def _modules(one: Path, other: Path) -> Iterator[tuple[Verdict, str]]:
    mine, theirs = _listed(one), _listed(other)
    names = [", ".join(shown(kind) for kind, _ in modules) or "none" for modules in (mine, theirs)]
    if names[0] != names[1]:
        yield "changed", f"modules: {names[0]} and {names[1]}"
    words = [] if mine or theirs else _cutting(one, other, "")
    for number, ((kind, place), (kind_too, place_too)) in enumerate(zip(mine, theirs, strict=False)):
        name, a, b = f"{number} {shown(kind)}", one / place, other / place_too
        if kind == kind_too == "Transformer":
            words += _cutting(a, b, f"{name}.")
        elif kind == kind_too:
            words += differences(_usual(a / "config.json"), _usual(b / "config.json"), name)
            yield from _of_weights(_weights(a), _weights(b), name)
    for line in (*words, *_files(one, other, ("config_sentence_transformers.json",))):
        yield "changed", line


def _of_weights(one: InMemory | OnDisk, other: InMemory | OnDisk, name: str) -> Iterator[tuple[Verdict, str]]:
    for part in sorted(one.names | other.names):
        if part not in one.names or part not in other.names:
            which = "base" if part in one.names else "tuned"
            yield "changed", f"{name}: {shown(part)} only in the {which} model"
        elif one[part].shape != other[part].shape:
            yield "changed", f"{name}: {shown(part)} has another shape"
        elif (found := compare(one[part], other[part], shown(part))).verdict != "unchanged":
            yield found.verdict, f"{name}: {shown(part)} {found.verdict}, {found.why}"


def _cutting(one: Path, other: Path, name: str) -> list[str]:
    """How texts are cut before the encoder."""
    a, b = (next(iter(sorted(folder.glob(CUTTING))), folder / "none") for folder in (one, other))
    return [name + line for line in differences(_usual(a), _usual(b))]


def _files(one: Path, other: Path, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield from differences(_usual(one / name), _usual(other / name), name.removesuffix(".json"))


def _usual(path: Path) -> dict[str, Any]:
    """The settings in a file, without what is as usual, under the names that newer versions give."""
    told = read_json(path) if path.is_file() else {}
    if not isinstance(told, dict):
        raise BadModel(f"{path} holds a {type(told).__name__}, not a table of settings.")
    found = {key: value for key, value in told.items() if key not in IDLE and not key.startswith("pooling_mode_")}
    modes = [key.removeprefix("pooling_mode_") for key, on in told.items() if key.startswith("pooling_mode_") and on]
    if modes:
        found.setdefault("pooling_mode", "+".join(sorted(NEWER.get(mode, mode) for mode in modes)))
    if isinstance(found.get("prompts"), dict):
        found["prompts"] = {name: text for name, text in found["prompts"].items() if text}
    usual = USUAL if path.name != "config.json" else {**USUAL, "module_output_name": "sentence_embedding"}
    return {key: value for key, value in found.items() if value != usual.get(key) and value not in (None, {})}


def _weights(folder: Path) -> InMemory | OnDisk:
    files = _weight_files(folder)
    if not files:
        return InMemory({})
    return InMemory(plain(files[0])) if files[0].suffix == ".bin" else OnDisk(list(files))


def _weight_files(folder: Path) -> tuple[Path, ...]:
    try:
        return weight_files(folder)
    except (BadModel, OSError):
        return ()


def _unread_vocabularies(one: Encoder, other: Encoder) -> Iterator[str]:
    """Lists of words that differ and were not read, since both folders have a tokenizer.json."""
    whole, *lists = TOKENIZER_FILES
    for name in (*lists, "merges.txt"):
        folders = [encoder.folder for encoder in (one, other) if encoder.folder is not None]
        if all((folder / file).is_file() for folder in folders for file in (whole, name)):
            mine, theirs = (folder / name for folder in folders)
            if not filecmp.cmp(mine, theirs, shallow=False):
                yield f"{name} ({whole} was read)"


def _left(one: Path, other: Path, used: set[Path]) -> Iterator[str]:
    """Files and folders of the two, and of their modules, that were not compared and are not equal."""
    mine, theirs = _listed(one), _listed(other)
    yield from _left_in(one, other, used, READ | {place.split("/")[0] for _, place in (*mine, *theirs)})
    for (kind, place), (_, place_too) in zip(mine, theirs, strict=False):
        a, b = one / place, other / place_too
        if place and place_too and a.is_dir() and b.is_dir():
            weights = {path.resolve() for folder in (a, b) for path in _weight_files(folder)}
            known = READ if kind == "Transformer" else {"config.json"}
            yield from (f"{shown(place)}/{name}" for name in _left_in(a, b, used | weights, known))


def _left_in(one: Path, other: Path, used: set[Path], known: set[str]) -> Iterator[str]:
    for name in sorted({path.name for folder in (one, other) for path in folder.iterdir()}):
        a, b = one / name, other / name
        if name in known or name.startswith(HARMLESS) or fnmatch(name, CUTTING):
            continue
        if name.endswith(".index.json") or a.resolve() in used or b.resolve() in used:
            continue
        if not (a.is_file() and b.is_file() and filecmp.cmp(a, b, shallow=False)):
            yield shown(name) + ("/" if a.is_dir() or b.is_dir() else "")
