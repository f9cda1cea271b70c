"""Optional packages: imported when first needed, or refused with the line that installs them."""

from importlib import import_module
from typing import Any

from frostline.errors import MissingExtra


def need(module: str, *, extra: str = "encoders") -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module
        Its dotted name.
    extra
        The extra of frostline that installs it.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    MissingExtra
        The package is not installed; the message has the line to type.

    Examples
    --------
    >>> need("math").sqrt(4.0)
    2.0
    """
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(f"this needs {module}; type: pip install 'frostline[{extra}]'") from None
