"""The logger of frostline: warnings that a caller would not see otherwise; never a text, never a secret."""

import logging

LOG = logging.getLogger("frostline")
"""Quiet unless the program configures logging."""
