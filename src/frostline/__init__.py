"""frostline: how self-attention at low temperature freezes tokens into a predictable shape.

The public names stand in ``__init__.pyi`` and are imported when first used: ``import frostline`` costs nothing.
"""

from importlib import import_module
from typing import Any

import lazy_loader

from frostline import moved
from frostline.results import ABILITIES

__version__ = "0.2.0"

_attribute, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
_INNER = {"densities": "frostline.theory.densities"}
"""Public modules that stand in a room."""

moved.install()
ABILITIES.update({"Trajectory._repr_html_": "frostline.plot.notebook:trajectory_html"})
ABILITIES.update(
    {
        "Audit.save": "frostline.auditing.save:save_audit",
        "Audit.to_html": "frostline.auditing.page:write_audit",
        "Audit.to_markdown": "frostline.auditing.page:model_card",
        "Comparison.save": "frostline.auditing.comparison.comparison_page:save_comparison",
        "Baseline.save": "frostline.monitoring.baseline_file:save",
        "Baseline.score": "frostline.monitoring.scorer:Scorer",
    }
)


def __getattr__(name: str) -> Any:
    if name in _INNER:
        value = import_module(_INNER[name])
    elif name in __all__:
        value = _attribute(name)
    elif f"frostline.{name}" in moved.MOVED:
        value = import_module(f"frostline.{name}")
    else:
        raise AttributeError(f"frostline has no public name {name!r}; there are: {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
