"""Kinds of runs that a sweep can hand out, by the command that does one of them."""

from frostline.sweeping.kinds.models import MODELS
from frostline.sweeping.kinds.token_runs import RUNS

KINDS = {kind.name: kind for kind in (*RUNS, *MODELS)}
"""Every kind, by its name."""
