"""Modules that have moved: their old names work for one release, with a warning.

Listed are those that the documentation named, and those with types of compiled loops that numba keeps on disk.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED: dict[str, tuple[str, ...]] = {
    "frostline.spec": ("frostline.runs.schema", "frostline.runs.build"),
    "frostline.recording": ("frostline.runs.record",),
    "frostline.store": ("frostline.runs.directory",),
    "frostline.dynamics.mean_map.bounds": ("frostline.dynamics.mean_map.proxy_errors",),
    "frostline.transport.trees": ("frostline.transport.c_transform",),
    "frostline.analysis.curves": ("frostline.analysis.distance",),
    "frostline.auditing.checkpoints": ("frostline.auditing.comparison.checkpoints",),
}
"""Old name, and the modules that have its parts now."""


class _Forwarding(ModuleType):
    def __getattr__(self, name: str) -> Any:
        for home in MOVED[self.__name__] if not name.startswith("__") else ():
            module = import_module(home)
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"{self.__name__} has moved to {' and '.join(MOVED[self.__name__])}; no {name!r} there.")


class _Finder:
    """A finder and loader of modules; the abstract classes for these are slow to import."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        homes = " and ".join(MOVED[spec.name])
        warnings.warn(f"{spec.name} is now {homes}; the old name goes in 0.3.", DeprecationWarning, stacklevel=2)
        return _Forwarding(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: attributes are looked up where they are now."""


def install() -> None:
    """Let imports of the old names find their modules."""
    sys.meta_path.append(_Finder())
