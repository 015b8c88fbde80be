"""Makes the modules of a folder importable, as `python -m` does for the current one."""

from __future__ import annotations

import sys
from pathlib import Path


def add_to_path(folder: Path) -> None:
    """Search this folder first when a module is imported."""
    text = str(folder)
    if text not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.insert(0, text)
