"""Unloads the modules that a test has imported from its own folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def modules_unloaded(folder: Path) -> Iterator[None]:
    """Afterwards, no module from this folder is loaded, and `sys.path` is as it was."""
    modules, search = dict(sys.modules), list(sys.path)
    yield
    # First: a folder that was imported as a package is looked for again in whatever the path is.
    for name in set(sys.modules) - set(modules):
        file = getattr(sys.modules[name], "__file__", None)
        where = [file] if file else list(getattr(sys.modules[name], "__path__", []))
        if any(str(place).startswith(str(folder)) for place in where):
            del sys.modules[name]
    sys.path[:] = search
    sys.path_importer_cache.clear()
