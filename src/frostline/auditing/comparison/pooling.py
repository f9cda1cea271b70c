"""Files around encoder and tokenizer, compared: pooling and other modules of sentence-transformers; image settings."""

import filecmp
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from frostline.auditing.comparison.parts import Part, differences, read_json, shown
from frostline.auditing.comparison.rounding import Verdict, compare, worst
from frostline.encoders.load import Encoder
from frostline.encoders.model_folders import MODULES
from frostline.encoders.tensors import InMemory, OnDisk, plain, weight_files
from frostline.encoders.tokenization import TOKENIZER_FILES
from frostline.errors import BadModel

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
"""Settings of sentence-transformers that older versions do not write, with their values then."""
IDLE = (
    "__version__",
    "model_type",
    "word_embedding_dimension",
    "embedding_dimension",
    "module_input_name",
)
"""Settings without effect on the result, or that follow from the weights."""
NEWER = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean"}
"""Names of pooling that sentence-transformers has changed."""
CUTTING = "sentence_*_config.json"
"""Files of settings for cutting texts before the encoder, whose names hold that of its family."""
IMAGES = ("preprocessor_config.json", "processor_config.json")
"""Files of settings for preparing images."""
READ = {MODULES, "config.json", "config_sentence_transformers.json", *TOKENIZER_FILES, *IMAGES} | {
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
}
"""Files whose contents are compared."""
HARMLESS = ("README", "LICENSE", "LICENCE", "NOTICE", ".")
"""Beginnings of the names of files that change no result."""


def compare_around(base: Encoder, tuned: Encoder) -> tuple[list[Part], list[str]]:
    """Parts of two folders around encoder and tokenizer, and the files that were not compared."""
    base_folder, tuned_folder = _root(base), _root(tuned)
    if base_folder is None or tuned_folder is None:
        return [], _only_in_memory(base_folder or tuned_folder)
    differing = list(_modules(base_folder, tuned_folder))
    verdict = worst(each for each, _ in differing)
    parts = [Part("pooling and modules", verdict, tuple(line for _, line in differing))]
    if base.family.reads == "images":
        parts.append(Part.of("image settings", list(_files(base_folder, tuned_folder, IMAGES))))
    used = {path.resolve() for encoder in (base, tuned) for path in encoder.files}
    return parts, [*_unread_vocabularies(base, tuned), *_left(base_folder, tuned_folder, used)]


def _only_in_memory(folder: Path | None) -> list[str]:
    """A note about the one folder's modules; where both models are in memory there are none."""
    missing = folder is not None and (folder / MODULES).is_file()
    return ["pooling and modules (one model is in memory)"] if missing else []


def _root(encoder: Encoder) -> Path | None:
    """The folder of the whole artefact: the encoder may be a module in it."""
    folder = encoder.folder
    if folder is None or (folder / MODULES).is_file():
        return folder
    try:
        inside = any(place == folder.name for _, place in _listed(folder.parent))
    except BadModel:
        # A file of that name that is not of this model.
        inside = False
    return folder.parent if inside else folder


def _listed(root: Path) -> list[tuple[str, str]]:
    """Modules of a sentence-transformers folder: class and place, the place inside the folder."""
    if not (root / MODULES).is_file():
        return []
    modules = read_json(root / MODULES)
    if not isinstance(modules, list) or len(modules) > MOST_MODULES or not all(isinstance(m, dict) for m in modules):
        raise BadModel(f"{root / MODULES} is no list of at most {MOST_MODULES} modules.")
    listed = []
    for module in modules:
        kind, place = str(module.get("type", "")).rsplit(".", 1)[-1], PurePosixPath(str(module.get("path", "")))
        if place.is_absolute() or ".." in place.parts:
            raise BadModel(f"{root / MODULES} names the folder {shown(place)}, which is outside the model.")
        listed.append((kind, "" if str(place) == "." else str(place)))
    return listed


def _modules(base: Path, tuned: Path) -> Iterator[tuple[Verdict, str]]:
    """Differences of the modules that two folders list, each with its verdict."""
    base_modules, tuned_modules = _listed(base), _listed(tuned)
    names = [", ".join(shown(kind) for kind, _ in modules) or "none" for modules in (base_modules, tuned_modules)]
    if names[0] != names[1]:
        yield "changed", f"modules: {names[0]} and {names[1]}"
    words = [] if base_modules or tuned_modules else _cutting(base, tuned, "")
    pairs = zip(base_modules, tuned_modules, strict=False)
    for number, ((kind, base_place), (tuned_kind, tuned_place)) in enumerate(pairs):
        name, before, after = f"{number} {shown(kind)}", base / base_place, tuned / tuned_place
        if kind == tuned_kind == "Transformer":
            words += _cutting(before, after, f"{name}.")
        elif kind == tuned_kind:
            words += differences(_unusual(before / "config.json"), _unusual(after / "config.json"), name)
            yield from _of_weights(_weights(before), _weights(after), name)
    for line in (*words, *_files(base, tuned, ("config_sentence_transformers.json",))):
        yield "changed", line


