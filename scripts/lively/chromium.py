"""Finds Chromium. Playwright never downloads one: the browser of the system is the one that is tested."""

from __future__ import annotations

import os
import shutil

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same browser without windows: it needs half the processor time."""


def find_chromium() -> str | None:
    """The path of the browser, or None: the variable CHROMIUM, else the first program on the PATH."""
    if given := os.environ.get("CHROMIUM"):
        return shutil.which(given)
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)
