"""Pictures of results in notebooks: a result asks here, rooms further down draw.

So a run imports nothing that draws, and still shows itself.
"""

from collections.abc import Callable
from typing import Any

html_of: dict[str, Callable[[Any], str]] = {}
"""HTML of a result by the name of its class; the package fills it in when it is imported."""
