"""Progress of long work: the function that a caller passes as ``report``."""

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str, str, float, float], None]
"""Called with the part of the work, its present step, the work done and the work in all."""
