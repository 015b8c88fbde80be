"""Reads fields, types and docstrings from the source of classes."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

TEXTS = Path(__file__).with_name("texts")


def field_texts(cls: type) -> dict[str, str]:
    """The docstring below each field of a class, by the field's name."""
    return {name: meaning for name, _, meaning in _fields(cls)}


def field_types(cls: type) -> dict[str, str]:
    """The annotation of each field that the class itself defines, as it is written in the code.

    `Seconds` is another word for `float` there.
    """
    written = {name: ast.unparse(statement.annotation) for name, statement, _ in _fields(cls)}
    return {name: re.sub(r"\bSeconds\b", "float", text) for name, text in written.items()}


def default_of(cls: type, name: str) -> str:
    """The default of a field as it is written in the code; empty if there is none that can be shown."""
    for field, statement, _ in _fields(cls):
        if field == name and statement.value is not None and not isinstance(statement.value, ast.Call):
            return ast.unparse(statement.value)
    return ""


def alias(name: str) -> tuple[str, str]:
    """The value of a type alias as it is written in the code, and the text below it."""
    for module in [module for key, module in sys.modules.items() if key.startswith("graphile_worker.")]:
        if name not in vars(module):
            continue
        body = ast.parse(inspect.getsource(module)).body
        for statement, following in _pairs(body):
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
                value = ast.unparse(statement.value)
                return value if value.startswith("Literal") else value.replace("'", ""), _text(following)
    raise SystemExit(f"there is no type alias {name}")


def _fields(cls: type) -> list[tuple[str, ast.AnnAssign, str]]:
    """Annotated names in the body of the class; of those that `__init__` sets, the documented ones."""
    body = _body(cls)
    found = []
    for statement, following in _pairs(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.append((statement.target.id, statement, _text(following)))
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            found += _set_in_init(statement.body)
    return found


def _set_in_init(body: list[ast.stmt]) -> list[tuple[str, ast.AnnAssign, str]]:
    found = []
    for statement, following in _pairs(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Attribute)
            and (meaning := _text(following))
        ):
            field = ast.AnnAssign(statement.target, statement.annotation, None, 0)
            found.append((statement.target.attr, field, meaning))
    return found


def first_paragraph(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def text(name: str) -> str:
    """The introduction of a page."""
    return (TEXTS / name).read_text(encoding="utf-8")


def cell(content: str) -> str:
    """Text for a cell of a Markdown table."""
    return content.replace("|", "\\|")


def _pairs(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Each statement with the one below it."""
    return zip(body, [*body[1:], None], strict=True)


def _body(cls: type) -> list[ast.stmt]:
    definition = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    return definition.body if isinstance(definition, ast.ClassDef) else []


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""
