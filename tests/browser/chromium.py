"""Debian's Chromium, driven by Playwright; no tool here downloads a browser of its own."""

import shutil

import pytest

PATH = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(PATH is None, reason="no Chromium on this machine")
