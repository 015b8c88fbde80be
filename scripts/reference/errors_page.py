"""The reference of errors: the class tree, the cause of each error, and its attributes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from graphile_worker import errors
from graphile_worker.errors import GraphileWorkerError

from .members import cell, first_paragraph, text

HEAD = text("errors.md")


def page(_: object = None) -> str:
    tree = _tree(GraphileWorkerError)
    lines = [HEAD, "```text", *(f"{'    ' * depth}{cls.__name__}" for depth, cls in tree), "```", ""]
    lines += ["## What they mean", "", "| error | raised when | attributes |", "|---|---|---|"]
    lines += [
        f"| `{cls.__name__}` | {cell(first_paragraph(cls))} | {_names(_fields(cls))} |" for _, cls in tree
    ]
    lines += ["", _others()]
    return "\n".join(lines) + "\n"


def _tree(cls: type[Exception], depth: int = 0) -> list[tuple[int, type[Exception]]]:
    found = [(depth, cls)]
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            found += _tree(child, depth + 1)
    return found


def _fields(cls: type[Exception]) -> list[str]:
    """The attributes that the class and its bases set."""
    found: list[str] = []
    for base in reversed(cls.__mro__):
        if base.__module__ == errors.__name__ and "__init__" in base.__dict__:
            found += re.findall(r"self\.(\w+)(?:: [^=]+)? = ", inspect.getsource(base.__dict__["__init__"]))
    return list(dict.fromkeys(found))


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _others() -> str:
    problem = errors.CrontabProblem
    return (
        f"`CrontabError.problems` holds `{problem.__name__}` objects with "
        f"{_names(problem.__struct_fields__)}\nand `place`. Some errors also derive from a "
        "built-in class: `InvalidArgumentError` is a\n`ValueError`, `ExtensionMissingError` a `LookupError`."
    )