def _of_weights(base: InMemory | OnDisk, tuned: InMemory | OnDisk, name: str) -> Iterator[tuple[Verdict, str]]:
    for part in sorted(base.names | tuned.names):
        if part not in base.names or part not in tuned.names:
            which = "base" if part in base.names else "tuned"
            yield "changed", f"{name}: {shown(part)} only in the {which} model"
        elif base[part].shape != tuned[part].shape:
            yield "changed", f"{name}: {shown(part)} has another shape"
        elif (moved := compare(base[part], tuned[part], shown(part))).verdict != "unchanged":
            yield moved.verdict, f"{name}: {shown(part)} {moved.verdict}, {moved.why}"


def _cutting(base: Path, tuned: Path, name: str) -> list[str]:
    """Differences in how texts are cut before the encoder."""
    before, after = (next(iter(sorted(folder.glob(CUTTING))), folder / "none") for folder in (base, tuned))
    return [name + line for line in differences(_unusual(before), _unusual(after))]


def _files(base: Path, tuned: Path, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield from differences(_unusual(base / name), _unusual(tuned / name), name.removesuffix(".json"))


def _unusual(path: Path) -> dict[str, Any]:
    """The settings in a file that do not have their usual values, under the names that newer versions give them."""
    table = read_json(path) if path.is_file() else {}
    if not isinstance(table, dict):
        raise BadModel(f"{path} holds a {type(table).__name__}, not a table of settings.")
    settings = {key: value for key, value in table.items() if key not in IDLE and not key.startswith("pooling_mode_")}
    modes = [key.removeprefix("pooling_mode_") for key, on in table.items() if key.startswith("pooling_mode_") and on]
    if modes:
        settings.setdefault("pooling_mode", "+".join(sorted(NEWER.get(mode, mode) for mode in modes)))
    if isinstance(settings.get("prompts"), dict):
        settings["prompts"] = {name: text for name, text in settings["prompts"].items() if text}
    usual = USUAL if path.name != "config.json" else {**USUAL, "module_output_name": "sentence_embedding"}
    return {key: value for key, value in settings.items() if value != usual.get(key) and value not in (None, {})}


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


def _unread_vocabularies(base: Encoder, tuned: Encoder) -> Iterator[str]:
    """Lists of words that differ and were not read, since both folders have a tokenizer.json."""
    whole, *lists = TOKENIZER_FILES
    for name in (*lists, "merges.txt"):
        folders = [encoder.folder for encoder in (base, tuned) if encoder.folder is not None]
        if all((folder / file).is_file() for folder in folders for file in (whole, name)):
            before, after = (folder / name for folder in folders)
            if not filecmp.cmp(before, after, shallow=False):
                yield f"{name} ({whole} was read)"


def _left(base: Path, tuned: Path, used: set[Path]) -> Iterator[str]:
    """Files and folders of the two, and of their modules, that were not compared and are not equal."""
    modules = _listed(base), _listed(tuned)
    known = READ | {place.split("/")[0] for listed in modules for _, place in listed}
    yield from _left_in(base, tuned, used, known)
    for (kind, place), (_, place_tuned) in zip(*modules, strict=False):
        before, after = base / place, tuned / place_tuned
        if place and place_tuned and before.is_dir() and after.is_dir():
            weights = {path.resolve() for folder in (before, after) for path in _weight_files(folder)}
            known = READ if kind == "Transformer" else {"config.json"}
            yield from (f"{shown(place)}/{name}" for name in _left_in(before, after, used | weights, known))


def _left_in(base: Path, tuned: Path, used: set[Path], known: set[str]) -> Iterator[str]:
    for name in sorted({path.name for folder in (base, tuned) for path in folder.iterdir()}):
        before, after = base / name, tuned / name
        if name in known or name.startswith(HARMLESS) or fnmatch(name, CUTTING):
            continue
        if name.endswith(".index.json") or before.resolve() in used or after.resolve() in used:
            continue
        if not (before.is_file() and after.is_file() and filecmp.cmp(before, after, shallow=False)):
            yield shown(name) + ("/" if before.is_dir() or after.is_dir() else "")
