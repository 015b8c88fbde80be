"""Finds what `module:attribute` or `file.py:attribute` names: tasks for `--tasks`, an app for `--app`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import TaskLoadError
from .import_module import import_file, import_name

MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def import_place(
    place: str, *, refusal: type[TaskLoadError] = TaskLoadError
) -> tuple[ModuleType, str] | None:
    """The module of a file or of a dotted name, and its name in messages.

    None if it is neither an existing file nor the name of a module.
    """
    path = Path(os.path.abspath(place))
    if path.is_file():
        return import_single(path, refusal=refusal), str(path)
    if place.endswith(".py") or not MODULE.fullmatch(place):
        return None
    return import_name(place, refusal=refusal), place


def import_single(path: Path, *, refusal: type[TaskLoadError] = TaskLoadError) -> ModuleType:
    """The module of a single file."""
    if path.suffix != ".py":
        raise refusal(
            "is not a Python file; pass a folder of tasks, or a file that ends in .py", path=str(path)
        )
    return import_file(path, refusal=refusal)


def attribute_of(module: ModuleType, attribute: str) -> Any:
    """The value of a dotted attribute; AttributeError if there is none."""
    value: Any = module
    for name in attribute.split("."):
        value = getattr(value, name)
    return value
