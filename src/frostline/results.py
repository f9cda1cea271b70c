"""Results: the frozen objects that verbs return, each with one line, a description and plain values for JSON.

A result neither draws nor saves itself. Rooms further down do, and where a method of a result leads there, the package
says which function it calls (``ABILITIES``), so that no room imports one of a later row.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from frostline.printable import one_line

MOST_NUMBERS = 1000
"""Entries of an array that ``facts`` writes out; of a larger one it gives the shape."""

ABILITIES: dict[str, str] = {}
"""``Class.method`` and ``module:function``: filled in by the package when it is imported."""


def ability(name: str) -> Callable[..., Any]:
    """The function that a method of a result calls in a later room."""
    module, function = ABILITIES[name].split(":")
    return getattr(import_module(module), function)


class Result:
    """Base of the frozen dataclasses that verbs return; declare them with ``repr=False``.

    A subclass defines ``describe``, and ``headline`` where the description is too long for one line.
    """

    def describe(self) -> str:
        """The result in words: sentences, several lines where needed."""
        raise NotImplementedError(f"{type(self).__name__} has no description")

    def headline(self) -> str:
        """The words of the one line by which the result is shown."""
        return self.describe()

    def facts(self) -> dict[str, Any]:
        """The result as plain values for JSON: every public field; of a large array the shape."""
        # Here, because ``import frostline`` imports this module and should cost nothing.
        from dataclasses import fields

        return {
            field.name: plain_value(getattr(self, field.name))
            for field in fields(self)  # type: ignore[arg-type]
            if not field.name.startswith("_")
        }

    def __repr__(self) -> str:
        return one_line(self, self.headline())


def plain_value(value: Any) -> Any:
    """Lists, tables, text and numbers; complex numbers as pairs."""
    if isinstance(value, Result):
        return value.facts()
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch, which ``import frostline`` must not import
        size = value.numel() if hasattr(value, "numel") else value.size
        return plain_value(value.tolist()) if size <= MOST_NUMBERS else {"shape": list(value.shape)}
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
