"""What the packages pass to each other: a job and its options, outcomes, payloads, the clock.

No module here knows a database, a worker or a client. Every package but `errors` may import it. Start in
`job` (a job that exists) and `spec` (a job to add); `options` has the options of a worker. Here is only how
packages import: their public names on first use, and a folder that is searched first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__version__ = "1.0.0rc1"


def export_lazily(package: str, modules: Mapping[str, str], *more: str) -> None:
    """Make the names in `modules` (module → names, separated by spaces) attributes of `package`.

    A module that is no package names other modules from the package that it is in. Type checkers read the
    imports below `TYPE_CHECKING` instead; a test compares the two. `more` names attributes that the package
    already has.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    public = sorted((*module_of, *more))
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{module_of[name]}", namespace["__package__"]), name)
        namespace[name] = value
        return value

    namespace.update(__all__=public, __getattr__=get, __dir__=lambda: public)


def add_to_path(folder: Path) -> None:
    """Search this folder first when a module is imported, as `python -m` does with the current one."""
    text = str(folder)
    if text not in sys.path and not ("" in sys.path and folder == folder.cwd()):
        sys.path.insert(0, text)
