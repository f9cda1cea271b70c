"""Check the docstrings of all public names against their signatures: python tools/check_docstrings.py

Public names are those of ``frostline.__all__``: functions, classes with their public methods, and what the public
modules have in their ``__all__``. The checks are numpydoc's; ``[tool.numpydoc_validation]`` in pyproject.toml lists
their codes. Three rules are the house's:

- Classes that a function makes are not called by users: their fields stand under Attributes instead of Parameters.
- Functions need an example and the errors they raise; methods, results and errors need no example.
- ``describe``, ``headline`` and ``facts``, which every result has, are a sentence each.
"""

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

import frostline

ROOT = Path(__file__).resolve().parents[1]
COMMON = ("describe", "headline", "facts")
"""Methods that every result has."""
METHODS = (FunctionType, classmethod, staticmethod, property, cached_property)
"""Kinds of members that have a docstring."""
OF_SIGNATURES = {"PR01", "PR02", "PR03"}
"""Checks of parameters against a signature."""


@cache
def public_names() -> dict[str, Any]:
    """Every public function and class, by the name under which it can be imported."""
    names = {}
    for name in sorted(frostline.__all__):
        value = getattr(frostline, name)
        parts = [getattr(value, part) for part in inner_names(value)] if inspect.ismodule(value) else [value]
        names |= {f"{part.__module__}.{part.__qualname__}": part for part in parts if is_documented(part)}
    return names


def inner_names(module: Any) -> list[str]:
    """The public names of a module: its ``__all__``, else what it defines."""
    defined = [name for name, part in vars(module).items() if getattr(part, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in defined if not name.startswith("_")])


def is_documented(value: Any) -> bool:
    """Whether it is a function or a class, and no constant."""
    return inspect.isfunction(value) or inspect.isclass(value)


@cache
def made_by_functions() -> set[Any]:
    """Classes that public functions return."""
    functions = [value for value in public_names().values() if inspect.isfunction(value)]
    returned = [value.__annotations__.get("return") for value in functions]
    return {made for kind in returned for made in (kind, *get_args(kind)) if inspect.isclass(made)}


def is_made_elsewhere(value: type) -> bool:
    """Whether users do not call this class: a result, part of one, a status, an error or an interface."""
    is_part = (
        is_dataclass(value) and not value.__dict__.get("__post_init__") and not get_doc_object(value)["Parameters"]
    )
    return (
        is_part
        or value in made_by_functions()
        or issubclass(value, Exception | Enum)
        or getattr(value, "_is_protocol", False)
    )


def complaints(name: str, value: Any, checks: set[str]) -> Iterator[str]:
    """What is wrong with the docstrings of a public function or class."""
    sections = get_doc_object(value)
    if inspect.isfunction(value):
        if not sections["Raises"] and re.search(r"^ +raise \w", inspect.getsource(value), re.MULTILINE):
            yield f"{name}: it raises errors, and has no Raises section"
        yield from by_numpydoc(name, checks)
        return
    documented = {
        word for part in ("Parameters", "Attributes") for entry in sections[part] for word in entry.name.split(", ")
    }
    for field in fields(value) if is_dataclass(value) else ():
        if not field.name.startswith("_") and field.name not in documented:
            yield f"{name}: the field {field.name!r} is not under Attributes"
    yield from by_numpydoc(name, checks - (OF_SIGNATURES | {"EX01"} if is_made_elsewhere(value) else set()))
    for method, part in vars(value).items():
        if isinstance(part, METHODS) and (method == "__call__" or not method.startswith("_")):
            yield from by_numpydoc(f"{name}.{method}", checks - ({"EX01", "RT01"} if method in COMMON else {"EX01"}))


def by_numpydoc(name: str, checks: set[str]) -> Iterator[str]:
    """What numpydoc says of a name, of these checks."""
    for code, message in validate(name)["errors"]:
        if code in checks:
            yield f"{name}: {code} {message}"


def main() -> int:
    """Print what is wrong, a line each; 1 if there is any."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["numpydoc_validation"]
    checks, left_out = set(settings["checks"]), settings.get("exclude", [])
    wrong = [line for name, value in public_names().items() for line in complaints(name, value, checks)]
    wrong = [line for line in wrong if not any(re.search(pattern, line) for pattern in left_out)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
