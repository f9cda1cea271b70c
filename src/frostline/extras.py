"""Packages that only some parts need, installed as extras of frostline."""

from importlib import import_module
from typing import Any

from frostline.errors import MissingExtra


def need(module: str, *, extra: str = "encoders") -> Any:
    """Import a package of an extra.

    Raises
    ------
    MissingExtra
        The package is not installed; the message has the line to type.
    """
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(f"this needs {module}; type: pip install 'frostline[{extra}]'") from None
